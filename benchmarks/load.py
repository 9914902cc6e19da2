"""Keeps an exported model under load: clients all at once, texts of all lengths, for minutes.

    python -m benchmarks.load --model=exports/sst2/1 --texts=reviews.txt --seconds=600 --clients=8

    python -m benchmarks.load --server=localhost:8501 --model=sst2 --texts=reviews.txt

Each client asks the signature again and again: one row or several, pieces of the texts, from a letter to
--longest characters. Now and then it asks what was asked before the load, alone, and compares the answers.
The model is loaded as TensorFlow Serving loads it, in this process, or asked at a server. Reported are
requests, errors, times and memory of the process with the model, which should not grow after the first
quarter of the time. The exit status is 1 if a request failed, an answer was another one than alone, or a
client ended early.
"""

import collections
import dataclasses
import os
import pathlib
import random
import re
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import harness
from xlnet_tf import errors
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.serving.client import connect

PERCENTILES = (50, 95, 99)
CHECKED = 10  # each client compares the answer to one of this many requests
METRICS_PATH = "/monitoring/prometheus/metrics"
TOLERANCE = 1e-4  # relative and absolute, of floats; texts and integers are the same
_SAMPLES = 240  # of the memory


@dataclasses.dataclass(frozen=True)
class Load:
    """What clients do; each field except the seed (of the choice of texts) is a flag."""

    seconds: float = option("for how long", 600, least=1)
    clients: int = option("how many ask at the same time", 8, least=1)
    rows: int = option("most rows of a request", 4, least=1)
    longest: int = option("most characters of a text", 2000, least=1)
    seed: int = 0


def measure(
    model: str, texts: str, load: Load, signature: str = "serving_default", server: str = ""
) -> dict[str, Any]:
    """Puts a model under load: a version's folder, loaded in this process, or its name on a server.

    Returns:
        requests: also of each of the clients; rows; errors: message -> count; seconds: percentile -> of a
        request; memory: bytes of the process with the model, evenly spaced over time, empty if a server does
        not export them; growth: the median of the memory's last quarter minus that of its second one.
    """
    inputs, ask = _of_server(server, model, signature) if server else _of_folder(model, signature)
    clients = [_Client(number, load, inputs, texts, ask) for number in range(load.clients)]
    end = time.monotonic() + load.seconds
    threads = [threading.Thread(target=client.ask_until, args=(end,), name=client.name) for client in clients]
    for thread in threads:
        thread.start()
    memory = _watch(threads, load.seconds, server)
    times = [seconds for client in clients for seconds in client.times]
    quarters = [float(np.median(quarter)) if len(quarter) else 0.0 for quarter in np.array_split(memory, 4)]
    return {
        "model": model,
        "server": server,
        "load": dataclasses.asdict(load),
        "requests": len(times),
        "clients": [len(client.times) for client in clients],
        "rows": sum(client.rows for client in clients),
        "errors": dict(sum((client.failures() for client in clients), collections.Counter())),
        "seconds": {str(p): float(np.percentile(times, p)) for p in PERCENTILES},
        "memory": memory,
        "growth": quarters[3] - quarters[1],
    }


def _of_server(server: str, model: str, signature: str) -> tuple[list[str], Callable]:
    """Returns the inputs of a served signature, and a function that calls it."""
    client = connect(server, model, signature)
    inputs = client.signature.inputs
    _check_texts(signature, [name for name, column in inputs.items() if column.dtype != object])
    return list(inputs), client.predict


def _check_texts(signature: str, others: Sequence[str]) -> None:
    if others:
        raise UserError(
            f"signature {signature!r} takes {', '.join(others)}, which are not texts: choose another"
        )


def _of_folder(model: str, signature: str) -> tuple[list[str], Callable]:
    """Returns the inputs of a SavedModel's signature, and a function that calls it."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (the operations that exported models use)

    loaded = tf.saved_model.load(model)
    if signature not in loaded.signatures:
        raise UserError(
            f"{model} has no signature {signature!r}: expected one of {', '.join(sorted(loaded.signatures))}"
        )
    answer = loaded.signatures[signature]
    inputs = answer.structured_input_signature[1]
    _check_texts(signature, [name for name, spec in inputs.items() if spec.dtype != tf.string])

    def ask(request: Mapping[str, Sequence[str]]) -> dict[str, np.ndarray]:
        answers = answer(**{name: tf.constant(rows) for name, rows in request.items()})
        return {name: value.numpy() for name, value in answers.items()}

    return list(inputs), ask


class _Client:
    """Sends requests all the time, and records the results.

    It sends its first request before the load, alone, and compares the answer later. Each client has another
    first request, so that answers mixed up between two clients differ.
    """

    def __init__(self, number: int, load: Load, inputs: Sequence[str], texts: str, ask: Callable):
        self.name = f"client {number}"
        self.times: list[float] = []
        self.rows = 0
        self._load, self._inputs, self._text, self._ask = load, inputs, texts, ask
        self._rng = random.Random(f"{load.seed} {number}")
        self._failures: collections.Counter[str] = collections.Counter()
        self._ended = False
        self._known = self._request()
        self._expected = self._answer(self._known)

    def ask_until(self, end: float):
        while time.monotonic() < end:
            checked = len(self.times) % CHECKED == 0
            request = self._known if checked else self._request()
            begun = time.perf_counter()
            answer = self._answer(request)
            self.times.append(time.perf_counter() - begun)
            self.rows += len(request[self._inputs[0]])
            if checked and answer and self._expected and not same(answer, self._expected):
                self._failures["another answer than without load"] += 1
        self._ended = True

    def failures(self) -> collections.Counter[str]:
        """Returns what went wrong, after the client's end."""
        early = {} if self._ended else {f"{self.name} ended after {len(self.times):,} requests": 1}
        return self._failures + collections.Counter(early)

    def _request(self) -> dict[str, list[str]]:
        rows = self._rng.randint(1, self._load.rows)
        return {name: _texts(self._rng, self._text, rows, self._load.longest) for name in self._inputs}

    def _answer(self, request: Mapping[str, Sequence[str]]) -> dict[str, np.ndarray]:
        """Returns the model's answer; {} if it failed, for whatever reason, which is counted."""
        try:
            return self._ask(request)
        except Exception as error:
            self._failures[_kind(error)] += 1
            return {}


