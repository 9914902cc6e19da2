"""What else holds for the encoder and the pretrainer; what holds for any: test_any_configuration.py."""

import dataclasses
import zlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.layers.kernels import device
from xlnet_tf.layers.kernels.reference import ReferenceKernels
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer, target_losses

CONFIG = XLNetConfig(n_token=50, n_layer=2, d_model=16, n_head=2, d_head=6, d_inner=20)
# Nothing random at the edges: the layers' kernels are small at birth and would hide errors.
SPREAD = 0.4


def random_encoder(config=CONFIG, seed=0, **options):
    tf_keras.utils.set_random_seed(seed)
    options = {"dropout": 0.0, "attention_dropout": 0.0, "initializer_range": SPREAD, **options}
    model = XLNetEncoder(config, **options)
    model.build()
    return model


def random_features(rng, batch=3, length=10, targets=4, memory=0, config=CONFIG):
    """A batch as the reader yields it, with rows in both directions, an empty slot, and memory."""
    positions = np.stack([np.sort(rng.permutation(length)[:targets]) for _ in range(batch)]).astype(np.int16)
    rank = np.zeros([batch, length], np.int16)
    for row in range(batch):
        rank[row, positions[row]] = 1 + rng.permutation(targets)
    positions[0, -1] = -1
    rank[0] = np.where(np.isin(np.arange(length), positions[0]), rank[0], 0)
    features = {
        "input_word_ids": rng.integers(0, config.n_token, [batch, length]).astype(np.int32),
        "input_type_ids": np.sort(rng.integers(0, 3, [batch, length])).astype(np.uint8),
        "permutation_rank": rank,
        "target_positions": positions,
        "direction": np.where(np.arange(batch) % 2, -1, 1).astype(np.int8),
    }
    if memory:
        shape = [config.n_layer, batch, memory, config.d_model]
        features["memory"] = rng.normal(size=shape).astype(np.float32)
        features["memory_mask"] = rng.random([batch, memory]) < 0.6
    return features


@pytest.mark.parametrize("head", [False, True])
def test_each_dropout_draws_from_a_seed_of_its_own(monkeypatch, head):
    """Else two masks of a step would be alike."""
    keep_mask, seeds = ReferenceKernels.keep_mask, []

    def noted(self, shape, rate, seed):
        seeds.append(tuple(seed.numpy().tolist()))
        return keep_mask(self, shape, rate, seed)

    monkeypatch.setattr(ReferenceKernels, "keep_mask", noted)
    features = random_features(np.random.default_rng(0)) | {"dropout_seed": np.int32([3, 5])}
    model = random_encoder(dropout=0.1, attention_dropout=0.1)
    if head:
        features = {name: features[name] for name in ("input_word_ids", "dropout_seed")}
        model = XLNetClassifier(model, 2, summary="attn")
    model(features, training=True)
    # Of each layer and stream: probabilities, attention, and two in the feed-forward network.
    streams, others = (1, 7) if head else (2, 6)
    assert len(seeds) == len(set(seeds)) == 4 * CONFIG.n_layer * streams + others
    # A run that resumes draws what it would have drawn.
    assert zlib.crc32(repr(seeds).encode()) == (1040345836 if head else 3898357105)


def test_query_only_predicts_the_same():
    features = random_features(np.random.default_rng(7), memory=5)
    model = random_encoder(memory_len=5, reuse_len=3)
    everything, needed = model(features), model(features, query_only=True)
    assert "sequence_output" not in needed
    for name in ("query_output", "next_memory", "next_memory_mask"):
        np.testing.assert_array_equal(everything[name], needed[name])


