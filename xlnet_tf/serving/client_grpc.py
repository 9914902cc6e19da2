"""The gRPC side of the client: see client.py."""

from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from google.protobuf.message import DecodeError
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
from xlnet_tf.serving.answers.tensors import read_tensor

_SIGNATURES = "signature_def"
_SIZES = [("grpc.max_receive_message_length", MOST_BYTES), ("grpc.max_send_message_length", -1)]


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
