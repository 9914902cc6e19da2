"""Forward values, memories, losses and gradients equal those of the original's code."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.models import original
from xlnet_tf.layers.kernels import device
from xlnet_tf.models.pretrainer import target_losses

FORWARD = {"atol": 2e-5, "rtol": 1e-5}
PRETRAINING = (
    "pretrain_bi_mems", "pretrain_bi_nomems", "pretrain_bi_mems_noreuse", "pretrain_bi_nomemlen",
    "pretrain_bi_mems_nomapping", "pretrain_uni_mems", "pretrain_uni_nomems",
)  # fmt: skip


@pytest.fixture(autouse=True, params=["cpu", "tpu"])
def traced_for(request):
    """Each test runs in the form that the model takes on each hardware."""
    with device.assume(request.param):
        yield


def assert_memories(outputs, case):
    theirs = [case[name] for name in case.files if name.startswith("new_mems")]
    if not theirs:
        assert "next_memory" not in outputs
        return
    np.testing.assert_allclose(outputs["next_memory"], np.stack(theirs).transpose(0, 2, 1, 3), **FORWARD)


@pytest.mark.parametrize("name", ["enc_finetune", "enc_noseg", "enc_nomask_b1", "enc_bidata", "enc_mems"])
def test_encoder(name):
    case, settings = original.load_case(name)
    run = settings["run_config"]
    model = original.encoder(memory_len=run.get("mem_len", 0), reuse_len=run.get("reuse_len"))
    features = original.encoder_features(case)
    features.update(original.directions(len(features["input_word_ids"]), run.get("bi_data", False)))
    outputs = model(features)
    np.testing.assert_allclose(outputs["sequence_output"], case["output"].transpose(1, 0, 2), **FORWARD)
    layer_inputs = case["layer_inputs"].transpose(0, 2, 1, 3)
    np.testing.assert_allclose(np.stack(outputs["encoder_outputs"][:-1]), layer_inputs[1:], **FORWARD)
    assert_memories(outputs, case)


@pytest.mark.parametrize("name", ["uni_nomems", "uni_mems", "uni_mems_samelen"])
def test_left_to_right(name):
    case, settings = original.load_case(name)
    kwargs = settings["kwargs"]
    model = original.encoder(
        attention_type="uni", memory_len=kwargs["mem_len"], same_length=kwargs.get("same_length", False)
    )
    outputs = model(original.encoder_features(case))
    np.testing.assert_allclose(outputs["sequence_output"], case["output"].transpose(1, 0, 2), **FORWARD)
    assert_memories(outputs, case)


@pytest.mark.parametrize(
    ("name", "compiled"), [(name, False) for name in PRETRAINING] + [(PRETRAINING[0], True)]
)
def test_pretraining(name, compiled):
    case, settings = original.load_case(name)
    flags = settings["flags"]
    model = original.pretrainer(memory_len=flags["mem_len"], reuse_len=flags["reuse_len"])
    features = {
        name: tf.constant(array) for name, array in original.pretraining_features(case, settings).items()
    }
    forward = tf.function(model, jit_compile=True) if compiled else model
    outputs = forward(features)
    encoded = model.encoder(features)
    losses = target_losses(outputs)
    weights = case["bf_target_mask"]
    np.testing.assert_array_equal(outputs["target_weights"], weights)
    np.testing.assert_array_equal(outputs["target_ids"] * weights, case["bf_target"] * weights)
    np.testing.assert_allclose(encoded["query_output"], case["output"].transpose(1, 0, 2), **FORWARD)
    np.testing.assert_allclose(losses * weights, case["lm_loss"].T * weights, **FORWARD)
    np.testing.assert_allclose(tf.reduce_sum(losses) / weights.sum(), case["total_loss"], **FORWARD)
    assert_memories(outputs, case)


@pytest.mark.parametrize("name", ["pretrain_bi_mems", "pretrain_bi_mems_nomapping"])
def test_gradients(name):
    case, settings = original.load_case(name)
    gradients, _ = original.load_case(f"grads_{name}")
    flags = settings["flags"]
    model = original.pretrainer(memory_len=flags["mem_len"], reuse_len=flags["reuse_len"])
    with tf.GradientTape() as tape:
        outputs = model(original.pretraining_features(case, settings))
        loss = tf.reduce_sum(target_losses(outputs)) / tf.reduce_sum(outputs["target_weights"])
    variables = original.variables(model)
    ours = tape.gradient(loss, variables)
    theirs = original.their_arrays(gradients, "grad:")
    assert set(ours) == set(theirs)
    for name, gradient in ours.items():
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient), theirs[name], atol=1e-5, rtol=1e-4, err_msg=name
        )