def _kind(error: Exception) -> str:
    import tensorflow as tf

    from xlnet_tf.training.interruption import reason

    return f"{type(error).__name__}: {reason(error) if isinstance(error, tf.errors.OpError) else error}"


def same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> bool:
    """Returns whether answers are equal except for the rounding of floats."""

    def equal(value, other) -> bool:
        if value.shape != other.shape or value.dtype != other.dtype:
            return False
        if np.issubdtype(other.dtype, np.floating):
            return np.allclose(value, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        return np.array_equal(value, other)

    return found.keys() == expected.keys() and all(equal(found[name], expected[name]) for name in expected)


def _texts(rng: random.Random, text: str, rows: int, longest: int) -> list[str]:
    """Cuts rows out of a text; short and long ones are equally likely by order of magnitude."""
    lengths = [int(longest ** rng.uniform(0, 1)) for _ in range(rows)]
    begins = [rng.randrange(max(1, len(text) - length)) for length in lengths]
    return [text[begin : begin + length] for begin, length in zip(begins, lengths)]


def _watch(threads: Sequence[threading.Thread], seconds: float, server: str) -> list[int]:
    """Records the memory of this process, or of a server, until all threads have ended."""
    memory = []
    with ProgressBar(total=round(seconds), unit="s", desc="load") as bar:
        while any(thread.is_alive() for thread in threads):
            if resident := server_bytes(server) if server else resident_bytes():
                memory.append(resident)
                bar.set_postfix(memory=f"{resident / 1e6:,.0f} MB")
            time.sleep(seconds / _SAMPLES)
            bar.n = min(bar.total, bar.n + seconds / _SAMPLES)
    return memory


def resident_bytes() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def server_bytes(server: str) -> int:
    """Returns the memory of a server by its metrics; 0 if they lack it."""
    try:
        with urllib.request.urlopen(f"http://{server}{METRICS_PATH}", timeout=10) as answer:
            text = answer.read().decode()
    except (OSError, ValueError):  # there are no metrics over gRPC
        return 0
    match = re.search(r"^process_resident_memory_bytes (\S+)", text, re.MULTILINE)
    return int(float(match[1])) if match else 0


def tables(report: Mapping[str, Any]) -> dict[str, Any]:
    load, memory = report["load"], report["memory"]
    title = (
        f"{load['clients']} clients, {load['seconds']:g} s, 1 to {load['rows']} rows of up to "
        f"{load['longest']:,} characters"
    )
    figures = {
        "requests": report["requests"],
        "requests/s": report["requests"] / load["seconds"],
        "rows/s": report["rows"] / load["seconds"],
        "fewest requests of a client": min(report["clients"]),
        **{f"p{p}, ms": 1e3 * seconds for p, seconds in report["seconds"].items()},
        "errors": sum(report["errors"].values()),
        "memory, MB": memory[-1] / 1e6 if memory else "the server does not export it",
        "growth from the second to the last quarter, MB": report["growth"] / 1e6,
    }
    return {
        title: [{"": name, "value": value} for name, value in figures.items()],
        "Errors": [{"": message, "times": number} for message, number in report["errors"].items()],
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Which model is asked, with which texts."""

    model: str = option("folder of one version of an exported model; with --server its name")
    server: str = option("address of a server, HOST:PORT or grpc://HOST:PORT", "")
    texts: str = option("a file of text; the clients ask with pieces of it")
    signature: str = option("which to ask; all its inputs are texts", "serving_default")
    output: str | None = option("json file for the report", None)


def main(_: Sequence[str]) -> None:
    options = from_flags(LoadOptions)
    texts = pathlib.Path(options.texts).read_text(encoding="utf-8")
    report = measure(options.model, texts, from_flags(Load), options.signature, options.server)
    harness.publish(tables(report), options.output)
    if report["errors"]:
        sys.exit(1)


if __name__ == "__main__":
    define_flags(LoadOptions)
    define_flags(Load)
    errors.run(main)
