"""A client of TensorFlow Serving: columns of inputs go in, columns of answers come out, over REST or gRPC.

    client = connect("localhost:8501", "reviews")             # grpc://localhost:8500 for gRPC
    client.predict({"text": ["A fine film.", "A waste of time."]})["label"]    # [2] bytes

Over REST it needs no TensorFlow; over gRPC it needs tensorflow-serving-api, and so TensorFlow.

Source: https://www.tensorflow.org/tfx/serving/api_rest
"""

import base64
import contextlib
import functools
import http.client
import json
import socket
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from xlnet_tf import files
from xlnet_tf.errors import UserError, reason
from xlnet_tf.serving.answers.signatures import (
    MOST_BYTES,
    Signature,
    TensorInfo,
    bad_answer,
    check_answers,
    no_answer,
    no_model,
    printable,
    refusal,
    signatures_of,
)

_CHUNK = 1 << 16


class Transport(Protocol):
    """The connection to one model of a server; its errors are UserErrors."""

    def signatures(self) -> dict[str, Signature]:
        """Returns the model's signatures by name."""

    def predict(
        self, name: str, signature: Signature, columns: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Calls a signature; string values are bytes in object arrays."""


class Client:
    """One signature of a served model, which a transport reaches."""

    def __init__(self, transport: Transport, name: str):
        self._transport = transport
        self._name = name

    @functools.cached_property
    def signature(self) -> Signature:
        """The signature's inputs and outputs, requested once."""
        signatures = self._transport.signatures()
        if self._name not in signatures:
            raise UserError(
                f"the model has no signature {self._name!r}; it has "
                f"{printable(', '.join(sorted(signatures)) or 'none')}"
            )
        if problem := signatures[self._name].problem:
            raise UserError(f"the signature {self._name!r} of the model cannot be asked: {problem}")
        return signatures[self._name]

    def predict(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Answers a batch.

        Inputs are arrays or nested lists [B, ...] by name, strings as str or bytes; so are the answers, with
        strings as bytes in object arrays.
        """
        expected = self.signature.inputs
        missing, unknown = sorted(set(expected) - set(inputs)), sorted(set(inputs) - set(expected))
        if missing or unknown:
            wrong = [f"{', '.join(missing)} missing"] * bool(missing)
            wrong += [f"{', '.join(unknown)} unknown"] * bool(unknown)
            known = ", ".join(sorted(expected)) or "none"
            raise UserError(f"inputs of {self._name}: {'; '.join(wrong)}. Expected {known}")
        columns = {name: _as_column(name, inputs[name], column) for name, column in expected.items()}
        if len({len(values) for values in columns.values()}) > 1:
            rows = ", ".join(f"{name} {len(values)}" for name, values in columns.items())
            raise UserError(f"the inputs of {self._name} have different numbers of rows: {rows}")
        answers = self._transport.predict(self._name, self.signature, columns)
        check_answers(answers, self.signature, len(next(iter(columns.values()))) if columns else None)
        return answers


def _as_column(name: str, values: Any, column: TensorInfo) -> np.ndarray:
    """Returns the values of an input as an array of the type that the model takes."""
    try:
        if column.dtype == object:
            array = np.frompyfunc(_as_bytes, 1, 1)(np.array(values, object))
        else:
            array = _converted(np.array(values), column.dtype)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        kind = "strings" if column.dtype == object else column.dtype
        raise UserError(
            f"input {name}: expected {kind}, {_axes(column)} with the batch, rows of one shape; {error}"
        ) from error
    if np.ndim(array) != column.rank and column.rank is not None or np.ndim(array) == 0:
        raise UserError(
            f"input {name} has the shape {list(np.shape(array))}; expected {_axes(column)}, batch first"
        )
    return array


def _axes(column: TensorInfo) -> str:
    return "any number of axes" if column.rank is None else f"{column.rank} axes"


def _converted(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Converts numbers to another type, which must be able to hold them."""
    is_float = np.issubdtype(dtype, np.floating) or dtype.kind == "V"  # V: bfloat16
    kinds = "b" if dtype.kind == "b" else "iuf" if is_float else "iu"
    if values.size and values.dtype.kind not in kinds:
        raise TypeError(f"found {values.dtype}")
    with np.errstate(over="ignore"):
        array = values.astype(dtype)
    held = np.isfinite(array.astype(np.float64)) == np.isfinite(values) if is_float else array == values
    if not np.all(held):
        raise ValueError(f"a number is out of the range of {dtype}")
    return array


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return value
    raise TypeError(f"found {value!r}")


class RestTransport:
    """TensorFlow Serving's REST API at a URL; a whole answer must arrive within `timeout` seconds."""

    def __init__(self, url: str, model: str, timeout: float):
        self._url = url
        self._model = model
        self._timeout = timeout

    def signatures(self):
        answer = self._ask("/metadata", None)
        try:
            return signatures_of(answer["metadata"]["signature_def"]["signature_def"])
        except (KeyError, TypeError, ValueError) as error:
            raise bad_answer(f"what it says of {self._model!r} has no signatures") from error

    def predict(self, name, signature, columns):
        inputs = {key: _to_json(values) for key, values in columns.items()}
        answer = self._ask(":predict", {"signature_name": name, "inputs": inputs})
        if "outputs" not in answer:
            raise bad_answer("it has no outputs")
        outputs = answer["outputs"]
        if len(signature.outputs) == 1:  # the server leaves out the only name
            outputs = dict.fromkeys(signature.outputs, outputs)
        if not isinstance(outputs, dict) or (missing := sorted(set(signature.outputs) - set(outputs))):
            named = f" {', '.join(missing)}" if isinstance(outputs, dict) else "s by name"
            raise bad_answer(f"it lacks the output{named}")
        return {key: _from_json(key, outputs[key], column) for key, column in signature.outputs.items()}

    def _ask(self, path: str, body: Any) -> dict[str, Any]:
        address = f"/v1/models/{urllib.parse.quote(self._model, safe='')}{path}"
        try:
            data = None if body is None else json.dumps(body, allow_nan=False).encode()
        except ValueError as error:
            raise UserError(f"JSON has no NaN and no infinite numbers, but an input has: {error}") from error
        try:
            with self._connection() as connection:
                method = "GET" if data is None else "POST"
                connection.request(method, address, data, {"Content-Type": "application/json"})
                response = connection.getresponse()
                answer = b"".join(_chunks(response))
        except TimeoutError as error:
            raise no_answer(self._url, f"no whole answer within {self._timeout:g} s") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise no_answer(self._url, reason(error)) from error
        if len(answer) > MOST_BYTES:
            raise bad_answer(f"it is longer than {MOST_BYTES >> 20} MB")
        try:
            text = answer.decode("utf-8", "surrogateescape")  # a string may not be UTF-8
            document = json.loads(text, object_pairs_hook=files.unique_keys)
        except files.SecondKey as error:
            raise bad_answer(printable(error)) from error
        except (ValueError, RecursionError):
            document = None
        if response.status != 200:
            message = document.get("error") if isinstance(document, dict) else None
            message = message or f"HTTP status {response.status}, {answer[:200]!r}"
            raise (no_model(self._url, self._model, message) if body is None else refusal(self._url, message))
        if not isinstance(document, dict):
            raise no_answer(self._url, f"expected a JSON object, found {answer[:200]!r}")
        return document

    @contextlib.contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        """Opens a connection that ends at the deadline; a socket's own timeout restarts with each byte."""
        url = urllib.parse.urlsplit(self._url)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.hostname, url.port, timeout=self._timeout)
        expired, sockets = threading.Event(), []

        def end() -> None:
            expired.set()
            for opened in sockets:
                with contextlib.suppress(OSError):  # it may be closed by now
                    opened.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(self._timeout, end)
        timer.start()
        try:
            connection.connect()
            sockets.append(connection.sock)  # which the connection forgets where the answer ends with it
            yield connection
        except (OSError, http.client.HTTPException, ValueError) as error:
            if expired.is_set():
                raise TimeoutError from error
            raise
        finally:
            timer.cancel()
            connection.close()
        if expired.is_set():
            raise TimeoutError


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yields a body in parts, up to the first one over MOST_BYTES."""
    size = 0
    while size <= MOST_BYTES and (chunk := response.read(_CHUNK)):
        size += len(chunk)
        yield chunk


def connect(server: str, model: str, signature: str = "serving_default", *, timeout: float = 60) -> Client:
    """Returns a client of HOST:PORT, perhaps with http(s)://, or grpc://HOST:PORT; it requests nothing yet.

    An answer must arrive within `timeout` seconds.
    """
    expected = "expected HOST:PORT (REST) or grpc://HOST:PORT"
    if set("@?#") & set(server):  # there may be a secret in it
        raise UserError(f"the server's address has a user name, password, query or fragment: {expected}")
    url = urllib.parse.urlsplit(server if "://" in server else f"http://{server}")
    try:
        complete = url.hostname and url.port
    except ValueError:  # the port is not a number
        complete = False
    if not complete or url.scheme not in ("http", "https", "grpc") or url.path not in ("", "/"):
        raise UserError(f"the server is {server!r}; {expected}")
    if url.scheme == "grpc":
        from xlnet_tf.serving.client_grpc import GrpcTransport

        return Client(GrpcTransport(url.netloc, model, timeout), signature)
    return Client(RestTransport(f"{url.scheme}://{url.netloc}", model, timeout), signature)


def _to_json(values: np.ndarray) -> Any:
    """Returns an array as nested lists; text stands for itself, bytes that are not UTF-8 as base64."""
    if values.dtype != object:
        return (values.astype(np.float32) if values.dtype.kind == "V" else values).tolist()
    return np.frompyfunc(_bytes_to_json, 1, 1)(values).tolist()


def _bytes_to_json(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def _from_json(name: str, values: Any, column: TensorInfo) -> np.ndarray:
    try:
        if column.dtype != object:
            return _converted(np.array(values), column.dtype)
        array = np.array(_strings_from_json(values), object)
        if not all(isinstance(value, bytes) for value in array.flat):
            raise ValueError("its rows have different shapes")
        return array
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        kind = "strings" if column.dtype == object else column.dtype
        raise bad_answer(f"{name} is not {kind}: {printable(error, 200)}") from error


def _strings_from_json(values: Any) -> Any:
    """Converts nested lists of strings to bytes; outputs named *_bytes come as padded base64."""
    if isinstance(values, list):
        return [_strings_from_json(value) for value in values]
    if not isinstance(values, dict):
        return _as_bytes(values)
    decoded = base64.b64decode(values["b64"])
    if values != {"b64": base64.b64encode(decoded).decode()}:  # Python skips what is not base64
        raise ValueError(f"{values} is not base64")
    return decoded
