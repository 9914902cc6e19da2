#!/usr/bin/env bash
# One would guess: Converted to float16, a mask's -1e30 becomes the least float16, -65504, or minus infinity.
# What is so: It becomes -10000, so a masked score of 10000 or more is as large as an unmasked one; small numbers become 1e-7.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages numpy==2.4.6 onnx==1.23.2 onnxconverter-common==1.16.0
PYTHONPATH=packages python3 - <<'END'
import importlib.metadata
import warnings

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnxconverter_common import float16

warnings.simplefilter("ignore")
print("onnxconverter-common", importlib.metadata.version("onnxconverter-common"))
mask = numpy_helper.from_array(np.array([0, -1e30, 1e-9], np.float32), "mask")
graph = helper.make_graph(
    [helper.make_node("Add", ["x", "mask"], ["y"])],
    "graph",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    [mask],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
converted = numpy_helper.to_array(float16.convert_float_to_float16(model).graph.initializer[0])
print("mask", converted)
assert converted[1] == -10000 and np.isclose(converted[2], 1e-7, rtol=0.3)
END
