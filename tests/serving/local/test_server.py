"""The local server answers as TensorFlow Serving does, and stays up whatever it is asked."""

import contextlib
import gc
import gzip
import http.client
import json
import re
import shutil
import socket
import threading
import time
import weakref

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest
from tensorflow_serving.apis.predict_pb2 import PredictRequest

from benchmarks import load as benchmark_load
from tests.conftest import invent_texts
from tests.helpers.serving.exports import KINDS
from xlnet_tf.errors import UserError
from xlnet_tf.serving.client import connect
from xlnet_tf.serving.export import export
from xlnet_tf.serving.local import guard, server, versions
from xlnet_tf.serving.local.saved_model import LoadedModel, RequestError
from xlnet_tf.serving.warmup import BUCKETS_FILE

SERVED = ("classification", "regression")
LIMITS = guard.Limits(hosts=("models.example",), max_bytes=200_000, timeout=3.0, concurrency=24)


@pytest.fixture(scope="module")
def exports(small_tokenizer, tmp_path_factory):
    """Folders of exported models, by their names."""
    folder = tmp_path_factory.mktemp("served")
    return {name: exported(folder, name, small_tokenizer) for name in SERVED}


def exported(folder, name, tokenizer):
    kind = KINDS[name]
    export(kind.module(kind.model(tokenizer), tokenizer), str(folder / name), warmup_batches=(1,))
    return folder / name


@pytest.fixture(scope="module")
def running(exports):
    configs = [versions.of_folder(str(path)) for path in exports.values()]
    configs[0] = versions.dataclasses.replace(configs[0], labels={"stable": 1})
    with server.serving(configs, limits=LIMITS) as found:
        yield found


@pytest.fixture(scope="module")
def loaded(exports):
    """The SavedModels themselves, by name."""
    return {name: tf.saved_model.load(str(path / "1")) for name, path in exports.items()}


def ask(running, method, path, body=None, headers=()):
    """Returns status and JSON of an answer over REST."""
    host, _, port = running.rest.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    with contextlib.closing(connection):
        data = json.dumps(body) if isinstance(body, dict | list) else body
        connection.request(method, path, data, dict(headers))
        response = connection.getresponse()
        text = response.read()
        kind = response.getheader("Content-Type")
        return response.status, json.loads(text) if kind == "application/json" else text.decode()


def direct(model, signature, **columns):
    answers = model.signatures[signature](**{name: tf.constant(rows) for name, rows in columns.items()})
    return {name: value.numpy() for name, value in answers.items()}


