"""Damaged manifests, configs, settings and tokenizers: an error that says so, or a value that can be used."""

import collections
import json
import shutil

import numpy as np
import pytest
import sentencepiece
import yaml
from official.core import exp_factory, task_factory

from run_scripts.common import experiment
from run_scripts.pretrain import SETTINGS
from tests.conftest import REPOSITORY
from tests.fuzz.test_records import write_examples
from tests.helpers.command_flags import parsed
from tests.helpers.records import mutations
from tests.helpers.records.synthetic import example_writer, make_set
from xlnet_tf import manifest_checksum, task_registry
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.files import read_yaml
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.reader import _Streams
from xlnet_tf.tasks.classification.files import write_files
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.text.cleaning import read_cleaning
from xlnet_tf.text.tokenizer import XLNetTokenizer


def check_loads(count, path, load, change, expected) -> collections.Counter:
    """Whatever a changed file is, it is loaded as it was, or not at all."""

    def use(_):
        assert load() == expected

    return mutations.try_damaged(count, [path], change, use)


def use_records(folder):
    loaded = Manifest.load(folder)
    loaded.check_files()
    assert loaded.tokenizer_path.parent == folder
    assert all(loaded.path(shard).parent == folder for shard in loaded.shards)
    _Streams(loaded)


def use_examples(folder):
    loaded = ExampleSet.load(folder)
    loaded.check_files()
    loaded.arrays()
    loaded.table()
    loaded.load_tokenizer()
    assert all((loaded.folder / shard.file).parent == folder for shard in loaded.shards)


def try_manifest(count, made, use):
    """`use` loads a set as `made` was loaded, and uses it."""
    path = made.folder / "manifest.json"
    for change in (mutations.damaged, mutations.under_its_checksum):
        seen = check_loads(count, path, lambda: type(made).load(made.folder), change, made)
        assert seen["UserError"] > seen["used"] * 3
    mutations.try_damaged(count, [path], mutations.with_checksum, lambda path: use(path.parent))


@mutations.counts(150, 10_000)
def test_manifests_of_records(tmp_path, count):
    try_manifest(count, make_set(tmp_path, [[(5, 4), (2, 3)]]), use_records)


@mutations.counts(150, 10_000)
def test_manifests_of_examples(tmp_path, small_tokenizer, count):
    try_manifest(count, write_examples(tmp_path, small_tokenizer), use_examples)


@mutations.counts(100, 5000)
def test_sidecars_of_examples(tmp_path, small_tokenizer, count):
    examples = write_examples(tmp_path, small_tokenizer)
    lines = list(examples.sidecar())
    path = tmp_path / "examples.jsonl"
    check_loads(count, path, lambda: list(examples.sidecar()), mutations.damaged, lines)


def test_another_tokenizer_next_to_examples_is_refused(tmp_path, small_tokenizer):
    examples = write_examples(tmp_path, small_tokenizer)
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto[:-1])
    for read in (examples.load_tokenizer, lambda: examples.check_files(checksums=True)):
        with pytest.raises(UserError, match="put the tokenizer back"):
            read()


@mutations.counts(150, 10_000)
def test_configs(tmp_path, count):
    path = tmp_path / "xlnet_config.json"
    path.write_text(XLNetConfig.preset("micro").to_json())
    mutations.try_damaged(count, [path], mutations.of_json, XLNetConfig.from_json_file)
    for content in (b"[" * 100_000, b'{"n_layer": "\xff"}'):
        path.write_bytes(content)
        with pytest.raises(UserError, match="is not JSON|is not a text file"):
            XLNetConfig.from_json_file(str(path))


@mutations.counts(200, 5000)
def test_cleaning(tmp_path, count):
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({"do_lower_case": True, "keep_accents": False, "remove_space": True}))
    mutations.try_damaged(count, [path], mutations.of_json, lambda _: read_cleaning(tmp_path))


