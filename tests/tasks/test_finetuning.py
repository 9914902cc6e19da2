"""Fine-tuning runs: what they leave, how they resume, what they refuse; and the use of what they leave."""

import dataclasses
import json
import os
import shutil
import signal
import sys

import numpy as np
import pytest
import tensorflow as tf
import yaml
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tests.helpers import tasks
from tests.helpers.training import toy_finetuning as toy
from xlnet_tf import files, task_registry
from xlnet_tf.checkpoints import load_into, open_checkpoint, save_checkpoint, save_model
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.checkpoints.formats import write_model
from xlnet_tf.checkpoints.names import QUERY_START, canonical
from xlnet_tf.checkpoints.safetensors_file import write_safetensors
from xlnet_tf.errors import Interrupted, UserError
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks import prediction, seeds
from xlnet_tf.tasks.finetuning import finetune
from xlnet_tf.tasks.scoring import row_weights
from xlnet_tf.tasks.settings import fill_defaults
from xlnet_tf.training.config import check_types, flatten, override
from xlnet_tf.training.early_stopping import BEST, read_metrics
from xlnet_tf.training.guard import Diverged
from xlnet_tf.training.progress import Progress, read_history
from xlnet_tf.training.task import Ratio

STRATEGY = tf.distribute.OneDeviceStrategy("CPU:0")


@pytest.fixture(scope="module")
def data(tmp_path_factory, small_tokenizer):
    folder = tmp_path_factory.mktemp("finetuning")
    toy.make_examples(folder / "train", small_tokenizer, 64)
    toy.make_examples(folder / "dev", small_tokenizer, 21, seed=1)
    return folder


def settings(data, **overrides):
    params = toy.experiment()
    params.task.train_data.input_path = str(data / "train")
    params.task.validation_data.input_path = str(data / "dev")
    params.override(overrides)
    return params


def run_toy(data, model_dir, **overrides):
    return finetune(settings(data, **overrides), toy.ToyTask, STRATEGY, str(model_dir))


@pytest.fixture(scope="module")
def run(data):
    """The folder of a finished run, and its last metrics."""
    metrics = run_toy(data, data / "run")
    return data / "run", metrics


@pytest.fixture
def registered():
    """Lets scripts find the toy task."""
    with tasks.registered(toy.ENTRY):
        yield


def weights(model_dir):
    return {name: np.array(open_checkpoint(str(model_dir)).arrays[name]) for name in names(model_dir)}


def names(model_dir):
    return list(open_checkpoint(str(model_dir)).arrays.entries)


def test_it_learns_and_reports_each_epoch(run):
    model_dir, metrics = run
    assert metrics["accuracy"] >= 0.9
    history = read_history(str(model_dir / "history.jsonl"))
    evaluations = [line for line in history if line["kind"] == "dev"]
    assert [line["step"] for line in evaluations] == list(range(0, 65, 8))
    assert evaluations[-1]["accuracy"] == pytest.approx(metrics["accuracy"])


def test_the_best_weights_are_kept_and_score_as_they_did(run, registered, data):
    model_dir, _ = run
    history = read_history(str(model_dir / "history.jsonl"))
    highest = max(line["accuracy"] for line in history if line["kind"] == "dev" and line["step"])
    kept = read_metrics(str(model_dir / BEST))
    assert kept["accuracy"] == highest
    opened = prediction.Run.open(str(model_dir), str(data / "dev"))
    for batch_size in (4, 21, 50):
        predictor = prediction.Predictor(opened, STRATEGY, batch_size)
        predictions = predictor.predict(opened.checkpoint("best"))
        assert opened.task.score(opened.task.validation_set, predictions)["accuracy"] == highest
    best = str(model_dir / BEST)
    np.testing.assert_equal(weights(model_dir), weights(best))  # a run stands for its best weights everywhere
    assert open_checkpoint(model_dir).path.startswith(best)
    assert prediction.Run.open(best, str(data / "dev")).checkpoint("") == best


