#!/usr/bin/env bash
# One would guess: numpy sums bfloat16 as it sums float16: nearly right.
# What is so: sum() of 1,000 ones is 256 and mean() 0.256; float16 and the product of two vectors are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages numpy==2.4.6 ml_dtypes==0.6.0
PYTHONPATH=packages python3 - <<'END'
import ml_dtypes
import numpy as np

print("numpy", np.__version__, "ml_dtypes", ml_dtypes.__version__)
ones = np.ones(1000, ml_dtypes.bfloat16)
print("bfloat16: sum", ones.sum(), "mean", ones.mean(), "of rows", np.ones((1000, 2), ones.dtype).sum(0), "product", ones @ ones)
half = np.ones(1000, np.float16)
print("float16: sum", half.sum(), "mean", half.mean())
assert ones.sum() == 256 and 0.25 < float(ones.mean()) < 0.26
assert ones @ ones == 1000 and half.sum() == 1000 and half.mean() == 1
END
