"""The command `serve`: what it says at its start, that it ends cleanly, and what it refuses."""

import contextlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
import requests

from run_scripts import serve
from tests.conftest import REPOSITORY
from tests.helpers.serving.exports import KINDS
from tests.helpers.serving.toys import built
from xlnet_tf.checkpoints import save_model
from xlnet_tf.errors import UserError
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.serving.export import export
from xlnet_tf.serving.local import server, versions


@pytest.fixture(scope="module")
def folder(small_tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    for name, task in (("reviews", "classification"), ("tagger", "tagging")):
        kind = KINDS[task]
        module = kind.module(kind.model(small_tokenizer), small_tokenizer)
        export(module, str(folder / name), warmup_batches=(1,))
    return folder / "reviews"


@contextlib.contextmanager
def started(folder, *flags):
    """Runs the command; yields its process, and what it says at its start."""
    command = [sys.executable, "-m", "run_scripts.serve", f"--model={folder}", *flags]
    command += ["--rest_port=0", "--grpc_port=0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=REPOSITORY, **pipes) as process:
        said = ""
        while "Ctrl-C" not in said:
            assert (line := process.stdout.readline()), process.stderr.read()
            said += line
        yield process, said


@pytest.mark.integration
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_it_says_how_to_ask_it_and_ends_cleanly(folder, number, status):
    with started(folder) as (process, said):
        assert "reviews, version 1: classify, examples, serving_default, tokens" in said
        assert "for development and small deployments" in said
        example = re.search(r"^curl .*", said, re.MULTILINE)[0]
        answer = subprocess.run(shlex.split(example), capture_output=True, text=True, check=True).stdout
        assert '"outputs"' in answer and '"probabilities"' in answer
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == status
        assert errors.splitlines()[-1].startswith("INTERRUPTED") and "Traceback" not in errors and not output


@pytest.mark.integration
def test_it_ends_at_once_whatever_nobody_waits_for_any_more(folder):
    """A tagger takes 30 s to read 4 MB; the client leaves after 3 s."""
    with started(folder.parent / "tagger", "--timeout=30") as (process, said):
        url = re.search(r"http://[^ ]*/v1/models/tagger", said)[0] + ":predict"
        with pytest.raises(requests.ReadTimeout):
            requests.post(url, json={"instances": ["ba ne " * 80_000] * 8}, timeout=3)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 75
        assert time.monotonic() - begun < 8  # 5, and what other work on the machine adds


@pytest.mark.integration
def test_the_page_comes_with_the_server_and_explains_a_model(folder, small_tokenizer, tmp_path):
    save_model(built(XLNetPretrainer, small_tokenizer), tmp_path / "toy", tokenizer=small_tokenizer)
    for configs, explain in (([versions.of_folder(str(folder))], None), ([], str(tmp_path / "toy"))):
        with server.serving(configs, pages=serve.page_routes(explain)) as running:
            page = requests.get(f"http://{running.rest}/")
            assert page.ok and "default-src 'none'" in page.headers["Content-Security-Policy"]
            about = requests.get(f"http://{running.rest}/page/about").json()
            assert [*about["served"]] == [config.name for config in configs]
            for served in about["served"].values():
                assert served["task"] == "classification" and served["labels"] == ["bad", "fair", "good"]
                assert served["example"] == {"text": ["A fine film, from the first minute to the last."]}
            assert (about["language_model"] or {}).get("name") == (explain and "toy")
            answer = requests.post(f"http://{running.rest}/page/score", json={"text": "ba ne"})
            assert answer.status_code == (200 if explain else 404)
            assert f"Page  http://{running.rest}/" in serve.describe(running)


@pytest.mark.integration
def test_a_model_of_several_versions_is_on_the_page_once(folder, tmp_path):
    shutil.copytree(folder / "1", tmp_path / "reviews" / "1")
    shutil.copytree(folder / "1", tmp_path / "reviews" / "2")
    config = versions.ModelConfig("reviews", str(tmp_path / "reviews"), newest=None)
    with server.serving([config], pages=serve.page_routes(None)) as running:
        assert len([*running.service.models.available()]) == 2
        assert requests.get(f"http://{running.rest}/page/about").json()["served"].keys() == {"reviews"}


@pytest.mark.integration
def test_a_folder_of_exports_is_answered_with_their_flags(folder, monkeypatch):
    monkeypatch.chdir(folder.parent.parent)
    given = folder.parent.name
    with pytest.raises(UserError, match=f"holds several models, .*: give .*--model={given}/reviews"):
        versions.of_folder(f"{given}/")


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    with pytest.raises(UserError, match=r"needs starlette: pip install '.*\[serve\]'"):
        serve.check_extra()
