"""What a recomputed block keeps: all that it computes again waits for the streams that it is given."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.models.test_properties import CONFIG, random_encoder, random_features
from xlnet_tf.config import Recompute, XLNetConfig
from xlnet_tf.layers.kernels import device
from xlnet_tf.training.checks import step_gigabytes


def training_step(kind: str, layers: int, recompute: Recompute) -> tf.Graph:
    """Returns the graph of a step's gradients; its first argument are the tokens, in three rows."""
    config = dataclasses.replace(CONFIG, n_layer=layers)
    features = random_features(np.random.default_rng(0), memory=4, config=config)
    model = random_encoder(config, recompute=recompute, dropout=0.2, attention_dropout=0.2)
    constants = {name: tf.constant(value) for name, value in features.items() if name != "input_word_ids"}

    @tf.function(autograph=False)
    def step(words, seed):
        with tf.GradientTape() as tape:
            outputs = model({**constants, "input_word_ids": words, "dropout_seed": seed}, training=True)
            loss = tf.reduce_sum(outputs["query_output"] ** 3)
        return tape.gradient(loss, model.trainable_variables, unconnected_gradients="zero")

    words = tf.TensorSpec(features["input_word_ids"].shape, tf.int32)
    with device.assume(kind):
        return step.get_concrete_function(words, tf.TensorSpec([2], tf.int32)).graph


def operations_without_words(graph: tf.Graph) -> collections.Counter:
    """Counts operations of a training step that no token has a say in: a compiler computes them once.

    Returns:
        How many draw random numbers, and how many give each row of the batch its own numbers for each head
        and more than one query. Numbers that are all alike do not count.
    """
    rows, heads = graph.inputs[0].shape[0], CONFIG.n_head
    with_words = {graph.inputs[0].op}
    for one in graph.get_operations():  # in the order in which they were made
        if any(tensor.op in with_words for tensor in one.inputs):
            with_words.add(one)
    found = collections.Counter()
    for one in set(graph.get_operations()) - with_words:
        shapes = [tensor.shape.as_list() for tensor in one.outputs if tensor.shape.rank == 4]
        large = any(shape[:2] == [rows, heads] and shape[2] != 1 for shape in shapes)
        drawn = one.type == "StatelessRandomUniformFullIntV2" or (
            one.type == "PartitionedCall" and "keep_8_bits" in one.get_attr("f").name
        )
        found["random numbers"] += drawn
        found["of rows and heads"] += one.type not in ("Const", "Fill") and large
    return found


def products_with_weights(graph: tf.Graph) -> int:
    """Counts the products of two matrices that the outputs of a graph need; heads' are of several."""
    needed, found = [tensor.op for tensor in graph.outputs], set()
    while needed:
        one = needed.pop()
        if one not in found:
            found.add(one)
            needed += [tensor.op for tensor in one.inputs]
    return sum(one.type == "MatMul" for one in found)


@pytest.mark.integration
@pytest.mark.parametrize("recompute", [True, "cheap"])
@pytest.mark.parametrize("kind", device.HARDWARE)
def test_blocks_keep_nothing_else(kind, recompute):
    """All blocks but the last one are recomputed: another one adds nothing that is the same both times."""
    two, three = (operations_without_words(training_step(kind, layers, recompute)) for layers in (2, 3))
    assert three["random numbers"] == two["random numbers"] > 0
    assert three["of rows and heads"] == two["of rows and heads"]


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["cpu", "tpu"])
def test_cheap_recomputes_no_product_with_weights(kind, monkeypatch):
    monkeypatch.setattr("xlnet_tf.models.encoder.traced_once", lambda block: None)  # all in one graph
    plain, cheap, full = (
        products_with_weights(training_step(kind, 2, recompute)) for recompute in (False, "cheap", True)
    )
    assert full > cheap == plain > 0


def test_estimated_memory_of_a_step_follows_recompute():
    """Of Base's 12 layers, a row took 0.83 GB; computed again, it takes one layer's."""
    config = XLNetConfig.preset("base")
    plain, cheap, full = (step_gigabytes(config, 512, recompute) for recompute in (False, "cheap", True))
    assert plain == pytest.approx(0.83, rel=1e-2) and full == pytest.approx(plain / 12)
    assert 2 * full < cheap < plain / 2
