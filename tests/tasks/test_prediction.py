"""A finished run is used: by its best weights or another checkpoint, resumed, in a bucket, damaged."""

import contextlib
import dataclasses
import json
import os
import shutil
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
import yaml

from tests.helpers.training import toy_finetuning as toy
from xlnet_tf import files
from xlnet_tf.checkpoints import load_into, open_checkpoint, save_checkpoint, save_model
from xlnet_tf.checkpoints.formats import write_model
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks import prediction
from xlnet_tf.training.early_stopping import BEST, read_metrics
from xlnet_tf.training.progress import read_history
from xlnet_tf.training.runtime import number_type


@pytest.mark.usefixtures("eagerly")
def test_the_best_weights_are_kept_and_score_as_they_did_and_have_a_card(run, registered, data):
    model_dir, _ = run
    history = read_history(str(model_dir / "history.jsonl"))
    highest = max(line["accuracy"] for line in history if line["kind"] == "dev" and line["step"])
    kept = read_metrics(str(model_dir / BEST))
    assert kept["accuracy"] == highest
    opened = prediction.Run.open(str(model_dir), str(data / "dev"))
    for batch_size in (4, 21, 50):
        predictor = prediction.Predictor(opened, toy.strategy(), batch_size)
        predictions = predictor.predict(opened.checkpoint("best"))
        assert opened.task.score(opened.task.validation_set, predictions)["accuracy"] == highest
    best = str(model_dir / BEST)
    assert open_checkpoint(model_dir).path.startswith(best)  # for which a run stands everywhere
    assert prediction.Run.open(best, str(data / "dev")).checkpoint("") == best
    for folder in (model_dir, model_dir / BEST):
        card = json.loads((folder / "model.json").read_text())
        assert card["task"] == "toy" and card["labels"] == ["no", "yes"]
        assert card["settings"]["attention_type"] == "bi" and card["settings"]["dropout"] == 0.1
        assert card["cleaning"]["lower"] is False and card["metrics"] == kept
        assert card["metrics"].keys() > {"accuracy", "step"}


@pytest.mark.usefixtures("eagerly")
def test_a_run_is_used_in_a_bucket(run, registered, data, tmp_path, bucket):
    model_dir, here_dir = f"{bucket}/run", str(run[0])
    for path, _, names in tf.io.gfile.walk(here_dir):
        tf.io.gfile.makedirs(target := path.replace(here_dir, model_dir))
        for name in names:
            tf.io.gfile.copy(f"{path}/{name}", f"{target}/{name}")
    there, here = (prediction.Run.open(path, str(data / "dev")) for path in (f"{model_dir}/", here_dir))
    assert there.checkpoints() == [path.replace(here_dir, model_dir) for path in here.checkpoints()]
    expected, found = (
        prediction.Predictor(opened, toy.strategy(), 8).predict(opened.checkpoint("best"), pieces)
        for opened, pieces in ((here, None), (there, f"{bucket}/pieces"))
    )
    np.testing.assert_array_equal(found["logits"], expected["logits"])


def test_predictions_in_bfloat16_hold_narrow_weights_and_are_those_of_wide_ones(
    run, registered, data, tmp_path, monkeypatch
):
    opened, done = prediction.Run.open(str(run[0]), str(data / "dev")), []
    checkpoint, pieces = opened.checkpoint("best"), str(tmp_path / "pieces")
    with number_type("bfloat16"):
        narrow = prediction.Predictor(opened, toy.strategy(), 8)
        monkeypatch.setattr(prediction, "weights_in_compute_type", contextlib.nullcontext)
        wide = prediction.Predictor(opened, toy.strategy(), 8, done.append)  # as predictions once were
    kernels = [predictor.model.encoder.blocks[0].feed_forward.inner.kernel for predictor in (narrow, wide)]
    assert [kernel.dtype for kernel in kernels] == [tf.bfloat16, tf.float32]
    found = narrow.predict(checkpoint, pieces)["logits"]
    np.testing.assert_array_equal(found, wide.predict(checkpoint)["logits"])
    done.clear()
    wide.predict(checkpoint, pieces)
    assert done == [opened.task.validation_set.records]  # it takes the pieces of the other


