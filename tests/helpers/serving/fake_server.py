"""TensorFlow Serving's REST and gRPC APIs, as far as clients of one model use them, over an exported folder.

Sources: api_rest.md; util/json_tensor.cc; model_servers/{http_rest_api_handler,
prediction_service_impl}.cc
"""

import base64
import concurrent.futures
import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataResponse, SignatureDefMap
from tensorflow_serving.apis.predict_pb2 import PredictResponse

from tests.helpers import http_server
from tests.helpers.serving.serving_process import ServedModel


def signature_map(model: ServedModel) -> SignatureDefMap:
    return SignatureDefMap(signature_def=model.signatures)


def from_json(value: Any, dtype: tf.DType) -> np.ndarray:
    """Reads a tensor; the first element of each list says how long the others are to be."""
    shape, first = [], value
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
    array = np.empty(shape, object)

    def fill(part, place):
        if isinstance(part, list):
            if len(place) >= len(shape):
                raise _invalid(f"Encountered list at unexpected level: {len(place)} expected < {len(shape)}")
            if len(part) != shape[len(place)]:
                raise _invalid(
                    f"Encountered list at unexpected size: {len(part)} at level: {len(place)} "
                    f"expected size: {shape[len(place)]}"
                )
            for index, item in enumerate(part):
                fill(item, (*place, index))
        elif len(place) != len(shape):
            raise _invalid(f"JSON Value: {part} found at incorrect level: {len(place) + 1}")
        elif dtype == tf.string:
            array[place] = base64.b64decode(part["b64"]) if isinstance(part, dict) else _text(part)
        elif isinstance(part, bool) != (dtype == tf.bool) or not isinstance(part, (int, float)):
            raise _invalid(f"JSON Value: {part} is not of expected type: {dtype.name}")
        else:
            array[place] = part

    fill(value, ())
    return array if dtype == tf.string else array.astype(dtype.as_numpy_dtype)


def to_json(name: str, array: np.ndarray) -> Any:
    """Writes a tensor; strings are text, or base64 where the name says that they are bytes."""
    if array.dtype == np.float32:
        return array.astype(str).astype(float).tolist()  # as few digits as tell it from its neighbours
    if array.dtype != object:
        return array.tolist()
    if name.endswith("_bytes"):
        return np.frompyfunc(lambda text: {"b64": base64.b64encode(text).decode()}, 1, 1)(array).tolist()
    return np.frompyfunc(lambda text: text.decode("utf-8", "surrogateescape"), 1, 1)(array).tolist()


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise _invalid(f"JSON Value: {value} is not of expected type: string")
    return value.encode()


def _invalid(message: str) -> tf.errors.InvalidArgumentError:
    return tf.errors.InvalidArgumentError(None, None, message)


def answer_json(model: ServedModel, body: bytes) -> dict[str, Any]:
    """Answers a predict request in rows ("instances") or columns ("inputs")."""
    request = json.loads(body)
    name = request.get("signature_name", "serving_default")
    if name not in model.signatures:
        raise _invalid(f'Serving signature name: "{name}" not found in signature def')
    dtypes = {key: tf.dtypes.as_dtype(info.dtype) for key, info in model.signatures[name].inputs.items()}
    by_rows = "instances" in request
    columns = _columns(request["instances"], dtypes) if by_rows else request["inputs"]
    if not isinstance(columns, dict):
        columns = dict.fromkeys(dtypes, columns)
    for key in dtypes:
        if key not in columns:
            raise _invalid(f"Missing named input: {key} in 'inputs' object.")
    outputs = model.predict(name, {key: from_json(columns[key], dtype) for key, dtype in dtypes.items()})
    if by_rows and len({len(array) for array in outputs.values()}) > 1:
        raise _invalid(f"Tensor name: {min(outputs)} has inconsistent batch size")
    outputs = {key: to_json(key, array) for key, array in outputs.items()}
    if not by_rows:
        return {"outputs": outputs if len(outputs) > 1 else outputs.popitem()[1]}
    rows = [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]
    return {"predictions": rows if len(outputs) > 1 else [row.popitem()[1] for row in rows]}


def _columns(instances: list, dtypes: Mapping[str, tf.DType]) -> dict[str, list]:
    """Turns rows into columns: objects with all names, or bare values of the only input."""
    if not isinstance(instances[0], dict) or set(instances[0]) == {"b64"}:
        if len(dtypes) > 1:
            raise _invalid("instances is a plain list, but expecting list of objects")
        return dict.fromkeys(dtypes, instances)
    for number, row in enumerate(instances):
        if set(row) != set(dtypes):
            raise _invalid(
                f"Failed to process element: {number} of 'instances' list. JSON object: keys must be equal "
                f"to: {','.join(sorted(dtypes))}"
            )
    return {key: [row[key] for row in instances] for key in dtypes}


@contextlib.contextmanager
def rest_server(folder: str, name: str, port: int = 0) -> Iterator[str]:
    """Serves a version of a model over REST, at any free port by default; yields HOST:PORT."""
    model = ServedModel(folder)

    class Handler(http_server.Handler):
        def do_GET(self):
            if self._model(r"/v1/models/([^/:]+)/metadata"):
                signatures = json_format.MessageToDict(
                    signature_map(model),
                    preserving_proto_field_name=True,
                    always_print_fields_with_no_presence=True,
                )
                self._send(200, {"model_spec": {"name": name}, "metadata": {"signature_def": signatures}})

        def do_POST(self):
            body = self.body()
            if self._model(r"/v1/models/([^/:]+):predict"):
                try:
                    self._send(200, answer_json(model, body))
                except tf.errors.OpError as error:
                    self._send(400, {"error": error.message})

        def _model(self, pattern):
            """Returns whether the path is of this model; answers if it is not."""
            match = re.fullmatch(pattern, self.path)
            if not match:
                self._send(400, {"error": f"Malformed request: {self.command} {self.path}"})
            elif match[1] != name:
                self._send(404, {"error": f"Servable not found for request: Latest({match[1]})"})
            return match and match[1] == name

        def _send(self, status, answer):
            # The server does not look into strings: what is not UTF-8 goes out as it is.
            content = json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogateescape")
            self.send(status, content, {"Content-Type": "application/json"})

    with http_server.serving(Handler, port) as port:
        yield f"localhost:{port}"


@contextlib.contextmanager
def grpc_server(folder: str, name: str, port: int = 0) -> Iterator[str]:
    """Serves a version of a model over gRPC, at any free port by default; yields HOST:PORT."""
    model = ServedModel(folder)

    class Servicer(prediction_service_pb2_grpc.PredictionServiceServicer):
        def GetModelMetadata(self, request, context):
            self._check(request, context)
            response = GetModelMetadataResponse(model_spec=request.model_spec)
            response.metadata["signature_def"].Pack(signature_map(model))
            return response

        def Predict(self, request, context):
            self._check(request, context)
            inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
            response = PredictResponse(model_spec=request.model_spec)
            try:
                outputs = model.predict(request.model_spec.signature_name or "serving_default", inputs)
            except tf.errors.OpError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)
            for key, value in outputs.items():
                response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
            return response

        def _check(self, request, context):
            if request.model_spec.name != name:
                context.abort(
                    grpc.StatusCode.NOT_FOUND,
                    f"Servable not found for request: Latest({request.model_spec.name})",
                )

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port(f"localhost:{port}")
    server.start()
    yield f"localhost:{port}"
    server.stop(grace=None)