def test_a_run_and_its_best_weights_have_a_model_card(run):
    model_dir, _ = run
    kept = read_metrics(str(model_dir / BEST))
    for folder in (model_dir, model_dir / BEST):
        card = json.loads((folder / "model.json").read_text())
        assert card["task"] == "toy" and card["labels"] == ["no", "yes"]
        assert card["settings"]["attention_type"] == "bi" and card["settings"]["dropout"] == 0.1
        assert card["cleaning"]["lower"] is False and card["metrics"] == kept
        assert card["metrics"].keys() > {"accuracy", "step"}


def test_a_run_is_used_in_a_bucket(run, registered, data, tmp_path, bucket):
    model_dir = f"{bucket}/run"
    for path, _, names_there in tf.io.gfile.walk(str(run[0])):
        target = path.replace(str(run[0]), model_dir)
        tf.io.gfile.makedirs(target)
        for name in names_there:
            tf.io.gfile.copy(f"{path}/{name}", f"{target}/{name}")
    there, here = (prediction.Run.open(path, str(data / "dev")) for path in (f"{model_dir}/", str(run[0])))
    assert [path.removeprefix(model_dir) for path in there.checkpoints()] == [
        path.removeprefix(str(run[0])) for path in here.checkpoints()
    ]
    expected, found = (
        prediction.Predictor(opened, STRATEGY, 8).predict(opened.checkpoint("best"), pieces)
        for opened, pieces in ((here, None), (there, f"{bucket}/pieces"))
    )
    np.testing.assert_array_equal(found["logits"], expected["logits"])


def test_folders_that_tensorflow_takes_as_patterns_are_refused(run, registered, data, tmp_path):
    folder = tmp_path / "lr[1e-5]"
    with pytest.raises(UserError, match=r"lr\[1e-5\] has \[ in its name.* another name"):
        run_toy(data, folder)
    shutil.copytree(run[0], folder)  # or named so later
    opened = prediction.Run.open(str(folder), str(data / "dev"))
    assert [path.rpartition("/")[2] for path in opened.checkpoints()][-2:] == ["ckpt-64", "best"]
    with pytest.raises(UserError, match=r"lr\[1e-5\]/ckpt-64 has \[ in its name"):
        open_checkpoint(opened.checkpoint("last"))


@pytest.mark.integration
def test_best_weights_of_an_earlier_run_are_not_reused(data, tmp_path):
    (tmp_path / "run" / BEST).mkdir(parents=True)
    (tmp_path / "run" / BEST / "metrics.json").write_text(json.dumps({"step": 8, "accuracy": 2.0}))
    run_toy(data, tmp_path / "run", task={"epochs": 1.0})
    assert read_metrics(str(tmp_path / "run" / BEST))["accuracy"] <= 1.0


def test_a_nan_metric_is_never_best(data, run, tmp_path):
    shutil.copy(run[0] / "params.yaml", tmp_path)
    task = toy.ToyTask(settings(data).task)
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
        task = toy.ToyTask(settings(data, task={"validation_data": {"input_path": str(folder)}}).task)
        task.after_evaluation(task.build_model(), {"accuracy": metric}, 8 + number, str(tmp_path))
        best = read_metrics(str(tmp_path / BEST))
        kept.append((best["accuracy"], best.get("dev_set_since")))
    assert kept == [(0.9, None), (0.9, None), (0.4, 10), (0.4, 10), (0.6, 10)]
    assert caplog.text.count("has the weights that were best on other dev examples: they are removed") == 1
    path = tmp_path / BEST / "metrics.json"
    path.write_text(json.dumps({"step": 8, "accuracy": 0.6}))  # an earlier version's, which does not tell
    task.after_evaluation(task.build_model(), {"accuracy": 0.5}, 8, str(tmp_path))
    assert read_metrics(str(tmp_path / BEST))["accuracy"] == 0.6


