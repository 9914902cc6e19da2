"""One loaded version of a model, whatever computes it, and the errors of requests."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf import json_format

from xlnet_tf.serving.answers import signatures
from xlnet_tf.serving.answers.signatures import MOST_TEXT_BYTES
from xlnet_tf.serving.local.protos import SignatureDefMap

MOST_CHARACTERS = 1000  # of an error: TensorFlow may cite the whole request, and gRPC has room for 8 kB
_MOST_REQUEST_BYTES = 8 * MOST_TEXT_BYTES  # of all texts: the answer takes hundreds of times their memory


class RequestError(Exception):
    """A refused request; `code` is TensorFlow's and gRPC's name, such as "INVALID_ARGUMENT"."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


def invalid(message: str) -> RequestError:
    return RequestError("INVALID_ARGUMENT", message)


class ServedModel:
    """Base of loaded versions; a subclass runs them.

    It has SignatureDef protos by name, pads sequences to `buckets`, and counts the `pieces` of texts unless
    the model is another project's.
    """

    def __init__(self, definitions: Mapping[str, Any], buckets: Sequence[int], pieces: Any):
        self.definitions, self.buckets, self._pieces = definitions, buckets, pieces
        as_json = json_format.MessageToDict(self.definition_map(), preserving_proto_field_name=True)
        self.signatures = signatures.signatures_of(as_json["signature_def"])
        self._sizes = {
            name: {key: sizes_of(info) for key, info in definition.inputs.items()}
            for name, definition in definitions.items()
        }

    @property
    def example(self) -> dict[str, Any]:
        """Example inputs of serving_default; empty if there are none."""
        raise NotImplementedError

    def run(
        self, name: str, inputs: Mapping[str, np.ndarray], seconds: float | None = None
    ) -> dict[str, np.ndarray]:
        """Runs a signature on inputs that `check` accepted, for at most `seconds` (None: any time)."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """Answers typical requests, so that no user waits for the first run."""
        raise NotImplementedError

    def close(self) -> None:
        """Drops running requests, where that is possible, and frees the memory."""
        raise NotImplementedError

    def definition_map(self) -> SignatureDefMap:
        definitions = SignatureDefMap()
        for name, definition in self.definitions.items():
            definitions.signature_def[name].MergeFromString(definition.SerializeToString())
        return definitions

    def check(self, name: str, inputs: Mapping[str, np.ndarray]) -> int:
        """Checks a request's inputs against the signature; returns the number of its rows."""
        if name not in self.definitions:
            raise RequestError("FAILED_PRECONDITION", f'Serving signature key "{name}" not found.')
        expected = self.signatures[name].inputs
        missing, extra = sorted(set(expected) - set(inputs)), sorted(set(inputs) - set(expected))
        if missing or extra:
            raise invalid(
                f"input size does not match signature: {len(inputs)}!={len(expected)} len({{"
                f"{','.join(sorted(inputs))}}}) != len({{{','.join(sorted(expected))}}}). Sent extra: "
                f"{{{','.join(extra)}}}. Missing but required: {{{','.join(missing)}}}."
            )
        for key, column in expected.items():
            array, sizes = inputs[key], self._sizes[name][key]
            if array.dtype != column.dtype:
                raise invalid(
                    f"Input {key} has the type {called(array.dtype)}, expected {called(column.dtype)}"
                )
            if sizes is not None and (
                array.ndim != len(sizes) or any(size not in (-1, n) for size, n in zip(sizes, array.shape))
            ):
                raise invalid(f"Input {key} has the shape {list(array.shape)}, expected {sizes}")
        size = sum(len(text) for value in inputs.values() if value.dtype.kind == "O" for text in value.flat)
        if self._pieces and size > _MOST_REQUEST_BYTES:  # a model of another project may take pictures
            raise invalid(
                f"the request has {size} bytes of text; this server takes {_MOST_REQUEST_BYTES}: send fewer "
                "texts"
            )
        return max((len(value) for value in inputs.values() if value.ndim), default=0)

    def bucket(self, row: Sequence[np.ndarray]) -> int:
        """Estimates the length, in tokens, that the model pads a row of inputs [1, ...] to."""
        texts = [text for value in row if value.dtype.kind == "O" for text in value.flat]
        limit = self.buckets[-1]
        length = 2 + len(texts) // 2
        for text in texts:
            cut = text[: 16 * limit]  # what follows is cut off anyway
            # Four bytes to a token is what XLNet's own tokenizer has on English text.
            length += len(self._pieces.EncodeAsIds(cut)) if self._pieces else len(cut) // 4
        return next((bucket for bucket in self.buckets if length <= bucket), limit)


def called(dtype: np.dtype) -> str:
    """Returns a type's name for messages."""
    return "string" if dtype.kind == "O" else dtype.name


def sizes_of(info) -> list[int] | None:
    """Returns the axes' sizes of a TensorInfo proto, -1 where they are open; None if the rank is open."""
    return None if info.tensor_shape.unknown_rank else [dim.size for dim in info.tensor_shape.dim]
