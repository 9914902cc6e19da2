"""A version in OpenVINO's format: texts in, answers out, without TensorFlow."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import sentencepiece

from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers.signatures import DTYPES, MOST_TEXT_BYTES, SERVING_DEFAULT
from xlnet_tf.serving.local.protos import DATA_TYPES, SignatureDef
from xlnet_tf.serving.local.served_model import MOST_CHARACTERS, ServedModel, invalid
from xlnet_tf.serving.openvino.folder import OpenVinoFolder
from xlnet_tf.task_registry import LANGUAGE_MODEL

_METHOD = "tensorflow/serving/predict"


class OpenVinoModel(ServedModel):
    """A version that answers its inputs by name, its only signature; UserError if it is damaged."""

    def __init__(self, folder: str):
        self._version = OpenVinoFolder.read(folder)
        if self._version.task == LANGUAGE_MODEL:
            raise UserError(
                "it is a language model, of which this server has no signature: ask it with fill-mask, "
                "generate, score or embed"
            )
        self._answering = self._version.answering()
        self._kinds = self._answering.output_kinds()
        pieces = sentencepiece.SentencePieceProcessor(model_proto=self._answering.tokenizer.model_proto)
        super().__init__({SERVING_DEFAULT: self._definition()}, self._answering.buckets, pieces)

    def _definition(self) -> SignatureDef:
        """Describes the inputs and outputs, as a SavedModel of the model does."""
        definition = SignatureDef(method_name=_METHOD)
        for name, rank in self._answering.input_ranks().items():
            _describe(definition.inputs[name], name, bytes, [-1] * (rank - 1))
        for name, (kind, *sizes) in self._kinds.items():
            _describe(definition.outputs[name], name, kind, sizes)
        return definition

    def run(self, name, inputs, seconds=None):
        first, *others = self._answering.input_ranks()
        rows = len(inputs[first])
        for other in others:
            if len(inputs[other]) != rows:
                raise invalid(f"{other} has another number of rows than {first}")
        if not rows:
            return {
                key: np.empty((0, *(max(size, 0) for size in sizes)), _dtype(kind))
                for key, (kind, *sizes) in self._kinds.items()
            }
        try:
            answers = self._answering.serve(**{key: _texts(key, value) for key, value in inputs.items()})
        except UserError as error:
            raise invalid(str(error)[:MOST_CHARACTERS]) from error
        return {key: np.asarray(values, _dtype(self._kinds[key][0])) for key, values in answers.items()}

    @property
    def example(self) -> dict[str, Any]:
        return {key: [value] for key, value in self._version.example.items()}

    def warm_up(self) -> None:
        self._answering([self._version.example])

    def close(self) -> None:
        """Does nothing: the graph's memory is free once no request holds it."""


def _describe(info: Any, name: str, kind: Any, sizes: Sequence[int]) -> None:
    known = {dtype: number for number, dtype in DTYPES.items()}
    info.name, info.dtype = name, DATA_TYPES[known[_dtype(kind)]]
    for size in (-1, *sizes):
        info.tensor_shape.dim.add(size=size)


def _dtype(kind: Any) -> np.dtype:
    return np.dtype(object if kind is bytes else kind)


def _texts(name: str, values: np.ndarray) -> Any:
    """Returns texts, or lists of texts, of bytes; those that are not UTF-8 are replaced, as in a graph."""
    if any(len(text) > MOST_TEXT_BYTES for text in values.flat):
        raise invalid(f"{name} has a text of more than {MOST_TEXT_BYTES} bytes")
    return np.vectorize(lambda text: text.decode(errors="replace"), otypes=[object])(values).tolist()