def test_nan_outputs_score_worst(data):
    """Their largest is the first class, which would be right for half of the examples."""
    task = toy.ToyTask(settings(data).task)
    index, logits = np.arange(-1, 21), np.ones([22, 2], np.float32)
    logits[0] = np.nan  # of a row that fills up the batch

    def report():
        rows = task.evaluation_rows({"index": tf.constant(index)}, tf.constant(logits))
        return task.report({name: value.numpy() for name, value in rows.items()})

    assert report()["accuracy"] == pytest.approx(11 / 21)
    logits[7, 1] = np.inf
    assert report() == {"accuracy": -np.inf}


def test_epochs_are_counted_in_examples(data):
    params = settings(data, task={"epochs": 3.0, "train_data": {"global_batch_size": 32}})
    fill_defaults(params, 47)
    assert params.trainer.train_steps == 5  # 141 examples
    assert params.trainer.validation_interval == params.trainer.checkpoint_interval == 2


def test_every_number_may_be_a_whole_one(data, tmp_path):
    """Settings that have a point by default, given without, as yaml, --params_override and --sweep may."""
    params, changes = settings(data, trainer={"train_steps": 1}), {}
    for name, value in flatten(params.as_dict()).items():
        if isinstance(value, float):
            low = name.endswith(("dropout", "warmup_fraction")) or ".beta_" in name
            changes[name] = value if ".beta_" in name else 0 if low else 1  # betas are between 0 and 1
    assert changes["trainer.optimizer_config.learning_rate"] == 1 and len(changes) > 15
    override(params, ",".join(f"{name}={value}" for name, value in changes.items()), "--params_override")
    check_types(params, settings(data))
    metrics = finetune(params, toy.ToyTask, STRATEGY, str(tmp_path))
    assert 0 <= metrics["accuracy"] <= 1


def test_a_run_without_a_step_is_refused(data):
    for epochs in (0, 0.0):
        with pytest.raises(UserError, match=r"\(--epochs\) is 0.* and train_steps is 0: expected more"):
            fill_defaults(settings(data, task={"epochs": epochs}), 64)
    params = settings(data, task={"epochs": 0}, trainer={"train_steps": 3})
    fill_defaults(params, 64)
    assert params.trainer.train_steps == 3
    params = settings(data, task={"epochs": 1e-9})
    fill_defaults(params, 64)
    assert params.trainer.train_steps == 1


def test_an_evaluation_reads_as_much_at_once_as_a_part_of_a_step(data):
    """What fits with gradients fits without, and divides over the devices as the batch does."""
    data_of_step = {"train_data": {"global_batch_size": 32}, "validation_data": {"global_batch_size": 0}}
    params = settings(data, task=data_of_step, trainer={"accumulation_steps": 4})
    fill_defaults(params, 47)
    assert params.task.validation_data.global_batch_size == 8
    params.task.validation_data.global_batch_size = 30
    fill_defaults(params, 47)
    assert params.task.validation_data.global_batch_size == 30


@pytest.mark.integration
def test_a_stopped_run_resumes_bit_for_bit(data, run, tmp_path, monkeypatch):
    """Between two evaluations: as it resumes it evaluates, but the best weights are not to depend on that."""
    model_dir, metrics = run
    judged, judge = [], toy.ToyTask.after_evaluation
    report = Progress.train

    def note_and_judge(task, model, metrics, step, model_dir):
        judged.append(step)
        judge(task, model, metrics, step, model_dir)

    def report_and_end(progress, logs):
        report(progress, logs)
        if int(progress._step.numpy()) == 60:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(toy.ToyTask, "after_evaluation", note_and_judge)
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Progress, "train", report_and_end)
        run_toy(data, tmp_path / "again", trainer={"max_to_keep": 20})
    kept = sorted(path.name for path in (tmp_path / "again").glob("ckpt-*.index"))
    assert kept == [f"ckpt-{step}.index" for step in sorted([*range(8, 57, 8), 60], key=str)]
    assert run_toy(data, tmp_path / "again", trainer={"max_to_keep": 20}) == metrics
    history = read_history(str(tmp_path / "again" / "history.jsonl"))
    assert [line["step"] for line in history if line["kind"] == "dev"] == [*range(0, 57, 8), 60, 64]
    assert judged == [*range(0, 57, 8), 64]
    for folder in ("ckpt-64", BEST):
        for name, values in weights(model_dir / folder).items():
            np.testing.assert_array_equal(values, weights(tmp_path / "again" / folder)[name], err_msg=name)


