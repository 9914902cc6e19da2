"""The model card: what is known of a model besides its weights is written once and read once."""

import builtins
import collections
import dataclasses
import json
import math
import pathlib

import pytest
import tensorflow as tf
import yaml

from tests.helpers.serving.toys import built
from tests.helpers.training import toy_finetuning
from xlnet_tf.checkpoints import open_checkpoint, save_checkpoint, save_model
from xlnet_tf.checkpoints.model_card import FORMAT_VERSION, ModelCard
from xlnet_tf.errors import UserError
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.models.classifier import XLNetClassifier, XLNetRegressor
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.models.token_classifier import XLNetTokenClassifier
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.serving.sources import open_served
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer

LABELS = ["bad", "fair", "good"]
TAGS = ["O", "B-X", "I-X"]
CLEANING = CleaningConfig(lower=True, collapse_whitespace=False)
CARD = ModelCard(
    task="classification",
    labels=("a", "ü"),
    multi_label=True,
    settings={"clamp_len": 3, "summary": "mean", "dropout": 0.2},
    cleaning=CLEANING,
    thresholds={"alert_threshold": 0.3},
    metrics={"accuracy": 0.75, "step": 8},
    origin={"init_checkpoint": "somewhere"},
)


@pytest.fixture
def opened(monkeypatch):
    """Counts how often each file is opened, by its name."""
    counts = collections.Counter()

    def counting(function):
        def wrapper(path, *arguments, **keywords):
            counts[pathlib.PurePath(str(path)).name] += 1
            return function(path, *arguments, **keywords)

        return wrapper

    for owner, name in ((builtins, "open"), (tf.io.gfile, "GFile")):
        monkeypatch.setattr(owner, name, counting(getattr(owner, name)))
    return counts


def run_folder(folder, tokenizer, task="classification", **settings):
    """Writes what a run of an earlier version left: no card."""
    model_class = {"classification": XLNetClassifier, "tagging": XLNetTokenClassifier}[task]
    labels = LABELS if task == "classification" else TAGS
    save_model(built(model_class, tokenizer, 3, labels=labels), folder, tokenizer)
    (folder / "model.json").unlink()
    manifest = {"kind": "examples", "task": task, "cleaning": CLEANING.to_dict()}
    (folder / "manifest.json").write_text(json.dumps(manifest | {"settings": {"labels": labels}}))
    params = {"task": {"init_checkpoint": "start", "model": settings}}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    (folder / "metrics.json").write_text(json.dumps({"step": 4, "score": 0.5, "alert_threshold": 0.7}))
    return folder


def test_a_card_is_read_as_it_was_written(tmp_path):
    serving = {"seq_len": 64, "threshold": 1, "alert": {"label": "bad", "threshold": 0}, "stride": None}
    serving["own"] = {}
    for card in (CARD, ModelCard(), ModelCard(serving=serving)):
        card.write(tmp_path)
        values = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
        assert (values["format_version"], values.get("task")) == (FORMAT_VERSION, card.task)
        assert dataclasses.replace(ModelCard.read(tmp_path), external={}) == card


def test_cards_of_later_versions_and_damaged_ones_are_refused(tmp_path, small_tokenizer):
    wrong = {"task": 3, "metrics": [], "multi_label": "no", "labels": ["a", 1], "settings": 7, "cleaning": 7}
    for text, message in (
        (json.dumps({"format_version": FORMAT_VERSION + 1}), " has the format_version 2; .* up to 1: update"),
        ('{"settings": {"clamp_len": 3, "ü": 1, "clamp_len": 4}}', ': "clamp_len" is given twice: keep one'),
        *((json.dumps({field: value}), f": {field} is .*; expected") for field, value in wrong.items()),
    ):
        (tmp_path / "model.json").write_text(text)
        with pytest.raises(UserError, match=f"model.json{message}"):
            ModelCard.read(tmp_path)
    save_model(built(XLNetClassifier, small_tokenizer, 3), tmp_path / "source")
    (tmp_path / "source" / "model.json").write_text("{")
    with pytest.raises(UserError, match=r"model.json is not JSON"):
        save_checkpoint(open_checkpoint(tmp_path / "source"), str(tmp_path / "other"), "ours")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("serving", "message"),
    [
        ({"seq_len": "64"}, "serving.seq_len is '64'; expected a whole number"),
        ({"seq_len": True}, "serving.seq_len is True; expected a whole number"),
        ({"pair": 1}, "serving.pair is 1; expected true or false"),
        ({"alert": ["bad", 0.5]}, "serving.alert is .*; expected an object with fields"),
        ({"alert": {"label": "bad", "threshold": "high"}}, "serving.alert.threshold is 'high'; expected a"),
        ({"alert": {"label": "bad", "threshold": 1.5}}, "serving.alert.threshold is 1.5; expected 0 to 1"),
        ({"alert": {"label": "bad", "threshold": math.nan}}, "serving.alert.threshold is nan; expected 0 to"),
        ({"alert": {"label": "bad", "threshold": None}}, "serving.alert.threshold is None; expected 0 to 1"),
        ({"temperature": 2.0}, "serving.temperature is 2.0; expected a list"),
        ({"threshold": []}, r"serving.threshold is \[\]; expected a number"),
    ],
)
def test_a_wrong_type_in_the_serving_section_is_named(tmp_path, serving, message):
    (tmp_path / "model.json").write_text(json.dumps({"serving": serving}))
    with pytest.raises(UserError, match=f"model.json: {message}"):
        ModelCard.read(tmp_path)


