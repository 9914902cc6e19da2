"""Reads the tensors of a `pytorch_model.bin` without running code.

Such a file describes its tensors by a pickle, a small program that may call any function. Here the pickle can
name only what a table of tensors is made of, and each of these names stands for a harmless function of this
module: no object of PyTorch is made, and any other name is refused. Both file formats are read: the zip
archive (since PyTorch 1.6) and the older sequence of pickles. The numbers themselves lie next to the pickle,
and are read when asked for.

Source: torch.serialization and torch/csrc/jit/serialization for the layouts; "Restricting Globals" in
Python's documentation of pickle.
"""

import collections
import io
import math
import os
import pickle
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

from xlnet_tf import files
from xlnet_tf.checkpoints.arrays import MAX_RANK, Arrays, Entry, float32
from xlnet_tf.errors import UserError, short_repr

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001
_SHOWN = 200  # characters of an error
_STORAGE_TYPES = {
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16,
    "DoubleStorage": np.float64,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}


class _StorageType(NamedTuple):
    name: str


class _Storage(NamedTuple):
    """A flat array in the file, which tensors are views of."""

    key: str
    dtype: np.dtype
    size: int  # elements


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements, as the offset is


class _Unpickler(pickle._Unpickler):
    """Interprets a pickle that describes tensors, and refuses any other.

    It is Python's own: the C version allocates whatever number of memo entries a pickle claims.
    """

    def find_class(self, module: str, name: str) -> Any:
        # Functions made anew for each file, so that no pickle can tamper with another's.
        allowed: dict[tuple[str, str], Callable] = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): lambda storage, offset, shape, strides, *_: _Tensor(
                storage, offset, shape, strides
            ),
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
        }
        if module == "torch" and name in _STORAGE_TYPES:
            return _StorageType(name)
        if (module, name) not in allowed:
            raise UserError(
                f"its pickle asks for {module}.{name}; expected a plain table of tensors (a state_dict). "
                "Such a file could run any code when loaded, so it is refused."
            )
        return allowed[module, name]

    def persistent_load(self, reference: Any) -> _Storage:
        kind, storage_type, key, _, size, *view = reference
        if kind != "storage" or not isinstance(storage_type, _StorageType) or any(view):
            raise pickle.UnpicklingError("unknown reference")  # not shown: nested, it could have any length
        return _Storage(str(key), np.dtype(_STORAGE_TYPES[storage_type.name]), int(size))


def read_torch_file(path: str) -> Arrays:
    """Opens a file of `torch.save(model.state_dict(), path)`; its tensors are read as float32."""
    try:
        with files.local(path) as here:
            file = open(here, "rb")  # noqa: SIM115 -- its tensors are read from it later
        table, read_storage = (_open_zip if zipfile.is_zipfile(file) else _open_legacy)(file)
        if not isinstance(table, Mapping):
            raise pickle.UnpicklingError(f"it holds a {type(table).__name__}, not a table of tensors")
        tensors = {name: tensor for name, tensor in table.items() if _check(name, tensor)}
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise UserError(
            f"{path} is not a PyTorch file of tensors, or is damaged ({_reason(error)}); "
            "expected a whole pytorch_model.bin."
        ) from error

    def read(name: str) -> np.ndarray:
        storage, offset, shape, strides = tensors[name]
        try:
            flat = read_storage(storage)
        except Exception as error:  # zlib, zipfile and the system have many
            raise UserError(
                f"{path}: the numbers of {name} are damaged or cut off ({_reason(error)})."
            ) from error
        strides = tuple(stride * flat.itemsize for stride in strides)
        array = np.lib.stride_tricks.as_strided(flat[offset:], shape, strides)  # inside, by _check
        return float32(np.ascontiguousarray(array).reshape(shape), name, path)

    return Arrays(
        {name: Entry(tensor.shape, lambda name=name: read(name)) for name, tensor in tensors.items()}
    )


def _reason(error: Exception) -> str:
    """Returns an error's message, shortened, as it may quote the file."""
    return str(error)[:_SHOWN] or type(error).__name__