def test_resuming_with_another_architecture_of_equal_shapes_is_refused(data, run, tmp_path, small_tokenizer):
    """Where a run resumes, init_checkpoint is free; the architecture that comes with it is not."""
    shutil.copytree(run[0], tmp_path / "run")
    config = toy.ToyTask(settings(data).task).xlnet_config
    encoder = XLNetEncoder(dataclasses.replace(config, ff_activation="gelu_erf"))
    encoder.build()
    save_model(encoder, str(tmp_path / "release"))
    begin = {"init_checkpoint": str(tmp_path / "release")}
    before = (tmp_path / "run" / "xlnet_config.json").read_text()
    with pytest.raises(UserError, match="architecture's ff_activation: gelu there, gelu_erf now") as error:
        run_toy(data, tmp_path / "run", task=begin)
    assert "n_layer" not in str(error.value) and "Resume with the settings of that run" in str(error.value)
    assert (tmp_path / "run" / "xlnet_config.json").read_text() == before
    with pytest.raises(UserError, match="ff_activation: None there, gelu now") as error:
        run_toy(data, tmp_path / "run", task={**begin, "model": {"ff_activation": "gelu"}})
    assert "architecture's" not in str(error.value)
    (tmp_path / "run" / "xlnet_config.json").unlink()
    run_toy(data, tmp_path / "run", task=begin)


def test_an_encoder_begins_with_the_checkpoint(data, tmp_path, small_tokenizer):
    task = toy.ToyTask(settings(data).task)
    encoder = XLNetEncoder(task.xlnet_config)
    encoder.build()
    save_model(encoder, str(tmp_path / "pretrained"))
    (tmp_path / "pretrained" / "spiece.model").write_bytes(small_tokenizer.model_proto)
    overrides = {"init_checkpoint": str(tmp_path / "pretrained"), "model": {"n_layer": None}}
    task = toy.ToyTask(settings(data, task=overrides).task)  # the architecture comes with the weights
    model = task.build_model()
    task.initialize(model)
    np.testing.assert_array_equal(model.encoder.word_embedding, encoder.word_embedding)

    with pytest.raises(UserError, match="n_layer is 1 there and 2 in the model"):
        other = toy.ToyTask(settings(data, task={**overrides, "model": {"n_layer": 2}}).task)
        other.initialize(other.build_model())
    model_file = tmp_path / "pretrained" / "spiece.model"
    proto = ModelProto.FromString(model_file.read_bytes())
    proto.trainer_spec.model_prefix = "another file of the same pieces"
    model_file.write_bytes(proto.SerializeToString())
    toy.ToyTask(settings(data, task=overrides).task)
    proto.pieces[40].score -= 1.0
    model_file.write_bytes(proto.SerializeToString())
    with pytest.raises(UserError, match="another tokenizer"):
        toy.ToyTask(settings(data, task=overrides).task)
    model_file.write_bytes(small_tokenizer.model_proto)
    cleaning = {**task.example_set.cleaning, "lower": True}
    (tmp_path / "pretrained" / "manifest.json").write_text(json.dumps({"cleaning": cleaning}))
    with pytest.raises(UserError, match="'lower': False.* by .*'lower': True.* build the examples with"):
        toy.ToyTask(settings(data, task=overrides).task)


