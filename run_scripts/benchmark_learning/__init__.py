"""The command `benchmark_learning`: dev losses at equal steps beside Model Garden. Begin with measure.py."""
