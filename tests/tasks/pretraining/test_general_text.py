"""A run that continues from another and is evaluated on general text, too."""

import functools
import re
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.training import toy
from xlnet_tf.checkpoints import open_checkpoint
from xlnet_tf.checkpoints.of_runs import optimizer_state
from xlnet_tf.errors import UserError
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.training.checks import check_resumable
from xlnet_tf.training.early_stopping import read_metrics
from xlnet_tf.training.progress import read_history


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"max_general_rise": 0.5}, "max_general_rise is 0.5, and there is no task.general_data"),
        ({"keep_best": True}, "task.keep_best keeps .* dev records, and there are none: give --dev_data"),
        ({"general_data": {"input_path": "x"}}, "task.general_data is evaluated along with .*: give both"),
    ],
)
def test_what_evaluations_decide_needs_records_to_evaluate(folder, task, message):
    params = toy.short_run(folder, task={"validation_data": {"input_path": ""}, **task})
    with pytest.raises(UserError, match=message):
        pretraining.build_task(params)


def test_a_step_of_a_run_with_general_text_is_built_without_evaluations(folder):
    """As it is to be compiled for a TPU."""
    data = {"general_data": {"input_path": str(folder / "dev")}, "validation_data": {"input_path": ""}}
    params = toy.short_run(folder, task={**data, "max_general_rise": 0.5, "keep_best": True})
    assert pretraining.PretrainingTask(params.task).data.general


def continued(folder, run, task, **trainer):
    task = {"init_checkpoint": str(run[0] / "ckpt-6"), **task}
    return toy.short_run(folder, task=task, trainer=trainer)


def texts_of(folder, name):
    return {"general_data": {"input_path": str(folder / name)}}


@pytest.fixture(scope="module")
def adapted(folder, run):
    """A run that continues from another's weights and moments, and is evaluated on general text, too."""
    toy.make_records(folder / "general", segments=((7, 6),), seed=2)
    model_dir = folder / "adapted"
    optimizer = {"updates_before": 6, "warmup_steps": 2, "learning_rate": 1e-3}
    task = {**texts_of(folder, "general"), "keep_best": True}
    params = continued(folder, run, task, optimizer_config=optimizer)
    pretraining.pretrain(params, str(model_dir))
    return model_dir


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_losses_on_domain_and_general_text_are_those_of_each_alone(folder, run, adapted):
    """At step 0, with the same weights, each as a run that knows only one of the sets has it."""
    first = next(line for line in read_history(str(adapted / "history.jsonl")) if line["kind"] == "dev")
    for name, dev in (("loss", "dev"), ("general_loss", "general")):
        task = {"validation_data": {"input_path": str(folder / dev)}}
        alone = continued(folder, run, task, train_steps=1, optimizer_config={"learning_rate": 0.0})
        alone_dir = folder / f"alone_{dev}"
        pretraining.pretrain(alone, str(alone_dir))
        expected = read_history(str(alone_dir / "history.jsonl"))[0]["loss"]
        assert first[name] == pytest.approx(expected, rel=1e-5)


