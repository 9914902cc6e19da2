"""The trainer's losses and metrics on one device; tests/training/test_layouts.py has the other layouts."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.training import toy
from tests.helpers.training.layouts import build_trainer, train
from xlnet_tf.models.pretrainer import target_losses
from xlnet_tf.records.shards import ShardWriter, read_shard


def strategy():
    return tf.distribute.OneDeviceStrategy("CPU:0")


def features(targets):
    rng = np.random.default_rng(0)
    return {
        "input_word_ids": tf.constant(rng.integers(9, 60, (2, 16)), tf.int32),
        "input_type_ids": tf.zeros([2, 16], tf.uint8),
        "permutation_rank": tf.constant(rng.integers(0, 5, (2, 16)), tf.int16),
        "target_positions": tf.constant(targets, tf.int16),
        "direction": tf.constant([1, -1], tf.int8),
        "next_sentence": tf.constant([1, -1], tf.int8),
        "memory": tf.zeros([2, 2, 12, 16]),
        "memory_mask": tf.zeros([2, 12], tf.bool),
    }


@pytest.mark.usefixtures("eagerly")
def test_a_batch_without_targets_changes_no_weight_and_has_the_loss_0(tmp_path):
    """The whole global batch, the metrics included; decay is off, for it needs no gradient."""
    manifest = toy.make_records(tmp_path / "records", segments=((8, 8),))
    (shard,) = manifest.shards
    columns = read_shard(manifest.path(shard), manifest.spec)
    with ShardWriter(manifest.path(shard), manifest.spec) as writer:
        writer.write(columns | {"target_positions": np.full_like(columns["target_positions"], -1)})
    overrides = {"task": {"train_data": {"global_batch_size": 4}, "model": {"n_layer": 1}}}
    overrides["trainer"] = {"optimizer_config": {"weight_decay": 0.0}}
    trainer = build_trainer(tmp_path, strategy(), overrides)
    before = [weight.numpy() for weight in trainer.model.trainable_variables]
    with trainer.strategy.scope():
        logs = trainer.train(tf.constant(2))
    assert float(logs["training_loss"]) == 0.0 and float(logs["gradient_norm"]) == 0.0
    assert int(trainer.guard.skipped.numpy()) == 0 and int(trainer.global_step.numpy()) == 2
    for weight, value in zip(trainer.model.trainable_variables, before):
        np.testing.assert_array_equal(weight.numpy(), value)
    assert all(np.isfinite(metric.result().numpy()) for metric in trainer.train_metrics)


def test_losses_are_divided_by_their_global_counts(folder):
    overrides = {"task": {"model": {"next_sentence_weight": 0.5}}}
    trainer = build_trainer(folder, strategy(), overrides)
    batch = features([[1, 3, 5, -1], [2, -1, -1, -1]])
    counts = {name: float(value) for name, value in trainer.task.counts(batch).items()}
    assert counts == {"loss": 4.0, "next_sentence_loss": 1.0}

    seed = tf.constant([0, 0])
    totals = {"loss": tf.constant(40.0), "next_sentence_loss": tf.constant(10.0)}
    _, loss, sums, _ = trainer._micro_step(batch, totals, seed)
    outputs = trainer.model({**batch, "dropout_seed": seed}, training=True)
    losses = target_losses(outputs).numpy()
    log_probabilities = tf.nn.log_softmax(outputs["next_sentence_logits"]).numpy()
    np.testing.assert_allclose(loss, losses.sum() / 40 - 0.5 * log_probabilities[0, 1] / 10, rtol=1e-5)
    np.testing.assert_allclose([float(x) for x in sums["loss_forward"]], [losses[0].sum(), 3], rtol=1e-6)
    np.testing.assert_allclose([float(x) for x in sums["loss_backward"]], [losses[1].sum(), 1], rtol=1e-6)


@pytest.mark.integration
def test_compiled_steps_equal_plain_ones(folder):
    small = {"task": {"model": {"n_layer": 1}}}
    plain, compiled = (
        train(build_trainer(folder, strategy(), {**small, "runtime": {"enable_xla": xla}}), 3)
        for xla in (False, True)
    )
    np.testing.assert_allclose(compiled, plain, atol=1e-5)


def test_evaluation_counts_every_record_once_whatever_the_batch(folder):
    manifest = toy.Manifest.load(folder / "dev")
    columns = [read_shard(manifest.path(shard), manifest.spec) for shard in manifest.shards]
    targets = sum(int((c["target_positions"] >= 0).sum()) for c in columns)
    forward = sum(int((c["target_positions"][c["direction"] > 0] >= 0).sum()) for c in columns)
    results = []
    for batch_size in (8, 3):
        data = {"input_path": str(folder / "dev"), "global_batch_size": batch_size}
        overrides = {"task": {"validation_data": data, "model": {"n_layer": 1}}}
        trainer = build_trainer(folder, strategy(), overrides, evaluate=True)
        for _ in range(2):  # the second evaluation starts anew
            with trainer.strategy.scope():
                logs = trainer.evaluate(tf.constant(trainer.eval_batching.steps))
            counted = {metric.name: int(metric.denominator.numpy()) for metric in trainer.validation_metrics}
            assert counted["loss"] == counted["accuracy"] == targets
            assert (counted["loss_forward"], counted["loss_backward"]) == (forward, targets - forward)
            results.append({name: float(value) for name, value in logs.items()})
    for other in results[1:]:
        assert other == pytest.approx(results[0], rel=2e-6, abs=1e-5)
    loss = results[0]["loss"]
    assert results[0]["perplexity"] == pytest.approx(np.exp(loss), rel=1e-5)
    share = forward / targets
    mixed = share * results[0]["loss_forward"] + (1 - share) * results[0]["loss_backward"]
    assert mixed == pytest.approx(loss, rel=1e-5)


@pytest.mark.integration
def test_what_was_never_counted_is_not_reported(folder):
    toy.make_records(folder / "forward", segments=((6, 0),))
    data = {"input_path": str(folder / "forward"), "global_batch_size": 2}
    trainer = build_trainer(folder, strategy(), {"task": {"validation_data": data}}, evaluate=True)
    with trainer.strategy.scope():
        logs = trainer.evaluate(tf.constant(trainer.eval_batching.steps))
    assert "loss_forward" in logs and "loss_backward" not in logs
    trainer = build_trainer(folder, strategy(), {"task": {"train_data": data}})
    with trainer.strategy.scope():
        logs = trainer.train(tf.constant(2))
    assert float(logs["loss_forward"]) > 0 and "loss_backward" not in logs
