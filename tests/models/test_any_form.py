"""A model is the same in any form: run step by step, as a graph, compiled, saved, converted, exported."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given

from tests.helpers.models.cases import assert_all_close, cases
from tests.helpers.profiles import examples
from xlnet_tf.checkpoints import load_into, open_checkpoint, save_checkpoint, save_model
from xlnet_tf.config import ACTIVATIONS
from xlnet_tf.layers.kernels import device
from xlnet_tf.models.pretrainer import XLNetPretrainer, target_losses

# The original has one form of gelu only.
ORIGINAL_ACTIVATIONS = tuple(name for name in ACTIVATIONS if name != "gelu_erf")


def pretrainer(case, **changes) -> XLNetPretrainer:
    model = XLNetPretrainer(case.model(**changes))
    model.build()
    model.lm_bias.assign(case.rng.normal(size=model.lm_bias.shape))
    return model


def step(model, features):
    """Returns what a training step computes: outputs, and the gradient of each variable."""
    with tf.GradientTape() as tape:
        outputs = model(features, training=True)
        loss = tf.reduce_sum(target_losses(outputs))
    gradients = tape.gradient(loss, model.trainable_variables, unconnected_gradients="zero")
    return {**outputs, "gradients": [tf.convert_to_tensor(gradient) for gradient in gradients]}


@pytest.mark.integration
@examples(2, 40)
@given(case=cases(max_layers=2, rates=(0.0, 0.3)))
def test_eager_graph_and_xla_agree(case):
    features = {name: tf.constant(value) for name, value in case.features.items()}
    plain = pretrainer(case, recompute=False)
    model = pretrainer(case)

    def as_graph(model, **options):
        return tf.function(lambda features: step(model, features), autograph=False, **options)(features)

    # Graphs for CPUs drop others than what runs without a graph (see dropout.kept).
    drops = case.options["dropout"] or case.options["attention_dropout"]
    with device.assume(case.kind):
        expected = as_graph(plain) if drops and case.kind == "cpu" else step(plain, features)
        assert_all_close(as_graph(model), expected, atol=1e-3)
        assert_all_close(as_graph(model, jit_compile=True), expected, atol=1e-3)


def in_hugging_face(config) -> bool:
    """Whether it can have the architecture: no tied biases, heads that are together as wide as the model."""
    return config.untie_r and config.n_head * config.d_head == config.d_model


@pytest.mark.integration
@examples(1, 40)
@given(case=cases(max_layers=2, activations=ORIGINAL_ACTIVATIONS, kinds=("cpu",)))
def test_saved_converted_and_exported_models_agree(case, tmp_path_factory):
    """Through every format of checkpoint and back; as a Keras model; exported for batches of any size."""
    folder = str(tmp_path_factory.mktemp("forms"))
    features = {name: tf.constant(value) for name, value in case.features.items()}
    model = pretrainer(case)
    expected = case.run(model, features)

    save_model(model, f"{folder}/first")
    path = f"{folder}/first"
    for format in ("original", "hugging_face", "ours"):
        if format == "hugging_face" and not in_hugging_face(case.config):
            continue
        save_checkpoint(open_checkpoint(path), f"{folder}/{format}", format)
        path = f"{folder}/{format}"
        converted = XLNetPretrainer.from_config(model.get_config())
        converted.build()
        load_into(converted, path)
        for variable, other in zip(model.variables, converted.variables, strict=True):
            np.testing.assert_array_equal(variable, other, err_msg=f"{format} {variable.name}")
    assert_all_close(case.run(converted, features), expected, atol=0)

    def of_any_size(name, value):
        sizes = [None] * (len(value.shape) - (name == "memory"))
        return tf.TensorSpec([value.shape[0], *sizes] if name == "memory" else sizes, value.dtype)

    specs = {name: of_any_size(name, value) for name, value in features.items()}
    exported = tf.Module()
    exported.model = model
    exported.run = tf.function(lambda features: model(features), [specs], autograph=False)
    tf.saved_model.save(exported, f"{folder}/exported")
    served = tf.saved_model.load(f"{folder}/exported")
    assert_all_close(served.run(features), expected, atol=1e-4)
