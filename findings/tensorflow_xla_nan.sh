#!/usr/bin/env bash
# One would guess: reduce_max and clip_by_value pass a NaN on, with XLA, too, so that a check of the result notices it.
# What is so: Compiled by XLA for CPUs, reduce_max leaves a NaN out, clip_by_value makes it the lower limit, and top_k ranks it first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages tensorflow==2.20.0
PYTHONPATH=packages python3 - <<'END'
import tensorflow as tf

print("tensorflow", tf.__version__)
values = tf.constant([float("nan"), 1.0, 2.0])
operations = {
    "reduce_max": tf.reduce_max,
    "clip_by_value": lambda x: tf.clip_by_value(x, -1.0, 1.0)[0],
    "top_k": lambda x: tf.math.top_k(x, 1).indices[0],
}
plain = {name: float(operation(values)) for name, operation in operations.items()}
compiled = {
    name: float(tf.function(operation, jit_compile=True, autograph=False)(values))
    for name, operation in operations.items()
}
print("plain", plain, "XLA", compiled)
assert plain["reduce_max"] != plain["reduce_max"] and plain["clip_by_value"] != plain["clip_by_value"]
assert plain["top_k"] == 2 and compiled == {"reduce_max": 2, "clip_by_value": -1, "top_k": 0}
END
