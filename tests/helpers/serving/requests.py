"""Requests to the local server, and what the models themselves answer."""

import contextlib
import http.client
import json
import socket

import numpy as np
import tensorflow as tf

from tests.conftest import invent_texts
from tests.helpers.serving.exports import KINDS
from xlnet_tf.serving.export import export
from xlnet_tf.serving.local import guard

SERVED = ("classification", "regression")


LIMITS = guard.Limits(hosts=("models.example",), max_bytes=200_000, timeout=3.0, concurrency=24)


PREDICT = "/v1/models/classification:predict"


def exported(folder, name, tokenizer):
    kind = KINDS[name]
    export(kind.module(kind.model(tokenizer), tokenizer), str(folder / name), warmup_batches=(1,))
    return folder / name


def shared_exports(made_once, tokenizer):
    """Returns the folders of the models SERVED by name, which all processes of the tests only read."""

    def write(folder):
        for name in SERVED:
            exported(folder, name, tokenizer)

    folder = made_once("exported_models", write)
    return {name: folder / name for name in SERVED}


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


def raw(running, data):
    """Sends bytes; returns what comes back until the server hangs up."""
    host, _, port = running.rest.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(data)
        answer = b""
        while chunk := connection.recv(1 << 16):
            answer += chunk
        return answer


def direct(model, signature, **columns):
    answers = model.signatures[signature](**{name: tf.constant(rows) for name, rows in columns.items()})
    return {name: value.numpy() for name, value in answers.items()}


def rows_of(name, number, seed=0):
    """Texts of all lengths, as inputs of serving_default."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(map(str, invent_texts(int(rng.integers(1, 12)), seed=seed + n))) for n in range(number)]
    texts = [text[: int(rng.integers(1, len(text)))] for text in texts]
    return {"text_a": texts, "text_b": texts[::-1]} if name == "regression" else {"text": texts}
