"""What stands before the server: it stays up, whoever asks and however."""

import gzip
import json
import socket
import threading
import time

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.apis.predict_pb2 import PredictRequest

from tests.helpers.serving.requests import LIMITS, PREDICT, ask, raw
from xlnet_tf.serving.client import connect
from xlnet_tf.serving.local import guard, server, versions


def test_bodies_are_read_and_unpacked_up_to_the_limit_of_a_request(running):
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
    for large in (b"x" * 3_000_000, (b"x" * 50_000 for _ in range(10))):  # in chunks, without a length
        found = ask(running, "POST", PREDICT, large)
        assert found == (413, {"error": "the request has more than 200,000 bytes"})
    message = "the body's Content-Encoding is 'br'; expected gzip, or none"
    assert packed(body, "br") == (415, {"error": message})


@pytest.mark.parametrize(
    ("target", "head", "status"),
    [
        ("/v1/models/classification", "HTTP/1.1\r\nHost: localhost", 200),
        ("/v1/models/classification", "HTTP/1.0", 200),
        ("/v1/models/classification", "HTTP/1.0\r\nOrigin: http://evil.example", 403),
        ("/v1/models/classification", "HTTP/1.0\r\nHost: evil.example", 403),
        ("http://localhost:8501/v1/models/classification", "HTTP/1.1\r\nHost: localhost:8501", 200),
        ("HTTP://localhost/v1/models/classification?x=1", "HTTP/1.1\r\nHost: localhost", 200),
        ("http://evil.example/v1/models/classification", "HTTP/1.1\r\nHost: localhost", 403),
        ("http://localhost/v1/models/classification", "HTTP/1.1\r\nHost: evil.example", 403),
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
    stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(running.grpc))
    with pytest.raises(grpc.RpcError) as error:
        stub.Predict(request, timeout=60)
    assert error.value.code().name == "INTERNAL"
    assert error.value.details() == "the server failed: division by zero"
    counted = ask(running, "GET", "/monitoring/prometheus/metrics")[1]
    assert 'request_count{model_name="classification",status="INTERNAL"} 2.0' in counted


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "models.example"}, 200),
        ({"Host": "[::1]:8501"}, 200),
        ({"Host": "localhost:80", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost:80", "Origin": "http://localhost:81"}, 403),
        ({"Host": "localhost:80", "Origin": "http://localhost:80"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
    ],
)
def test_requests_of_other_web_sites_are_refused(running, headers, status):
    found, answer = ask(running, "POST", PREDICT, {"instances": ["ba"]}, headers)
    assert found == status and (status == 200 or list(answer) == ["error"])
    is_link = headers.get("Sec-Fetch-Mode") == "navigate"  # which may be followed
    assert ask(running, "GET", "/v1/models/classification", headers=headers)[0] == (
        200 if is_link else status
    )


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


def test_too_many_requests_at_a_time_are_refused(running, monkeypatch):
    model = running.service.models.find(versions.ModelSpec(name="classification")).model
    run, free, statuses = model.run, threading.Event(), []

    def client():
        statuses.append(ask(running, "POST", PREDICT, {"instances": ["ba"]})[0])

    with monkeypatch.context() as patched:
        patched.setattr(model, "run", lambda *request: free.wait(120) and run(*request))
        threads = [threading.Thread(target=client) for _ in range(LIMITS.concurrency + 8)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 60
        while len(statuses) < 8 and time.monotonic() < deadline:
            time.sleep(0.02)
        try:
            assert statuses == [503] * 8
            for path in ("/healthz", "/monitoring/prometheus/metrics"):  # a busy server is not a dead one
                assert ask(running, "GET", path)[0] == 200
            assert ask(running, "GET", "/v1/models/classification")[0] == 503
            for thread in threads:
                thread.join()
            assert set(statuses) <= {503, 504, 408}  # those that wait for the model give up, too
        finally:
            free.set()
    assert ask(running, "POST", PREDICT, {"instances": ["ba"]})[0] == 200
