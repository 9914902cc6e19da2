"""Checkpoints of random weights, and the pretrainer that they fit."""

import math

import numpy as np

from xlnet_tf.checkpoints import Checkpoint, names, save_checkpoint
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.config import XLNetConfig
from xlnet_tf.hub import checksums
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer

CONFIGS = {
    "micro": XLNetConfig.preset("micro"),
    "tied": XLNetConfig.preset("micro", untie_r=False, n_layer=3),
    "odd": XLNetConfig(
        n_token=31, n_layer=1, d_model=18, n_head=3, d_head=6, d_inner=7, ff_activation="relu"
    ),
    "exact_gelu": XLNetConfig.preset("micro", ff_activation="gelu_erf"),
}


def random_checkpoint(config: XLNetConfig, heads=("lm_bias",)) -> Checkpoint:
    """A checkpoint of random weights, with the given heads' variables; 5 classes where a head has classes."""
    rng = np.random.default_rng(0)
    shapes = names.encoder_shapes(config) | {name: names.head_shape(name, config) for name in heads}
    shapes = {name: tuple(size or 5 for size in shape) for name, shape in shapes.items()}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return Checkpoint("memory/random", "ours", Arrays.of(arrays), config)


def save_unlisted(checkpoint: Checkpoint, folder, format: str):
    """Writes a checkpoint without checksums, as those from elsewhere come."""
    save_checkpoint(checkpoint, str(folder), format)
    checksums.remove(folder)


def assert_equal(found: Checkpoint, expected: Checkpoint):
    assert found.arrays.shapes == expected.arrays.shapes
    for name in expected.arrays:
        assert found.arrays[name].tobytes() == expected.arrays[name].tobytes(), name


def pretrainer(config: XLNetConfig) -> XLNetPretrainer:
    model = XLNetPretrainer(XLNetEncoder(config, dropout=0.0, attention_dropout=0.0))
    model.build()
    return model


def num_parameters(config):
    """Counts the weights of the encoder and the bias of the language model, as the paper does."""
    return config.n_token + sum(map(math.prod, names.encoder_shapes(config).values()))
