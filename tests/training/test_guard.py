"""Steps whose numbers go wrong change nothing, are counted, and end the run when there are too many."""

import math
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.training.layouts import build_trainer, state, train
from tests.helpers.training.worker import settings
from xlnet_tf.checkpoints.of_runs import newest
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.training import guard as guard_lib
from xlnet_tf.training.guard import Diverged, Guard, Watch
from xlnet_tf.training.optimizer import OptimizerConfig, build_optimizer
from xlnet_tf.training.runtime import number_type
from xlnet_tf.training.trainer import Trainer

INF, NAN = math.inf, math.nan


def judged(guard, steps, first=0):
    """Whether each step (loss, norm) is kept."""
    return [
        bool(guard.judge(tf.constant(loss), tf.constant(norm), tf.constant(step, tf.int64)))
        for step, (loss, norm) in enumerate(steps, first)
    ]


def test_nan_steps_are_skipped_and_counted():
    guard = Guard()
    steps = [(1.0, 1.0), (NAN, 1.0), (1.0, INF), (2.0, 1e30), (-INF, NAN), (1.0, NAN), (INF, 1.0)]
    assert judged(guard, steps) == [True, False, False, True, False, False, False]
    assert (int(guard.skipped), int(guard.in_a_row), int(guard.first_in_a_row)) == (5, 3, 4)
    assert float(guard.usual_loss) == 1.5 and float(guard.loss_scale) == 1.0


def test_spikes_are_measured_against_recent_norms(monkeypatch):
    monkeypatch.setattr(guard_lib, "SPIKE_MEMORY", 4)
    guard = Guard(spike_factor=2.0)
    # The first 4 steps tell what is usual: 2.5. The mean then follows the kept ones by a quarter.
    steps = [(4.0, 1.0), (1.0, 1.0), (4.0, 1.0), (1.0, 1.0), (5.1, 1.0), (4.9, 1.0), (6.1, 1.0), (7.8, 1.0)]
    assert judged(guard, steps) == [True, True, True, True, False, True, True, False]
    assert (int(guard.skipped), int(guard.in_a_row), int(guard.first_in_a_row)) == (2, 1, 7)
    assert float(guard.usual_loss) == pytest.approx(3.85)


def test_a_half_precision_overflow_lowers_the_loss_scale(monkeypatch):
    monkeypatch.setattr(guard_lib, "GROWTH_STEPS", 3)
    guard = Guard(scale_loss=True)
    scale = guard_lib.FIRST_SCALE
    assert float(guard.scaled(tf.constant(2.0))) == 2 * scale
    assert guard.unscaled([tf.constant(3 * scale)])[0].numpy() == 3.0
    assert judged(guard, [(1.0, INF), (1.0, NAN), (1.0, 1.0)]) == [False, False, True]
    assert float(guard.loss_scale) == scale / 4 and int(guard.skipped) == int(guard.in_a_row) == 0
    judged(guard, [(1.0, 1.0), (1.0, 1.0)])
    assert float(guard.loss_scale) == scale / 2
    assert judged(guard, [(NAN, NAN)]) == [False]  # the loss itself: no factor helps
    assert float(guard.loss_scale) == scale / 2 and int(guard.skipped) == 1
    guard.loss_scale.assign(1.0)
    assert judged(guard, [(1.0, INF)]) == [False] and int(guard.skipped) == 2  # nothing is left to lower


@pytest.mark.parametrize("clip_norm", [1.0, 0.0])
def test_an_optimizers_skipped_step_changes_no_bit(clip_norm):
    variables = [tf.Variable([1.0, -2.0], name="a/kernel"), tf.Variable([0.5], name="a/bias")]
    optimizer = build_optimizer(OptimizerConfig(clip_norm=clip_norm, weight_decay=0.1), 10, 2)
    optimizer.build(variables)
    optimizer.apply_gradients(zip([tf.constant([3.0, 4.0]), tf.constant([0.1])], variables))
    moments = [*optimizer._momentums, *optimizer._velocities]
    before = [v.numpy() for v in [*variables, *moments]]
    assert len(moments) == 4 and all(np.any(value) for value in before)
    bad = [tf.constant([NAN, 1.0]), tf.constant([INF])]
    optimizer.apply_gradients(zip(bad, variables), keep=tf.constant(False))
    for value, variable in zip(before, [*variables, *moments]):
        np.testing.assert_array_equal(variable.numpy(), value)
    optimizer.apply_gradients(zip([tf.constant([3.0, 4.0]), tf.constant([0.1])], variables))
    assert all((v.numpy() != value).all() for value, v in zip(before, [*variables, *moments]))


