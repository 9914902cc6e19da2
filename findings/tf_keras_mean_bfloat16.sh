#!/usr/bin/env bash
# One would guess: A bfloat16 Mean metric is a rounded mean.
# What is so: Total and count stop at 256: after 1,000 ones and 1,000 zeros the mean is 1, not 0.5.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages tensorflow==2.20.0 tf_keras==2.20.1
PYTHONPATH=packages python3 - <<'END'
import tf_keras

print("tf_keras", tf_keras.__version__)
metric = tf_keras.metrics.Mean(dtype="bfloat16")
for value in [1.0] * 1000 + [0.0] * 1000:
    metric.update_state(value)
found = [float(value) for value in (metric.result(), metric.total, metric.count)]
print("mean, total, count:", found)
assert found == [1, 256, 256]
END
