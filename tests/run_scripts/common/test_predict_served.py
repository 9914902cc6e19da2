"""`run_scripts.predict --server` asks a server for rows from flags and files."""

import functools
import json
import types

import numpy as np
import pytest
import tensorflow as tf

from run_scripts.common import answers
from run_scripts.common.predicting import served
from tests.helpers.commands import run_in_fork
from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers.signatures import Signature, TensorInfo
from xlnet_tf.serving.client import Client, connect
from xlnet_tf.serving.local import server as local_server
from xlnet_tf.serving.local import versions


@tf.function(
    input_signature=[
        tf.TensorSpec([None], tf.string, "query"),
        tf.TensorSpec([None, None], tf.string, "passages"),
    ]
)
def rank(query, passages):
    """Gives the lengths as scores, and how many rows the request had."""
    return {
        "query": query,
        "scores": tf.cast(tf.strings.length(passages), tf.float32) / 10,
        "rows": tf.fill([tf.size(query)], tf.size(query)),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("folder") / "toy"
    tf.saved_model.save(tf.Module(), str(path / "1"), signatures={"serving_default": rank})
    return str(path)


@pytest.fixture(scope="module")
def server(folder):
    with local_server.serving([versions.of_folder(folder)]) as running:
        yield running


@pytest.fixture(scope="module")
def address(server):
    return server.rest


@pytest.fixture
def client(address):
    return connect(address, "toy")


predict = functools.partial(run_in_fork, "run_scripts.predict")


def test_rows_of_flags_are_answered_as_a_table(address):
    flags = ["--input=query=h\u00e9 = 1", '--input=passages=["ab", "abc"]']
    flags += ["--input=query=b", '--input=passages=["", "c"]']
    done = predict(f"--server={address}", "--model=toy", *flags)
    tables = ["query   h\u00e9 = 1\nrows    2\nscores  0.2000  0.3000\n"]
    tables += ["query   b\nrows    2\nscores  0.0000  0.1000\n"]
    assert done.stdout == "\n".join(tables), done.stderr
    for flags, message in (
        ("--server=localhost:1", "--server asks for --model"),
        ("--server=localhost:1 --model=a", "--input=NAME=VALUE or --data=FILE"),
        ("--server=localhost:1 --model=a --input=a=b", "no answer from http://localhost:1"),
    ):
        done = predict(*flags.split())
        assert done.returncode == 1 and "Traceback" not in done.stderr and message in done.stderr


def test_answers_do_not_overwrite_fields_of_a_row(client, tmp_path, capsys):
    data = tmp_path / "rows.jsonl"
    row = {"query": "q", "passages": ["a"]}
    rows = [row, row | {"scores": [1]}, row | {"scores": [2]}, row | {"scores": [1], "given_scores": 2}]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ask = functools.partial(served.ask, client, batch_size=2)
    lines = answers.answered_lines(str(data), ask, client.signature.inputs)
    assert json.loads(next(lines))["scores"] == pytest.approx([0.1])
    labelled = json.loads(next(lines))
    assert labelled["given_scores"] == [1] and labelled["scores"] == pytest.approx([0.1])
    assert json.loads(next(lines))["given_scores"] == [2]
    assert capsys.readouterr().err == f"note: scores of {data} is given_scores in the answers\n"
    with pytest.raises(UserError, match="rows.jsonl, row 4 has scores and given_scores"):
        next(lines)


@pytest.mark.integration
def test_lines_of_a_file_are_answered_in_their_order(server, tmp_path):
    rows = [
        {"id": number, "query": f"q{number}", "passages": ["a" * number] * (1 + number // 4)}
        for number in range(6)
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = [f"--data={data}", "--batch_size=3", f"--output_dir={tmp_path / 'out'}"]
    done = predict(f"--server=grpc://{server.grpc}", "--model=toy", *flags)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert lines == [
        row | {"scores": [number / 10] * (1 + number // 4), "rows": size}
        for number, (row, size) in enumerate(zip(rows, [3, 3, 3, 1, 2, 2], strict=True))
    ]


@pytest.mark.parametrize(
    "pairs, message",
    [
        (["query"], "expected NAME=VALUE with the names passages, query"),
        (["text=a"], "the model has no input 'text': expected passages, query"),
        (["passages=a"], r'expected JSON, such as passages=\["a", "b"\]'),
        (["query=a", "query=b", 'passages=["c"]'], "2 of query, 1 of passages"),
    ],
)
def test_flags_that_make_no_rows(client, pairs, message):
    with pytest.raises(UserError, match=message):
        answers.rows_of_flags(pairs, client.signature.inputs)
    [row] = answers.rows_of_flags(["text=[1]"], {"text": TensorInfo(np.dtype(object), None)})
    assert row == {"text": "[1]"}  # an input of any rank is a text


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (["text"], {"x": 1, "total": 0}, "the model's output total is one value for all rows"),
        (["text"], {}, "no inputs or no outputs"),
    ],
)
def test_a_signature_without_an_answer_for_each_row_is_refused(inputs, outputs, message):
    class Transport:
        def signatures(self):
            columns = {name: TensorInfo(np.dtype(np.float32), rank) for name, rank in outputs.items()}
            texts = {name: TensorInfo(np.dtype(object), 1) for name in inputs}
            return {"odd": Signature(texts, columns)}

        def predict(self, name, signature, columns):
            return {name: np.ones([1] * rank, np.float32) for name, rank in outputs.items()}

    with pytest.raises(UserError, match=message):
        list(served.ask(Client(Transport(), "odd"), [{"text": "a"}] * 3, batch_size=1))


@pytest.mark.integration
def test_a_table_has_lists_as_json_and_columns_of_other_names(address, tmp_path):
    (tmp_path / "rows.csv").write_text('q,passages\na,"[""b"", ""cd""]"\n')
    flags = [f"--server={address}", "--model=toy", f"--data={tmp_path / 'rows.csv'}"]
    done = predict(*flags, "--column=query=q")
    assert json.loads(done.stdout)["scores"] == [0.1, 0.2], done.stderr
    assert "row 1: query missing; there is q, passages. Name the right column" in predict(*flags).stderr
    assert "--column=text=q: expected INPUT=COLUMN" in predict(*flags, "--column=text=q").stderr


def test_an_error_keeps_the_answers_of_before(client, address, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"query": "a", "passages": ["b"]}\n{"query": "a"}\n')
    (tmp_path / "predictions.jsonl").write_text("before")
    flags = [f"--data={tmp_path / 'rows.jsonl'}", f"--output_dir={tmp_path}", "--batch_size=1"]
    done = predict(f"--server={address}", "--model=toy", *flags)
    assert done.returncode == 1 and "passages missing" in done.stderr
    assert (tmp_path / "predictions.jsonl").read_text() == "before"


def test_answers_are_lines_of_json_and_tables():
    """NaN and infinite numbers are null, and of long lists the beginning is shown."""
    line = answers.json_line({"error": "too long", "mean": [float("nan"), 0.5], "best": {"x": float("-inf")}})
    assert line == '{"error": "too long", "mean": [null, 0.5], "best": {"x": null}}\n'
    table = answers.describe({"vector": [0.5] * 20, "words": ["a", "b"], "pairs": [["\u00e9", 1]]})
    assert table == f'pairs   [["\u00e9", 1]]\nvector  {"0.5000  " * 8}... 20 in all\nwords   a  b'


def test_entities_are_those_of_the_row_alone():
    answered = {"num_entities": np.int32([1, 2]), "entity": np.array([[b"a", b""], [b"b", b"c"]], object)}
    outputs = {"num_entities": TensorInfo(np.dtype(np.int32), 1), "entity": TensorInfo(np.dtype(object), 2)}
    signature = Signature({"text": TensorInfo(np.dtype(object), 1)}, outputs)
    client = types.SimpleNamespace(signature=signature, predict=lambda inputs: answered)
    found = list(served.ask(client, [{"text": "a"}, {"text": "b"}], 2))
    assert found == [{"num_entities": 1, "entity": ["a"]}, {"num_entities": 2, "entity": ["b", "c"]}]
