"""Fine-tuning runs: what they report and keep, how they begin and resume, what they refuse."""

import dataclasses
import json
import re
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf
from official.core import exp_factory, task_factory
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tests.fuzz.test_settings import write_set
from tests.helpers.training import toy_finetuning as toy
from tests.helpers.training.worker import after_reports, ends_itself
from xlnet_tf import task_registry
from xlnet_tf.checkpoints import save_model
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.checkpoints.names import QUERY_START, canonical
from xlnet_tf.checkpoints.safetensors_file import write_safetensors
from xlnet_tf.errors import Interrupted, UserError
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.tasks import prediction, seeds
from xlnet_tf.tasks.finetuning import finetune
from xlnet_tf.tasks.settings import fill_defaults
from xlnet_tf.training.config import check_types, flatten, override
from xlnet_tf.training.early_stopping import BEST, read_metrics
from xlnet_tf.training.progress import read_history


def test_it_learns_and_reports_each_epoch(run):
    model_dir, metrics = run
    assert metrics["accuracy"] >= 0.9
    history = read_history(str(model_dir / "history.jsonl"))
    evaluations = [line for line in history if line["kind"] == "dev"]
    assert [line["step"] for line in evaluations] == list(range(0, 65, 8))
    assert evaluations[-1]["accuracy"] == pytest.approx(metrics["accuracy"])
    text = (model_dir / "report.html").read_text()
    assert "Step 64 of 64" in text and "The run has ended." in text
    assert f"{model_dir}/best, of step" in text and "Data: train" in text and "Data: dev" in text
    assert f"xlnet-tf evaluate --model_dir={model_dir}" in text


def test_a_run_needs_no_file_that_only_its_page_reads(data, tmp_path, monkeypatch, caplog):
    """And it reuses no best weights of an earlier run."""
    shutil.copytree(data, tmp_path / "data")
    for split in ("train", "dev"):
        (tmp_path / "data" / split / "examples.jsonl").unlink()
    (tmp_path / "run" / BEST).mkdir(parents=True)
    (tmp_path / "run" / BEST / "metrics.json").write_text(json.dumps({"step": 8, "accuracy": 2.0}))
    monkeypatch.setattr(toy.ToyTask, "find_mistakes", lambda self, examples, _: examples.sidecar())
    metrics = toy.run(tmp_path / "data", tmp_path / "run", task={"epochs": 1.0})
    assert "accuracy" in metrics and read_metrics(str(tmp_path / "run" / BEST))["accuracy"] <= 1.0
    assert "lacks the mistakes" in caplog.text and "examples.jsonl" in caplog.text
    assert "xlnet-tf predict" in (tmp_path / "run/report.html").read_text()


def test_a_nan_metric_is_never_best(data, run, tmp_path):
    shutil.copy(run[0] / "params.yaml", tmp_path)
    task = toy.ToyTask(toy.settings(data).task)
    model, best = task.build_model(), tmp_path / BEST
    for metric in (np.nan, -np.inf):
        task.after_evaluation(model, {"accuracy": metric}, 8, str(tmp_path))
        assert not best.exists()
    for metric, kept in ((0.2, 0.2), (np.nan, 0.2), (0.1, 0.2), (0.3, 0.3)):
        task.after_evaluation(model, {"accuracy": metric}, 8, str(tmp_path))
        assert read_metrics(str(best))["accuracy"] == kept
    (best / "metrics.json").write_text(json.dumps({"step": 8, "accuracy": np.nan}))  # an earlier version's
    task.after_evaluation(model, {"accuracy": 0.1}, 16, str(tmp_path))
    assert read_metrics(str(best))["accuracy"] == 0.1


def test_best_on_other_dev_examples_is_forgotten(data, run, tmp_path, small_tokenizer, caplog):
    shutil.copy(run[0] / "params.yaml", tmp_path)
    other = toy.make_examples(tmp_path / "dev", small_tokenizer, 21, seed=2)
    shutil.copytree(data / "dev", tmp_path / "moved")
    kept = []
    folders = data / "dev", tmp_path / "moved", *[other.folder] * 3
    for number, (folder, metric) in enumerate(zip(folders, (0.9, 0.5, 0.4, 0.3, 0.6), strict=True)):
        task = toy.ToyTask(toy.settings(data, task={"validation_data": {"input_path": str(folder)}}).task)
        task.after_evaluation(task.build_model(), {"accuracy": metric}, 8 + number, str(tmp_path))
        best = read_metrics(str(tmp_path / BEST))
        kept.append((best["accuracy"], best.get("dev_set_since")))
    assert kept == [(0.9, None), (0.9, None), (0.4, 10), (0.4, 10), (0.6, 10)]
    assert caplog.text.count("has the weights that were best on other dev examples: they are removed") == 1
    path = tmp_path / BEST / "metrics.json"
    path.write_text(json.dumps({"step": 8, "accuracy": 0.6}))  # an earlier version's, which does not tell
    task.after_evaluation(task.build_model(), {"accuracy": 0.5}, 8, str(tmp_path))
    assert read_metrics(str(tmp_path / BEST))["accuracy"] == 0.6