def test_folders_that_tensorflow_takes_as_patterns_are_refused(run, registered, data, tmp_path):
    folder = tmp_path / "lr[1e-5]"
    with pytest.raises(UserError, match=r"lr\[1e-5\] has \[ in its name.* another name"):
        toy.run(data, folder)
    shutil.copytree(run[0], folder)  # or named so later
    opened = prediction.Run.open(str(folder), str(data / "dev"))
    assert [path.rpartition("/")[2] for path in opened.checkpoints()][-2:] == ["ckpt-64", "best"]
    with pytest.raises(UserError, match=r"lr\[1e-5\]/ckpt-64 has \[ in its name"):
        open_checkpoint(opened.checkpoint("last"))


def test_two_steps_are_computed_at_once_and_given_in_order():
    both, begun = threading.Barrier(2, timeout=60), []

    def compute(number, name):
        begun.append(number)
        both.wait()
        if number == 7:
            raise ValueError(name)
        return number

    steps = list(enumerate("abcdefgh"))
    results = prediction.computed_at_once(compute, steps, 2)
    assert [next(results) for _ in range(7)] == [*range(7)]
    with pytest.raises(ValueError, match="^h$"):
        next(results)
    assert sorted(begun) == [*range(8)]


def test_an_interrupted_prediction_resumes_but_from_no_damaged_pieces(
    run, registered, data, tmp_path, monkeypatch
):
    monkeypatch.setattr(prediction, "_STEPS_KEPT", 2)
    opened = prediction.Run.open(str(run[0]), str(data / "dev"))
    done, limit, pieces = [], 5, str(tmp_path / "pieces")

    def on_step(examples):
        done.append(examples)
        if len(done) == limit:
            raise KeyboardInterrupt

    def predict(checkpoint):
        done.clear()
        return predictor.predict(opened.checkpoint(checkpoint), pieces)["logits"]

    predictor = prediction.Predictor(opened, toy.strategy(), 3, on_step)
    assert predictor.steps == 7
    with pytest.raises(KeyboardInterrupt):
        predict("last")
    limit = 99
    resumed = predict("last")
    assert done == [12, 3, 3, 3]  # 4 of 7 steps were kept
    np.testing.assert_array_equal(resumed, predictor.predict(opened.checkpoint("last"))["logits"])
    predict("best")
    assert len(done) == 7  # other weights: nothing is taken over
    (weights_file,) = (run[0] / BEST).glob("*.safetensors")
    os.utime(weights_file, ns=(0, 0))
    best = predict("best")
    assert len(done) == 7  # other weights of the same name
    piece = tmp_path / "pieces" / "rows-00000002.npz"
    content = piece.read_bytes()
    for damaged in (b"", content[:-9], content[:200] + b"?" + content[201:], b"?" + content[1:]):
        piece.write_bytes(damaged)
        np.testing.assert_array_equal(predict("best"), best)
        assert done == [6, 3, 3, 3, 3, 3]  # the first two steps were kept


@pytest.mark.usefixtures("eagerly")
def test_nan_outputs_are_not_written_as_predictions(run, registered, data, monkeypatch):
    """They would all be the first class."""
    opened = prediction.Run.open(str(run[0]), str(data / "dev"))

    def load_beyond_all_numbers(model, path):
        load_into(model, path)
        model.trainable_variables[-1].assign([np.inf, 0.0])

    monkeypatch.setattr(prediction, "load_into", load_beyond_all_numbers)
    with pytest.raises(UserError, match="best are NaN or infinite for 21 of 21 .* computed in float32"):
        prediction.Predictor(opened, toy.strategy(), 8).predict(opened.checkpoint("best"))


