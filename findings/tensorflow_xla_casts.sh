#!/usr/bin/env bash
# One would guess: Casting a float that int32 cannot hold gives the same number with and without XLA on one CPU.
# What is so: Plain it is the least int32, whatever the sign; XLA gives the nearest int32, and 0 for NaN.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages tensorflow==2.20.0
PYTHONPATH=packages python3 - <<'END'
import tensorflow as tf

print("tensorflow", tf.__version__)
values = tf.constant([1e10, -1e10, float("nan")])
plain = tf.cast(values, tf.int32).numpy().tolist()
compiled = tf.function(lambda x: tf.cast(x, tf.int32), jit_compile=True, autograph=False)(values).numpy().tolist()
print("plain", plain, "XLA", compiled)
least, most = -(2**31), 2**31 - 1
assert plain == [least] * 3 and compiled == [most, least, 0]
END