def rows_of(name, number, seed=0):
    """Texts of all lengths, as inputs of serving_default."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(map(str, invent_texts(int(rng.integers(1, 12)), seed=seed + n))) for n in range(number)]
    texts = [text[: int(rng.integers(1, len(text)))] for text in texts]
    return {"text_a": texts, "text_b": texts[::-1]} if name == "regression" else {"text": texts}


@pytest.mark.parametrize("scheme", ["rest", "grpc"])
@pytest.mark.parametrize("name", SERVED)
def test_a_request_alone_gets_the_answer_of_the_saved_model(running, loaded, name, scheme):
    check_alone(running, loaded[name], name, scheme)


def check_alone(running, model, name, scheme):
    address = running.rest if scheme == "rest" else f"grpc://{running.grpc}"
    columns = rows_of(name, 5)
    found, expected = (
        connect(address, name).predict(columns),
        direct(model, "serving_default", **columns),
    )
    assert set(found) == set(expected)
    for key, values in expected.items():
        np.testing.assert_array_equal(found[key], values, err_msg=key)


@pytest.mark.parametrize("name", SERVED)
def test_requests_at_the_same_time_get_their_own_answers(running, loaded, name, monkeypatch):
    check_together(running, loaded[name], name, monkeypatch)


def test_a_closed_model_leaves_memory_without_a_garbage_collection(exports, tmp_path):
    damaged = tmp_path / "1"
    shutil.copytree(exports["classification"] / "1", damaged)
    (damaged / BUCKETS_FILE).write_text("{")
    graphs, new = [], tf.Graph

    def graph():
        graphs.append(weakref.ref(found := new()))
        return found

    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(tf, "Graph", graph)
            model = LoadedModel(str(exports["classification"] / "1"))
            model.warm_up()
            model.close()
            del model
            with pytest.raises(UserError, match="damaged"):
                LoadedModel(str(damaged))
        assert [found() for found in graphs] == [None, None]
    finally:
        gc.enable()


def test_a_version_that_is_loaded_after_the_end_starts_no_threads(exports):
    served = versions.Models([versions.ModelConfig("late", str(exports["classification"]))])
    served.close()
    before = threading.active_count()
    served.refresh()
    assert not list(served.available()) and threading.active_count() == before


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


@pytest.mark.integration
def test_entities_are_answered_alone_and_together(small_tokenizer, tmp_path, monkeypatch):
    folder = exported(tmp_path, "tagging", small_tokenizer)
    model = tf.saved_model.load(str(folder / "1"))
    with server.serving([versions.of_folder(str(folder))]) as running:
        for scheme in ("rest", "grpc"):
            check_alone(running, model, "tagging", scheme)
        served = running.service.models.find(versions.ModelSpec(name="tagging")).model
        with pytest.raises(RequestError, match="Timed out") as late:  # all of it takes more than 2 s
            served.run("serving_default", {"text": np.array([b"ba ne " * 80_000], object)}, 0.1)
        assert late.value.code == "DEADLINE_EXCEEDED"
        check_together(running, model, "tagging", monkeypatch)


def check_together(running, model, name, monkeypatch):
    runs, run = [], running.service.models.find(versions.ModelSpec(name=name)).model.run

    def counted(signature, inputs, seconds):
        runs.append(len(next(iter(inputs.values()))))
        time.sleep(0.1)  # the others arrive
        return run(signature, inputs, seconds)

    monkeypatch.setattr(running.service.models.find(versions.ModelSpec(name=name)).model, "run", counted)
    requests = [rows_of(name, 1 + n % 4, seed=100 * n) for n in range(16)]
    answers, ready = [None] * len(requests), threading.Barrier(len(requests))

    def client(number):
        ready.wait()
        answers[number] = connect(running.rest, name).predict(requests[number])

    threads = [threading.Thread(target=client, args=(number,)) for number in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for request, found in zip(requests, answers):
        expected = direct(model, "serving_default", **request)
        for key, values in expected.items():
            assert found[key].shape == values.shape, key
            if values.dtype.kind == "f":
                np.testing.assert_allclose(found[key], values, rtol=1e-4, atol=1e-5, err_msg=key)
            else:
                np.testing.assert_array_equal(found[key], values, err_msg=key)
    assert len(runs) < len(requests) and max(runs) <= 32


def test_a_bad_row_spoils_no_other_request(running):
    good = {"input_word_ids": [[5, 4, 3]], "input_mask": [[1] * 3], "input_type_ids": [[0, 0, 2]]}
    bad = good | {"input_word_ids": [[5, 10**6, 3]]}
    outcomes, ready = [None] * 12, threading.Barrier(12)

    def client(number):
        ready.wait()
        body = {"signature_name": "tokens", "inputs": bad if number % 3 == 0 else good}
        outcomes[number] = ask(running, "POST", "/v1/models/classification:predict", body)[0]

    threads = [threading.Thread(target=client, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [400 if number % 3 == 0 else 200 for number in range(12)]


def test_only_predict_is_answered(running):
    for method in ("classify", "regress"):
        status, found = ask(running, "POST", f"/v1/models/classification:{method}", {"examples": []})
        assert status == 501
        assert found["error"] == f"this server answers :predict alone; TensorFlow Serving also has :{method}"
    stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(running.grpc))
    with pytest.raises(grpc.RpcError) as error:
        stub.Classify(ClassificationRequest(), timeout=10)
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_status_metadata_versions_and_labels(running):
    status, found = ask(running, "GET", "/v1/models/classification")
    assert status == 200
    assert found == {
        "model_version_status": [
            {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ]
    }
    status, found = ask(running, "GET", "/v1/models/classification/versions/1/metadata")
    assert found["model_spec"]["version"] == "1" and found["model_spec"]["name"] == "classification"
    signatures = found["metadata"]["signature_def"]["signature_def"]
    assert signatures["classify"]["method_name"] == "tensorflow/serving/classify"
    body = {"instances": ["ba ne"]}
    for path in ("", "/versions/1", "/labels/stable"):
        status, found = ask(running, "POST", f"/v1/models/classification{path}:predict", body)
        assert status == 200 and found["predictions"][0]["label"] in ("bad", "fair", "good")
    assert ask(running, "GET", "/healthz") == (200, {"status": "SERVING"})
    stub = model_service_pb2_grpc.ModelServiceStub(grpc.insecure_channel(running.grpc))
    request = GetModelStatusRequest()
    request.model_spec.name = "classification"
    assert stub.GetModelStatus(request, timeout=10).model_version_status[0].state == 30


PREDICT = "/v1/models/classification:predict"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (
            "/v1/models/other:predict",
            {"instances": ["a"]},
            404,
            "Servable not found for request: Latest(other)",
        ),
        (
            "/v1/models/classification/versions/9:predict",
            {"instances": ["a"]},
            404,
            "Servable not found for request: Specific(classification, 9)",
        ),
        (
            "/v1/models/classification/labels/no:predict",
            {"instances": ["a"]},
            400,
            "Unrecognized servable version label: no",
        ),
        (
            "/v1/models/classification:explain",
            {"instances": ["a"]},
            400,
            "Malformed request: POST /v1/models",
        ),
        (f"/v1/models/classification/versions/{2**70}:predict", {"instances": ["a"]}, 400, "to numeric"),
        (f"/v1/models/classification/versions/{'0' * 5000}1:predict", {}, 400, "Missing 'inputs'"),
        (f"/v1/models/classification/versions/{'0' * 20}{2**70}:predict", {}, 400, "to numeric"),
        (PREDICT, b"", 400, "JSON Parse error: The document is empty"),
        (PREDICT, b"{", 400, "JSON Parse error"),
        (PREDICT, b"[" * 100_000, 400, "JSON Parse error"),
        (PREDICT, b"\xff\xfe{}", 400, "JSON Parse error"),
        (PREDICT, b'{"instances": ["\xed\xa0\x80"]}', 400, "JSON Parse error"),  # half of a surrogate pair
        (PREDICT, {"instances": ["\ud800"]}, 400, 'JSON Parse error: "\\ud800" is half of a surrogate pair'),
        (PREDICT, {"signature_name": "\udc80", "instances": ["a"]}, 400, "half of a surrogate pair"),
        (
            PREDICT,
            b'{"instances": [{"text": "a", "text": "b"}]}',
            400,
            'JSON Parse error: "text" is given twice',
        ),
        (PREDICT, b"[1]", 400, "Is not object"),
        (PREDICT, {}, 400, "Missing 'inputs' or 'instances' key"),
        (PREDICT, {"instances": []}, 400, "No values in 'instances' array"),
        (PREDICT, {"instances": "a"}, 400, "Expecting 'instances' to be an list/array"),
        (PREDICT, {"instances": ["a"], "inputs": ["a"]}, 400, "only one of"),
        (PREDICT, {"instances": [1]}, 400, "is not of expected type: string"),
        (PREDICT, {"instances": [None]}, 400, "JSON Value: null is not of expected type: string"),
        (PREDICT, [{"é": True}], 400, 'JSON Value: [{"é": true}] Is not object'),
        (PREDICT, {"instances": [{"test": "a"}]}, 400, "keys must be equal to: text"),
        (PREDICT, {"instances": [{"b64": "?"}]}, 400, "Unable to base64 decode"),
        *(
            (PREDICT, {"instances": [{"b64": text}]}, 400, "Unable to base64 decode")
            for text in ("\xe9", "Y", "YQ=", "YQ==YQ==", "=", "Y-", "\xa0YQ==")
        ),
        (
            PREDICT,
            {"signature_name": "examples", "instances": [{"b64": "/////w=="}]},
            400,
            "Could not parse example input, value: '\ufffd",
        ),
        (PREDICT, {"inputs": {"test": ["a"]}}, 400, "Missing named input: text in 'inputs' object."),
        (PREDICT, {"inputs": [["a"], ["b", "c"]]}, 400, "Encountered list at unexpected size: 2"),
        (PREDICT, {"inputs": [["a"]]}, 400, "Input text has the shape [1, 1], expected [-1]"),
        (PREDICT, {"inputs": "a"}, 400, "Input text has the shape []"),
        (PREDICT, {"inputs": ["a"] * 257}, 400, "the request has 257 rows; this server takes 256"),
        (PREDICT, {"signature_name": "no", "inputs": ["a"]}, 400, 'Serving signature name: "no" not found'),
        (PREDICT, {"signature_name": 1, "inputs": ["a"]}, 400, "'signature_name' key must be a string"),
    ],
)
def test_wrong_requests_have_one_clear_answer(running, path, body, status, message):
    found, answer = ask(running, "POST", path, body)
    assert (found, list(answer)) == (status, ["error"])
    assert message in answer["error"] and "Traceback" not in answer["error"]


def test_wrong_requests_over_grpc(running):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(running.grpc))

    def refused(change):
        request = PredictRequest()
        request.model_spec.name = "classification"
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a"]))
        change(request)
        with pytest.raises(grpc.RpcError) as error:
            stub.Predict(request, timeout=10)
        return error.value.code().name, error.value.details()

    def renamed(request):
        request.model_spec.name = "other"

    def huge(request):
        for _ in range(2):
            request.inputs["text"].tensor_shape.dim.add().size = 1 << 20

    def filling(request):
        request.inputs["text"].tensor_shape.dim[0].size = 201
        request.inputs["text"].string_val[0] = b"a" * 1000

    def typed(request):
        request.inputs["text"].CopyFrom(tf.make_tensor_proto([1.0]))

    def filtered(request):
        request.output_filter.append("no")

    def handle(request):
        request.inputs["text"].dtype = types_pb2.DT_RESOURCE
        request.inputs["text"].tensor_content = b"a"

    def cited(request):  # TensorFlow's message has all of it, gRPC no room for that
        request.model_spec.signature_name = "examples"
        request.inputs.clear()
        request.inputs["examples"].CopyFrom(tf.make_tensor_proto([b"a" * 100_000]))

    def heavy(request):
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a" * 300_000]))

    assert refused(renamed) == ("NOT_FOUND", "Servable not found for request: Latest(other)")
    assert refused(huge) == (
        "INVALID_ARGUMENT",
        "Input text has the shape [1, 1048576, 1048576], of more than 200,000 bytes",
    )
    assert refused(filling)[0] == "INVALID_ARGUMENT"
    assert "of more than 200,000 bytes" in refused(filling)[1]
    assert refused(typed)[1] == "Input text has the type float32, expected string"
    assert refused(handle) == (
        "INVALID_ARGUMENT",
        "Input text has values in string_val; expected them in int_val",
    )
    assert refused(cited)[0] == "INVALID_ARGUMENT"
    assert refused(lambda request: request.inputs.clear())[0] == "INVALID_ARGUMENT"
    assert "output tensor alias not found in signature: no" in refused(filtered)[1]
    assert refused(heavy)[0] == "RESOURCE_EXHAUSTED"


def test_compact_tensors_over_grpc_are_answered(running):
    """One value may stand for all: tf.make_tensor_proto(1, shape=[1, 3]) writes it once."""
    stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(running.grpc))

    def probabilities(*tensors):
        request = PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = "classification", "tokens"
        for name, tensor in zip(("input_word_ids", "input_mask", "input_type_ids"), tensors):
            request.inputs[name].CopyFrom(tensor)
        return tf.make_ndarray(stub.Predict(request, timeout=10).outputs["probabilities"])

    compact = [tf.make_tensor_proto(value, tf.int32, [1, 3]) for value in (5, 1, 0)]
    whole = [tf.make_tensor_proto([[value] * 3], tf.int32) for value in (5, 1, 0)]
    assert len(compact[0].int_val) == 1 and len(whole[0].tensor_content) == 12
    np.testing.assert_array_equal(probabilities(*compact), probabilities(*whole))
    compact[2].int_val[:] = []
    np.testing.assert_array_equal(probabilities(*compact), probabilities(*whole))


def test_emoji_as_surrogate_pairs_are_text(running):
    """As most clients write JSON: everything beyond ASCII is escaped."""
    bodies = [json.dumps({"instances": ["ba \U0001f600"]}, ensure_ascii=escaped) for escaped in (True, False)]
    assert "\\ud83d" in bodies[0] and "\\ud83d" not in bodies[1]
    answers = [ask(running, "POST", PREDICT, body.encode()) for body in bodies]
    assert answers[0][0] == 200 and answers[0] == answers[1]


@pytest.mark.parametrize("text", ["YmEgbmU=", "YmEg\nbmU=\r\n", "YmEgbmU", " Y m E g\tbmU = "])
def test_base64_is_read_as_tensorflow_serving_reads_it(running, text):
    """White space counts for nothing, and padding may be left out, but not half of it."""
    columns = [{"instances": [{"b64": text}]}, {"instances": ["ba ne"]}]
    found, expected = (ask(running, "POST", PREDICT, body) for body in columns)
    assert found[0] == 200 and found == expected


def test_gzip_bodies_are_unpacked_up_to_the_limit_of_a_request(running):
    body = json.dumps({"instances": ["ba ne"]}).encode()

    def packed(body, encoding="gzip"):
        return ask(running, "POST", PREDICT, body, {"Content-Encoding": encoding})

    whole = gzip.compress(body)
    expected = ask(running, "POST", PREDICT, body)
    assert expected[0] == 200
    for data, encoding in ((whole, "gzip"), (whole, "X-GZIP"), (body, "identity")):
        assert packed(data, encoding) == expected
    largest = body + b" " * (LIMITS.max_bytes - len(body))
    assert packed(gzip.compress(largest)) == expected
    bomb = gzip.compress(b" " * 100_000_000, 1)
    for data in (gzip.compress(largest + b" "), bomb[: LIMITS.max_bytes]):
        assert packed(data) == (413, {"error": "the request has more than 200,000 bytes"})
    for data in (body, whole[:-9], whole + b"more"):
        assert packed(data) == (400, {"error": "the body is not whole gzip data"})
    message = "the body's Content-Encoding is 'br'; expected gzip, or none"
    assert packed(body, "br") == (415, {"error": message})


@pytest.mark.parametrize(
    ("target", "head", "status"),
    [
        ("/v1/models/classification", "HTTP/1.1\r\nHost: localhost", 200),
        ("/V1/Models/classification", "HTTP/1.1\r\nHost: localhost", 200),
        ("/v1/models/classification", "HTTP/1.0", 200),
        ("/v1/models/classification", "HTTP/1.0\r\nOrigin: http://evil.example", 403),
        ("/v1/models/classification", "HTTP/1.0\r\nHost: evil.example", 403),
        ("http://localhost:8501/v1/models/classification", "HTTP/1.1\r\nHost: localhost:8501", 200),
        ("HTTP://localhost/v1/models/classification?x=1", "HTTP/1.1\r\nHost: localhost", 200),
        ("http://localhost/healthz", "HTTP/1.0", 200),
        ("http://evil.example/v1/models/classification", "HTTP/1.1\r\nHost: localhost", 403),
        ("http://localhost/v1/models/classification", "HTTP/1.1\r\nHost: evil.example", 403),
        ("http://localhost", "HTTP/1.1\r\nHost: localhost", 404),
    ],
)
def test_request_lines_of_all_forms_are_read(running, target, head, status):
    found = raw(running, f"GET {target} {head}\r\nConnection: close\r\n\r\n".encode())
    assert int(found.split()[1]) == status, found


def test_an_error_that_nobody_foresaw_is_one_answer_and_no_success(running, monkeypatch):
    model = running.service.models.find(versions.ModelSpec(name="classification")).model
    monkeypatch.setattr(model, "run", lambda *request: 1 / 0)
    status, answer = ask(running, "POST", PREDICT, {"instances": ["ba"]})
    assert (status, answer) == (500, {"error": "the server failed: division by zero"})
    request = PredictRequest()
    request.model_spec.name = "classification"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a"]))
    with pytest.raises(grpc.RpcError) as error:
        prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(running.grpc)).Predict(
            request, timeout=10
        )
    assert (error.value.code().name, error.value.details()) == (
        "INTERNAL",
        "the server failed: division by zero",
    )
    counted = ask(running, "GET", "/monitoring/prometheus/metrics")[1]
    assert 'request_count{model_name="classification",status="INTERNAL"} 2.0' in counted


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:8501"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "models.example"}, 200),
        ({"Host": "127.0.0.1:8501"}, 200),
        ({"Host": "[::1]:8501"}, 200),
        ({"Host": "localhost:80", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost:80", "Origin": "null"}, 403),
        ({"Host": "localhost:80", "Origin": "http://localhost:81"}, 403),
        ({"Host": "localhost:80", "Origin": "http://localhost:80"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_requests_of_other_web_sites_are_refused(running, headers, status):
    found, answer = ask(running, "POST", PREDICT, {"instances": ["ba"]}, headers)
    assert found == status and (status == 200 or list(answer) == ["error"])
    assert ask(running, "GET", "/v1/models/classification", headers=headers)[0] == status


def test_a_link_to_a_page_may_be_followed(running):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert ask(running, "GET", "/healthz", headers=link)[0] == 200
    assert ask(running, "POST", PREDICT, {"instances": ["ba"]}, link)[0] == 403


def test_oversized_requests_are_answered(running):
    assert ask(running, "POST", PREDICT, b"x" * 3_000_000)[0] == 413
    chunks = (b"x" * 50_000 for _ in range(10))
    status, answer = ask(running, "POST", PREDICT, chunks)  # in chunks, without a length
    assert status == 413 and answer == {"error": "the request has more than 200,000 bytes"}


def raw(running, *parts, pause=0.0, patience=20):
    """Sends bytes; returns what comes back until the server hangs up."""
    host, _, port = running.rest.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=patience) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        answer = b""
        while chunk := connection.recv(1 << 16):
            answer += chunk
        return answer


@pytest.mark.integration
def test_slow_and_malformed_requests_are_answered(running, monkeypatch):
    monkeypatch.setattr(guard, "_HEADER_SECONDS", 0.3)
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n".encode()
    slow_head = raw(running, head)
    assert slow_head.startswith(b"HTTP/1.1 408") and b'{"error": "the head of the request' in slow_head
    slow_body = raw(running, head + b"\r\n{")
    assert slow_body.startswith(b"HTTP/1.1 408") and b"took more than 3 s" in slow_body
    nonsense = raw(running, b"\x16\x03\x01 hello\r\n\r\n")
    assert nonsense.startswith(b"HTTP/1.1 400") and b'{"error": "this is not HTTP' in nonsense
    assert raw(running, b"GET /" + b"x" * 200_000).startswith(b"HTTP/1.1 400")
    assert raw(running, b"").startswith(b"HTTP/1.1 408")  # a connection that says nothing
    assert ask(running, "POST", PREDICT, {"instances": ["ba"]})[0] == 200


def test_a_client_that_reads_no_answers_loses_its_connection(running, monkeypatch):
    monkeypatch.setattr(guard, "_STALL_SECONDS", 0.3)
    host, _, port = running.rest.rpartition(":")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.settimeout(20)
        connection.connect((host, int(port)))
        with pytest.raises(ConnectionError):
            while True:
                connection.sendall(b"GET /monitoring/prometheus/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert ask(running, "GET", "/healthz")[0] == 200


@pytest.mark.integration
def test_slow_senders_over_grpc_do_not_keep_others_out(exports):
    """Each sends the head of a call, and nothing else."""
    configs, never = [versions.of_folder(str(exports["classification"]))], threading.Event()
    limits = guard.Limits(timeout=0.5, concurrency=4)
    with server.serving(configs, limits=limits) as running, grpc.insecure_channel(running.grpc) as channel:
        call = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        slow = [call.future(iter(never.wait, True)) for _ in range(limits.concurrency)]
        for one in slow:
            with pytest.raises(grpc.RpcError) as error:
                one.result(timeout=60)
            assert error.value.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert connect(f"grpc://{running.grpc}", "classification").predict({"text": ["ba"]})["label"].size
        never.set()


@pytest.mark.parametrize("scheme", ["rest", pytest.param("grpc", marks=pytest.mark.integration)])
def test_load_at_a_server_is_reported(running, scheme):
    address = running.rest if scheme == "rest" else f"grpc://{running.grpc}"
    load = benchmark_load.Load(1, clients=3, rows=2, longest=100)
    report = benchmark_load.measure("classification", "ba ne tor " * 20, load, server=address)
    assert report["requests"] >= 3 and not report["errors"] and min(report["clients"]) > 0
    assert bool(report["memory"]) == (scheme == "rest")  # which metrics are asked for over
    assert all(50e6 < found < 50e9 for found in report["memory"])
    shown = str(benchmark_load.tables(report))
    assert ("the server does not export it" in shown) == (scheme == "grpc")


def test_too_many_requests_at_a_time_are_refused(running):
    version = running.service.models.find(versions.ModelSpec(name="classification"))
    run, free = version.model.run, threading.Event()
    version.model.run = lambda *request: free.wait(20) and run(*request)
    statuses = []
    try:
        threads = [
            threading.Thread(
                target=lambda: statuses.append(ask(running, "POST", PREDICT, {"instances": ["ba"]})[0])
            )
            for _ in range(LIMITS.concurrency + 8)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 10
        while len(statuses) < 8 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert statuses == [503] * 8
        for path in ("/healthz", "/monitoring/prometheus/metrics"):  # a busy server is not a dead one
            assert ask(running, "GET", path)[0] == 200
        assert ask(running, "GET", "/v1/models/classification")[0] == 503
        for thread in threads:
            thread.join()
        assert set(statuses) <= {503, 504, 408}  # those that wait for the model give up, too
    finally:
        free.set()
        version.model.run = run
    assert ask(running, "POST", PREDICT, {"instances": ["ba"]})[0] == 200


@pytest.mark.parametrize("scheme", ["rest", "grpc"])
def test_what_no_client_waits_for_any_more_is_not_computed(running, monkeypatch, scheme):
    model = running.service.models.find(versions.ModelSpec(name="classification")).model
    run, check, free, runs, checked = model.run, model.check, threading.Event(), [], []

    def held(signature, inputs, seconds):
        runs.append(inputs["text"].tolist())
        free.wait(20)
        return run(signature, inputs, seconds)

    def noted(signature, inputs):
        rows = check(signature, inputs)
        checked.append(inputs["text"].tolist())
        return rows

    def wait_for(condition):
        deadline = time.monotonic() + 20
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert condition()

    def cancelled():
        text = ask(running, "GET", "/monitoring/prometheus/metrics")[1]
        found = re.search(r'request_count{model_name="classification",status="CANCELLED"} (\d+)', text)
        return int(found[1]) if found else 0

    monkeypatch.setattr(model, "run", held)
    monkeypatch.setattr(model, "check", noted)
    monkeypatch.setattr(running.service, "timeout", 60.0)
    before = cancelled()
    workers = [
        threading.Thread(target=ask, args=(running, "POST", PREDICT, {"instances": ["ba"]})) for _ in range(2)
    ]
    try:
        for count, worker in enumerate(workers, start=1):  # both workers of the model are busy
            worker.start()
            wait_for(lambda count=count: len(runs) == count)
        host, _, port = running.rest.rpartition(":")
        if scheme == "rest":
            body = b'{"instances": ["gone"]}'
            head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            leaving = [socket.create_connection((host, int(port))) for _ in range(5)]
            for one in leaving:
                one.sendall(head.encode() + body)
        else:
            request = PredictRequest()
            request.model_spec.name = "classification"
            request.inputs["text"].CopyFrom(tf.make_tensor_proto(["gone"]))
            stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(running.grpc))
            leaving = [stub.Predict.future(request) for _ in range(5)]
        wait_for(lambda: checked.count([b"gone"]) == 5)
        for one in leaving:
            one.close() if scheme == "rest" else one.cancel()
        wait_for(lambda: cancelled() == before + 5)
    finally:
        free.set()
    assert ask(running, "POST", PREDICT, {"instances": ["tor"]})[0] == 200
    for worker in workers:
        worker.join()
    assert runs == [[b"ba"], [b"ba"], [b"tor"]]


def test_metrics_have_the_names_of_tensorflow_serving(running):
    ask(running, "POST", PREDICT, {"instances": ["ba"]})
    ask(running, "POST", PREDICT, {"instances": [1]})
    ask(running, "POST", "/v1/models/made-up:predict", {"instances": ["ba"]})
    status, text = ask(running, "GET", "/monitoring/prometheus/metrics")
    assert status == 200
    assert ':tensorflow:serving:request_count{model_name="classification",status="OK"}' in text
    assert ':tensorflow:serving:request_latency_count{API="predict",entrypoint="REST",model_name=' in text
    assert "process_resident_memory_bytes" in text and "made-up" not in text


@pytest.mark.integration
def test_versions_are_loaded_and_unloaded_while_requests_run(exports, tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "POLL_SECONDS", 0.05)
    folder = tmp_path / "reviews"
    shutil.copytree(exports["classification"], folder)
    with server.serving([versions.of_folder(str(folder))]) as running:
        failures, done = [], threading.Event()

        def client():
            while not done.is_set():
                status, answer = ask(running, "POST", "/v1/models/reviews:predict", {"instances": ["ba"]})
                if status != 200:
                    failures.append(answer)
                time.sleep(0.01)

        def state():
            found = ask(running, "GET", "/v1/models/reviews")[1]["model_version_status"]
            return {one["version"]: one["state"] for one in found}

        def wait_for(expected):
            deadline = time.monotonic() + 20
            while state() != expected and time.monotonic() < deadline:
                time.sleep(0.05)
            assert state() == expected

        threads = [threading.Thread(target=client) for _ in range(3)]
        for thread in threads:
            thread.start()
        shutil.copytree(folder / "1", tmp_path / "two")
        (tmp_path / "two").rename(folder / "2")
        wait_for({"2": "AVAILABLE"})
        (folder / "3").mkdir()  # a broken version: the one before goes on
        (folder / "3" / "saved_model.pb").write_bytes(b"torn")
        wait_for({"3": "END", "2": "AVAILABLE"})
        done.set()
        for thread in threads:
            thread.join()
        assert not failures
        assert "not found" in ask(running, "POST", "/v1/models/reviews/versions/1:predict", {})[1]["error"]


@pytest.mark.parametrize(
    ("method", "path", "body", "statuses"),
    [
        ("GET", "/v1/models/classification/metadata", None, (200, 404)),
        ("POST", PREDICT, {"instances": ["ba"]}, (404, 404)),
    ],
)
def test_a_version_is_unloaded_just_after_a_request_found_it(
    exports, monkeypatch, method, path, body, statuses
):
    with server.serving([versions.of_folder(str(exports["classification"]))]) as running:
        served = running.service.models
        find = served.find

        def find_and_unload(spec):
            version = find(spec)
            served.close()
            return version

        monkeypatch.setattr(served, "find", find_and_unload)
        assert tuple(ask(running, method, path, body)[0] for _ in statuses) == statuses


def test_folders_and_settings_that_cannot_be_served(exports, tmp_path):
    def refused(message, function, path):
        with pytest.raises(UserError, match=message):
            function(str(path))

    refused("is not a folder", versions.of_folder, tmp_path / "no")
    refused("holds no exported model: .*xlnet-tf export --model_dir", versions.of_folder, tmp_path)
    (tmp_path / "models.config").write_text("model_config_list {")
    refused("is not a models.config", versions.of_config_file, tmp_path / "models.config")
    (tmp_path / "models.config").write_text("")
    refused("has no models", versions.of_config_file, tmp_path / "models.config")
    refused("is not there", versions.of_config_file, tmp_path / "other.config")
    (tmp_path / "models.config").write_text(
        'model_config_list { config { name: "a" base_path: "/models/a" } }'
    )
    refused("there is no folder /models/a or", versions.of_config_file, tmp_path / "models.config")
    (tmp_path / "models.config").write_text('model_config_list { config { name: "a" } }')
    refused("model 'a' has no base_path", versions.of_config_file, tmp_path / "models.config")
    one = f'name: "a" base_path: "{exports["regression"]}"'
    nine = "model_version_policy { specific { versions: 9 } }"
    (tmp_path / "models.config").write_text(f"model_config_list {{ config {{ {one} {nine} }} }}")
    refused(
        "model 'a' has no version 9 in .*, which has 1$", versions.of_config_file, tmp_path / "models.config"
    )
    label = 'version_labels { key: "stable" value: 9 }'
    (tmp_path / "models.config").write_text(f"model_config_list {{ config {{ {one} {label} }} }}")
    refused(
        "the label 'stable' of model 'a' stands for version 9, which is not served, only 1: change",
        versions.of_config_file,
        tmp_path / "models.config",
    )
    one = f'name: "a" base_path: "{exports["regression"]}/1"'
    (tmp_path / "models.config").write_text(f"model_config_list {{ config {{ {one} }} }}")
    refused(
        "base_path of model 'a', .*/1, is one version", versions.of_config_file, tmp_path / "models.config"
    )
    shutil.copytree(exports["regression"], tmp_path / "my model")  # which is served by another name
    one = 'name: "a" base_path: "my model/"'
    (tmp_path / "models.config").write_text(f"model_config_list {{ config {{ {one} }} }}")
    expected = versions.ModelConfig("a", str(tmp_path / "my model"))
    assert versions.of_config_file(str(tmp_path / "models.config")) == [expected]
    tf.saved_model.save(tf.Module(), str(tmp_path / "mute" / "1"))
    with (
        pytest.raises(UserError, match="mute/1 cannot be loaded: it has no signatures"),
        server.serving([versions.of_folder(str(tmp_path / "mute"))]),
    ):
        pass
    shutil.copytree(exports["regression"], tmp_path / "cut")
    (tmp_path / "cut" / "1" / "assets.extra" / "buckets.json").write_text("[32, 6")
    with (
        pytest.raises(UserError, match="cut/1 cannot be loaded: assets.extra/buckets.json is damaged"),
        server.serving([versions.of_folder(str(tmp_path / "cut"))]),
    ):
        pass
    torn = tmp_path / "torn"
    (torn / "1").mkdir(parents=True)
    (torn / "1" / "saved_model.pb").write_bytes(b"torn")
    with (
        pytest.raises(UserError, match="torn/1 cannot be loaded"),
        server.serving([versions.of_folder(str(torn))]),
    ):
        pass
    assert versions.of_folder(str(exports["regression"] / "1")).only == (1,)
    [config] = versions.of_config_file(
        str(exports["regression"] / "models.config")
    )  # written for a container
    assert (config.name, config.folder) == ("regression", str(exports["regression"]))


def test_a_taken_port_is_named(running, exports):
    port = int(running.rest.rpartition(":")[2])
    config, message = (
        versions.of_folder(str(exports["regression"])),
        f"localhost:{port} cannot be listened on",
    )
    with pytest.raises(UserError, match=message), server.serving([config], rest_port=port):
        pass