def test_best_weights_without_metrics_are_not_a_checkpoint(run, registered, data, tmp_path, monkeypatch):
    """Killed while they are replaced: the next evaluation that an undisturbed run has replaces them again."""
    shutil.copytree(run[0], tmp_path / "run")
    task = toy.ToyTask(toy.settings(data).task, trained_on=ExampleSet.load(run[0]))
    model = task.build_model()
    monkeypatch.setattr(files, "copy", lambda *_: sys.exit("killed"))
    with pytest.raises(SystemExit):
        task.after_evaluation(model, {"accuracy": 2.0}, 99, str(tmp_path / "run"))
    opened = prediction.Run.open(str(tmp_path / "run"), str(data / "dev"))
    assert opened.checkpoint("") == str(tmp_path / "run" / "ckpt-64")
    assert not read_metrics(str(tmp_path / "run" / BEST))


def test_the_folder_of_several_runs_is_not_taken_for_a_run(run, registered, data, tmp_path):
    """Neither that of --num_seeds nor that of a --sweep."""
    for seed in (0, 1):
        shutil.copytree(run[0], tmp_path / "runs" / f"seed-{seed}")
    said = "holds runs .seed-0, seed-1., and is not one itself: give one of them, as .*runs/seed-0"
    for use in (
        lambda: prediction.Run.open(str(tmp_path / "runs"), str(data / "dev")),
        lambda: prediction.Run.open(str(tmp_path / "runs"), ""),
        lambda: open_checkpoint(str(tmp_path / "runs")),
    ):
        with pytest.raises(UserError, match=said):
            use()


def copied(run, folder, change=lambda folder: None):
    shutil.copytree(run[0], folder / "run")
    change(folder / "run")
    return str(folder / "run")


def without_best(folder):
    """And with a note of TensorFlow's that a killed process has not renewed."""
    shutil.rmtree(folder / BEST)
    (folder / "checkpoint").write_text('model_checkpoint_path: "ckpt-32"\n')


@pytest.mark.parametrize("change", [lambda folder: None, without_best])
def test_all_ways_to_read_a_run_find_the_same_weights(run, registered, data, tmp_path, change):
    """Predictions, evaluations and exports ask the run; all others open a checkpoint."""
    folder = copied(run, tmp_path, change)
    opened = prediction.Run.open(folder, str(data / "dev"))
    expected = toy.weights(opened.checkpoint(""))
    kept = {name: toy.weights(f"{folder}/{name}") for name in ("ckpt-32", "ckpt-64")}
    assert not all(np.array_equal(kept["ckpt-32"][name], value) for name, value in kept["ckpt-64"].items())
    save_checkpoint(open_checkpoint(folder), str(tmp_path / "converted"), "ours")
    for found in (folder, str(tmp_path / "converted")):
        np.testing.assert_equal(toy.weights(found), expected)
    converted = prediction.Run.open(str(tmp_path / "converted"), str(data / "dev"))
    assert open_checkpoint(converted.checkpoint("")).path == open_checkpoint(str(tmp_path / "converted")).path


