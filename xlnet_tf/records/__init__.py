"""The records that training reads: their format, and readers that resume exactly.

Begin with `manifest.py`, the only hand-over from builders to training, and `ranks.py`, the permutation
mask in one integer a token. `reader.py` lays streams of pretraining segments onto rows; `examples.py` and
`example_reader.py` are for fine-tuning.
"""
