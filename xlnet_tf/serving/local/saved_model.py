"""A version's SavedModel, which TensorFlow runs."""

import contextlib
import functools
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (the operations that exported models use)
from tensorflow.core.protobuf import error_codes_pb2
from tensorflow.python.framework.ops import dismantle_graph
from tensorflow_serving.apis.input_pb2 import Input
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers import signatures
from xlnet_tf.serving.answers.signatures import SERVING_DEFAULT
from xlnet_tf.serving.answers.tensors import read_tensor
from xlnet_tf.serving.local.served_model import MOST_CHARACTERS, RequestError, ServedModel
from xlnet_tf.serving.warmup import BUCKETS_FILE, WARMUP_FILE
from xlnet_tf.text.vocabulary import TOKENIZER_FILE

_TAGS = ["serve"]
_BUCKETS = [32 << count for count in range(8)]  # of a model that does not say


class LoadedModel(ServedModel):
    """A version's SavedModel in a session of its own, which `close` frees.

    What cannot be loaded is an OSError or one of TensorFlow's; without signatures, or with a damaged
    buckets.json, it is a UserError.
    """

    def __init__(self, folder: str):
        self._folder = folder
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with contextlib.ExitStack() as failed:
            failed.callback(self.close)
            with self._session.graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(self._session, _TAGS, folder)
            definitions = {
                name: definition
                for name, definition in meta_graph.signature_def.items()
                if not name.startswith("__")  # how the graph is initialised
            }
            if not definitions:
                raise UserError("it has no signatures, so nothing of it can be asked")
            super().__init__(definitions, self._load_buckets(), self._load_pieces())
            failed.pop_all()

    def _load_buckets(self) -> list[int]:
        path = os.path.join(self._folder, BUCKETS_FILE)
        if not tf.io.gfile.exists(path):
            return _BUCKETS
        try:
            return json.loads(tf.io.read_file(path).numpy())
        except ValueError as error:
            raise UserError(f"{BUCKETS_FILE} is damaged ({error}): export the model again") from None

    def _load_pieces(self):
        """Returns the tokenizer's pieces, to count tokens with; None for a model of another project."""
        path = os.path.join(self._folder, "assets", TOKENIZER_FILE)
        if not tf.io.gfile.exists(path):
            return None
        import sentencepiece

        with tf.io.gfile.GFile(path, "rb") as file:
            return sentencepiece.SentencePieceProcessor(model_proto=file.read())

    def run(
        self, name: str, inputs: Mapping[str, np.ndarray], seconds: float | None = None
    ) -> dict[str, np.ndarray]:
        definition, graph = self.definitions[name], self._session.graph
        tensors = {key: graph.get_tensor_by_name(info.name) for key, info in definition.outputs.items()}
        feeds = {definition.inputs[key].name: value for key, value in inputs.items()}
        options = tf.compat.v1.RunOptions(timeout_in_ms=0 if seconds is None else max(1, int(1000 * seconds)))
        try:
            return self._session.run(tensors, feeds, options)
        except tf.errors.OpError as error:
            code, message = error_codes_pb2.Code.Name(error.error_code), error.message
        except UnicodeDecodeError as error:  # TensorFlow cites bytes of the request
            code, message = "INVALID_ARGUMENT", error.object.decode(errors="replace")
        raise RequestError(code, message[:MOST_CHARACTERS])

    def warmup_requests(self) -> Iterator[PredictionLog]:
        """Yields the model's warm-up requests."""
        path = os.path.join(self._folder, WARMUP_FILE)
        if tf.io.gfile.exists(path):
            yield from map(PredictionLog.FromString, tf.data.TFRecordDataset(path).as_numpy_iterator())

    @functools.cached_property
    def example(self) -> dict[str, Any]:
        for log in self.warmup_requests():
            request = log.predict_log.request
            if request.model_spec.signature_name == SERVING_DEFAULT:
                return {key: signatures.plain(read_tensor(tensor)) for key, tensor in request.inputs.items()}
        return {}

    def warm_up(self) -> None:
        for log in self.warmup_requests():
            request = getattr(log, log.WhichOneof("log_type")).request
            name = request.model_spec.signature_name or SERVING_DEFAULT
            if log.WhichOneof("log_type") == "predict_log":
                inputs = {key: read_tensor(tensor) for key, tensor in request.inputs.items()}
            else:
                inputs = {"inputs": np.array(examples_of(request.input), object)}
            self.check(name, inputs)
            self.run(name, inputs)

    def close(self) -> None:
        self._session.close()
        dismantle_graph(self._session.graph)  # a circle that only a garbage collection of all would find


def examples_of(proto: Input) -> list[bytes]:
    """Returns the serialized tf.Examples of a classify or regress request."""
    if proto.WhichOneof("kind") != "example_list_with_context":
        return [example.SerializeToString() for example in proto.example_list.examples]
    serialized = []
    for example in proto.example_list_with_context.examples:
        whole = tf.train.Example()
        whole.CopyFrom(proto.example_list_with_context.context)
        for name, feature in example.features.feature.items():
            whole.features.feature[name].CopyFrom(feature)
        serialized.append(whole.SerializeToString())
    return serialized
