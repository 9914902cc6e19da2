"""The local server answers as TensorFlow Serving does, alone and together, and counts what it answers."""

import re
import socket
import threading
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.predict_pb2 import PredictRequest

from benchmarks import load as benchmark_load
from tests.helpers.serving.requests import PREDICT, SERVED, ask, direct, exported, rows_of
from xlnet_tf.errors import UserError
from xlnet_tf.serving.client import connect
from xlnet_tf.serving.local import server, versions
from xlnet_tf.serving.local.saved_model import RequestError


@pytest.mark.parametrize("scheme", ["rest", "grpc"])
@pytest.mark.parametrize("name", SERVED)
def test_a_request_alone_gets_the_answer_of_the_saved_model(running, loaded, name, scheme):
    check_alone(running, loaded[name], name, scheme)


def check_alone(running, model, name, scheme):
    address = running.rest if scheme == "rest" else f"grpc://{running.grpc}"
    columns = rows_of(name, 5)
    found, expected = connect(address, name).predict(columns), direct(model, "serving_default", **columns)
    assert set(found) == set(expected)
    for key, values in expected.items():
        np.testing.assert_array_equal(found[key], values, err_msg=key)


def at_once(count, client):
    """Calls a function with numbers, in threads that begin together."""
    ready = threading.Barrier(count)
    threads = [
        threading.Thread(target=lambda number=number: (ready.wait(), client(number)))
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("name", SERVED)
def test_requests_at_the_same_time_get_their_own_answers(running, loaded, name, monkeypatch):
    check_together(running, loaded[name], name, monkeypatch)


def check_together(running, model, name, monkeypatch):
    runs, served = [], running.service.models.find(versions.ModelSpec(name=name)).model
    run = served.run

    def counted(signature, inputs, seconds):
        runs.append(len(next(iter(inputs.values()))))
        time.sleep(0.1)  # the others arrive
        return run(signature, inputs, seconds)

    monkeypatch.setattr(served, "run", counted)
    requests = [rows_of(name, 1 + n % 4, seed=100 * n) for n in range(16)]
    answers = [None] * len(requests)

    def client(number):
        answers[number] = connect(running.rest, name).predict(requests[number])

    at_once(len(requests), client)
    for request, found in zip(requests, answers):
        expected = direct(model, "serving_default", **request)
        for key, values in expected.items():
            assert found[key].shape == values.shape, key
            if values.dtype.kind == "f":
                np.testing.assert_allclose(found[key], values, rtol=1e-4, atol=1e-5, err_msg=key)
            else:
                np.testing.assert_array_equal(found[key], values, err_msg=key)
    assert len(runs) < len(requests) and max(runs) <= 32


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


def test_a_bad_row_spoils_no_other_request(running):
    good = {"input_word_ids": [[5, 4, 3]], "input_mask": [[1] * 3], "input_type_ids": [[0, 0, 2]]}
    bad, outcomes = good | {"input_word_ids": [[5, 10**6, 3]]}, [None] * 12

    def client(number):
        body = {"signature_name": "tokens", "inputs": bad if number % 3 == 0 else good}
        outcomes[number] = ask(running, "POST", PREDICT, body)[0]

    at_once(12, client)
    assert outcomes == [400 if number % 3 == 0 else 200 for number in range(12)]


def test_only_predict_is_answered(running):
    status, found = ask(running, "POST", "/v1/models/classification:classify", {"examples": []})
    assert status == 501 and "this server answers :predict alone" in found["error"]
    stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(running.grpc))
    with pytest.raises(grpc.RpcError) as error:
        stub.Classify(ClassificationRequest(), timeout=60)
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


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
        deadline = time.monotonic() + 120
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


def test_a_taken_port_is_named(running, exports):
    port = int(running.rest.rpartition(":")[2])
    config = versions.of_folder(str(exports["regression"]))
    with (
        pytest.raises(UserError, match=f"localhost:{port} cannot be listened on"),
        server.serving([config], rest_port=port),
    ):
        pass