def test_a_run_begins_with_a_checkpoint_that_the_original_fine_tuned(data, tmp_path, small_tokenizer):
    encoder = XLNetEncoder(toy.ToyTask(settings(data).task).xlnet_config)
    encoder.build()
    arrays = {canonical(v.name): v.numpy() for v in encoder.variables}
    del arrays[QUERY_START]
    write_safetensors(Arrays.of(arrays), str(tmp_path / "weights.safetensors"))
    (tmp_path / "xlnet_config.json").write_text(encoder.config.to_json())
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    task = toy.ToyTask(settings(data, task={"init_checkpoint": str(tmp_path)}).task)
    model = task.build_model()
    task.initialize(model)
    np.testing.assert_array_equal(model.encoder.word_embedding, encoder.word_embedding)


def test_a_trained_head_is_reused_only_for_its_own_labels(data, run, tmp_path, small_tokenizer):
    begin = {"init_checkpoint": str(run[0])}
    task = toy.ToyTask(settings(data, task=begin).task)
    model = task.build_model()
    task.initialize(model)
    np.testing.assert_array_equal(model.dense.kernel, weights(run[0])["classification_task/logits/kernel"])

    toy.make_examples(tmp_path / "train", small_tokenizer, 8, labels=("yes", "no"))
    other = {
        **begin,
        "train_data": {"input_path": str(tmp_path / "train")},
        "validation_data": {"input_path": ""},
    }
    task = toy.ToyTask(settings(data, task=other).task)
    with pytest.raises(UserError, match="labels of the head .* is .*'no', 'yes'.* but .*'yes', 'no'"):
        task.initialize(task.build_model())


def test_training_and_dev_have_losses_and_metrics_of_their_own(data, tmp_path):
    seen = []

    class Apart(toy.ToyTask):
        def build_metrics(self, training=True):
            return [Ratio("loss" if training else "margin")]

        def sums(self, features, outputs):
            seen.append(outputs.shape)
            return super().sums(features, outputs)

        def validation_sums(self, features, outputs):
            weights = row_weights(features)
            margins = tf.abs(outputs[:, 0] - outputs[:, 1])
            return {"margin": (tf.reduce_sum(weights * margins), tf.reduce_sum(weights))}

    short = settings(data, task={"epochs": 0.25, "batching": "fixed"}, trainer={"steps_per_loop": 1})
    metrics = finetune(short, Apart, STRATEGY, str(tmp_path / "run"))
    assert metrics.keys() == {"margin", "accuracy"} and metrics["margin"] > 0
    assert len(seen) == 1  # traced for training only


@pytest.mark.integration
def test_the_median_over_seeds_counts_a_failed_seed_as_worst(data, tmp_path):
    params = settings(data, task={"epochs": 1.0})
    results = seeds.finetune_seeds(params, toy.ToyTask, STRATEGY, str(tmp_path / "runs"), num_seeds=2)
    assert [result.seed for result in results] == [0, 1]
    losses = [result.last["loss"] for result in results]
    assert len(set(losses)) == 2
    assert f"{np.median(losses):.4f}" in seeds.table(results).splitlines()[-1]
    assert json.loads((tmp_path / "runs" / "seeds.json").read_text())[1]["last"]["loss"] == losses[1]

    failed = [seeds.Result(seed, "accuracy", {}, {}, "diverged") for seed in (3, 4, 5)]
    header, *_, medians, _, _, problem = seeds.table(failed + results).splitlines()
    assert header.split()[1:] == ["best", "accuracy", "accuracy", "loss"]
    assert medians.split() == ["median", "-inf", "-inf", "nan"]  # -inf would be the best loss
    assert problem == "seed 5: diverged"


