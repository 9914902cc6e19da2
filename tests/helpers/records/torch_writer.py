"""Writes files as torch.save does, in both of its formats, without PyTorch."""

import collections
import io
import pickle
import sys
import types
import unittest.mock
import zipfile

import numpy as np

STORAGES = {
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "float64": "DoubleStorage",
}


def _stand_ins() -> dict[str, types.ModuleType]:
    """Modules with the names that a pickle of tensors refers to."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in STORAGES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))

    def rebuild(*_):
        raise AssertionError("only a name in a pickle")

    rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = rebuild
    return {"torch": torch, "torch._utils": utils}


class _Tensor:
    def __init__(self, key, array, modules):
        self.key, self.array, self.modules = key, array, modules

    def __reduce__(self):
        strides = tuple(stride // self.array.itemsize for stride in self.array.strides)
        arguments = (_Storage(self), 0, self.array.shape, strides, False, collections.OrderedDict())
        return self.modules["torch._utils"]._rebuild_tensor_v2, arguments


class _Storage:
    def __init__(self, tensor):
        self.tensor = tensor


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        if not isinstance(obj, _Storage):
            return None
        tensor, legacy = obj.tensor, self.legacy
        storage = getattr(tensor.modules["torch"], STORAGES[tensor.array.dtype.name])
        reference = ("storage", storage, tensor.key, "cpu", tensor.array.size)
        return (*reference, None) if legacy else reference


def write(path, arrays: dict[str, np.ndarray], legacy: bool, byteorder: str | None = "little") -> None:
    """Writes a state_dict of arrays as on a machine of a byte order, "big" or another; None leaves it out.

    The legacy format holds little-endian numbers on every machine (torch/csrc/serialization.cpp).
    """

    def content(array):
        return (array.byteswap() if byteorder == "big" and not legacy else array).tobytes("A")

    modules = _stand_ins()
    with unittest.mock.patch.dict(sys.modules, modules):
        tensors = {
            name: _Tensor(str(100 + i), array, modules) for i, (name, array) in enumerate(arrays.items())
        }
        table = collections.OrderedDict(tensors)
        table._metadata = collections.OrderedDict({"": {"version": 1}})  # as torch's tables have

        def dump(value, file):
            pickler = _Pickler(file, protocol=2)
            pickler.legacy = legacy
            pickler.dump(value)

        if legacy:
            with open(path, "wb") as file:
                for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": byteorder != "big"}, table):
                    dump(value, file)
                dump([tensor.key for tensor in tensors.values()], file)
                for array in arrays.values():
                    file.write(array.size.to_bytes(8, "little") + content(array))
        else:
            data = io.BytesIO()
            dump(table, data)
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("pytorch_model/data.pkl", data.getvalue())
                if byteorder:
                    archive.writestr("pytorch_model/byteorder", byteorder)
                for tensor in tensors.values():
                    archive.writestr(f"pytorch_model/data/{tensor.key}", content(tensor.array))
