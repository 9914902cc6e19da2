"""A server's description of a model, and checks of its answers. Nothing that a server sends is trusted."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from xlnet_tf.errors import UserError

SERVING_DEFAULT = "serving_default"  # the signature that takes texts
DTYPES = {
    "DT_STRING": np.dtype(object),
    "DT_BOOL": np.dtype(np.bool_),
    "DT_HALF": np.dtype(np.float16),
    "DT_BFLOAT16": np.dtype(ml_dtypes.bfloat16),
    "DT_FLOAT": np.dtype(np.float32),
    "DT_DOUBLE": np.dtype(np.float64),
    **{
        f"DT_{kind}{bits}": np.dtype(f"{kind.lower()}{bits}")
        for kind in ("INT", "UINT")
        for bits in (8, 16, 32, 64)
    },
}
MOST_BYTES = 1 << 28  # of an answer
MOST_TEXT_BYTES = 1 << 19  # of a text in a request; its answer may take hundreds of times its memory
# The score of what is not there; unlike infinity, JSON can hold it.
LOWEST = float(np.finfo(np.float32).min)
_SHOWN = 500  # characters of what a server says


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """An input or output; dtype object means bytes, `rank` includes the batch, None is any rank."""

    dtype: np.dtype
    rank: int | None

    @property
    def is_text(self) -> bool:
        """Whether a row has a single string."""
        return self.dtype == object and self.rank in (1, None)


@dataclasses.dataclass(frozen=True)
class Signature:
    """Inputs and outputs of one function of a model; `problem` says why it cannot be called, or is ""."""

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    problem: str = ""


def signatures_of(definitions: Any) -> dict[str, Signature]:
    """Reads a server's signatures, SignatureDefs in JSON form; an unreadable one has a `problem`.

    Raises ValueError if the definitions are not by name.
    """
    if not isinstance(definitions, Mapping):
        raise ValueError("the signatures are not an object")
    signatures = {}
    for name, definition in definitions.items():
        if name.startswith("__"):  # how the graph is initialised
            continue
        try:
            signatures[name] = Signature(_columns(definition, "inputs"), _columns(definition, "outputs"))
        except ValueError as error:
            signatures[name] = Signature({}, {}, str(error))
    return signatures


def _columns(definition: Any, which: str) -> dict[str, TensorInfo]:
    tensors = definition.get(which, {}) if isinstance(definition, Mapping) else None
    if not isinstance(tensors, Mapping):
        raise ValueError(f"its {which} are not an object")
    if odd := [name for name in tensors if not name.isprintable()]:
        raise ValueError(f"one of its {which} is called {printable(odd[0], 80)}")
    return {name: _column(name, tensor) for name, tensor in sorted(tensors.items())}


def _column(name: str, tensor: Any) -> TensorInfo:
    if not isinstance(tensor, Mapping):
        raise ValueError(f"{name} is described by {printable(tensor, 80)}, expected an object")
    dtype, shape = tensor.get("dtype"), tensor.get("tensor_shape", {})
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{name} has the type {printable(dtype, 80)}; expected one of {', '.join(DTYPES)}")
    if not isinstance(shape, Mapping) or not isinstance(sizes := shape.get("dim", []), list):
        raise ValueError(f"{name} has the shape {printable(shape, 80)}, expected sizes of axes")
    return TensorInfo(DTYPES[dtype], None if shape.get("unknown_rank") is True else len(sizes))


def check_answers(answers: Mapping[str, np.ndarray], signature: Signature, rows: int | None) -> None:
    """Compares answers with the signature and the request's rows, with which they would be mixed up."""
    for name, column in signature.outputs.items():
        values = answers[name]
        if values.dtype != column.dtype:
            raise bad_answer(f"{name} has the type {values.dtype}; its signature says {column.dtype}")
        if column.rank is not None and values.ndim != column.rank and values.size:
            raise bad_answer(f"{name} has {values.ndim} axes; its signature says {column.rank}")
        if rows is not None and column.rank != 0 and (values.ndim == 0 or len(values) != rows):
            found = f"{len(values)} rows" if values.ndim else "no rows"
            raise bad_answer(f"{name} has {found}; the request has {rows}")


def printable(value: Any, limit: int = _SHOWN) -> str:
    """Returns a server's text without control characters, cut at a limit of characters."""
    text = str(value)
    text = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[: limit + 1]
    )
    return text if len(text) <= limit else f"{text[:limit]}..."


def bad_answer(what: str) -> UserError:
    """Returns the error for an answer that contradicts the server's own description."""
    return UserError(
        f"the server's answer cannot be trusted: {what}. Nothing of it was used. Is the server TensorFlow "
        "Serving, and the model exported by xlnet-tf export?"
    )


def no_answer(address: str, reason: Any) -> UserError:
    return UserError(
        f"no answer from {address}: {printable(reason)}. Is TensorFlow Serving there? Its REST API is "
        "usually on port 8501 (HOST:8501), gRPC on port 8500 (grpc://HOST:8500)"
    )


def no_model(address: str, model: str, message: Any) -> UserError:
    """Returns the error for a server without the model."""
    return UserError(
        f"the server at {address} has no model {model!r}, or is still loading it: {printable(message)}"
    )


def refusal(address: str, message: Any) -> UserError:
    """Returns the error for a request that the server refuses."""
    return UserError(f"the server at {address} refuses the request: {printable(message)}")


def without_padding(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Removes the padding from a tagger's entities; other answers stay as they are."""
    count = answer.get("num_entities")
    cut = isinstance(count, int)
    return {
        name: value[:count] if cut and isinstance(value, list) else value for name, value in answer.items()
    }


def plain(values: np.ndarray) -> list[Any]:
    """Returns an array as lists of str, float, int or bool."""
    if values.dtype == object:
        return np.frompyfunc(lambda text: text.decode(errors="replace"), 1, 1)(values).tolist()
    if values.dtype.kind == "f":
        values = values.astype(str).astype(float)  # 0.1 as float32 is to be 0.1, not 0.10000000149011612
    return values.tolist()


def check_size(text: str, where: str) -> None:
    """Raises UserError if a text is longer than a served model takes; `where` names it."""
    if len(text) > MOST_TEXT_BYTES // 4 and (size := len(text.encode())) > MOST_TEXT_BYTES:
        raise UserError(
            f"{where} has {size} bytes; expected at most {MOST_TEXT_BYTES}: divide it into several texts"
        )
