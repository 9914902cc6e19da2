"""Sets of examples whose settings are damaged or hostile: a task that can be built, or an error."""

import collections
import json

import numpy as np
import pytest
from official.core import exp_factory, task_factory

from tests.helpers.records import mutations
from xlnet_tf import manifest_checksum, task_registry
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.tasks.predictions.classification import write_files

# As the builders write them.
SETTINGS = {
    "classification": {
        "name": "sst-2", "kind": "classification", "labels": ["no", "yes"], "metrics": ["accuracy", "f1"],
        "submissions": {"dev": "SST-2.tsv"}, "truncation": "end", "pair": False, "labelled": True,
    },
    "choice": {"num_choices": 2, "max_qa_len": 8, "answered": True},
    "ranking": {
        "candidates": 2, "relevant_from": 1, "max_query_len": 8, "num_passes": 1, "seed": 0, "judged": True,
    },
    "squad": {"unanswerable": True, "max_question_len": 8, "stride": 4, "answered": True},
    "tagging": {"labels": ["O", "B-X", "I-X"], "tagged": True, "stride": 4, "document": False},
}  # fmt: skip


def write_set(folder, tokenizer, task):
    """Writes a set of one example."""
    with ExampleWriter(
        folder,
        task=task,
        split="dev",
        tokenizer=tokenizer,
        seq_len=8,
        columns=[],
        settings=SETTINGS[task],
        sequences=2 if task in ("choice", "ranking") else 1,
    ) as writer:
        ids = [9] * 8 * writer.example_set.sequences
        writer.write({"input_ids": ids, "segment_ids": ids}, {"id": "0"})
    return writer.example_set


def build(folder):
    params = exp_factory.get_exp_config(task_registry.of_examples(ExampleSet.load(folder)).experiment).task
    params.train_data.input_path = params.validation_data.input_path = str(folder)
    params.model.preset = "micro"
    task = task_factory.get_task_cls(type(params))(params)
    assert task.has_answers(task.validation_set) in (True, False)
    task.build_head(task.build_encoder())


@pytest.mark.parametrize("task", SETTINGS)
@mutations.counts(60, 3000)
def test_settings_of_examples(tmp_path, small_tokenizer, task, count):
    path = write_set(tmp_path, small_tokenizer, task).folder / "manifest.json"
    values = json.loads(path.read_text())
    manifest_checksum.take_seal(values)
    build(tmp_path)
    seen = collections.Counter()
    for rng in mutations.generators(count):
        changed = {**values, "settings": mutations.mutated(rng, SETTINGS[task])}
        path.write_text(json.dumps(manifest_checksum.sealed(changed)))
        try:
            build(tmp_path)
        except UserError as error:
            assert str(error) and len(str(error)) < 5000
            seen["UserError"] += 1
        else:
            seen["built"] += 1
    print(task, dict(seen))
    assert seen["UserError"] and seen["built"]


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("classification", {}, "settings.name is missing; expected a string"),
        ("classification", {"kind": "parsing"}, "settings.kind is 'parsing'; expected one of classification"),
        ("classification", {"labels": ["a"]}, r"settings.labels is \['a'\]; expected 2 or more"),
        (
            "classification",
            {"metrics": ["rmse"]},
            r"settings.metrics is \['rmse'\]; expected some of accuracy",
        ),
        ("classification", {"labels": ["a", "a"]}, "expected 2 or more, each of them once"),
        ("choice", {"answered": 1}, "settings.answered is 1; expected true or false"),
        ("ranking", {"relevant_from": 0}, "settings.relevant_from is 0; expected a whole number from 1"),
        ("squad", {"unanswerable": None}, "settings.unanswerable is None; expected true or false"),
        ("tagging", {"labels": []}, r"settings.labels is \[\]; expected 1 or more"),
    ],
)
def test_wrong_settings_are_named(tmp_path, small_tokenizer, task, change, message):
    examples = write_set(tmp_path, small_tokenizer, task)
    settings = SETTINGS[task] | change if change else {}
    examples.settings.clear()
    examples.settings.update(settings)
    examples.save()
    with pytest.raises(UserError, match=message) as error:
        build(tmp_path)
    assert str(tmp_path / "manifest.json") in str(error.value) and "build the examples" in str(error.value)


@pytest.mark.parametrize("name", ["../escaped.tsv", "/tmp/escaped.tsv", "..", "a/b.tsv", ""])
def test_submissions_stay_in_their_folder(tmp_path, small_tokenizer, name):
    examples = write_set(tmp_path / "dev", small_tokenizer, "classification")
    examples.settings["submissions"]["dev"] = name
    with pytest.raises(UserError, match="settings.submissions is .* expected names of files"):
        write_files(examples, np.ones([1, 2]), None, tmp_path / "predictions")
    assert {path.name for path in tmp_path.rglob("*.tsv")} <= {"predictions.tsv"}
