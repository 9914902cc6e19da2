#!/usr/bin/env bash
# One would guess: scatter_nd adds bfloat16 numbers as reduce_sum does: in float32, rounded at the end.
# What is so: It adds in bfloat16: 1,000 ones at one index are 256, with XLA, too; reduce_sum gives 1,000.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages tensorflow==2.20.0
PYTHONPATH=packages python3 - <<'END'
import tensorflow as tf

print("tensorflow", tf.__version__)
ones, indices = tf.ones(1000, tf.bfloat16), tf.zeros([1000, 1], tf.int32)


@tf.function(jit_compile=True)
def compiled(values):
    return tf.scatter_nd(indices, values, [1])


added = tf.tensor_scatter_nd_add(tf.zeros(1, tf.bfloat16), indices, ones)
found = {"scatter_nd": tf.scatter_nd(indices, ones, [1]), "tensor_scatter_nd_add": added, "XLA": compiled(ones)}
found = {name: float(value[0]) for name, value in found.items()}
print(found, "reduce_sum", float(tf.reduce_sum(ones)))
assert set(found.values()) == {256.0} and float(tf.reduce_sum(ones)) == 1000
END