def load_experiment(flag):
    """Loads an experiment of pretraining as the command does with a flag."""
    values = parsed(lambda: experiment.define_flags(SETTINGS), "--model_dir=unused", flag)
    return experiment.load(pretraining.EXPERIMENT, SETTINGS, experiment.run_options(SETTINGS, values))


@mutations.counts(60, 3000)
def test_recipes(tmp_path, count):
    path = tmp_path / "recipe.yaml"
    shutil.copy(REPOSITORY / "run_scripts" / "recipes" / "base.yaml", path)
    for use in (lambda path: load_experiment(f"--config_file={path}"), read_yaml):
        mutations.try_damaged(count, [path], mutations.of_yaml, use)


@mutations.counts(100, 5000)
def test_tokenizers(tmp_path, small_tokenizer, count):
    path = tmp_path / "spiece.model"
    path.write_bytes(small_tokenizer.model_proto)

    def use(path):
        tokenizer = XLNetTokenizer(path)
        ids = tokenizer.encode("Ba ne 1999, tor: mi kal!")
        assert all(0 <= piece_id < tokenizer.vocab_size for piece_id in ids)

    sentencepiece.set_min_log_level(3)
    mutations.try_damaged(count, [path], mutations.damaged, use)


@pytest.mark.parametrize(
    "text",
    [
        "task: !!python/object/apply:os.mkdir [{mark}]",
        "task: !!python/object/apply:eval [\"__import__('os').mkdir('{mark}')\"]",
        "task: {{seed: !!python/name:os.mkdir}}",
        "task: &again [*again]",
        "runtime: {{distribution_strategy: !!python/module:os}}",
    ],
)
def test_yaml_runs_nothing(tmp_path, text):
    path, mark = tmp_path / "recipe.yaml", tmp_path / "was_run"
    path.write_text(text.format(mark=mark))
    with pytest.raises(UserError):
        load_experiment(f"--config_file={path}")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("task.seed", 2**63, "a number between"),
        ("task.seed", 2**32, "less than 4294967296"),
        ("task.model.dropout", ".nan", "a finite number"),
        ("task.model.memory_len", 10**9, "less than 65537"),
        ("trainer.optimizer_config.learning_rate", "-.inf", "a finite number"),
    ],
)
@pytest.mark.parametrize("flag", ["config_file", "params_override"])
def test_absurd_numbers_are_refused_by_name(tmp_path, flag, setting, value, message):
    nested = experiment.nested(setting, "VALUE")
    (tmp_path / "a.yaml").write_text(yaml.dump(nested).replace("VALUE", str(value)))
    source = tmp_path / "a.yaml" if flag == "config_file" else f"{setting}={value}"
    with pytest.raises(UserError, match=f"{setting}.*expected .*{message}"):
        load_experiment(f"--{flag}={source}")


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


def build_task(folder):
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
    build_task(tmp_path)

    def change(rng, _):
        changed = {**values, "settings": mutations.mutated(rng, settings_of(task))}
        return json.dumps(manifest_checksum.with_checksum(changed)).encode()

    seen = mutations.try_damaged(count, [path], change, lambda path: build_task(path.parent))
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
        with pytest.raises(UserError, match=f"{tmp_path}/manifest.json.*{message}.*build the examples"):
            build_task(tmp_path)


@pytest.mark.parametrize("name", ["../escaped.tsv", "/tmp/escaped.tsv", "..", "a/b.tsv", ""])
def test_submissions_stay_in_their_folder(tmp_path, small_tokenizer, name):
    examples = write_set(tmp_path / "dev", small_tokenizer, "classification")
    examples.settings["submissions"]["dev"] = name
    with pytest.raises(UserError, match="settings.submissions is .* expected names of files"):
        write_files(examples, np.ones([1, 2]), None, tmp_path / "predictions")
    assert {path.name for path in tmp_path.rglob("*.tsv")} <= {"predictions.tsv"}
