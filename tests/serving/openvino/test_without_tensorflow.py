"""Models for OpenVINO answer in processes that cannot import TensorFlow, as the model that was exported."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request

import grpc
import numpy as np
import pytest

from tests.helpers.serving import without_tensorflow
from tests.helpers.serving.answering import assert_near
from tests.helpers.serving.exports import KINDS
from xlnet_tf.serving.answers.text_answers import answer_texts
from xlnet_tf.serving.export import export_openvino
from xlnet_tf.serving.local import protos

pytest.importorskip("openvino")
pytestmark = pytest.mark.integration
TASKS = ("classification", "question_answering", "tagging", "ranking")
ROWS = {
    "classification": [{"text": text} for text in ("ba ne", "", "<sep> tor", "mi kal " * 40)],
    "question_answering": [{"question": "ba?", "context": "tor mi kal ba ne " * n} for n in (1, 20)],
    "tagging": [{"text": "Ba ne tor, mi."}, {"text": "\U0001f600 kal"}, {"text": "中文 ba"}],
    "ranking": [{"query": "ba", "candidates": ["ne tor", "mi", ""]}, {"query": "", "candidates": ["kal"]}],
}


@pytest.fixture(scope="module")
def served(tmp_path_factory, small_tokenizer):
    """Returns the folder with a model of each task, and the modules that they were exported from."""
    folder, modules = tmp_path_factory.mktemp("served"), {}
    for task in TASKS:
        kind = KINDS[task]
        modules[task] = kind.module(kind.model(small_tokenizer), small_tokenizer)
        export_openvino(modules[task], str(folder / task), "float32")
    return folder, modules


ANSWER = """
import json, sys, xlnet_tf
for line in sys.stdin:
    path, rows = json.loads(line)
    model = xlnet_tf.from_pretrained(path)
    print(json.dumps([model.answer(**row) for row in rows]))
assert not {'tensorflow', 'tf_keras', 'tensorflow_text'} & set(sys.modules)
"""


def test_from_pretrained(served, tmp_path):
    folder, modules = served
    lines = "".join(json.dumps([str(folder / task), ROWS[task]]) + "\n" for task in TASKS)
    answers = without_tensorflow.run_code(tmp_path, ANSWER, lines).splitlines()
    for task, found in zip(TASKS, answers, strict=True):
        pairs = zip(ROWS[task], answer_texts(modules[task], ROWS[task], 2))
        assert_near(json.loads(found), [modules[task].readable(*pair) for pair in pairs])


@pytest.mark.parametrize("flags", [[], ["--num_workers=2", "--shard_mb=0.001"]])
def test_predict_for_a_file_and_for_a_corpus(served, tmp_path, flags):
    folder, modules = served
    lines = [json.dumps({**row, "label": "given"}) + "\n" for row in ROWS["classification"] * 3]
    (tmp_path / "rows.jsonl").write_text("".join(lines))
    words = [f"--model_dir={folder / 'classification'}", f"--data={tmp_path / 'rows.jsonl'}", *flags]
    done = without_tensorflow.run(tmp_path, "predict", *words, f"--output_dir={tmp_path / 'answers'}")
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "answers").glob("predictions*.jsonl"))
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    rows = [{"text": json.loads(line)["text"]} for line in lines]
    for one, expected in zip(found, answer_texts(modules["classification"], rows, 4), strict=True):
        assert one.pop("given_label") == "given" and one.pop("text") is not None
        assert_near(one, expected)


@contextlib.contextmanager
def server(folder, *models):
    """Starts `serve` without TensorFlow; yields the addresses of REST and gRPC."""
    words = ["serve", *(f"--model={model}" for model in models), "--rest_port=0", "--grpc_port=0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, "-m", "run_scripts", *words]
    process = subprocess.Popen(command, env=without_tensorflow.environment(folder), **pipes)
    try:
        shown = ""
        while "Ctrl-C" not in shown:
            line = process.stdout.readline()
            assert line, shown
            shown += line
        yield re.search(r"REST  http://(\S+)", shown)[1], re.search(r"gRPC  (\S+)", shown)[1]
    finally:
        process.terminate()
        process.wait(60)


def ask(address, body=None):
    request = urllib.request.Request(f"http://{address}", body and json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read())


def available(address, model):
    """Returns the versions of a model that answer."""
    status = ask(f"{address}/v1/models/{model}")["model_version_status"]
    return [version["version"] for version in status if version["state"] == "AVAILABLE"]


def test_serve(served, tmp_path):
    folder, modules = served
    with server(tmp_path, *(folder / task for task in TASKS)) as (rest, rpc):
        for task in TASKS:
            rows = ROWS[task][:1] if task == "ranking" else ROWS[task]
            found = ask(f"{rest}/v1/models/{task}:predict", {"instances": rows})["predictions"]
            for one, expected in zip(found, answer_texts(modules[task], rows, 8), strict=True):
                assert_near(modules[task].without_padding(rows[0], one), expected)
            about = ask(f"{rest}/v1/models/{task}/metadata")["metadata"]["signature_def"]["signature_def"]
            assert set(about["serving_default"]["inputs"]) == set(rows[0])
        assert available(rest, "tagging") == ["1"]
        shutil.copytree(folder / "tagging" / "1", tmp_path / "2")
        (tmp_path / "2").rename(folder / "tagging" / "2")
        deadline = time.monotonic() + 180
        while available(rest, "tagging") != ["2"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert ask(f"{rest}/v1/models/tagging:predict", {"instances": ROWS["tagging"]})["predictions"]
        channel = grpc.insecure_channel(rpc)
        predict = channel.unary_unary(
            "/tensorflow.serving.PredictionService/Predict",
            lambda request: request.SerializeToString(),
            protos.PredictResponse.FromString,
        )
        request = protos.PredictRequest()
        request.model_spec.name = "classification"
        request.inputs["text"].dtype = protos.DATA_TYPES["DT_STRING"]
        request.inputs["text"].tensor_shape.dim.add(size=1)
        request.inputs["text"].string_val.append(b"ba ne")
        answer = predict(request, timeout=60).outputs["probabilities"]
        probabilities = np.frombuffer(answer.tensor_content, np.float32)
        [expected] = answer_texts(modules["classification"], [{"text": "ba ne"}], 1)
        np.testing.assert_allclose(probabilities, expected["probabilities"], atol=1e-5)
