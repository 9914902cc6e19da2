"""Requests over REST and gRPC: what is read of them, and what is said of wrong ones."""

import json

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.apis.predict_pb2 import PredictRequest

from tests.helpers.serving.requests import PREDICT, ask
from xlnet_tf.serving.local.saved_model import LoadedModel, RequestError

MODEL, ONE = "/v1/models/classification", {"instances": ["a"]}


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/models/other:predict", ONE, 404, "Servable not found for request: Latest(other)"),
        (f"{MODEL}/versions/9:predict", ONE, 404, "not found for request: Specific(classification, 9)"),
        (f"{MODEL}/labels/no:predict", ONE, 400, "Unrecognized servable version label: no"),
        (f"{MODEL}:explain", ONE, 400, "Malformed request: POST /v1/models"),
        (f"{MODEL}/versions/{'0' * 20}{2**70}:predict", {}, 400, "to numeric"),
        (PREDICT, b"", 400, "JSON Parse error: The document is empty"),
        (PREDICT, b"[" * 100_000, 400, "JSON Parse error"),
        (PREDICT, b'{"instances": ["\xed\xa0\x80"]}', 400, "JSON Parse error"),  # half of a surrogate pair
        (PREDICT, {"instances": ["\ud800"]}, 400, 'JSON Parse error: "\\ud800" is half of a surrogate pair'),
        (PREDICT, b'{"instances": [{"text": "a", "text": "b"}]}', 400, 'Parse error: "text" is given twice'),
        (PREDICT, b"[1]", 400, "Is not object"),
        (PREDICT, {}, 400, "Missing 'inputs' or 'instances' key"),
        (PREDICT, {"instances": []}, 400, "No values in 'instances' array"),
        (PREDICT, {"instances": ["a"], "inputs": ["a"]}, 400, "only one of"),
        (PREDICT, {"instances": [1]}, 400, "is not of expected type: string"),
        (PREDICT, [{"é": True}], 400, 'JSON Value: [{"é": true}] Is not object'),
        (PREDICT, {"instances": [{"test": "a"}]}, 400, "keys must be equal to: text"),
        *(
            (PREDICT, {"instances": [{"b64": text}]}, 400, "Unable to base64 decode")
            for text in ("?", "\xe9", "Y", "YQ=", "YQ==YQ==", "=", "Y-", "\xa0YQ==")
        ),
        (PREDICT, {"signature_name": "examples", "instances": [{"b64": "/////w=="}]}, 400,
         "Could not parse example input, value: '\ufffd"),
        (PREDICT, {"inputs": {"test": ["a"]}}, 400, "Missing named input: text in 'inputs' object."),
        (PREDICT, {"inputs": [["a"], ["b", "c"]]}, 400, "Encountered list at unexpected size: 2"),
        (PREDICT, {"inputs": [["a"]]}, 400, "Input text has the shape [1, 1], expected [-1]"),
        (PREDICT, {"inputs": ["a"] * 257}, 400, "the request has 257 rows; this server takes 256"),
        (PREDICT, {"signature_name": "no", "inputs": ["a"]}, 400, 'Serving signature name: "no" not found'),
    ],
)  # fmt: skip
def test_wrong_requests_have_one_clear_answer(running, path, body, status, message):
    found, answer = ask(running, "POST", path, body)
    assert (found, list(answer)) == (status, ["error"])
    assert message in answer["error"] and "Traceback" not in answer["error"]


def test_wrong_requests_over_grpc(running):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(running.grpc))

    def huge(request):
        for _ in range(2):
            request.inputs["text"].tensor_shape.dim.add().size = 1 << 20

    def filling(request):
        request.inputs["text"].tensor_shape.dim[0].size = 201
        request.inputs["text"].string_val[0] = b"a" * 1000

    def cited(request):  # TensorFlow's message has all of it, gRPC no room for that
        request.model_spec.signature_name = "examples"
        request.inputs.clear()
        request.inputs["examples"].CopyFrom(tf.make_tensor_proto([b"a" * 100_000]))

    def text(value):
        return lambda request: request.inputs["text"].CopyFrom(tf.make_tensor_proto([value]))

    wrong = "INVALID_ARGUMENT"
    for change, code, message in (
        (lambda request: setattr(request.model_spec, "name", "other"), "NOT_FOUND", "Latest(other)"),
        (huge, wrong, "Input text has the shape [1, 1048576, 1048576], of more than 200,000 bytes"),
        (filling, wrong, "of more than 200,000 bytes"),
        (text(1.0), wrong, "Input text has the type float32, expected string"),
        (cited, wrong, ""),
        (lambda request: request.inputs.clear(), wrong, ""),
        (lambda request: request.output_filter.append("no"), wrong, "alias not found in signature"),
        (text("a" * 300_000), "RESOURCE_EXHAUSTED", ""),
    ):
        request = PredictRequest()
        request.model_spec.name = "classification"
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a"]))
        change(request)
        with pytest.raises(grpc.RpcError) as error:
            stub.Predict(request, timeout=60)
        assert error.value.code().name == code and message in error.value.details()


def test_compact_tensors_over_grpc_are_answered(running):
    """One value may stand for all: tf.make_tensor_proto(1, shape=[1, 3]) writes it once."""
    stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(running.grpc))

    def probabilities(*tensors):
        request = PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = "classification", "tokens"
        for name, tensor in zip(("input_word_ids", "input_mask", "input_type_ids"), tensors):
            request.inputs[name].CopyFrom(tensor)
        return tf.make_ndarray(stub.Predict(request, timeout=60).outputs["probabilities"])

    compact = [tf.make_tensor_proto(value, tf.int32, [1, 3]) for value in (5, 1, 0)]
    whole = [tf.make_tensor_proto([[value] * 3], tf.int32) for value in (5, 1, 0)]
    assert len(compact[0].int_val) == 1 and len(whole[0].tensor_content) == 12
    np.testing.assert_array_equal(probabilities(*compact), probabilities(*whole))
    compact[2].int_val[:] = []
    np.testing.assert_array_equal(probabilities(*compact), probabilities(*whole))


def test_texts_are_read_as_clients_write_them(running):
    """Everything beyond ASCII is escaped; in base64 white space counts for nothing, nor padding."""
    for expected, *others in (
        ('"ba \U0001f600"', json.dumps("ba \U0001f600")),
        ('"ba ne"', *(json.dumps({"b64": text}) for text in ("YmEgbmU=", "YmEg\nbmU=\r\n", " Y m E g\tbmU"))),
    ):
        texts = [f'{{"instances": [{text}]}}'.encode() for text in (expected, *others)]
        found, *more = (ask(running, "POST", PREDICT, text) for text in texts)
        assert found[0] == 200 and more == [found] * len(more)


def test_texts_beyond_the_limit_are_refused_by_the_model_itself(exports):
    model = LoadedModel(str(exports["classification"] / "1"))
    most = "a" * (1 << 19)
    request = {"text": np.array([most.encode(), b"ba"], object)}
    assert model.run("serving_default", request)["label"].shape == (2,)
    request = {"text": np.array([b"ba", most.encode() + b"a"], object)}
    model.check("serving_default", request)
    with pytest.raises(RequestError, match="text has a text of more than 524288 bytes") as refused:
        model.run("serving_default", request)
    assert refused.value.code == "INVALID_ARGUMENT"
    many = {"text": np.array([most.encode()] * 8 + [b"a"], object)}
    with pytest.raises(RequestError, match="has 4194305 bytes of text; .* takes 4194304: send fewer"):
        model.check("serving_default", many)
    model.close()
