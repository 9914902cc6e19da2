"""The gRPC side of the client: see client.py."""

import math
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from tensorflow.core.framework import types_pb2
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest, SignatureDefMap
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers.signatures import (
    MOST_BYTES,
    bad_answer,
    no_answer,
    no_model,
    printable,
    refusal,
    signatures_of,
)

_SIGNATURES = "signature_def"
_SIZES = [("grpc.max_receive_message_length", MOST_BYTES), ("grpc.max_send_message_length", -1)]
_POINTER_BYTES = 8  # at least those of a number
# Where a TensorProto has the values of a type; those of other types are in int_val.
_FIELDS = {
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_DOUBLE: "double_val",
    types_pb2.DT_HALF: "half_val",
    types_pb2.DT_BFLOAT16: "half_val",
    types_pb2.DT_STRING: "string_val",
    types_pb2.DT_BOOL: "bool_val",
    types_pb2.DT_INT64: "int64_val",
    types_pb2.DT_UINT32: "uint32_val",
    types_pb2.DT_UINT64: "uint64_val",
}


class GrpcTransport:
    """TensorFlow Serving's gRPC API; a whole answer must arrive within `timeout` seconds."""

    def __init__(self, address: str, model: str, timeout: float):
        self._address = f"grpc://{address}"
        self._model = model
        self._timeout = timeout
        self._stub = PredictionServiceStub(grpc.insecure_channel(address, options=_SIZES))

    def signatures(self):
        request = GetModelMetadataRequest(metadata_field=[_SIGNATURES])
        request.model_spec.name = self._model
        response = self._call(self._stub.GetModelMetadata, request)
        signatures = SignatureDefMap()
        try:
            if not response.metadata[_SIGNATURES].Unpack(signatures):
                raise ValueError("it is of another type")
            definitions = json_format.MessageToDict(signatures, preserving_proto_field_name=True)
            return signatures_of(definitions[_SIGNATURES])
        except (KeyError, ValueError, DecodeError, json_format.Error) as error:
            raise bad_answer(f"what it says of {self._model!r} has no signatures") from error

    def predict(self, name, signature, columns):
        request = PredictRequest()
        request.model_spec.name = self._model
        request.model_spec.signature_name = name
        for key, values in columns.items():
            dtype = tf.string if values.dtype == object else values.dtype
            request.inputs[key].CopyFrom(tf.make_tensor_proto(values, dtype))
        response = self._call(self._stub.Predict, request)
        if missing := sorted(set(signature.outputs) - set(response.outputs)):
            raise bad_answer(f"it lacks the output {', '.join(missing)}")
        return {key: _array(key, response.outputs[key]) for key in signature.outputs}

    def _call(self, method: Callable, request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise self._error(error.code(), error.details()) from error

    def _error(self, code: grpc.StatusCode, details: str | None) -> UserError:
        if code == grpc.StatusCode.NOT_FOUND:
            return no_model(self._address, self._model, details)
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return no_answer(self._address, details)
        return refusal(self._address, details)


def _array(name: str, tensor: TensorProto) -> np.ndarray:
    try:
        return read_tensor(tensor)
    except ValueError as error:
        raise bad_answer(f"{name} {printable(error, 200)}") from error


def read_tensor(tensor: TensorProto, most_bytes: int = MOST_BYTES) -> np.ndarray:
    """Reads a tensor; omitted values repeat the last one, or are zero if there is none.

    Raises:
        ValueError: it is too large or damaged; the message continues a sentence that begins with its name.

    Source: tensorflow/core/framework/tensor.proto
    """
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    field, is_text = _FIELDS.get(tensor.dtype, "int_val"), tensor.dtype == types_pb2.DT_STRING
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
    if is_text and not values:
        return np.full(sizes, b"", object)  # make_ndarray fills with a str
    try:
        return tf.make_ndarray(tensor)
    except KeyError:
        kind = types_pb2.DataType.Name(tensor.dtype)
        raise ValueError(f"has the type {kind}, of which there are no values") from None
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ValueError(f"is torn: {error}") from error
