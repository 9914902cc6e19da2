"""Random models with batches for them: what the properties of any configuration are tried on."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from hypothesis import strategies as st

from tests.helpers.profiles import few_or_many
from xlnet_tf.config import ACTIVATIONS, XLNetConfig
from xlnet_tf.layers.kernels import device
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.records import ranks

N_TOKEN = 40
MOST_LAYERS = few_or_many(2, 3)
# Nothing random at the edges: the layers' kernels are small at birth and would hide errors.
SPREAD = 0.4


@dataclasses.dataclass
class Case:
    """An encoder's settings for a kind of hardware, and a batch; `seed` is for weights and tests."""

    config: XLNetConfig
    options: dict[str, Any]
    kind: str
    features: dict[str, np.ndarray]
    seed: int

    def __repr__(self):
        shapes = {name: value.shape for name, value in self.features.items()}
        return f"Case({self.config}, {self.options}, {self.kind!r}, {shapes}, seed={self.seed})"

    def _repr_pretty_(self, printer, cycle):
        printer.text(repr(self))  # Hypothesis would print all of the arrays

    def model(self, **changes) -> XLNetEncoder:
        """Builds the encoder; the same weights each time."""
        tf_keras.utils.set_random_seed(self.seed)
        model = XLNetEncoder(self.config, **{**self.options, **changes})
        model.build()
        return model

    def run(self, model, features=None, **kwargs) -> dict[str, Any]:
        """Calls the model as on the case's hardware."""
        with device.assume(self.kind):
            return model(self.features if features is None else features, **kwargs)

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @property
    def shape(self) -> tuple[int, int]:
        return self.features["input_word_ids"].shape

    @property
    def is_target(self) -> np.ndarray:
        """bool [B, T]."""
        if "target_mask" in self.features:
            return self.features["target_mask"].astype(bool)
        return (self.features["target_positions"][:, :, None] == np.arange(self.shape[1])).any(1)


def take_rows(features, keep):
    """Takes some rows of a batch."""
    return {
        name: value[:, keep] if name == "memory" else value if name == "dropout_seed" else value[keep]
        for name, value in features.items()
    }


def architectures(max_layers: int = MOST_LAYERS, activations=ACTIVATIONS) -> st.SearchStrategy[XLNetConfig]:
    """Draws every field of an architecture: see test_any_configuration.py, which asserts it."""
    return st.builds(
        XLNetConfig,
        n_token=st.integers(N_TOKEN, N_TOKEN + 2),
        n_layer=st.integers(1, max_layers),
        d_model=st.integers(3, 9).map(lambda half: 2 * half),
        n_head=st.integers(1, 3),
        d_head=st.integers(1, 7),
        d_inner=st.integers(5, 21),
        ff_activation=st.sampled_from(activations),
        untie_r=st.booleans(),
    )


@st.composite
def cases(
    draw,
    *,
    order=("permutation", "autoregressive", "denoising", "any"),
    queries=("positions", "mask"),
    max_memory: int = 12,
    max_layers: int = MOST_LAYERS,
    rates=(0.0,),
    activations=ACTIVATIONS,
    kinds=("cpu", "tpu"),
    optional=("input_mask", "input_type_ids", "direction", "memory_mask"),
    **fixed,
) -> Case:
    """Draws a case.

    Args:
        order: where ranks come from: an objective of the samplers; "any" for any integers; "none" for none.
        queries: the forms that the query stream may have; "none" for none.
        max_memory: the most slots of a memory that comes in.
        optional: features that may be there or not.
        **fixed: options of the encoder that are not drawn.
    """
    config = draw(architectures(max_layers, activations))
    batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    options = {
        "initializer_range": SPREAD,
        "dropout": draw(st.sampled_from(rates)),
        "attention_dropout": draw(st.sampled_from(rates)),
        "attention_type": draw(st.sampled_from(["bi", "uni"])),
        "same_length": draw(st.booleans()),
        "clamp_len": draw(st.sampled_from([-1, 1, 3, 100])),
        "memory_len": draw(st.integers(0, 12)),
        "reuse_len": draw(st.none() | st.integers(1, length + 1)),
        "uniform_when_blind": draw(st.booleans()),
        "recompute": draw(st.sampled_from([False, True, "cheap"])),
        **fixed,
    }
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    features = {
        "input_word_ids": rng.integers(0, N_TOKEN, [batch, length]).astype(np.int32),
        "input_type_ids": np.sort(rng.integers(0, 4, [batch, length])).astype(np.uint8),
        "input_mask": (rng.random([batch, length]) < draw(st.sampled_from([0.2, 0.7, 1]))).astype(np.uint8),
        "direction": rng.choice([-1, 1], batch).astype(np.int8),
        "dropout_seed": rng.integers(0, 2**31 - 1, 2).astype(np.int32),
    }
    features |= _memory(
        rng, config, batch, draw(st.integers(0, max_memory)), draw(st.sampled_from([0, 0.6, 1]))
    )
    for name in optional:
        if draw(st.booleans()):
            features.pop(name, None)
    features |= _order(draw, rng, batch, length, draw(st.sampled_from(order)), draw(st.sampled_from(queries)))
    return Case(config, options, draw(st.sampled_from(kinds)), features, seed)


def _memory(rng, config, batch, slots, rate):
    if not slots:
        return {}
    return {
        "memory": rng.normal(size=[config.n_layer, batch, slots, config.d_model]).astype(np.float32),
        "memory_mask": rng.random([batch, slots]) < rate,
    }


def _order(draw, rng, batch, length, order, queries):
    """Draws targets, in some rows none, and ranks."""
    if queries == "none":
        return {}
    is_target = rng.random([batch, length]) < draw(st.sampled_from([0, 0.4, 1]))
    is_target &= rng.random([batch, 1]) < 0.8
    features = {"target_mask": is_target.astype(np.uint8)}
    if queries == "positions":
        slots = draw(st.integers(max(1, is_target.sum(1).max()), length + 1))
        features = {"target_positions": np.full([batch, slots], -1, np.int16)}
        for row, flags in enumerate(is_target):
            places = rng.permutation(slots)[: flags.sum()]
            features["target_positions"][row, places] = rng.permutation(np.flatnonzero(flags))
    if order == "any":
        features["permutation_rank"] = rng.integers(-3, 4, [batch, length]).astype(np.int16)
    elif order != "none":
        blocks = [(size, part) for size in range(1, length + 1) for part in range(0, length + 1, size)]
        blocks = [(size, part) for size, part in blocks if length % size == 0]
        perm_size, reuse_len = draw(st.sampled_from(blocks))
        features["permutation_rank"] = ranks.sample_ranks(
            rng,
            is_target,
            ~is_target & (rng.random([batch, length]) < 0.3),
            objective=order,
            reuse_len=reuse_len,
            perm_size=perm_size,
            functional_tokens=draw(st.sampled_from(ranks.FUNCTIONAL_TOKENS)),
        )
    return features


def assert_all_close(ours, theirs, atol):
    """Compares outputs of an encoder or a pretrainer by name."""
    assert set(ours) == set(theirs)
    for name in ours:
        for one, other in itertools.zip_longest(tf.nest.flatten(ours[name]), tf.nest.flatten(theirs[name])):
            one, other = np.asarray(one), np.asarray(other)
            if one.dtype == bool:
                np.testing.assert_array_equal(one, other, err_msg=name)
            else:
                np.testing.assert_allclose(one, other, atol=atol, rtol=1e-4, err_msg=name)