@pytest.mark.integration
def test_a_skipped_step_leaves_all_as_it_was(folder, monkeypatch):
    trainer = build_trainer(folder, tf.distribute.OneDeviceStrategy("CPU:0"), {})
    sums = trainer.task.sums

    def poisoned(features, outputs):
        totals = sums(features, outputs)
        loss, count = totals["loss"]
        return totals | {"loss": (tf.where(trainer.global_step == 3, NAN, loss), count)}

    monkeypatch.setattr(trainer.task, "sums", poisoned)
    train(trainer, 3)
    trainer.checkpoint.parts.assign(4)
    first, again = trainer.resume_notices(), trainer.resume_notices()
    assert "into 4 micro-batches" in first[0] and first[1:] == again  # which say that there was no memory
    before = state(trainer)
    with trainer.strategy.scope():
        logs = trainer.train(tf.constant(1))
    after = state(trainer)
    slots = enumerate(trainer.optimizer.variables)
    changing = {f"slot/{i}" for i, v in slots if "iteration" in v.name or "learning" in v.name}
    for name in before.keys() - changing:
        if not name.startswith("memory"):
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    assert before["memory/mask"].any()
    assert not after["memory/mask"].any() and not after["memory/content"].any()
    assert math.isnan(logs["training_loss"]) and int(logs["skipped_steps"]) == 1
    measured = {"training_loss", "skipped_steps", "learning_rate", "tokens_per_second"}
    assert logs.keys() == measured  # nothing was kept that losses and accuracies could be of
    assert int(trainer.global_step) == 4

    with trainer.strategy.scope():
        logs = trainer.train(tf.constant(2))
    assert math.isfinite(logs["training_loss"]) and "skipped_steps" not in logs
    assert int(trainer.guard.skipped) == 1 and int(trainer.guard.in_a_row) == 0
    changed = state(trainer)
    correction = math.sqrt(1 - 0.999**5) / (1 - 0.9**5)  # five updates in six steps
    assert float(trainer.optimizer._correction) == pytest.approx(correction, rel=1e-5)
    assert all((changed[name] != before[name]).any() for name in before if name.startswith("weight/layer_0"))


@pytest.mark.integration
def test_half_precision_trains_like_float32(folder):
    losses = {}
    for name in ("float32", "float16"):
        with number_type(name):
            trainer = build_trainer(folder, tf.distribute.OneDeviceStrategy("CPU:0"), {})
            losses[name] = train(trainer, 6)
    assert trainer.checkpoint.memory.read(tf.zeros([8], tf.bool))["memory"].dtype == tf.float16
    assert float(trainer.guard.loss_scale) == guard_lib.FIRST_SCALE and not int(trainer.guard.skipped)
    np.testing.assert_allclose(losses["float16"], losses["float32"], rtol=5e-3)
    assert losses["float16"] != losses["float32"]


@pytest.mark.integration
def test_a_run_that_does_not_recover_ends_and_names_the_records(folder, tmp_path):
    params = settings(folder, train_steps=40, optimizer_config={"learning_rate": 1e30})
    with pytest.raises(Diverged) as error:
        pretraining.pretrain(params, str(tmp_path / "model"))
    message = str(error.value)
    assert "11 steps in a row were skipped" in message or "12 steps in a row" in message
    assert "In step 1, " in message and "row 0: train" in message
    assert "No weights had been saved" in message and "Lower learning_rate" in message
    assert not list((tmp_path / "model").glob("ckpt-*"))


@pytest.mark.integration
def test_nan_weights_are_not_saved(folder, tmp_path, monkeypatch):
    """The step that ruins them is the last before a checkpoint: none after it can tell by its loss."""
    end = Trainer.train_loop_end

    def end_and_ruin(trainer):
        logs = end(trainer)
        if int(trainer.global_step) == 8:
            kernel = next(v for v in trainer.model.trainable_variables if "kernel" in v.name)
            kernel.assign(tf.fill(kernel.shape, INF))
        return logs

    monkeypatch.setattr(Trainer, "train_loop_end", end_and_ruin)
    params = settings(folder)
    params.task.validation_data.input_path = ""
    model_dir = str(tmp_path / "model")
    with pytest.raises(Diverged, match="after 8 steps the weights are infinite or NaN: .*kernel") as error:
        pretraining.pretrain(params, model_dir)
    assert newest(model_dir) == f"{model_dir}/ckpt-4"
    assert f"The last good weights are in {model_dir}/ckpt-4. Lower learning_rate" in str(error.value)


@pytest.mark.parametrize(("kept", "ends_after"), [(0, 3), (1, 24), (2, None)])
def test_a_run_that_skips_more_than_half_of_its_steps_ends(tmp_path, kept, ends_after):
    guard, step = Guard(), tf.Variable(0, dtype=tf.int64)
    model = types.SimpleNamespace(trainable_variables=[tf.Variable([1.0])])
    parts = {"guard": guard, "global_step": step, "model": model, "bad_rows": lambda step: []}
    trainer = types.SimpleNamespace(strategy=tf.distribute.get_strategy(), **parts)
    watch = Watch(trainer, 2, lambda: newest(str(tmp_path)))
    loop = [(NAN, 1.0)] * (3 - kept) + [(1.0, 1.0)] * kept  # at most 2 one after another, unless none is kept
    for _ in range(10):
        judged(guard, loop, int(step))
        step.assign_add(3)
        if int(step) == ends_after:
            found = "14 of the last 21 steps" if kept else "3 steps in a row"
            with pytest.raises(Diverged, match=f"diverged: {found} were skipped.* In step "):
                watch()
            return
        watch()
    assert ends_after is None
