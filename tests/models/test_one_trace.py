"""Layers that are traced once for all compute what each one's own graph does."""

import unittest.mock

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.models.cases import assert_all_close, cases
from tests.helpers.profiles import examples
from tests.models.test_recomputation import training_step
from xlnet_tf.config import XLNetConfig
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.one_trace import differ_in_weights_only


@examples(4, 200)
@given(
    case=cases(kinds=("cpu", "gpu"), rates=(0.0, 0.3), max_layers=4, recompute=False),
    memory_gradient=st.booleans(),
)
def test_outputs_and_gradients_are_those_of_a_trace_for_each_layer(case, memory_gradient):
    model = case.model()
    features = {name: tf.constant(value) for name, value in case.features.items()}

    def gradients():
        inputs = [features["memory"]] if "memory" in features and memory_gradient else []
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = case.run(model, features, training=True, memory_gradient=memory_gradient)
            streams = [outputs["sequence_output"], outputs["query_output"]]
            if case.options["memory_len"] and memory_gradient:
                streams.append(outputs["next_memory"])
            loss = tf.add_n([tf.reduce_sum(stream**3) for stream in streams])
        variables = model.trainable_variables
        gradients = tape.gradient(loss, [*variables, *inputs])
        missing = [each is None for each in gradients]  # an optimizer decays zeros, but not None
        there = [tf.convert_to_tensor(each) for each in gradients if each is not None]
        return {"streams": streams, "gradients": there, "missing": missing}

    shared = tf.function(gradients, autograph=False)()
    with unittest.mock.patch("xlnet_tf.models.encoder.traced_once", return_value=None):
        own = tf.function(gradients, autograph=False)()
    assert_all_close(shared, own, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        lambda block: setattr(block, "trainable", False),
        lambda block: setattr(block, "dropout", 0.5),
        lambda block: setattr(block.attention, "attention_dropout", 0.5),
        lambda block: setattr(block.feed_forward, "dropout", 0.5),
    ],
)
def test_a_block_with_settings_of_its_own_has_a_trace_of_its_own(change):
    encoder = XLNetEncoder(XLNetConfig.preset("micro", n_layer=3))
    encoder.build()
    assert differ_in_weights_only(encoder.blocks)
    change(encoder.blocks[1])
    assert not differ_in_weights_only(encoder.blocks)


def test_a_layer_that_is_alike_is_not_traced_again():
    """Neither its operations nor its gradient's: a layer more adds reads of its weights and two calls."""
    three, five = (training_step("cpu", layers, recompute=False) for layers in (3, 5))
    assert len(five.get_operations()) - len(three.get_operations()) < 2 * 80