def _check(name: Any, tensor: Any) -> bool:
    """Raises unless a tensor is within its storage."""
    if (
        not isinstance(name, str)
        or not isinstance(tensor, _Tensor)
        or not isinstance(tensor.storage, _Storage)
    ):
        raise pickle.UnpicklingError(f"{name!r} is not a tensor")
    numbers = (tensor.storage.size, tensor.offset, *tensor.shape, *tensor.strides)
    if not len(tensor.shape) == len(tensor.strides) <= MAX_RANK or any(
        type(n) is not int or n < 0 for n in numbers
    ):
        raise pickle.UnpicklingError(f"{name} has an impossible layout")
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides))
    elements = math.prod(tensor.shape)
    if elements and (elements > tensor.storage.size or last >= tensor.storage.size):
        raise pickle.UnpicklingError(f"{name} reaches beyond its storage")
    return True


def _open_zip(file: BinaryIO):
    """Returns the table of tensors, and a function that reads a storage."""
    with zipfile.ZipFile(file) as archive:
        if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
            # This limits the memory to the size of the file.
            raise pickle.UnpicklingError("parts of it are compressed, which PyTorch never does")
        tables = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(tables) != 1:
            raise pickle.UnpicklingError("it is a zip archive without the data.pkl of PyTorch")
        folder = tables[0].removesuffix("data.pkl")
        table = _Unpickler(io.BytesIO(archive.read(tables[0]))).load()
        byteorder = "little"
        if f"{folder}byteorder" in archive.namelist():
            byteorder = archive.read(f"{folder}byteorder").decode()
            if byteorder not in ("little", "big"):
                raise pickle.UnpicklingError(
                    f"its byteorder is {short_repr(byteorder)}; PyTorch writes 'little' or 'big'"
                )

    def read(storage: _Storage) -> np.ndarray:
        with zipfile.ZipFile(file) as archive:
            name = f"{folder}data/{storage.key}"
            expected, stored = storage.size * storage.dtype.itemsize, archive.getinfo(name).file_size
            if stored < expected:
                raise ValueError(f"{stored} bytes of {expected}")
            return _in_order(np.frombuffer(archive.read(name), storage.dtype, storage.size), byteorder)

    return table, read


def _open_legacy(file: BinaryIO):
    """Returns the table of tensors, and a function that reads a storage."""
    file.seek(0)
    if _Unpickler(file).load() != _LEGACY_MAGIC or _Unpickler(file).load() != _LEGACY_PROTOCOL:
        raise pickle.UnpicklingError("it does not begin as a PyTorch file does")
    _Unpickler(file).load()  # what wrote it; its byte order, too, but PyTorch stores little-endian anywhere
    seen: dict[str, _Storage] = {}

    class Unpickler(_Unpickler):
        def persistent_load(self, reference: Any) -> _Storage:
            storage = super().persistent_load(reference)
            return seen.setdefault(storage.key, storage)

    table = Unpickler(file).load()
    # Then come the storages' keys, and in this order each one's length and numbers.
    offsets, keys = {}, _Unpickler(file).load()
    offset = file.tell()
    for key in keys:
        offsets[key] = offset
        offset += 8 + seen[key].size * seen[key].dtype.itemsize
    file_size = os.fstat(file.fileno()).st_size
    if file_size < offset:
        raise pickle.UnpicklingError(f"{file_size:,} bytes of {offset:,}")

    def read(storage: _Storage) -> np.ndarray:
        file.seek(offsets[storage.key])
        size = int.from_bytes(file.read(8), "little")
        if size != storage.size:
            raise ValueError(f"{size} numbers, not {storage.size}")
        return _in_order(np.fromfile(file, storage.dtype, storage.size), "little")

    return table, read


def _in_order(array: np.ndarray, byteorder: str) -> np.ndarray:
    native = np.dtype(np.uint16).newbyteorder("little").isnative
    return array if (byteorder == "little") == native else array.byteswap()