def test_general_text_counts_for_its_own_loss_alone():
    rng = np.random.default_rng(0)
    task = types.SimpleNamespace(data=types.SimpleNamespace(general=object()), next_sentence=True)
    task.sums = functools.partial(pretraining.PretrainingTask.sums, task)
    outputs = {
        "logits": tf.constant(rng.normal(size=[5, 3, 11]), tf.float32),
        "target_ids": tf.constant(rng.integers(0, 11, [5, 3]), tf.int32),
        "target_weights": tf.constant(rng.integers(0, 2, [5, 3]), tf.float32),
        "next_sentence_logits": tf.constant(rng.normal(size=[5, 2]), tf.float32),
    }
    features = {
        "direction": tf.constant([1, -1, -1, 1, 1]),
        "next_sentence": tf.constant([1, 0, -1, 0, 1]),
        "is_general": tf.constant([False, True, False, False, True]),
    }

    def means(sums):
        return {name: float(total / count) for name, (total, count) in sums.items()}

    found = means(pretraining.PretrainingTask.validation_sums(task, features, outputs))
    general_loss = found.pop("general_loss")
    for rows, expected in (([0, 2, 3], found), ([1, 4], {"loss": general_loss})):
        some = tf.nest.map_structure(lambda value: tf.gather(value, rows), (features, outputs))  # noqa: B023
        alone = means(task.sums(*some))
        assert {name: alone[name] for name in expected} == pytest.approx(expected, nan_ok=True)


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_moments_are_taken_over_and_the_schedule_begins_anew(run, adapted):
    model_dir = adapted
    history = [line for line in read_history(str(model_dir / "history.jsonl")) if line["kind"] == "train"]
    # Of the second step of the warm-up, and of the last of five that it decays in.
    assert history[0]["learning_rate"] == pytest.approx(5e-4)
    assert history[-1]["learning_rate"] == pytest.approx(2e-4)
    last = toy.tensors(model_dir / "ckpt-7")
    assert last["optimizer/_iterations/.ATTRIBUTES/VARIABLE_VALUE"] == 6 + 7
    assert last["global_step/.ATTRIBUTES/VARIABLE_VALUE"] == 7
    # With no learning rate a step changes the moments alone: by beta_1 of what they were, and a gradient.
    nothing = {"updates_before": 6, "learning_rate": 0.0, "clip_norm": 1e-9, "weight_decay": 0.0}
    still = continued(model_dir.parent, run, {}, train_steps=1, optimizer_config=nothing)
    pretraining.pretrain(still, str(model_dir.parent / "still"))
    before, after = toy.tensors(run[0] / "ckpt-6"), toy.tensors(model_dir.parent / "still" / "ckpt-1")
    moments = [name for name in before if re.search(r"optimizer/_variables/\d+/", name)]
    assert len(moments) > 20
    ratios = [after[name].sum() / before[name].sum() for name in moments if abs(before[name].sum()) > 1e-3]
    assert ratios and all(min(abs(ratio - beta) for beta in (0.9, 0.999)) < 1e-3 for ratio in ratios)


def test_moments_that_are_not_there_are_refused(folder, run):
    task = {"init_checkpoint": str(run[0] / "ckpt-4")}
    params = continued(folder, run, task, optimizer_config={"updates_before": 6})
    with pytest.raises(UserError, match="updates_before is 6: .* found those of 4"):
        pretraining.pretrain(params, str(folder / "refused"))


@pytest.mark.integration
def test_the_best_weights_are_kept_and_found(adapted):
    model_dir = adapted
    dev = [line for line in read_history(str(model_dir / "history.jsonl")) if line["kind"] == "dev"]
    kept = read_metrics(str(model_dir / "best"))
    counted = [line for line in dev if line["step"] in (4, 7)]
    assert kept["loss"] == min(line["loss"] for line in counted)
    checkpoint = open_checkpoint(str(model_dir))
    assert "/best/" in checkpoint.path
    assert optimizer_state(checkpoint).path == str(model_dir / f"ckpt-{kept['step']}")


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_a_run_that_forgets_ends_and_keeps_what_was_within_the_bound(folder, run):
    """And so it does when it is started again, where the general text has been moved to."""
    model_dir = folder / "forgets"
    shutil.copytree(folder / "general", folder / "moved general")
    for general in ("general", "moved general"):
        task = {**texts_of(folder, general), "max_general_rise": 0.05, "keep_best": True}
        params = continued(folder, run, task, train_steps=40, optimizer_config={"learning_rate": 0.3})
        pretraining.pretrain(params, str(model_dir))
        dev = [line for line in read_history(str(model_dir / "history.jsonl")) if line["kind"] == "dev"]
        first, *_, last = dev
        assert last["step"] < 40 and last["general_loss"] > first["general_loss"] + 0.05
        kept = read_metrics(str(model_dir / "best"))
        assert not kept or kept["general_loss"] <= first["general_loss"] + 0.05


@pytest.mark.integration
@pytest.mark.usefixtures("eagerly")
def test_a_run_that_resumes_with_other_general_text_says_what_it_compares(folder, run, caplog):
    """Also once weights were kept after the change."""
    for name, seed in (("first text", 2), ("other text", 3)):
        toy.make_records(folder / name, segments=((7, 6),), seed=seed)
    model_dir, said = folder / "changes its text", []
    for name in ("first text", "other text", "first text", "other text"):
        task = {**texts_of(folder, name), "max_general_rise": 9.0, "keep_best": True}
        params = continued(folder, run, task)
        caplog.clear()
        task = pretraining.PretrainingTask(params.task)
        check_resumable(params, task, str(model_dir))
        said.append("max_general_rise compares losses on two different texts" in caplog.text)
        if name == "first text" and len(said) == 1:
            pretraining.pretrain(params, str(model_dir))
        if len(said) == 2:
            task.after_evaluation(task.build_model(), {"loss": 0.0, "general_loss": 0.0}, 8, str(model_dir))
            assert read_metrics(str(model_dir / "best"))["step"] == 8
    assert said == [False, True, False, True]
