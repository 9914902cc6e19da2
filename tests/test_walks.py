"""How many functions and files a piece of work passes through: a hop more needs a reason.

A walk that grows past its budget fails here with the list of what it enters. The three walks are drawn in
CONTRIBUTING.md.
"""

import collections
import contextlib
import http.client
import json
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import REPOSITORY, invent_texts
from tests.helpers.serving.requests import shared_exports
from tests.helpers.training import toy
from tfrecord_builders.pretraining.build import build_sets
from tfrecord_builders.pretraining.options import PretrainingOptions
from xlnet_tf.serving.local import server, versions
from xlnet_tf.tasks.pretraining import task as pretraining


@contextlib.contextmanager
def recording() -> Iterator[dict[str, set[str]]]:
    """Notes the functions of the project that are entered, by file, also in threads that start here."""
    roots = tuple(f"{REPOSITORY / package}/" for package in ("xlnet_tf", "tfrecord_builders", "run_scripts"))
    found: dict[str, set[str]] = collections.defaultdict(set)

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(roots) and not code.co_name.startswith("<"):
            name = getattr(
                code, "co_qualname", f"{code.co_name}:{code.co_firstlineno}"
            )  # Python 3.10 has none
            found[code.co_filename.removeprefix(f"{REPOSITORY}/")].add(name)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def entered(walk: Callable[[str], object]) -> dict[str, set[str]]:
    """Returns the functions that a piece of work enters when it is done again, with another name."""
    walk("first")
    with recording() as found:
        walk("second")
    return found


def check(found: dict[str, set[str]], functions: int, files: int) -> None:
    """Fails if a walk has entered more functions or files than its budget."""
    counted = sum(map(len, found.values())), len(found)
    listed = "\n".join(f"{file}: {', '.join(sorted(names))}" for file, names in sorted(found.items()))
    assert counted <= (functions, files) and counted[1] <= files, f"{counted}\n{listed}"


def test_from_a_text_to_a_record(tmp_path, small_tokenizer):
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    (tmp_path / "corpus.txt").write_text("\n".join(invent_texts(200)))

    def build(name):
        build_sets(
            PretrainingOptions(
                input=[str(tmp_path / "corpus.txt")],
                tokenizer=str(tmp_path / "spiece.model"),
                output_dir=str(tmp_path / name),
                seq_len=32,
                num_workers=1,
            )
        )

    check(entered(build), functions=241, files=47)


@pytest.mark.integration
def test_from_a_record_to_an_update(tmp_path):
    toy.make_records(tmp_path / "records")

    def train(name):
        params = pretraining.pretraining_experiment()
        params.override(toy.settings(tmp_path))
        params.override({"trainer": {"train_steps": 2, "steps_per_loop": 2}})
        pretraining.pretrain(params, str(tmp_path / name))

    check(entered(train), functions=421, files=64)


def test_from_a_request_to_an_answer(made_once, small_tokenizer, monkeypatch):
    monkeypatch.setattr(versions, "POLL_SECONDS", 600)  # else it looks for new versions meanwhile
    folder = shared_exports(made_once, small_tokenizer)["regression"]
    body = json.dumps({"instances": [{"text_a": "ba", "text_b": "ne"}]})

    def ask(connection):
        connection.request(
            "POST", "/v1/models/regression:predict", body, {"Content-Type": "application/json"}
        )
        with connection.getresponse() as response:
            assert response.status == 200, response.read()
            response.read()

    with recording() as found, server.serving([versions.of_folder(str(folder))]) as running:
        connection = http.client.HTTPConnection(running.rest)  # whose end may come at any time
        ask(connection)  # threads and caches
        found.clear()
        ask(connection)
        request = {file: set(names) for file, names in found.items()}  # without the server's end
    check(request, functions=38, files=10)
