"""The command `benchmark_learning`: dev losses at equal steps next to Model Garden. Begin with measure.py."""
