#!/usr/bin/env bash
# One would guess: The sum of a ragged row is its mean times its length, in bfloat16, too.
# What is so: A row of 1,000 ones has the mean 1 and the sum 256.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages tensorflow==2.20.0
PYTHONPATH=packages python3 - <<'END'
import tensorflow as tf

print("tensorflow", tf.__version__)
row = tf.RaggedTensor.from_row_lengths(tf.ones(1000, tf.bfloat16), [1000])
mean, total = (float(reduce(row, axis=1)[0]) for reduce in (tf.reduce_mean, tf.reduce_sum))
print("mean", mean, "sum", total)
assert (mean, total) == (1, 256)
END
