#!/usr/bin/env bash
# One would guess: save_file of a transposed or strided numpy array writes its numbers, or refuses it.
# What is so: It writes the bytes of the memory behind the view: another matrix, and no error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install -q --disable-pip-version-check --target packages numpy==2.4.6 safetensors==0.8.0
PYTHONPATH=packages python3 - <<'END'
import importlib.metadata

import numpy as np
from safetensors.numpy import load_file, save_file

print("safetensors", importlib.metadata.version("safetensors"))
matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
views = {"transposed": matrix.T, "strided": np.arange(12, dtype=np.float32)[::2]}
save_file(views, "views.safetensors")
read = load_file("views.safetensors")
for name, view in views.items():
    print(name, "saved", view.tolist(), "read", read[name].tolist())
    assert read[name].shape == view.shape and not np.array_equal(read[name], view)
copies = {name: np.ascontiguousarray(view) for name, view in views.items()}
save_file(copies, "copies.safetensors")
assert all(np.array_equal(load_file("copies.safetensors")[name], view) for name, view in views.items())
END
