"""The one initializer of XLNet's weights."""

import tf_keras


def normal(stddev: float) -> tf_keras.initializers.Initializer:
    """Returns a fresh normal initializer; one object used twice would give both weights equal values."""
    return tf_keras.initializers.RandomNormal(stddev=stddev)
