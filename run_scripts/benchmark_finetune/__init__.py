"""The command `benchmark_finetune`: whole epochs of fine-tuning next to others. Begin with `measure.py`."""
