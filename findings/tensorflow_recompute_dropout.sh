#!/usr/bin/env bash
# One would guess: tf.recompute_grad repeats the forward pass with the same dropout mask, as PyTorch's checkpoint does.
# What is so: It draws another mask, so half of the gradient belongs to other activations; stateless dropout is right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages tensorflow==2.20.0
PYTHONPATH=packages python3 - <<'END'
import tensorflow as tf

print("tensorflow", tf.__version__)


def agreement(dropout):
    """Returns the share of elements that are dropped in both passes or in neither."""
    layer = tf.recompute_grad(lambda x: dropout(x) * x)
    x = tf.ones(10_000)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
    gradient = tape.gradient(y, x)
    return float(tf.reduce_mean(tf.cast((y == 0) == (gradient == 0), tf.float32)))


plain = agreement(lambda x: tf.nn.dropout(x, 0.5))
stateless = agreement(lambda x: tf.nn.experimental.stateless_dropout(x, 0.5, seed=[1, 2]))
print("dropout", plain, "stateless dropout", stateless)
assert 0.45 < plain < 0.55 and stateless == 1
END