def test_nan_outputs_score_worst(data, monkeypatch):
    """Their largest is the first class, which would be right for half of the examples."""
    task = toy.ToyTask(toy.settings(data).task)
    index, logits = np.arange(-1, 21), np.ones([22, 2], np.float32)
    logits[0] = np.nan  # of a row that fills up the batch

    def report():
        rows = task.evaluation_rows({"index": tf.constant(index)}, tf.constant(logits))
        return task.report({name: value.numpy() for name, value in rows.items()})

    monkeypatch.setattr(toy.ToyTask, "find_mistakes", lambda *_: iter(["wrong"]))
    assert report()["accuracy"] == pytest.approx(11 / 21) and task.mistakes() == ["wrong"]
    logits[7, 1] = np.inf
    assert report() == {"accuracy": -np.inf} and task.mistakes() == []


def test_defaults_follow_from_the_examples(data):
    """Epochs are counted in examples; an evaluation reads as much at once as a part of a step, which fits."""

    def filled(examples, dev_batch_size=0, **settings):
        params = toy.settings(data, **settings)
        params.task.validation_data.global_batch_size = dev_batch_size
        fill_defaults(params, examples)
        return params

    batch = {"train_data": {"global_batch_size": 32}}
    trainer = filled(47, task={"epochs": 3.0, **batch}).trainer  # 141 in all
    assert (trainer.train_steps, trainer.validation_interval, trainer.checkpoint_interval) == (5, 2, 2)
    assert filled(64, task={"epochs": 1e-9}).trainer.train_steps == 1
    for given, expected in ((0, 8), (30, 30)):
        params = filled(47, given, task=batch, trainer={"accumulation_steps": 4})
        assert params.task.validation_data.global_batch_size == expected
    for epochs in (0, 0.0):
        with pytest.raises(UserError, match=r"\(--epochs\) is 0.* and train_steps is 0: expected more"):
            filled(64, task={"epochs": epochs})
    assert filled(64, task={"epochs": 0}, trainer={"train_steps": 3}).trainer.train_steps == 3


@pytest.mark.usefixtures("eagerly")
def test_every_number_may_be_a_whole_one(data, tmp_path):
    """Settings that have a point by default, given without, as yaml, --params_override and --sweep may."""
    params, changes = toy.settings(data, trainer={"train_steps": 1}), {}
    for name, value in flatten(params.as_dict()).items():
        if isinstance(value, float):
            low = name.endswith(("dropout", "warmup_fraction")) or ".beta_" in name
            changes[name] = value if ".beta_" in name else 0 if low else 1  # betas are between 0 and 1
    assert changes["trainer.optimizer_config.learning_rate"] == 1 and len(changes) > 15
    override(params, ",".join(f"{name}={value}" for name, value in changes.items()), "--params_override")
    check_types(params, toy.settings(data))
    metrics = finetune(params, toy.ToyTask, toy.strategy(), str(tmp_path))
    assert 0 <= metrics["accuracy"] <= 1


@pytest.mark.integration
def test_a_stopped_run_resumes_bit_for_bit(data, run, tmp_path, monkeypatch):
    """Between two evaluations: as it resumes it evaluates, but the best weights are not to depend on that."""
    model_dir, metrics = run
    judged, judge = [], toy.ToyTask.after_evaluation

    def note_and_judge(task, model, metrics, step, model_dir):
        judged.append(step)
        judge(task, model, metrics, step, model_dir)

    monkeypatch.setattr(toy.ToyTask, "after_evaluation", note_and_judge)
    with after_reports(ends_itself(signal.SIGTERM, 60)), pytest.raises(Interrupted):
        toy.run(data, tmp_path / "again", trainer={"max_to_keep": 20})
    kept = sorted(path.name for path in (tmp_path / "again").glob("ckpt-*.index"))
    assert kept == [f"ckpt-{step}.index" for step in sorted([*range(8, 57, 8), 60], key=str)]
    assert toy.run(data, tmp_path / "again", trainer={"max_to_keep": 20}) == metrics
    history = read_history(str(tmp_path / "again" / "history.jsonl"))
    assert [line["step"] for line in history if line["kind"] == "dev"] == [*range(0, 57, 8), 60, 64]
    assert judged == [*range(0, 57, 8), 64]
    for folder in ("ckpt-64", BEST):
        np.testing.assert_equal(toy.weights(tmp_path / "again" / folder), toy.weights(model_dir / folder))


