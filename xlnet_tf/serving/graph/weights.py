"""The kinds of weights that models are served with."""

import contextlib
from collections.abc import Iterator

import tf_keras

from xlnet_tf.errors import UserError
from xlnet_tf.layers.base import policy_restored
from xlnet_tf.serving.answers.options import BFLOAT16, FLOAT32, WEIGHTS


@contextlib.contextmanager
def policy(weights: str) -> Iterator[None]:
    """Sets the Keras policy for building models with one of WEIGHTS.

    "bfloat16" is for processors that compute with it; "int8" concerns the weights only (see Int8Weights).
    """
    if weights not in WEIGHTS:
        raise UserError(f"weights are {weights!r}; expected one of {', '.join(WEIGHTS)}")
    with policy_restored():
        tf_keras.mixed_precision.set_global_policy(BFLOAT16 if weights == BFLOAT16 else FLOAT32)
        yield
