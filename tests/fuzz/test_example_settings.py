"""Sets of examples whose settings are damaged or hostile: a task that can be built, or an error."""

import json

import numpy as np
import pytest
from official.core import exp_factory, task_factory

from tests.helpers.records import mutations
from tests.helpers.records.synthetic import example_writer
from xlnet_tf import manifest_checksum, task_registry
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks.classification.files import write_files


def settings_of(task: str) -> dict:
    """Settings as the task's builder writes them, as far as the task reads them."""
    return task_registry.find(task).load("synthetic")(task_registry.Sizes(8, 2, 2))[1]


def write_set(folder, tokenizer, task):
    """Writes a set of one example."""
    entry = task_registry.find(task)
    options = {"task": entry.examples or task, "split": "dev", "settings": settings_of(task)}
    with example_writer(folder, tokenizer, sequences=entry.sequences or 2, **options) as writer:
        ids = [9] * 8 * writer.example_set.sequences
        writer.write({"input_ids": ids, "segment_ids": ids}, {"id": "0"})
    return writer.example_set


def build(folder):
    params = exp_factory.get_exp_config(task_registry.entry_for_set(ExampleSet.load(folder)).experiment).task
    params.train_data.input_path = params.validation_data.input_path = str(folder)
    params.model.preset = "micro"
    task = task_factory.get_task_cls(type(params))(params)
    assert task.has_answers(task.validation_set) in (True, False)
    task.build_head(task.build_encoder())


@pytest.mark.parametrize("task", task_registry.names())
@mutations.counts(40, 3000)
def test_settings_of_examples(tmp_path, small_tokenizer, task, count):
    path = write_set(tmp_path, small_tokenizer, task).folder / "manifest.json"
    values = json.loads(path.read_text())
    manifest_checksum.pop_checksum(values)
    build(tmp_path)

    def change(rng, _):
        changed = {**values, "settings": mutations.mutated(rng, settings_of(task))}
        return json.dumps(manifest_checksum.with_checksum(changed)).encode()

    seen = mutations.try_damaged(count, [path], change, lambda path: build(path.parent))
    assert set(seen) == {"UserError", "used"}


def test_wrong_settings_are_named(tmp_path, small_tokenizer):
    for task, change, message in (
        ("classification", {}, "settings.name is missing; expected a string"),
        ("classification", {"kind": "parsing"}, "settings.kind is 'parsing'; expected one of classification"),
        ("classification", {"metrics": ["rmse"]}, r"settings.metrics is \['rmse'\]; .*accuracy"),
        ("classification", {"labels": ["a", "a"]}, "expected 2 or more, each of them once"),
        ("choice", {"answered": 1}, "settings.answered is 1; expected true or false"),
        ("ranking", {"relevant_from": 0}, "settings.relevant_from is 0; expected a whole number from 1"),
    ):
        examples = write_set(tmp_path, small_tokenizer, task)
        settings = settings_of(task) | change if change else {}
        examples.settings.clear()
        examples.settings.update(settings)
        examples.save()
        with pytest.raises(UserError, match=message) as error:
            build(tmp_path)
        assert str(tmp_path / "manifest.json") in str(error.value) and "build the examples" in str(
            error.value
        )


@pytest.mark.parametrize("name", ["../escaped.tsv", "/tmp/escaped.tsv", "..", "a/b.tsv", ""])
def test_submissions_stay_in_their_folder(tmp_path, small_tokenizer, name):
    examples = write_set(tmp_path / "dev", small_tokenizer, "classification")
    examples.settings["submissions"]["dev"] = name
    with pytest.raises(UserError, match="settings.submissions is .* expected names of files"):
        write_files(examples, np.ones([1, 2]), None, tmp_path / "predictions")
    assert {path.name for path in tmp_path.rglob("*.tsv")} <= {"predictions.tsv"}
