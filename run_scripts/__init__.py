"""The commands: each a thin main over importable functions. Begin with `pretrain.py`."""

from xlnet_tf.cli import signals

signals.end_while_importing()