@pytest.mark.integration
def test_a_nan_gradient_with_a_finite_loss_stops_the_run(data, tmp_path):
    class Steep(toy.ToyTask):
        """The square root of 0 has an infinite gradient, and 0 times infinity is NaN."""

        def sums(self, features, outputs):
            loss, count = super().sums(features, outputs)["loss"]
            return {"loss": (loss + tf.sqrt(0.0 * loss), count)}

    options = settings(data, trainer={"steps_per_loop": 1, "max_skipped_steps": 2})
    with pytest.raises(Diverged, match="3 steps in a row.*step 0, the model's outputs are finite for all"):
        finetune(options, Steep, STRATEGY, str(tmp_path / "run"))
    assert not list((tmp_path / "run").glob("ckpt-*"))


@pytest.mark.integration
def test_divergence_stops_the_run_before_bad_weights_are_saved(data, tmp_path):
    wild = {"trainer": {"optimizer_config": {"learning_rate": 1e30, "clip_norm": 0.0}}}
    with pytest.raises(Diverged, match="Lower learning_rate"):
        run_toy(data, tmp_path / "run", **wild)
    assert not list((tmp_path / "run").glob("ckpt-*"))
    results = seeds.finetune_seeds(settings(data, **wild), toy.ToyTask, STRATEGY, str(tmp_path / "runs"), 2)
    assert all(result.problem.startswith("diverged") for result in results)


@pytest.mark.integration
def test_a_run_that_learns_nothing_is_flagged(data, tmp_path):
    still = settings(data, trainer={"optimizer_config": {"learning_rate": 0.0}}, task={"epochs": 2.0})
    (result,) = seeds.finetune_seeds(still, toy.ToyTask, STRATEGY, str(tmp_path / "run"))
    assert result.problem == "learned nothing: the loss did not fall"

    class Constant(toy.ToyTask):
        """The best that one answer for all texts gets is more than this run will."""

        def constant_score(self, examples):
            return 1.0

    (result,) = seeds.finetune_seeds(
        settings(data, task={"epochs": 3.0}), Constant, STRATEGY, str(tmp_path / "other")
    )
    assert result.problem == "learned nothing: the same answer for every text scores 1.0000"
    assert seeds.table([result]).splitlines()[-2:] == [
        "seed 0: learned nothing: the same answer for every text scores 1.0000",
        "Try a lower --learning_rate, more --epochs, a longer --warmup_fraction or another --seed, with a "
        "new --model_dir: rates from 0.0003 to 0.003 suit tiny models, and this run had 0.02",
    ]


@pytest.mark.parametrize(
    ("rate", "d_model", "said"),
    [
        (2e-5, 16, "Try a higher --learning_rate, more"),
        (1e-3, 16, "Try more --epochs"),
        (0.1, 16, "Try a lower --learning_rate, more"),
        (1e-3, 1024, "Try a lower --learning_rate, more"),
        (2e-5, 1024, "Try more --epochs"),
    ],
)
def test_advice_does_not_name_the_rate_that_was_given(data, rate, d_model, said):
    task = toy.ToyTask(settings(data, task={"model": {"d_model": d_model}}).task)
    assert seeds._advice(rate, task).startswith(said)


def test_a_table_of_seeds_fits_into_a_terminal():
    """80 columns, no word broken; counts are whole numbers, the median's, too."""
    names = ["map", "mrr", "mrr_at_10", "ndcg_at_10", "queries_left_out", "a_metric_of_a_long_name", "loss"]
    results = [
        seeds.Result(seed, "map", {**dict.fromkeys(names, 0.5), "queries": 18}, {"map": 0.75})
        for seed in (3, 4)
    ]
    printed = seeds.table(results)
    assert max(map(len, printed.splitlines())) <= 80
    blocks = [[line.split() for line in block.splitlines()] for block in printed.split("\n\n")]
    assert {tuple(row[0] for row in block) for block in blocks} == {("seed", "3", "4", "median")}
    columns = [dict(zip(block[0], row)) for block in blocks[1:] for row in block[1:]]
    assert {name for row in columns for name in row} >= {*names[5:], "queries"}
    assert {row["queries"] for row in columns if "queries" in row} == {"18"}
    assert {row["loss"] for row in columns if "loss" in row} == {"0.5000"}