def test_weights_are_not_saved_into_a_run(run, registered, data, tmp_path):
    """Nor read from a run into which an earlier version saved some: by no way."""
    folder = copied(run, tmp_path)
    task = toy.ToyTask(toy.settings(data).task, trained_on=ExampleSet.load(run[0]))
    model = task.build_model()
    before = sorted(path.name for path in (tmp_path / "run").rglob("*"))
    for target in (folder, f"{folder}/{BEST}"):
        with pytest.raises(UserError, match="holds a run|is a part of the run"):
            save_model(model, target)
        with pytest.raises(UserError, match="holds a run|is a part of the run"):
            save_checkpoint(open_checkpoint(str(run[0])), target, "hugging_face")
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == before
    write_model(model, folder)
    opened = prediction.Run.open(str(run[0]), "")
    for read in (open_checkpoint, lambda path: dataclasses.replace(opened, model_dir=path).checkpoint("")):
        with pytest.raises(UserError, match=r"holds a run and other weights .weights.safetensors.*/best$"):
            read(folder)
    assert open_checkpoint(f"{folder}/weights.safetensors").path != open_checkpoint(f"{folder}/{BEST}").path


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize(
    ("name", "harm", "message"),
    [
        ("params.yaml", None, "params.yaml does not exist: expected the folder of a fine-tuned run"),
        ("params.yaml", lambda _: b"", "params.yaml holds nothing; expected settings"),
        ("params.yaml", lambda _: b"task: {", "params.yaml is not yaml"),
        ("params.yaml", lambda _: b"task: {model: {n_layer: {a: 1}}}", "params.yaml: .*n_layer"),
        ("params.yaml", lambda _: b"task: {epochs: many}", "params.yaml: task.epochs is 'many', expected"),
        ("params.yaml", lambda _: b"task: {unknown: 1}", "params.yaml: .*unknown"),
        ("params.yaml", lambda _: b"task: !!python/object/apply:os.getcwd []", "params.yaml is not yaml"),
        ("xlnet_config.json", None, "xlnet_config.json does not exist"),
        ("xlnet_config.json", cut, "xlnet_config.json is not JSON"),
        ("xlnet_config.json", lambda c: c.replace(b"16", b"32"), "ckpt-64 does not fit the model"),
        ("manifest.json", None, "manifest.json does not exist"),
        ("manifest.json", cut, "manifest.json is not JSON"),
        ("manifest.json", lambda c: c.replace(b'"yes"', b'"YES"'), "manifest.json was changed"),
        ("spiece.model", None, "spiece.model"),
        ("spiece.model", cut, "spiece.model has the sha256"),
        ("ckpt-64.index", cut, "ckpt-64 is not a TensorFlow checkpoint, or is damaged"),
        ("ckpt-64.data-00000-of-00001", cut, "ckpt-64 is not a TensorFlow checkpoint, or is damaged"),
        ("ckpt-64.data-00000-of-00001", None, "ckpt-64 is not a TensorFlow checkpoint, or is damaged"),
        (f"{BEST}/metrics.json", cut, "has no checkpoint 'best'|metrics.json is not JSON"),
        (f"{BEST}/weights.safetensors", cut, "weights.safetensors is not a safetensors file, or is damaged"),
        (f"{BEST}/weights.safetensors", lambda c: c[:-1] + b"?", "weights.safetensors has the sha256"),
        (f"{BEST}/weights.safetensors", lambda c: c, ""),  # nothing is wrong
    ],
)
def test_files_of_a_run_that_are_missing_or_damaged_are_named(
    run, registered, data, tmp_path, name, harm, message
):
    folder = tmp_path / "run"
    shutil.copytree(run[0], folder)
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if harm:
        path.write_bytes(harm(content))

    def use():
        opened = prediction.Run.open(str(folder), str(data / "dev"))
        opened.task.example_set.load_tokenizer()
        opened.task.best_metrics()
        model = opened.task.build_model()
        for checkpoint in ("last", "best"):
            load_into(model, opened.checkpoint(checkpoint))

    refused = pytest.raises((UserError, FileNotFoundError), match=message or None)
    with refused if message else contextlib.nullcontext():
        use()


def test_lengths_of_a_runs_dev_examples_are_not_those_of_other_sets(run, registered, data, tmp_path):
    shutil.copytree(run[0], tmp_path / "run")
    params = yaml.safe_load((tmp_path / "run/params.yaml").read_text())
    params["task"]["validation_data"]["lengths"] = [4]
    (tmp_path / "run/params.yaml").write_text(yaml.safe_dump(params))
    opened = prediction.Run.open(str(tmp_path / "run"), str(data / "dev"))
    assert opened.task.data.batching(training=False).batches.length(0) > 4
