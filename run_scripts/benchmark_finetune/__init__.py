"""Fine-tuning beside the peers': `measure.py` runs whole epochs, `__main__.py` is the command."""