@pytest.mark.parametrize("next_sentence", [False, True])
def test_pretrainer_round_trips(tmp_path, next_sentence):
    features = random_features(np.random.default_rng(8), memory=5)
    model = XLNetPretrainer(random_encoder(memory_len=5, reuse_len=4), next_sentence=next_sentence)
    model.build()
    expected = model(features)
    assert ("next_sentence_logits" in expected) == next_sentence
    model.save_weights(str(tmp_path / "weights"))
    restored = XLNetPretrainer.from_config(model.get_config())
    restored.build()
    restored.load_weights(str(tmp_path / "weights")).assert_consumed()
    assert [v.name for v in restored.variables] == [v.name for v in model.variables]
    outputs = restored(features)
    assert set(outputs) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(outputs[name], value)


def test_ranks_without_targets_are_refused():
    features = random_features(np.random.default_rng(13))
    del features["target_positions"]
    with pytest.raises(UserError, match="expected target_positions or target_mask"):
        random_encoder()(features)


@pytest.mark.parametrize("untie_r", [True, False])
def test_building_a_model_builds_all_of_its_layers(untie_r):
    """A layer that is built again, when it is used, has new weights."""
    model = XLNetPretrainer(random_encoder(dataclasses.replace(CONFIG, untie_r=untie_r)), next_sentence=True)
    model.build()
    layers = [module for module in model.submodules if isinstance(module, tf_keras.layers.Layer)]
    assert len(layers) > 12 and all(layer.built for layer in layers)


def test_every_variable_learns():
    features = random_features(np.random.default_rng(9), memory=5)
    model = XLNetPretrainer(random_encoder(memory_len=5), next_sentence=True)
    model.build()
    with tf.GradientTape() as tape:
        outputs = model(features)
        loss = tf.reduce_sum(target_losses(outputs)) + tf.reduce_sum(outputs["next_sentence_logits"][:, 1])
    gradients = tape.gradient(loss, model.trainable_variables)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None and np.abs(tf.convert_to_tensor(gradient)).max() > 0, variable.name


@pytest.mark.parametrize(("kind", "said"), [("tpu", True), ("cpu", False)])
def test_clamp_len_warns_that_it_is_slow_on_a_tpu(kind, said, caplog):
    caplog.set_level("WARNING", logger="absl")
    with device.assume(kind):
        random_encoder(clamp_len=3)(random_features(np.random.default_rng(0)))
    assert ("clamp_len is 3: on a TPU a step takes many times as long" in caplog.text) == said


@pytest.mark.parametrize("attention_type", ["bi", "uni"])
@pytest.mark.parametrize(("clamp_len", "untie_r"), [(-1, True), (4, False)])
def test_known_position_keys_change_nothing(attention_type, clamp_len, untie_r):
    encoder = random_encoder(
        dataclasses.replace(CONFIG, untie_r=untie_r), attention_type=attention_type, clamp_len=clamp_len
    )
    batch = random_features(np.random.default_rng(0))
    features = {name: batch[name] for name in ("input_word_ids", "input_type_ids")}
    expected = encoder(features)["sequence_output"]
    for length in (10, 17):
        keys = encoder.position_keys(length)
        actual = encoder({**features, "position_keys": keys})["sequence_output"]
        np.testing.assert_allclose(actual, expected, atol=1e-5)
    keys = tf.zeros_like(keys)  # they count
    assert np.abs(encoder({**features, "position_keys": keys})["sequence_output"] - expected).max() > 1e-3
    with pytest.raises(tf.errors.InvalidArgumentError):
        encoder({**features, "position_keys": encoder.position_keys(9)})
    with pytest.raises(UserError, match="position_keys are for texts read at once and forward"):
        encoder({**features, "position_keys": keys, "direction": tf.constant([1, 1, -1])})
    with pytest.raises(UserError, match="not for training; leave them out"):
        encoder({**features, "position_keys": keys}, training=True)


def test_weights_are_independent_and_as_wide_as_asked():
    model = random_encoder(XLNetConfig.preset("micro"), initializer_range=0.02)
    kernels = [v.numpy().ravel() for v in model.variables if "kernel" in v.name]
    for kernel in kernels:
        assert abs(kernel.std() - 0.02) < 0.002
    first = [kernel[:256] for kernel in kernels]
    assert np.abs(np.corrcoef(first) - np.eye(len(first))).max() < 0.5
