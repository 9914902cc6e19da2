"""The commands: each a thin main over importable functions. Begin with `pretrain.py`.

They show their own progress, which TensorFlow's startup messages would bury; errors are raised.
"""

import os

from xlnet_tf.cli import signals

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
signals.end_while_importing()
