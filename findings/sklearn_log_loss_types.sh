#!/usr/bin/env bash
# One would guess: log_loss of the same probabilities is the same in float64, float32 and float16.
# What is so: Probabilities of 0 are clipped to the epsilon of their type, so a sure mistake costs 36, 15.9 or 6.9 nats.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages numpy==2.4.6 scikit-learn==1.9.1
PYTHONPATH=packages python3 - <<'END'
import numpy as np
import sklearn
from sklearn.metrics import log_loss

print("scikit-learn", sklearn.__version__)
losses = {}
for kind in (np.float64, np.float32, np.float16):
    sure = np.array([[1, 0], [1, 0]], kind)  # right once, wrong once
    losses[kind.__name__] = 2 * log_loss([0, 1], sure)
print(losses)
assert 36 < losses["float64"] < 36.1 and 15.9 < losses["float32"] < 16 and 6.9 < losses["float16"] < 7
END
