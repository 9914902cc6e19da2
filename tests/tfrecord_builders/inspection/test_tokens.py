"""`inspect --tokens_of` counts the texts that other tokenizers split differently."""

import pytest

from run_scripts import inspect_records
from run_scripts.inspect_records import InspectOptions
from tests.helpers.records.builders import jsonl
from tfrecord_builders.inspection import tokens
from xlnet_tf.errors import UserError

TEXTS = ["bane toreee, 5,", "mi ba", "5, ne"]


@pytest.fixture(scope="module")
def folder(small_tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens")
    small_tokenizer.save_pretrained(path / "model")
    rows = [{"text": text, "input_ids": small_tokenizer.encode(text)} for text in TEXTS]
    rows[1]["input_ids"] = [*rows[1]["input_ids"], 99_999]
    jsonl(path / "rows.jsonl", [*rows, {"text": "ba"}])
    (path / "texts.txt").write_text("\n".join(TEXTS))
    return path


def test_ids_of_another_pipeline(folder):
    found = tokens.compare(f"{folder}/model", f"{folder}/rows.jsonl")
    name = f"input_ids of {folder}/rows.jsonl"
    assert (found["texts"], found["with_ids"], found["others"][name]) == (4, 3, 1)
    assert found["examples"][name][0]["there"][-1] == "99999"
    assert "99999; here" in tokens.table(found)


def test_installed_libraries_split_as_we_do(folder, capsys):
    options = InspectOptions(tokens_of=f"{folder}/model", input=f"{folder}/texts.txt")
    assert inspect_records.run(options) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("3 texts; split differently by\n  sentencepiece ")
    assert [line.split()[-1] for line in shown.splitlines()[1:3]] == ["0", "0"]


def test_files_that_have_no_texts_and_options_that_do_not_belong_together(folder):
    for content, message in (("\n", "has no text"), ('{"text": 5}', "line 1: "), ('{"a": 5}', "`text`")):
        (folder / "bad").write_text(content)
        with pytest.raises(UserError, match=message):
            tokens.compare(f"{folder}/model", f"{folder}/bad")
    for options, message in (
        ({}, "--tokens_of and --input belong together"),
        ({"input": "x", "stats": True}, "--tokens_of is given with --stats"),
    ):
        with pytest.raises(UserError, match=message):
            inspect_records.run(InspectOptions(tokens_of=str(folder), **options))
