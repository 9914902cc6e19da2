"""Classification from tables to files: classes, numbers, label sets; alerts, long texts."""

import csv
import functools
import json
import random
import types

import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from official.core import exp_factory
from official.modeling import hyperparams

from tests.conftest import invent_texts
from tfrecord_builders.classification.build import ClassificationOptions, build_classification
from xlnet_tf.checkpoints import open_checkpoint, save_checkpoint
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.serving.sources import open_served
from xlnet_tf.tasks import prediction, seeds
from xlnet_tf.tasks.classification import task as classification
from xlnet_tf.tasks.classification.files import write_files
from xlnet_tf.tasks.finetuning import build_task, finetune
from xlnet_tf.training.early_stopping import read_metrics

STRATEGY = tf.distribute.OneDeviceStrategy("CPU:0")
# Each text holds one to three of these words, which alone decide about its label.
WORDS = {"old": "1999,", "new": "2008,", "few": "5,"}
TINY = {
    "task": {
        "model": {"n_layer": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 16, "summary": "mean"},
        "train_data": {"global_batch_size": 8},
        "epochs": 12.0,
    },
    "trainer": {"steps_per_loop": 8, "validation_interval": 48, "optimizer_config": {"learning_rate": 0.01}},
}


def write_table(path, kind, count, seed, labelled=True):
    """Writes texts with labels: for regression, 2.5 for each "1999,"; else which words are in them."""
    rng = random.Random(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"][: 1 + labelled])
        for number, text in enumerate(invent_texts(count, seed)):
            words = [word for word in text.replace(".", "").split() if "," not in word][:5] or ["ba"]
            held = rng.sample(list(WORDS), rng.randint(0, 3)) if kind == "multi_label" else []
            if kind == "classification":
                held = [list(WORDS)[number % 3]]
            copies = rng.randint(0, 2) if kind == "regression" else 0
            for word in [WORDS[name] for name in held] + ["1999,"] * copies:
                words.insert(rng.randint(0, len(words)), word)
            label = 2.5 * copies if kind == "regression" else ";".join(held)
            writer.writerow([" ".join(words), label][: 1 + labelled])


def settings(data, *overrides):
    params = exp_factory.get_exp_config(classification.EXPERIMENT)
    for override in (TINY, *overrides):
        hyperparams.override_params_dict(params, override, is_strict=True)
    params.task.train_data.input_path = str(data / "records/train")
    params.task.validation_data.input_path = str(data / "records/dev")
    params.task.validation_data.global_batch_size = 8
    return params


def predict(data, run, split, folder):
    """Predicts as the script does; returns the task, the set and its predictions."""
    opened = prediction.Run.open(str(data / run), str(data / "records" / split))
    predictor = prediction.Predictor(opened, STRATEGY, batch_size=8)
    predictions = predictor.predict(opened.checkpoint(""))
    task, examples = opened.task, opened.task.validation_set
    paths = task.write_predictions(examples, predictions, str(folder))
    return task, examples, predictions, paths


def read_tsv(path):
    with path.open(newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t")
    return header, rows


@pytest.fixture(scope="module")
def examples_of(tmp_path_factory, small_tokenizer):
    """Returns a function of a kind: 128 texts to train on, 45 to evaluate on, 11 without labels."""

    @functools.cache
    def build(kind):
        folder = tmp_path_factory.mktemp(kind)
        (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
        for seed, (split, count) in enumerate({"train": 128, "dev": 45, "test": 11}.items()):
            write_table(folder / f"{split}.csv", kind, count, seed, labelled=split != "test")
        options = ClassificationOptions(
            tokenizer=str(folder / "spiece.model"),
            output_dir=str(folder / "records"),
            kind=kind,
            label_separator=";",
            seq_len=32,
            **{split: str(folder / f"{split}.csv") for split in ("train", "dev", "test")},
        )
        build_classification(options)
        return folder

    return build


INTEGRATION = [pytest.param(kind, marks=pytest.mark.integration) for kind in ("regression", "multi_label")]


@pytest.fixture(scope="module", params=["classification", *INTEGRATION])
def data(request, examples_of):
    return examples_of(request.param)


@pytest.fixture(scope="module")
def classes(examples_of):
    return examples_of("classification")


@pytest.fixture(scope="module")
def run(data):
    changes = {"task": {"alert": {"label": "old", "recall": 0.9}}}
    if "regression" in data.name:
        # Twice that rate leaves some seeds at the mean of all labels.
        changes = {"trainer": {"optimizer_config": {"learning_rate": 0.005}}}
    finetune(settings(data, changes), classification.ClassificationTask, STRATEGY, str(data / "run"))


def test_it_learns_and_predicts_into_files(data, run, tmp_path):
    task, examples, predictions, paths = predict(data, "run", "dev", tmp_path)
    assert task.has_answers(examples)
    scores = task.score(examples, predictions)
    assert scores["score"] == read_metrics(f"{data}/run/best")["score"] > 0.85
    assert task.constant_score(examples) < scores["score"] - 0.1
    assert not task.has_collapsed(examples, predictions)
    alike = np.repeat(predictions["outputs"][:1], 45, axis=0)
    assert task.has_collapsed(examples, {**predictions, "outputs": alike})
    header, rows = read_tsv(tmp_path / "predictions.tsv")
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    with (data / "dev.csv").open(newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    assert [line["text"] for line in lines] == texts
    assert [row[0] for row in rows] == [line["id"] for line in lines] == list(map(str, range(45)))
    assert [path.rpartition("/")[2] for path in paths] == ["predictions.tsv", "predictions.jsonl"]
    if task.kind == "regression":
        assert header == ["id", "prediction"] and task.tables(examples, predictions) == ""
        assert [np.float32(row[1]) for row in rows] == [np.float32(line["value"]) for line in lines]
        np.testing.assert_array_equal([np.float32(row[1]) for row in rows], predictions["outputs"])
        return
    assert header == ["id", "prediction", "few", "new", "old", "alert"]
    found = [list(map(float, row[2:5])) for row in rows]
    np.testing.assert_allclose(found, predictions["outputs"], atol=1e-6)
    assert all(name in task.tables(examples, predictions) for name in WORDS)
    for line in lines:
        likely = [name for name, value in line["probabilities"].items() if value >= 0.5]
        best = max(line["probabilities"], key=line["probabilities"].get)
        name, answer = ("assigned", likely) if task.kind == "multi_label" else ("label", best)
        assert line[name] == line["prediction"] == answer  # the second is the old name


@pytest.mark.parametrize("kind", ["classification", "multi_label"])
def test_any_label_is_read_back_from_the_table(tmp_path, kind):
    labels = ["a", "b, c", "d  e", 'f "g"', "h\ti", "j\nk", "n\ro", "l,", '"', "m"]
    examples = types.SimpleNamespace(
        settings={"labels": labels, "kind": kind, "submissions": {}},
        split="test",
        sidecar=lambda: [{"id": "0", "text": "ka"}] * len(labels),
    )
    outputs = np.eye(len(labels), dtype=np.float32)
    if kind == "multi_label":
        outputs = np.tril(np.ones_like(outputs))  # the first label, the first two, ...
    write_files(examples, outputs, None, tmp_path)
    header, rows = read_tsv(tmp_path / "predictions.tsv")
    assert header[2:] == labels
    found = [row[1] if kind == "classification" else next(csv.reader([row[1]])) for row in rows]
    expected = labels if kind == "classification" else [labels[: n + 1] for n in range(len(labels))]
    assert found == expected


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_weights_of_hugging_face_answer_sets_and_texts_as_the_run_did(data, run, tmp_path):
    folder = str(tmp_path / "hugging_face")
    save_checkpoint(open_checkpoint(str(data / "run")), folder, "hugging_face")
    for name in ("manifest.json", "metrics.json", "params.yaml"):  # which Hugging Face does not write
        (tmp_path / "hugging_face" / name).unlink()
    opened = prediction.Run.open(folder, str(data / "records/dev"))
    found = prediction.Predictor(opened, STRATEGY, batch_size=8).predict(opened.checkpoint(""))
    _, _, expected, _ = predict(data, "run", "dev", tmp_path)
    np.testing.assert_allclose(found["outputs"], expected["outputs"], atol=1e-6)
    with (data / "dev.csv").open(newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    answers = open_served(folder, seq_len=32).load().ask([texts], {}, batch_size=8)
    numbers = [answer.get("value", [*answer.get("probabilities", {}).values()]) for answer in answers]
    np.testing.assert_allclose(numbers, expected["outputs"], atol=1e-5)


@pytest.mark.usefixtures("eagerly")
def test_alerts_follow_the_stored_threshold(data, run, tmp_path):
    if "regression" in data.name:
        with pytest.raises(UserError, match="task.alert.label is 'old', expected one of no label"):
            classification.ClassificationTask(settings(data, {"task": {"alert": {"label": "old"}}}).task)
        return
    stored = read_metrics(f"{data}/run/best")
    assert stored["alert_recall"] >= 0.9
    task, examples, predictions, _ = predict(data, "run", "dev", tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "best_metrics", dict)
        with pytest.raises(UserError, match="probability of 'old' on a text is an alert: wait for one"):
            task.write_predictions(examples, predictions, str(tmp_path / "none"))
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    alerts = np.array([line["alert"] for line in lines])
    assert [line["probabilities"]["old"] >= stored["alert_threshold"] for line in lines] == alerts.tolist()
    held = np.array([WORDS["old"] in line["text"] for line in lines])
    assert (alerts & held).sum() / held.sum() == pytest.approx(stored["alert_recall"])
    assert (alerts & held).sum() / alerts.sum() == pytest.approx(stored["alert_precision"])


@pytest.mark.usefixtures("eagerly")
def test_texts_without_labels_are_predicted_only(data, run, tmp_path):
    task, examples, predictions, _ = predict(data, "run", "test", tmp_path)
    assert not task.has_answers(examples)
    assert len(read_tsv(tmp_path / "predictions.tsv")[1]) == 11


def test_a_metric_that_the_dev_examples_leave_undefined_is_warned_of_and_fails_no_run(
    tmp_path, small_tokenizer, caplog
):
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    files = {split: str(tmp_path / f"{split}.csv") for split in ("train", "dev")}
    (tmp_path / "train.csv").write_text("text,label\nka tomi,1\nren,2\n")
    (tmp_path / "dev.csv").write_text("text,label\nka tomi,3\nren,3\n")
    options = {"tokenizer": str(tmp_path / "spiece.model"), "output_dir": str(tmp_path / "records")}
    build_classification(ClassificationOptions(kind="regression", seq_len=16, **files, **options))
    task = classification.ClassificationTask(settings(tmp_path).task)
    rows = {"index": np.arange(2), "finite": np.ones(2), "outputs": np.array([1.0, 2.0], np.float32)}
    rows["label"] = task.validation_set.column("label")
    for _ in range(2):
        assert np.isnan(task.report(rows)["score"])
    assert caplog.text.count("pearson is undefined for the dev examples, as all have one label") == 1
    (tmp_path / "history.jsonl").write_text("")
    assert seeds._problem(task, {"score": np.nan}, str(tmp_path)) == ""  # not "learned nothing"


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"model": {"memory_len": 64}}, "task.model.memory_len (--memory_len) is 64 and has no effect"),
        ({"batching": "fixed", "sort_window": 7}, "no effect, as task.batching (--batching) is fixed"),
        ({"batching": "packed", "sort_window": 7}, "no effect, as task.batching (--batching) is packed"),
        ({"batching": "length", "sort_window": 7}, ""),
        ({"sampling": "balanced", "class_weights": "balanced"}, "both make up for rare classes"),
        ({"sampling": "balanced", "class_weights": "none"}, ""),
    ],
)
def test_settings_without_effect_and_those_that_correct_twice_are_warned_of(classes, caplog, task, said):
    build_task(settings(classes, {"task": task}), classification.ClassificationTask)
    assert said in caplog.text and bool(said) == bool(caplog.text)


def test_a_model_reads_in_the_segments_of_its_settings(classes):
    def build(**model):
        params = settings(classes, {"task": {"model": model}})
        return classification.ClassificationTask(params.task).build_model()

    model = build(segment_len=16, memory_len=4)
    assert (model.segment_len, model.encoder.memory_len) == (16, 4)
    with pytest.raises(UserError, match=r"memory_gradient \(--memory_gradient\) is 1, but texts are"):
        build(memory_gradient=1)


def test_the_loss_of_each_kind(data):
    """Against numpy, with a filler row."""
    task = classification.ClassificationTask(settings(data).task)
    outputs, label, dtype = {
        "classification": ([[1.0, 2.0, 0.5], [0, 0, 3.0], [9, 9, 9]], [1, 0, 0], np.int32),
        "regression": ([1.0, -2.0, 7.0], [0.5, 1.0, 0.0], np.float32),
        "multi_label": ([[1.0, -1, 0], [2.0, 0, 0], [9, 9, 9]], [[1, 0, 1], [0, 1, 0], [0, 0, 0]], np.int8),
    }[task.kind]
    outputs, label = np.array(outputs, np.float32), np.array(label, dtype)
    features = {"index": tf.constant([0, 1, -1], tf.int64), "label": tf.constant(label)}
    if task.kind == "classification":
        expected = -np.log(scipy.special.softmax(outputs, axis=1)[[0, 1], label[:2]]).mean()
    elif task.kind == "multi_label":
        expected = -np.log(scipy.special.expit(np.where(label == 1, outputs, -outputs)))[:2].mean()
    else:
        expected = (0.25 + 9) / 2
    loss, count = task.sums(features, tf.constant(outputs))["loss"]
    assert float(count) == float(task.counts(features)["loss"]) == 2
    assert float(loss) / 2 == pytest.approx(expected, rel=1e-5)
    summed = task.sums(features, tf.constant(outputs))
    assert {metric.name for metric in task.build_metrics(True)} == set(summed)


def test_weights_and_smoothing_are_for_training_alone(data):
    plain = classification.ClassificationTask(settings(data).task)
    changes = {"class_weights": "old:5", "label_smoothing": 0.2}
    if plain.kind == "regression":
        with pytest.raises(UserError, match="expected LABEL:WEIGHT"):
            classification.ClassificationTask(settings(data, {"task": changes}).task)
        return
    changed = classification.ClassificationTask(settings(data, {"task": changes}).task)
    features = next(iter(changed.build_inputs(changed.task_config.validation_data)))
    outputs = tf.random.stateless_normal([8, 3], [0, 0])
    before, after = (task.validation_sums(features, outputs) for task in (plain, changed))
    assert tf.nest.map_structure(float, before) == tf.nest.map_structure(float, after)
    before, after = (task.sums(features, outputs) for task in (plain, changed))
    assert float(before["loss"][0]) != pytest.approx(float(after["loss"][0]), rel=1e-3)
    assert float(before["loss"][1]) == float(after["loss"][1]) == float(changed.counts(features)["loss"])
    assert float(before["loss"][0]) == float(plain.validation_sums(features, outputs)["loss"][0])


def test_an_epoch_of_balanced_sampling_has_as_many_of_each_class(data):
    changes = {"task": {"sampling": "balanced"}}
    if "classification" not in data.name:
        with pytest.raises(UserError, match="needs one class for each text"):
            classification.ClassificationTask(settings(data, changes).task)
        return
    labels = np.array([0] * 100 + [1] * 20 + [2] * 8)
    params = settings(data, changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExampleSet, "column", lambda self, name: labels)
        batches = classification.ClassificationTask(params.task).data.batching(training=True).batches
        epoch = labels[np.concatenate([batches.numbers(step) for step in range(16)])]
    assert sorted(np.bincount(epoch)) == [42, 43, 43]
    params.task.sampling = "often"
    with pytest.raises(UserError, match="task.sampling is 'often': expected uniform or balanced"):
        classification.ClassificationTask(params.task)


def test_settings_of_alerts_are_checked(classes):
    none = pytest.raises(UserError, match="dev examples with the label 'old', and there are none")
    params = settings(classes, {"task": {"alert": {"label": "old"}}})
    column = ExampleSet.column
    with none, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExampleSet, "column", lambda self, name: np.minimum(column(self, name), 1))
        classification.ClassificationTask(params.task)
    params.task.validation_data.input_path = ""
    with none:
        classification.ClassificationTask(params.task)
    for alert, message in (
        ({"label": "old", "precision": 2.0}, r"alert.precision .* is 2.0: expected 0 to 1"),
        ({"precision": 0.9}, r"--alert_precision\) needs a class: give --alert_label"),
        ({"label": "old", "precision": 0.9, "recall": 0.9}, "both a precision and a recall"),
    ):
        with pytest.raises(UserError, match=message):
            classification.ClassificationTask(settings(classes, {"task": {"alert": alert}}).task)
