#!/usr/bin/env bash
# One would guess: a product of bfloat16 matrices is rounded to the nearest bfloat16, as tf.cast rounds a float32.
# What is so: Without oneDNN's kernels for bfloat16 it is cut towards zero: all results are too small, by 0.28 % on average.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages numpy==2.4.6 tensorflow==2.20.0
# Processors without instructions for bfloat16 do so with oneDNN, too.
TF_ENABLE_ONEDNN_OPTS=0 TF_CPP_MIN_LOG_LEVEL=2 PYTHONPATH=packages python3 - <<'END'
import numpy as np
import tensorflow as tf

print("tensorflow", tf.__version__)
a, b = (tf.cast(np.random.default_rng(i).uniform(size=[64, 64]), tf.bfloat16) for i in (0, 1))
exact = tf.matmul(tf.cast(a, tf.float32), tf.cast(b, tf.float32))
narrow = tf.cast(tf.matmul(a, b), tf.float32)
rounded = tf.cast(tf.cast(exact, tf.bfloat16), tf.float32)
too_small = float(tf.reduce_mean(tf.cast(narrow <= exact, tf.float32)))
errors = {"matmul": narrow, "matmul in float32, then cast": rounded}
errors = {name: float(tf.reduce_mean(value / exact - 1)) for name, value in errors.items()}
print("mean relative error", errors, "too small", too_small)
assert -0.004 < errors["matmul"] < -0.001 and abs(errors["matmul in float32, then cast"]) < 0.0003
assert too_small == 1
END
