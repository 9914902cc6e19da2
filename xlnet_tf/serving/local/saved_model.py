"""One loaded version of a model, and the errors of requests."""

import contextlib
import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (the operations that exported models use)
from google.protobuf import json_format
from tensorflow.core.protobuf import error_codes_pb2
from tensorflow.python.framework.ops import dismantle_graph
from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap
from tensorflow_serving.apis.input_pb2 import Input
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers import signatures
from xlnet_tf.serving.answers.signatures import MOST_TEXT_BYTES, SERVING_DEFAULT
from xlnet_tf.serving.client_grpc import read_tensor
from xlnet_tf.serving.warmup import BUCKETS_FILE, WARMUP_FILE
from xlnet_tf.text.vocabulary import TOKENIZER_FILE

_TAGS = ["serve"]
_MOST_CHARACTERS = 1000  # of an error: TensorFlow may cite the whole request, and gRPC has room for 8 kB
_BUCKETS = [32 << count for count in range(8)]  # of a model that does not say
_MOST_REQUEST_BYTES = 8 * MOST_TEXT_BYTES  # of all texts: the answer takes hundreds of times their memory


class RequestError(Exception):
    """A refused request; `code` is TensorFlow's and gRPC's name, such as "INVALID_ARGUMENT"."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


def invalid(message: str) -> RequestError:
    """Returns the error for an invalid request."""
    return RequestError("INVALID_ARGUMENT", message)


class LoadedModel:
    """A version's SavedModel in a session of its own, which `close` frees.

    Attributes:
        definitions: SignatureDef protos by name; `signatures` are the same, as the client reads them.
        buckets: ascending lengths in tokens that the model pads its sequences to.

    Raises:
        OSError, tf.errors.OpError: it cannot be loaded.
        UserError: it has no signatures, or its buckets.json is damaged.
    """

    def __init__(self, folder: str):
        self._folder = folder
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with contextlib.ExitStack() as failed:
            failed.callback(self.close)
            with self._session.graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(self._session, _TAGS, folder)
            self.definitions = {
                name: definition
                for name, definition in meta_graph.signature_def.items()
                if not name.startswith("__")  # how the graph is initialised
            }
            if not self.definitions:
                raise UserError("it has no signatures, so nothing of it can be asked")
            as_json = json_format.MessageToDict(self.definition_map(), preserving_proto_field_name=True)
            self.signatures = signatures.signatures_of(as_json["signature_def"])
            self._sizes = {
                name: {key: sizes_of(info) for key, info in definition.inputs.items()}
                for name, definition in self.definitions.items()
            }
            self.buckets = self._load_buckets()
            self._pieces = self._load_pieces()
            failed.pop_all()

    def _load_buckets(self) -> list[int]:
        """Returns the lengths that the model was exported for."""
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

    def definition_map(self) -> SignatureDefMap:
        return SignatureDefMap(signature_def=self.definitions)

    def run(
        self, name: str, inputs: Mapping[str, np.ndarray], seconds: float | None = None
    ) -> dict[str, np.ndarray]:
        """Runs a signature on inputs that `check` accepted, for at most `seconds` (None: any time)."""
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
        raise RequestError(code, message[:_MOST_CHARACTERS])

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
                f"{{{','.join(extra)}}}. Missing but required: {{{','.join(missing)}}}.",
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

    def warmup_requests(self) -> Iterator[PredictionLog]:
        """Yields the model's warm-up requests."""
        path = os.path.join(self._folder, WARMUP_FILE)
        if tf.io.gfile.exists(path):
            yield from map(PredictionLog.FromString, tf.data.TFRecordDataset(path).as_numpy_iterator())

    @functools.cached_property
    def example(self) -> dict[str, Any]:
        """The exported example inputs of serving_default; empty if there are none."""
        for log in self.warmup_requests():
            request = log.predict_log.request
            if request.model_spec.signature_name == SERVING_DEFAULT:
                return {key: signatures.plain(read_tensor(tensor)) for key, tensor in request.inputs.items()}
        return {}

    def warm_up(self) -> None:
        """Answers the warm-up requests, so that no user waits for the first run."""
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
        """Drops running requests and frees the memory; waits for operations that cannot be dropped."""
        self._session.close()
        dismantle_graph(self._session.graph)  # a circle that only a garbage collection of all would find


def called(dtype: np.dtype) -> str:
    """Returns a type's name for messages."""
    return "string" if dtype.kind == "O" else dtype.name


def sizes_of(info) -> list[int] | None:
    """Returns the axes' sizes of a TensorInfo proto, -1 where they are open; None if the rank is open."""
    return None if info.tensor_shape.unknown_rank else [dim.size for dim in info.tensor_shape.dim]


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
