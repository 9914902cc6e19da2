"""A recomputed block keeps nothing: all that it computes again waits for the streams that it is given."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.models.test_properties import CONFIG, random_encoder, random_features
from xlnet_tf.layers.kernels import device


def operations_without_words(kind: str, layers: int) -> collections.Counter:
    """Counts operations of a training step that no token has a say in: a compiler computes them once.

    Returns:
        How many draw random numbers, and how many give each row of the batch its own numbers for each head
        and more than one query. Numbers that are all alike do not count.
    """
    config = dataclasses.replace(CONFIG, n_layer=layers)
    features = random_features(np.random.default_rng(0), memory=4, config=config)
    model = random_encoder(config, recompute=True, dropout=0.2, attention_dropout=0.2)
    constants = {name: tf.constant(value) for name, value in features.items() if name != "input_word_ids"}

    @tf.function(autograph=False)
    def step(words, seed):
        with tf.GradientTape() as tape:
            outputs = model({**constants, "input_word_ids": words, "dropout_seed": seed}, training=True)
            loss = tf.reduce_sum(outputs["query_output"] ** 3)
        return tape.gradient(loss, model.trainable_variables, unconnected_gradients="zero")

    words = tf.TensorSpec(features["input_word_ids"].shape, tf.int32)
    with device.assume(kind):
        graph = step.get_concrete_function(words, tf.TensorSpec([2], tf.int32)).graph
    with_words = {graph.inputs[0].op}
    for one in graph.get_operations():  # in the order in which they were made
        if any(tensor.op in with_words for tensor in one.inputs):
            with_words.add(one)
    rows = len(features["input_word_ids"])
    found = collections.Counter()
    for one in set(graph.get_operations()) - with_words:
        shapes = [tensor.shape.as_list() for tensor in one.outputs if tensor.shape.rank == 4]
        large = any(shape[:2] == [rows, config.n_head] and shape[2] != 1 for shape in shapes)
        drawn = one.type == "StatelessRandomUniformFullIntV2" or (
            one.type == "PartitionedCall" and "keep_8_bits" in one.get_attr("f").name
        )
        found["random numbers"] += drawn
        found["of rows and heads"] += one.type not in ("Const", "Fill") and large
    return found


@pytest.mark.integration
@pytest.mark.parametrize("kind", device.HARDWARE)
def test_blocks_compute_all_again(kind):
    """All blocks but the last one are recomputed: another one adds nothing that is the same both times."""
    two, three = (operations_without_words(kind, layers) for layers in (2, 3))
    assert three["random numbers"] == two["random numbers"] > 0
    assert three["of rows and heads"] == two["of rows and heads"]
