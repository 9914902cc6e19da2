"""XLNet on TensorFlow 2.

Importing this package is light: it loads neither TensorFlow nor Keras, so that processes that only
build records stay small. It pins Keras to the legacy tf_keras, which must happen before TensorFlow
loads: Model Garden's layers inside a Keras 3 model would silently not be trained.
"""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
