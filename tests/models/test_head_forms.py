"""Every head under every name and in every form: nested, restored, compiled, in bfloat16."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.helpers.models import heads, original
from tests.helpers.models.heads import arrays, assert_equal, by_token
from xlnet_tf import task_registry
from xlnet_tf.checkpoints import names

KINDS = [*heads.HEADS, *heads.OTHERS]
COMPILED = ["classifier_attn", "classifier_long", "regressor", "span", "choice"]
PARTS = {
    "classifier": {"summary", "classification_task"},
    "classifier_mean": {"classification_sts-b"},
    "classifier_attn": {"pooling", "summary", "classification_task"},
    "classifier_long": {"summary", "classification_task"},
    "regressor": {"summary", "regression_sts-b"},
    "span": {"span"},
    "choice": {"summary", "choice"},
    "ranker": {"summary", "ranking"},
    "tagger": {"tagging"},
    "tagger_long": {"tagging"},
}


@pytest.mark.parametrize("task", task_registry.tasks())
def test_every_task_has_its_head_here(task):
    model = task_registry.find(task).load("model")
    assert any(type(heads.random_head(kind)) is model for kind in KINDS), task


@pytest.mark.parametrize("kind", KINDS)
def test_names(kind):
    """The table has each variable, whether it is built by `build`, by a call, or inside another model."""
    model = heads.random_head(kind)
    variables = original.variables(model)
    assert len(variables) == len(model.variables)
    assert all(map(names.known, variables))
    scopes = {names.head_scope(name) for name in variables}
    if kind in PARTS:
        assert scopes == {"encoder"} | PARTS[kind]
    else:
        assert scopes - {"encoder", "summary", "pooling"} == {
            task_registry.find(kind).head.format(task="task")
        }
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    for name, shape in shapes.items():
        if names.head_scope(name) != "encoder":
            wanted = names.head_shape(name, heads.CONFIG)
            assert all(size in (None, got) for size, got in zip(wanted, shape, strict=True)), name

    class Service(tf_keras.Model):
        def __init__(self):
            super().__init__(name="service")
            self.inner = type(model).from_config(model.get_config())

        def call(self, features):
            return self.inner(features)

    service = Service()
    service(heads.random_features(kind, np.random.default_rng(7)))
    assert {name: tuple(v.shape) for name, v in original.variables(service).items()} == shapes


@pytest.mark.parametrize("kind", KINDS)
def test_config_and_weights_go_round_and_graph_and_xla_agree(tmp_path, kind):
    model = heads.random_head(kind)
    features = heads.random_features(kind, np.random.default_rng(8))
    features = {name: tf.constant(value) for name, value in features.items()}
    expected = arrays(model(features))
    model.save_weights(str(tmp_path / "weights"))
    restored = type(model).from_config(model.get_config())
    assert restored.get_config() == model.get_config()
    restored.build()
    restored.load_weights(str(tmp_path / "weights")).assert_consumed()
    runs = [restored]
    if kind in COMPILED:
        runs += [tf.function(model), tf.function(model, jit_compile=True)]
    for run in runs:
        assert_equal(arrays(run(features)), expected, atol=1e-4)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.integration] * (kind not in COMPILED)) for kind in KINDS]
)
def test_bfloat16_is_near_float32(kind):
    features = heads.random_features(kind, np.random.default_rng(9))
    outputs = {}
    for policy in ("float32", "mixed_bfloat16"):
        tf_keras.mixed_precision.set_global_policy(policy)
        try:
            model = heads.random_head(kind, initializer_range=0.1)
            outputs[policy] = by_token(model(features), features)
            assert all(variable.dtype == tf.float32 for variable in model.variables)
        finally:
            tf_keras.mixed_precision.set_global_policy("float32")
    assert all(value.dtype == np.float32 for value in outputs["mixed_bfloat16"].values())
    assert_equal(outputs["mixed_bfloat16"], outputs["float32"], atol=0.05, rtol=0.02)
    assert any((outputs["float32"][name] != value).any() for name, value in outputs["mixed_bfloat16"].items())
