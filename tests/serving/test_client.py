"""The client gives the same answers over REST and gRPC, and says by name what is wrong."""

import contextlib
import socket
import threading

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.serving.client import connect
from xlnet_tf.serving.local import server, versions

TEXTS = ["A fine film.", "", "n\u00e4ive \U0001f600 \"'\\ \x00"]
BROKEN = b"\xff broken \xe4"


@tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
def describe(text):
    text = tf.ensure_shape(text, [None])
    return {
        "length": tf.strings.length(text),
        "half": tf.cast(tf.strings.length(text), tf.float32) / 2,
        "letters": tf.strings.bytes_split(text).to_tensor(),
        "empty": tf.equal(text, ""),
        "copy_bytes": text,
    }


@tf.function(
    input_signature=[
        tf.TensorSpec([None], tf.string, "query"),
        tf.TensorSpec([None, None], tf.string, "candidates"),
        tf.TensorSpec([None, None], tf.int32, "ids"),
        tf.TensorSpec([None], tf.bool, "flag"),
        tf.TensorSpec([None], tf.float32, "weight"),
    ]
)
def join(query, candidates, ids, flag, weight):
    tf.debugging.assert_less(ids, 50, "ids has ids from 50 on")
    sums = tf.where(flag, tf.cast(tf.reduce_sum(ids, axis=1), tf.float32) * weight, 0.0)
    return {"joined": query[:, None] + candidates + tf.strings.as_string(sums, precision=1)[:, None]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("folder") / "toy"
    tf.saved_model.save(tf.Module(), str(path / "1"), signatures={"serving_default": describe, "join": join})
    return str(path)


@pytest.fixture(scope="module")
def local(folder):
    with server.serving([versions.of_folder(folder)]) as running:
        yield running


@pytest.fixture(params=["rest", "grpc"])
def address(request, local):
    """The address of the local server over each protocol."""
    return local.rest if request.param == "rest" else f"grpc://{local.grpc}"


def test_answers_have_their_types_and_any_bytes_arrive(address):
    texts = [*TEXTS, BROKEN, BROKEN.decode("utf-8", "surrogateescape")]
    answers = connect(address, "toy").predict({"text": texts})
    assert answers["copy_bytes"].tolist() == [*(text.encode() for text in TEXTS), BROKEN, BROKEN]
    np.testing.assert_array_equal(answers["length"], [12, 0, len(TEXTS[2].encode()), 10, 10])
    np.testing.assert_array_equal(answers["half"], answers["length"] / 2)
    np.testing.assert_array_equal(answers["empty"], [False, True, False, False, False])
    assert answers["letters"].shape[0] == 5 and answers["letters"][4, 9:11].tolist() == [b"\xe4", b""]
    dtypes = {name: values.dtype for name, values in answers.items()}
    strings = {"letters": object, "copy_bytes": object}
    assert dtypes == {"length": np.int32, "half": np.float32, "empty": bool, **strings}


def test_several_inputs_and_one_output(address):
    client = connect(address, "toy", "join")
    inputs = {
        "query": np.array(["a", "b"]),
        "candidates": [["x", "y", "z"], ["u", b"v", "w"]],
        "ids": np.int64([[1, 2], [30, 40]]),
        "flag": [True, False],
        "weight": [0.1, 2],
    }
    answers = client.predict(inputs)
    assert answers["joined"].tolist() == [[b"ax0.3", b"ay0.3", b"az0.3"], [b"bu0.0", b"bv0.0", b"bw0.0"]]
    assert {name: column.rank for name, column in client.signature.inputs.items()} == {
        "query": 1, "candidates": 2, "ids": 2, "flag": 1, "weight": 1
    }  # fmt: skip


GOOD = {"query": ["a"], "candidates": [["x"]], "ids": [[1]], "flag": [True], "weight": [1]}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"query": None}, r"query missing\. Expected candidates, flag, ids, query, weight"),
        ({"query": [["a"]]}, r"input query has the shape \[1, 1\]; expected 1 axes"),
        ({"query": [1]}, "input query: expected strings, .* found 1"),
        ({"candidates": [["x"], ["y", "z"]]}, "input candidates: expected strings, .* rows of one shape"),
        ({"ids": [[1.5]]}, "input ids: expected int32"),
        ({"ids": [[2**40]]}, "input ids: .* out of the range of int32"),
        ({"flag": [1]}, "input flag: expected bool"),
        ({"flag": [True, False]}, "different numbers of rows: .*flag 2"),
        ({"ids": [[50]]}, r"(?s)localhost:\d+ refuses the request: .*ids from 50 on"),
    ],
)
def test_wrong_inputs_are_named(address, change, message):
    inputs = {name: value for name, value in (GOOD | change).items() if value is not None}
    with pytest.raises(UserError, match=message):
        connect(address, "toy", "join").predict(inputs)


def test_models_and_signatures_that_are_not_there(address):
    with pytest.raises(UserError, match=r"has no model 'tay', or is still loading it: Servable not found"):
        connect(address, "tay").predict({"text": ["a"]})
    with pytest.raises(UserError, match=r"has no signature 'tokens'; it has join, serving_default$"):
        connect(address, "toy", "tokens").predict({"text": ["a"]})


@pytest.mark.parametrize("scheme", ["", "grpc://"])
def test_nobody_is_there_or_does_not_answer(scheme):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    message = rf"no answer from \w+://localhost:{port}: .*TensorFlow Serving there\?"
    with pytest.raises(UserError, match=message):
        connect(f"{scheme}localhost:{port}", "toy").predict({"text": ["a"]})
    with socket.create_server(("localhost", 0)) as silent:
        address = f"{scheme}localhost:{silent.getsockname()[1]}"
        with pytest.raises(UserError, match="no answer from"):
            connect(address, "toy", timeout=0.2).predict({"text": ["a"]})


@contextlib.contextmanager
def answering(data):
    """A server of another kind: it says one thing and hangs up; yields its address."""
    with socket.create_server(("localhost", 0)) as other:

        def answer():
            with contextlib.suppress(OSError):
                connection, _ = other.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(data)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"localhost:{other.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    "data, message",
    [
        (b"\x00\x00\x18\x04", "no answer from"),  # how gRPC begins
        (b"HTTP/1.0 200 OK\r\n\r\n<html>hello</html>", "expected a JSON object, found b'<html>hello"),
        (b"HTTP/1.0 503 Busy\r\n\r\ncome back later", "HTTP status 503, b'come back later'"),
    ],
)
def test_somebody_else_is_there(data, message):
    with answering(data) as address, pytest.raises(UserError, match=message):
        connect(address, "toy").predict({"text": ["a"]})


SECRETS = ("user:secret@host:8501", "secret@host", "host:1?key=secret", "host:1/v1?secret", "host:1#secret")
SCHEMES = ("", "http://", "https://", "grpc://", "ftp://")


@pytest.mark.parametrize(
    "address",
    [
        *("localhost", "localhost:http", "ftp://host:1", "http://host:1/v1", ":8501", ""),
        *(scheme + secret for scheme in SCHEMES for secret in SECRETS),
    ],
)
def test_addresses_have_a_host_and_a_port_and_no_secret_is_shown(address):
    with pytest.raises(UserError, match=r"expected HOST:PORT \(REST\) or grpc://HOST:PORT") as error:
        connect(address, "toy")
    assert "secret" not in str(error.value)
