"""Converts TensorProtos, TensorFlow's or those of serving/local/protos.py, to arrays and back."""

import math
from typing import Any

import ml_dtypes
import numpy as np

from xlnet_tf.serving.answers.signatures import DTYPES, MOST_BYTES

_POINTER_BYTES = 8  # at least those of a number
# Where a TensorProto has the values of a type; those of other types are in int_val.
_FIELDS = {
    "DT_FLOAT": "float_val",
    "DT_DOUBLE": "double_val",
    "DT_HALF": "half_val",
    "DT_BFLOAT16": "half_val",
    "DT_STRING": "string_val",
    "DT_BOOL": "bool_val",
    "DT_INT64": "int64_val",
    "DT_UINT32": "uint32_val",
    "DT_UINT64": "uint64_val",
}
_NEVER_CONTENT = ("DT_STRING", "DT_BOOL", "DT_UINT16")
_BITS = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))  # whose values are integers of the same bits


def read_tensor(tensor: Any, most_bytes: int = MOST_BYTES) -> np.ndarray:
    """Reads a tensor; omitted values repeat the last one or are zero. ValueError if it is damaged or large.

    Source: tensorflow/core/framework/tensor.proto
    """
    kind = tensor.DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_number.get(tensor.dtype)
    kind = kind.name if kind else str(tensor.dtype)
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    field, is_text = _FIELDS.get(kind, "int_val"), kind == "DT_STRING"
    values = getattr(tensor, field)
    stored = {name for name in (each.name for each, _ in tensor.ListFields()) if name.endswith("_val")}
    if others := stored - {field}:
        raise ValueError(f"has values in {', '.join(sorted(others))}; expected them in {field}")
    left_out = math.prod(sizes) - len(tensor.tensor_content or values)
    size = _POINTER_BYTES + (len(values[-1]) if is_text and values else 0)
    if min(sizes, default=0) < 0:
        raise ValueError(f"has the shape {sizes}")
    if left_out * size > most_bytes:
        raise ValueError(f"has the shape {sizes}, of more than {most_bytes:,} bytes")
    if left_out < 0 and not tensor.tensor_content:
        raise ValueError(f"has the shape {sizes} and {len(values)} values in {field}")
    if kind not in DTYPES:
        raise ValueError(f"has the type {kind}, of which there are no values")
    try:
        return _array(DTYPES[kind], sizes, tensor.tensor_content, values)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ValueError(f"is torn: {error}") from error


def _array(dtype: np.dtype, sizes: list[int], content: bytes, values: Any) -> np.ndarray:
    if dtype.kind == "O":
        texts = np.full(math.prod(sizes), values[-1] if values else b"", object)
        texts[: len(values)] = [*values, None][:-1]
        return texts.reshape(sizes)
    if content:
        return np.frombuffer(content, dtype).reshape(sizes).copy()
    if not values:
        return np.zeros(sizes, dtype)
    stored = np.array(values, np.uint16).view(dtype) if dtype in _BITS else np.array(values).astype(dtype)
    array = np.full(math.prod(sizes), stored[-1], dtype)
    array[: len(stored)] = stored
    return array.reshape(sizes)


def write_tensor(values: np.ndarray, tensor: Any) -> None:
    """Writes an array of one of DTYPES, else ValueError, as tf.make_tensor_proto would."""
    name = next((name for name, dtype in DTYPES.items() if dtype == values.dtype), None)
    if name is None:
        raise ValueError(f"a tensor has the type {values.dtype}; expected one of {', '.join(DTYPES)}")
    tensor.dtype = tensor.DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_name[name].number
    tensor.tensor_shape.SetInParent()
    for size in values.shape:
        tensor.tensor_shape.dim.add(size=size)
    if values.size > 1 and name not in _NEVER_CONTENT:
        tensor.tensor_content = np.ascontiguousarray(values).tobytes()
    else:
        values = values.view(np.uint16) if values.dtype in _BITS else values
        getattr(tensor, _FIELDS.get(name, "int_val")).extend(values.ravel().tolist())