@pytest.mark.usefixtures("eagerly")
def test_resuming_with_another_architecture_of_equal_shapes_is_refused(data, run, tmp_path, small_tokenizer):
    """Where a run resumes, init_checkpoint is free; the architecture that comes with it is not."""
    shutil.copytree(run[0], tmp_path / "run")
    config = toy.ToyTask(toy.settings(data).task).xlnet_config
    encoder = XLNetEncoder(dataclasses.replace(config, ff_activation="gelu_erf"))
    encoder.build()
    save_model(encoder, str(tmp_path / "release"))
    begin = {"init_checkpoint": str(tmp_path / "release")}
    before = (tmp_path / "run" / "xlnet_config.json").read_text()
    with pytest.raises(UserError, match="architecture's ff_activation: gelu there, gelu_erf now") as error:
        toy.run(data, tmp_path / "run", task=begin)
    assert "n_layer" not in str(error.value) and "Resume with the settings of that run" in str(error.value)
    assert (tmp_path / "run" / "xlnet_config.json").read_text() == before
    with pytest.raises(UserError, match="ff_activation: None there, gelu now") as error:
        toy.run(data, tmp_path / "run", task={**begin, "model": {"ff_activation": "gelu"}})
    assert "architecture's" not in str(error.value)
    (tmp_path / "run" / "xlnet_config.json").unlink()
    toy.run(data, tmp_path / "run", task=begin)


