"""The builders of records: each folder with a `__main__.py` is a command.

Begin with `pretraining/build.py`, or `classification/build.py` for examples of fine-tuning. `corpus/` reads
texts, `inspection/` checks what was built.
"""

from xlnet_tf.cli import signals

signals.end_while_importing()
