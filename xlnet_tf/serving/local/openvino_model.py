"""A version in OpenVINO's format: texts in, answers out, without TensorFlow."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import sentencepiece

from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers.answering import as_bytes
from xlnet_tf.serving.answers.signatures import DTYPES, SERVING_DEFAULT
from xlnet_tf.serving.local.protos import DATA_TYPES, SignatureDef
from xlnet_tf.serving.local.served_model import MOST_CHARACTERS, RequestError, ServedModel, invalid
from xlnet_tf.serving.openvino.compiled import within
from xlnet_tf.serving.openvino.folder import OpenVinoFolder
from xlnet_tf.task_registry import LANGUAGE_MODEL
from xlnet_tf.tasks.pretraining.answering import open_answering

_METHOD = "tensorflow/serving/predict"


class OpenVinoModel(ServedModel):
    """A version that answers its inputs by name; a damaged one is a UserError."""

    def __init__(self, folder: str):
        self._version = OpenVinoFolder.read(folder)
        is_language_model = self._version.task == LANGUAGE_MODEL
        self._answering = open_answering(self._version) if is_language_model else self._version.answering()
        self._kinds = self._answering.signatures()
        pieces = sentencepiece.SentencePieceProcessor(model_proto=self._answering.tokenizer.model_proto)
        definitions = {name: _definition(*kinds) for name, kinds in self._kinds.items()}
        super().__init__(definitions, self._answering.buckets, pieces)

    def run(self, name, inputs, seconds=None):
        kinds = self._kinds[name]
        first, *others = kinds.inputs
        rows = len(inputs[first])
        for other in others:
            if len(inputs[other]) != rows:
                raise invalid(f"{other} has another number of rows than {first}")
        if not rows:
            return {
                key: np.empty((0, *(max(size, 0) for size in sizes)), _dtype(kind))
                for key, (kind, *sizes) in kinds.outputs.items()
            }
        try:
            with within(seconds):
                answers = self._answering.run(name, inputs)
        except TimeoutError as error:
            raise RequestError("DEADLINE_EXCEEDED", str(error)) from error
        except UserError as error:
            raise invalid(str(error)[:MOST_CHARACTERS]) from error
        return {key: np.asarray(values, _dtype(kinds.outputs[key][0])) for key, values in answers.items()}

    @property
    def example(self) -> dict[str, Any]:
        return {key: [value] for key, value in self._version.example.items()}

    def warm_up(self) -> None:
        self.run(SERVING_DEFAULT, {key: as_bytes(value) for key, value in self.example.items()})

    def close(self) -> None:
        """Does nothing: the graph's memory is free once no request holds it."""


def _definition(inputs: Mapping[str, tuple], outputs: Mapping[str, tuple]) -> SignatureDef:
    """Describes inputs and outputs, as a SavedModel of the model does."""
    definition = SignatureDef(method_name=_METHOD)
    known = {dtype: number for number, dtype in DTYPES.items()}
    for infos, kinds in ((definition.inputs, inputs), (definition.outputs, outputs)):
        for name, (kind, *sizes) in kinds.items():
            infos[name].name, infos[name].dtype = name, DATA_TYPES[known[_dtype(kind)]]
            for size in (-1, *sizes):
                infos[name].tensor_shape.dim.add(size=size)
    return definition


def _dtype(kind: Any) -> np.dtype:
    return np.dtype(object if kind is bytes else kind)