def test_an_encoder_begins_with_the_checkpoint(data, tmp_path, small_tokenizer):
    encoder = XLNetEncoder(toy.ToyTask(toy.settings(data).task).xlnet_config)
    encoder.build()
    pretrained, fine_tuned = tmp_path / "pretrained", tmp_path / "fine_tuned"
    save_model(encoder, str(pretrained))
    fine_tuned.mkdir()
    arrays = {canonical(v.name): v.numpy() for v in encoder.variables if canonical(v.name) != QUERY_START}
    write_safetensors(Arrays.of(arrays), str(fine_tuned / "weights.safetensors"))  # by the original
    (fine_tuned / "xlnet_config.json").write_text(encoder.config.to_json())
    for folder in (pretrained, fine_tuned):
        (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
        overrides = {"init_checkpoint": str(folder), "model": {"n_layer": None}}
        task = toy.ToyTask(toy.settings(data, task=overrides).task)  # the architecture comes with the weights
        model = task.build_model()
        task.initialize(model)
        np.testing.assert_array_equal(model.encoder.word_embedding, encoder.word_embedding)

    overrides["init_checkpoint"] = str(pretrained)
    with pytest.raises(UserError, match="n_layer is 1 there and 2 in the model"):
        other = toy.ToyTask(toy.settings(data, task={**overrides, "model": {"n_layer": 2}}).task)
        other.initialize(other.build_model())
    model_file = pretrained / "spiece.model"
    proto = ModelProto.FromString(model_file.read_bytes())
    proto.trainer_spec.model_prefix = "another file of the same pieces"
    model_file.write_bytes(proto.SerializeToString())
    toy.ToyTask(toy.settings(data, task=overrides).task)
    proto.pieces[40].score -= 1.0
    model_file.write_bytes(proto.SerializeToString())
    with pytest.raises(UserError, match="another tokenizer"):
        toy.ToyTask(toy.settings(data, task=overrides).task)
    model_file.write_bytes(small_tokenizer.model_proto)
    cleaning = {**task.example_set.cleaning, "lower": True}
    (pretrained / "manifest.json").write_text(json.dumps({"cleaning": cleaning}))
    with pytest.raises(UserError, match="'lower': False.* by .*'lower': True.* build the examples with"):
        toy.ToyTask(toy.settings(data, task=overrides).task)


def test_a_trained_head_is_reused_only_for_its_own_labels(data, run, tmp_path, small_tokenizer):
    begin = {"init_checkpoint": str(run[0])}
    task = toy.ToyTask(toy.settings(data, task=begin).task)
    model = task.build_model()
    task.initialize(model)
    expected = toy.weights(run[0])["classification_task/logits/kernel"]
    np.testing.assert_array_equal(model.dense.kernel, expected)
    toy.make_examples(tmp_path / "train", small_tokenizer, 8, labels=("yes", "no"))
    sets = {"train_data": {"input_path": str(tmp_path / "train")}, "validation_data": {"input_path": ""}}
    task = toy.ToyTask(toy.settings(data, task={**begin, **sets}).task)
    with pytest.raises(UserError, match="labels of the head .* is .*'no', 'yes'.* but .*'yes', 'no'"):
        task.initialize(task.build_model())


@pytest.mark.integration
def test_a_nan_gradient_with_a_finite_loss_stops_the_run(data, tmp_path):
    class Steep(toy.ToyTask):
        """The square root of 0 has an infinite gradient, and 0 times infinity is NaN."""

        def sums(self, features, outputs):
            loss, count = super().sums(features, outputs)["loss"]
            return {"loss": (loss + tf.sqrt(0.0 * loss), count)}

    options = toy.settings(data, trainer={"steps_per_loop": 1, "max_skipped_steps": 2})
    results = seeds.finetune_seeds(options, Steep, toy.strategy(), str(tmp_path / "runs"), 2)
    said = "^diverged.*3 steps in a row.*step 0, the model's outputs are finite for all.*Lower learning_rate"
    assert [bool(re.search(said, result.problem, re.DOTALL)) for result in results] == [True, True], results
    assert not list((tmp_path / "runs").rglob("ckpt-*"))


@pytest.mark.parametrize(
    ("task", "name", "changes"),
    [
        ("classification", "labels", {"labels": ["b", "a"]}),
        ("classification", "kind", {"kind": "multi_label", "metrics": ["micro_f1"]}),
        ("tagging", "labels", {"labels": ["O", "B-Z", "I-Z"]}),
        ("ranking", "relevant_from", {"relevant_from": 2}),
        ("choice", "num_choices", {"num_choices": 4}),
    ],
)
def test_sets_that_differ_in_what_must_agree_are_refused(tmp_path, small_tokenizer, task, name, changes):
    for split in ("train", "dev"):
        examples = write_set(tmp_path / split, small_tokenizer, task)
        examples.settings.update(changes if split == "dev" else {})
        examples.save()
    params = exp_factory.get_exp_config(task_registry.entry_for_set(examples).experiment).task
    params.train_data.input_path = str(tmp_path / "train")
    params.validation_data.input_path = str(tmp_path / "dev")
    with pytest.raises(UserError, match=f"{name} of .* is .*, but the model is for"):
        task_factory.get_task_cls(type(params))(params)


def test_what_does_not_fit_is_refused(data, run, registered, tmp_path, small_tokenizer):
    toy.make_examples(tmp_path / "dev", small_tokenizer, 4, labels=("0", "1"))
    strange = toy.make_examples(tmp_path / "strange", small_tokenizer, 4, task="parsing")
    for name, path, message in (
        ("validation_data", "dev", "labels of .* is .*'0', '1'.* for .*'no', 'yes'"),
        ("train_data", "strange", "examples for parsing: expected some for toy"),
    ):
        with pytest.raises(UserError, match=message):
            toy.ToyTask(toy.settings(data, task={name: {"input_path": str(tmp_path / path)}}).task)
    with pytest.raises(UserError, match="labels"):
        prediction.Run.open(str(run[0]), str(tmp_path / "dev"))
    with pytest.raises(UserError, match="'parsing': expected one of classification"):
        task_registry.entry_for_set(strange)
    shutil.copytree(run[0], tmp_path / "run")
    toy.make_examples(tmp_path / "more" / "train", small_tokenizer, 80)
    more = {"train_data": {"input_path": str(tmp_path / "more/train")}}
    schedule = {"train_steps": 64, "validation_interval": 8}
    with pytest.raises(UserError, match="examples' shards"):
        toy.run(data, tmp_path / "run", task=more, trainer=schedule)
    with pytest.raises(UserError, match="has no checkpoint 'ckpt-3'"):
        prediction.Run.open(str(run[0]), str(data / "dev")).checkpoint("ckpt-3")
