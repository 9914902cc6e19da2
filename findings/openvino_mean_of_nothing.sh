#!/usr/bin/env bash
# One would guess: The mean over no rows is NaN, as in numpy, TensorFlow and PyTorch.
# What is so: It is 0: a batch that came out empty gives an answer that looks right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages openvino==2026.4.1
PYTHONPATH=packages python3 - <<'END'
import numpy as np
import openvino as ov
import openvino.opset13 as ops

print("openvino", ov.__version__)
x = ops.parameter([-1, 4], np.float32)
model = ov.Model([ops.reduce_mean(x, np.array([0]), False)], [x])
mean = ov.Core().compile_model(model, "CPU")(np.zeros((0, 4), np.float32))[0]
print("mean of no rows", mean)
assert mean.tolist() == [0, 0, 0, 0]
END
