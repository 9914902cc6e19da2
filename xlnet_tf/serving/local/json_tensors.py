"""Converts JSON bodies of TensorFlow Serving's REST API to arrays and back.

Source: https://www.tensorflow.org/tfx/serving/api_rest
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlnet_tf import files
from xlnet_tf.errors import short_json
from xlnet_tf.serving.answers.signatures import TensorInfo
from xlnet_tf.serving.local.served_model import called, invalid

_B64 = "b64"
_ROWS, _COLUMNS = "instances", "inputs"
_TYPES = {list: "list", str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}
_NO_SPACES = dict.fromkeys(map(ord, " \t\n\v\f\r"))
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def parse(body: bytes) -> dict[str, Any]:
    """Reads a body: a JSON object, whose signature_name, if given, is a string."""
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        text = body.decode(json.detect_encoding(body))
        document = json.loads(text, object_pairs_hook=files.unique_keys)
        if _HALF_PAIR.search(text):  # a whole pair has become one character
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise invalid(f"JSON Parse error: {json.dumps(half)} is half of a surrogate pair") from None
    except (ValueError, RecursionError) as error:
        raise invalid(f"JSON Parse error: {str(error)[:200]}") from None
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {short_json(document)} Is not object")
    if not isinstance(document.get("signature_name", ""), str):
        raise invalid(
            f"JSON Value: {short_json(document)} not formatted correctly. 'signature_name' key must be "
            "a string value."
        )
    return document


def read_inputs(
    document: Mapping[str, Any], expected: Mapping[str, TensorInfo]
) -> tuple[dict[str, np.ndarray], bool]:
    """Reads the inputs of a predict request by name; also returns whether they came in rows."""
    by_rows = _ROWS in document
    if by_rows and _COLUMNS in document:
        raise invalid(f"JSON Value: expecting only one of '{_COLUMNS}' or '{_ROWS}' keys to exist")
    if by_rows:
        columns = _columns_of_rows(document[_ROWS], expected)
    elif _COLUMNS in document:
        columns = document[_COLUMNS]
        if not isinstance(columns, dict) or set(columns) == {_B64}:
            if len(expected) != 1:
                raise invalid(
                    "inputs is a plain value/list, but expecting an object as multiple input tensors "
                    "required as per tensorinfo_map"
                )
            columns = dict.fromkeys(expected, columns)
    else:
        raise invalid(f"Missing '{_COLUMNS}' or '{_ROWS}' key")
    for name in expected:
        if name not in columns:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: to_array(columns[name], column.dtype, name) for name, column in expected.items()}, by_rows


def _columns_of_rows(rows: Any, expected: Mapping[str, TensorInfo]) -> dict[str, list[Any]]:
    if not isinstance(rows, list):
        raise invalid(f"Expecting '{_ROWS}' to be an list/array")
    if not rows:
        raise invalid(f"No values in '{_ROWS}' array")
    named = isinstance(rows[0], dict) and set(rows[0]) != {_B64}
    if not named and len(expected) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors required "
            "as per tensorinfo_map"
        )
    for number, row in enumerate(rows):
        if named and not isinstance(row, dict):
            raise invalid(f"Expecting object but got list at item {number} of input list")
        if not named and isinstance(row, dict) and set(row) != {_B64}:
            raise invalid(f"Expecting value/list but got object at item {number} of input list")
        if named and set(row) != set(expected):
            raise invalid(
                f"Failed to process element: {number} of '{_ROWS}' list. JSON object: {short_json(row)} "
                f"keys must be equal to: {','.join(sorted(expected))}"
            )
    return {name: [row[name] for row in rows] if named else rows for name in expected}


def to_array(value: Any, dtype: np.dtype, name: str) -> np.ndarray:
    """Reads a tensor; the first element of each list fixes the length of the others."""
    sizes, first = [], value
    while isinstance(first, list):
        sizes.append(len(first))
        first = first[0] if first else None
    if len(sizes) > 8:
        raise invalid(f"Input {name} has {len(sizes)} axes")
    flat: list[Any] = []
    _flatten(value, sizes, 0, flat)
    kinds = {str, dict} if dtype.kind == "O" else {bool} if dtype.kind == "b" else {int}
    kinds |= {float} if dtype.kind in "fV" else set()
    for found in flat:
        if type(found) not in kinds:
            raise invalid(
                f"JSON Value: {short_json(found)} is not of expected type: {called(dtype)}, input {name}"
            )
    if dtype.kind == "O":
        texts = [text.encode() if isinstance(text, str) else _from_base64(text) for text in flat]
        return np.array([*texts, None], object)[:-1].reshape(sizes)
    try:
        return np.array(flat, dtype).reshape(sizes)
    except (OverflowError, ValueError, TypeError):
        raise invalid(f"JSON Value: a number of input {name} is out of the range of {dtype}") from None


def _flatten(value: Any, sizes: Sequence[int], level: int, flat: list[Any]) -> None:
    if level == len(sizes):
        if isinstance(value, list):
            raise invalid(f"Encountered list at unexpected level: {level} expected < {len(sizes)}")
        flat.append(value)
        return
    if not isinstance(value, list):
        raise invalid(
            f"JSON Value: {short_json(value)} found at incorrect level: {level + 1} in the JSON DOM. "
            f"Expected at level: {len(sizes)}"
        )
    if len(value) != sizes[level]:
        raise invalid(
            f"Encountered list at unexpected size: {len(value)} at level: {level} "
            f"expected size: {sizes[level]}"
        )
    for item in value:
        _flatten(item, sizes, level + 1, flat)


def _from_base64(value: Mapping[str, Any]) -> bytes:
    """Reads base64 with any white space and padding."""
    if set(value) != {_B64} or not isinstance(value[_B64], str):
        raise invalid(f"JSON Value: {short_json(value)} not formatted correctly for base64 data")
    try:
        text = value[_B64].translate(_NO_SPACES)
        return base64.b64decode(text if "=" in text else text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise invalid("Unable to base64 decode") from None


def write_outputs(outputs: Mapping[str, np.ndarray], by_rows: bool) -> dict[str, Any]:
    """Returns the body of an answer; a single output has no name. Rows need outputs of equal length."""
    as_json = {name: _from_array(name, values) for name, values in sorted(outputs.items())}
    if not by_rows:
        return {"outputs": as_json if len(as_json) > 1 else as_json.popitem()[1]}
    if any(values.ndim == 0 for values in outputs.values()) or len({len(v) for v in outputs.values()}) > 1:
        raise invalid("the outputs have inconsistent batch sizes: ask with 'inputs' instead of 'instances'")
    if len(as_json) == 1:
        return {"predictions": as_json.popitem()[1]}
    return {"predictions": [dict(zip(as_json, row)) for row in zip(*as_json.values())]}


def _from_array(name: str, values: np.ndarray) -> Any:
    if values.dtype.kind == "O":
        if name.endswith("_bytes"):
            written = [{_B64: base64.b64encode(value).decode()} for value in values.flat]
        else:  # bytes that are not UTF-8 go out as they are
            written = [value.decode("utf-8", "surrogateescape") for value in values.flat]
        return np.array([*written, None], object)[:-1].reshape(values.shape).tolist()
    if values.dtype == np.float32:
        return values.astype(str).astype(float).tolist()  # as few digits as tell it from its neighbours
    return (values.astype(np.float32) if values.dtype.kind == "V" else values).tolist()