def test_files_of_earlier_runs_are_read_into_the_card(tmp_path, small_tokenizer):
    run_folder(tmp_path, small_tokenizer, clamp_len=3, summary="mean", dropout=0.3, memory_len=9)
    card = ModelCard.read(tmp_path)
    assert (card.task, card.labels, card.multi_label) == ("classification", tuple(LABELS), False)
    assert card.settings == {"clamp_len": 3, "summary": "mean", "dropout": 0.3, "memory_len": 9}
    assert card.reading == {"clamp_len": 3, "summary": "mean"}
    assert card.cleaning == CLEANING
    assert card.thresholds == {"alert_threshold": 0.7} and card.metrics == {"step": 4, "score": 0.5}
    assert card.origin == {"init_checkpoint": "start"}


@pytest.mark.parametrize(
    ("task", "kind", "expected", "multi_label"),
    [
        ("squad", None, "question_answering", False),
        ("choice", None, "multiple_choice", False),
        ("classification", "regression", "regression", False),
        ("classification", "multi_label", "classification", True),
        ("classification", "classification", "classification", False),
        ("own", None, "own", False),
    ],
)
def test_tasks_have_the_names_of_today(tmp_path, task, kind, expected, multi_label):
    settings = {"kind": kind, "labels": []} if kind else {}
    (tmp_path / "manifest.json").write_text(json.dumps({"task": task, "settings": settings}))
    card = ModelCard.read(tmp_path)
    assert (card.task, card.multi_label) == (expected, multi_label)
    (tmp_path / "manifest.json").write_text(json.dumps({"kind": "pretraining"}))
    assert ModelCard.read(tmp_path).task == "language_model"


@pytest.mark.parametrize("format", ["ours", "original", "hugging_face"])
def test_the_card_alone_describes_a_converted_run(tmp_path, small_tokenizer, format):
    """Hugging Face's files go before it, where the weights are of its format."""
    run = run_folder(tmp_path / "run", small_tokenizer, clamp_len=3, summary="mean", segment_len=8)
    checkpoint = open_checkpoint(run)
    save_checkpoint(checkpoint, str(tmp_path / "other"), format)
    for name in ("params.yaml", "manifest.json", "metrics.json"):
        (tmp_path / "other" / name).unlink()
    card = ModelCard.read(tmp_path / "other")
    expected = checkpoint.card
    for field in ("task", "labels", "multi_label", "cleaning", "thresholds", "metrics"):
        assert getattr(card, field) == getattr(expected, field), field
    assert card.settings.items() >= {"clamp_len": 3, "summary": "mean", "segment_len": 8}.items()
    assert card.origin == {"init_checkpoint": "start", "converted_from": checkpoint.path}
    if format == "hugging_face":
        file = tmp_path / "other" / "config.json"
        changed = json.loads(file.read_text()) | {"clamp_len": 5, "id2label": {"0": "x", "1": "y", "2": "z"}}
        file.write_text(json.dumps(changed))
        card = ModelCard.read(tmp_path / "other")
        assert card.settings["clamp_len"] == 5 and card.labels == ("x", "y", "z")
        assert card.settings["segment_len"] == 8  # which its files cannot tell


@pytest.mark.parametrize(
    ("model_class", "arguments", "task"),
    [
        (XLNetClassifier, (3,), "classification"),
        (XLNetRegressor, (), "regression"),
        (XLNetTokenClassifier, (3,), "tagging"),
        (XLNetPretrainer, (), "language_model"),
    ],
)
def test_a_saved_model_knows_its_task(tmp_path, small_tokenizer, model_class, arguments, task):
    save_model(built(model_class, small_tokenizer, *arguments), tmp_path)
    assert json.loads((tmp_path / "model.json").read_text())["task"] == task
    assert open_checkpoint(tmp_path).card.task == task


def answer_questions(folder, task):
    """Everything that is asked of a folder of weights."""
    if task == "language_model":
        return lambda: XLNetLanguageModel.from_pretrained(folder)
    return lambda: open_served(str(folder), head=task, seq_len=24).load()


@pytest.mark.parametrize("format", [None, "ours", "original", "hugging_face"])
@pytest.mark.parametrize("task", ["classification", "tagging", "language_model"])
def test_each_file_of_a_folder_is_opened_once(tmp_path, small_tokenizer, opened, format, task):
    folder = tmp_path / "source"
    if task == "language_model":
        save_model(built(XLNetPretrainer, small_tokenizer), folder, small_tokenizer)
    else:
        run_folder(folder, small_tokenizer, task, clamp_len=3)
    if format:
        save_checkpoint(open_checkpoint(folder), str(folder := tmp_path / "other"), format)
    question = answer_questions(folder, task)
    opened.clear()
    question()
    files = {path.name for path in folder.iterdir() if path.suffix in (".json", ".yaml")}
    read = {name: opened[name] for name in files - {"tokenizer.json"}}  # which is for Hugging Face alone
    assert read and set(read.values()) == {1}, read


def test_a_set_opens_its_tokenizer_once(tmp_path, small_tokenizer, opened):
    examples = toy_finetuning.make_examples(tmp_path, small_tokenizer, 2)
    opened.clear()
    assert ExampleSet.load(tmp_path).load_tokenizer().fingerprint == small_tokenizer.fingerprint
    XLNetTokenizer.from_pretrained(examples.folder)
    assert opened == {"manifest.json": 2, "spiece.model": 2}  # each asks one question