def test_an_interrupted_prediction_resumes(run, registered, data, tmp_path, monkeypatch):
    monkeypatch.setattr(prediction, "_STEPS_KEPT", 2)
    opened = prediction.Run.open(str(run[0]), str(data / "dev"))
    done, limit = [], 5

    def on_step(examples):
        done.append(examples)
        if len(done) == limit:
            raise KeyboardInterrupt

    predictor = prediction.Predictor(opened, STRATEGY, 3, on_step)
    assert predictor.steps == 7
    with pytest.raises(KeyboardInterrupt):
        predictor.predict(opened.checkpoint("last"), str(tmp_path / "pieces"))
    done, limit = [], 99
    resumed = predictor.predict(opened.checkpoint("last"), str(tmp_path / "pieces"))
    assert done == [12, 3, 3, 3]  # 4 of 7 steps were kept
    whole = predictor.predict(opened.checkpoint("last"))
    np.testing.assert_array_equal(resumed["logits"], whole["logits"])
    done = []
    predictor.predict(opened.checkpoint("best"), str(tmp_path / "pieces"))
    assert len(done) == 7  # other weights: nothing is taken over
    done = []
    (weights_file,) = (run[0] / BEST).glob("*.safetensors")
    os.utime(weights_file, ns=(0, 0))
    predictor.predict(opened.checkpoint("best"), str(tmp_path / "pieces"))
    assert len(done) == 7  # other weights of the same name


def test_nan_outputs_are_not_written_as_predictions(run, registered, data, monkeypatch):
    """They would all be the first class."""
    opened = prediction.Run.open(str(run[0]), str(data / "dev"))

    def load_beyond_all_numbers(model, path):
        load_into(model, path)
        model.trainable_variables[-1].assign([np.inf, 0.0])

    monkeypatch.setattr(prediction, "load_into", load_beyond_all_numbers)
    with pytest.raises(UserError, match="best are NaN or infinite for 21 of 21 .* computed in float32"):
        prediction.Predictor(opened, STRATEGY, 8).predict(opened.checkpoint("best"))


def test_damaged_stored_predictions_are_recomputed(run, registered, data, tmp_path, monkeypatch):
    monkeypatch.setattr(prediction, "_STEPS_KEPT", 2)
    opened, done = prediction.Run.open(str(run[0]), str(data / "dev")), []
    predictor = prediction.Predictor(opened, STRATEGY, 3, done.append)
    whole = predictor.predict(opened.checkpoint("best"), str(tmp_path))
    piece = tmp_path / "rows-00000002.npz"
    content = piece.read_bytes()
    for damaged in (b"", content[:-9], content[:200] + b"?" + content[201:], b"?" + content[1:]):
        piece.write_bytes(damaged)
        done.clear()
        again = predictor.predict(opened.checkpoint("best"), str(tmp_path))
        assert done == [6, 3, 3, 3, 3, 3]  # the first two steps were kept
        np.testing.assert_array_equal(again["logits"], whole["logits"])


def test_best_weights_without_metrics_are_not_a_checkpoint(run, registered, data, tmp_path, monkeypatch):
    """Killed while they are replaced: the next evaluation that an undisturbed run has replaces them again."""
    shutil.copytree(run[0], tmp_path / "run")
    task = toy.ToyTask(settings(data).task, trained_on=ExampleSet.load(run[0]))
    model = task.build_model()
    monkeypatch.setattr(files, "copy", lambda *_: sys.exit("killed"))
    with pytest.raises(SystemExit):
        task.after_evaluation(model, {"accuracy": 2.0}, 99, str(tmp_path / "run"))
    opened = prediction.Run.open(str(tmp_path / "run"), str(data / "dev"))
    assert opened.checkpoint("") == str(tmp_path / "run" / "ckpt-64")
    assert not read_metrics(str(tmp_path / "run" / BEST))


