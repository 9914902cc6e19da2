#!/usr/bin/env bash
# One would guess: save_model keeps a mask's -1e30, or makes every such constant -65504 (its default is float16).
# What is so: It depends on the other numbers of the constant: alone -1e30 stays, among ordinary numbers it becomes -65504.
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


def after_saving(constant):
    x = ops.parameter([1, constant.size], np.float32)
    ov.save_model(ov.Model([ops.add(x, ops.constant(constant[None]))], [x]), "model.xml")
    compiled = ov.Core().compile_model("model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return float(compiled(np.zeros((1, constant.size), np.float32))[0][0, 0])


alone = np.full(1000, -1e30, np.float32)
among = np.full(1000, 0.5, np.float32)
among[0] = -1e30
found = {"alone": after_saving(alone), "among others": after_saving(among)}
print(found)
assert found["alone"] < -9e29 and found["among others"] == -65504
END
