#!/usr/bin/env bash
# One would guess: segment_mean of equal numbers is that number, in any type.
# What is so: Of 1,000 ones in bfloat16 it is 0.256: the sum stops at 256, the count does not. sparse.segment_mean gives 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages tensorflow==2.20.0
PYTHONPATH=packages python3 - <<'END'
import tensorflow as tf

print("tensorflow", tf.__version__)
ones, ids = tf.ones([1000, 1], tf.bfloat16), tf.zeros(1000, tf.int32)
mean = float(tf.math.segment_mean(ones, ids)[0, 0])
sparse = float(tf.sparse.segment_mean(ones, tf.range(1000), ids)[0, 0])
print("segment_mean", mean, "sparse.segment_mean", sparse)
assert 0.25 < mean < 0.26 and sparse == 1
END
