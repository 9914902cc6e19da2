#!/usr/bin/env bash
# One would guess: einsum of bfloat16 sums as matmul does, which it is said to call: in float32, rounded at the end.
# What is so: Without oneDNN's kernels for bfloat16 it adds in bfloat16: of 8,192 ones it makes under a half; matmul 8,192.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages tensorflow==2.20.0
# Processors without instructions for bfloat16 do so with oneDNN, too.
TF_ENABLE_ONEDNN_OPTS=0 TF_CPP_MIN_LOG_LEVEL=2 PYTHONPATH=packages python3 - <<'END'
import tensorflow as tf

print("tensorflow", tf.__version__)
ones = tf.ones([8192, 4], tf.bfloat16)
with tf.GradientTape() as tape:
    weights = tf.ones([4, 3], tf.bfloat16)
    tape.watch(weights)
    product = tf.einsum("nd,df->nf", ones, weights)
sums = {
    "einsum": tf.einsum("nd,nf->df", ones, ones),
    "einsum, float16": tf.einsum("nd,nf->df", tf.cast(ones, tf.float16), tf.cast(ones, tf.float16)),
    "einsum's gradient": tape.gradient(product, weights),
    "matmul": tf.matmul(ones, ones, transpose_a=True),
}
sums = {name: float(value[0, 0]) for name, value in sums.items()}
print(sums)
assert sums["einsum"] < 4096 and sums["einsum's gradient"] < 4096
assert sums["matmul"] == sums["einsum, float16"] == 8192
END