def test_the_folder_of_several_runs_is_not_taken_for_a_run(run, registered, data, tmp_path):
    """Neither that of --num_seeds nor that of a --sweep."""
    shutil.copytree(run[0], tmp_path / "runs" / "seed-0")
    shutil.copytree(run[0], tmp_path / "runs" / "seed-1")
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
    expected = weights(opened.checkpoint(""))
    kept = {name: weights(f"{folder}/{name}") for name in ("ckpt-32", "ckpt-64")}
    assert not all(np.array_equal(kept["ckpt-32"][name], value) for name, value in kept["ckpt-64"].items())
    save_checkpoint(open_checkpoint(folder), str(tmp_path / "converted"), "ours")
    for found in (folder, str(tmp_path / "converted")):
        for name, value in weights(found).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
    converted = prediction.Run.open(str(tmp_path / "converted"), str(data / "dev"))
    assert open_checkpoint(converted.checkpoint("")).path == open_checkpoint(str(tmp_path / "converted")).path


def test_weights_are_not_saved_into_a_run(run, registered, data, tmp_path):
    """Nor read from a run into which an earlier version saved some: by no way."""
    folder = copied(run, tmp_path)
    task = toy.ToyTask(settings(data).task, trained_on=ExampleSet.load(run[0]))
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
        ("params.yaml", lambda _: b"\xff", "params.yaml is not a text file"),
        ("params.yaml", lambda _: b"task: {", "params.yaml is not yaml"),
        ("params.yaml", lambda _: b"task: {model: 3}", "params.yaml: .*model"),
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

    with pytest.raises((UserError, FileNotFoundError), match=message):
        use()
    path.write_bytes(content)
    use()


def test_lengths_of_a_runs_dev_examples_are_not_those_of_other_sets(run, registered, data, tmp_path):
    shutil.copytree(run[0], tmp_path / "run")
    params = yaml.safe_load((tmp_path / "run/params.yaml").read_text())
    params["task"]["validation_data"]["lengths"] = [4]
    (tmp_path / "run/params.yaml").write_text(yaml.safe_dump(params))
    opened = prediction.Run.open(str(tmp_path / "run"), str(data / "dev"))
    assert opened.task.data.batching(training=False).batches.length(0) > 4


def test_what_does_not_fit_is_refused(data, run, registered, tmp_path, small_tokenizer):
    toy.make_examples(tmp_path / "other" / "dev", small_tokenizer, 4, labels=("0", "1"))
    with pytest.raises(UserError, match="labels of .* is .*'0', '1'.* for .*'no', 'yes'"):
        toy.ToyTask(
            settings(data, task={"validation_data": {"input_path": str(tmp_path / "other/dev")}}).task
        )
    with pytest.raises(UserError, match="labels"):
        prediction.Run.open(str(run[0]), str(tmp_path / "other" / "dev"))
    toy.make_examples(tmp_path / "strange", small_tokenizer, 4, task="parsing")
    with pytest.raises(UserError, match="examples for parsing: expected some for toy"):
        toy.ToyTask(settings(data, task={"train_data": {"input_path": str(tmp_path / "strange")}}).task)
    with pytest.raises(UserError, match="'parsing': expected one of classification"):
        task_registry.entry_for_set(ExampleSet.load(tmp_path / "strange"))
    shutil.copytree(run[0], tmp_path / "run")
    toy.make_examples(tmp_path / "more" / "train", small_tokenizer, 80)
    with pytest.raises(UserError, match="examples' shards"):
        run_toy(data, tmp_path / "run", task={"train_data": {"input_path": str(tmp_path / "more/train")}},
                trainer={"train_steps": 64, "validation_interval": 8})  # fmt: skip
    with pytest.raises(UserError, match="has no checkpoint 'ckpt-3'"):
        prediction.Run.open(str(run[0]), str(data / "dev")).checkpoint("ckpt-3")
