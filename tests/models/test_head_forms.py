"""Every head under every name and in every form: nested, restored, compiled, in bfloat16."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.helpers.models import heads, original
from tests.helpers.models.heads import arrays, assert_equal, by_token
from tests.helpers.profiles import mostly_integration
from xlnet_tf import task_registry
from xlnet_tf.checkpoints import names
from xlnet_tf.errors import UserError
from xlnet_tf.layers.base import policy_restored
from xlnet_tf.models.classifier import XLNetClassifier, classification_losses, regression_losses
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.question_answering import span_losses

KINDS = [*heads.HEADS, *heads.OTHERS]
QUICK_GRADIENTS = [("classifier", "graph"), ("span", "eager"), ("span", "graph")]
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
        head = task_registry.find(kind).head.format(task="task")
        assert scopes - {"encoder", "summary", "pooling"} == {head}
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


@pytest.mark.parametrize(
    "kind",
    mostly_integration(KINDS, *(kind for kind in KINDS if kind not in ("classifier_long", "regressor"))),
)
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


@pytest.mark.parametrize("kind", mostly_integration(KINDS, *COMPILED))
def test_bfloat16_is_near_float32(kind):
    features = heads.random_features(kind, np.random.default_rng(9))
    outputs, models = {}, {}
    for policy in ("float32", "mixed_bfloat16", "bfloat16"):
        tf_keras.mixed_precision.set_global_policy(policy)
        try:
            models[policy] = model = heads.random_head(kind, initializer_range=0.1)
            if policy == "bfloat16":  # as models are exported
                for variable, other in zip(model.variables, models["float32"].variables, strict=True):
                    variable.assign(tf.cast(other, variable.dtype))
            outputs[policy] = by_token(model(features), features)
            wide = {v.name: v.dtype for v in model.variables if v.shape.rank > 1 and "logits" not in v.name}
            types = set(wide.values()) if policy == "bfloat16" else {v.dtype for v in model.variables}
            assert types == {tf.bfloat16 if policy == "bfloat16" else tf.float32}, wide
        finally:
            tf_keras.mixed_precision.set_global_policy("float32")
    assert_equal(outputs["bfloat16"], outputs["mixed_bfloat16"], atol=0, rtol=0)
    assert all(value.dtype == np.float32 for value in outputs["mixed_bfloat16"].values())
    assert_equal(outputs["mixed_bfloat16"], outputs["float32"], atol=0.05, rtol=0.02)
    assert any((outputs["float32"][name] != value).any() for name, value in outputs["mixed_bfloat16"].items())


def long_features(kind):
    """16 texts of 512 tokens, for choices 15; each has a few pieces of its own, and two segments."""
    rng = np.random.default_rng(3)
    sequences = heads.CHOICES if kind in ("choice", "ranker") else 1
    texts = heads.random_texts(rng, 16 // sequences * sequences, 512)
    ids, types = texts["input_word_ids"], texts["input_type_ids"]
    own = 9 + (5 * np.arange(len(ids))[:, None] + ids % 5) % 40
    texts["input_word_ids"] = np.where(ids < 9, ids, own).astype(np.int32)
    texts["input_type_ids"] = np.where(types == 0, np.arange(512) // 64 % 2, types)
    features = {name: value.reshape(len(ids) // sequences, -1) for name, value in texts.items()}
    if kind == "span":
        features["answer_mask"] = features["input_mask"]
        features |= {f"{end}_position": rng.integers(508, 512, 16) for end in ("start", "end")}
        features["is_impossible"] = rng.integers(0, 2, 16)
    return {name: tf.constant(value) for name, value in features.items()}


def loss(kind, features, outputs):
    rng = np.random.default_rng(4)
    if kind == "span":
        return tf.reduce_mean(span_losses(outputs, features))
    if kind == "regressor":
        return tf.reduce_mean(regression_losses(outputs, rng.normal(2, size=outputs.shape)))
    labels = rng.integers(0, outputs.shape[-1], outputs.shape[:-1])
    return tf.reduce_mean(classification_losses(outputs, labels))


def gradients_in(policy, kind, form) -> dict[str, np.ndarray]:
    """The gradient of each variable under a policy of Keras, in eager, graph or compiled mode."""
    with policy_restored():
        tf_keras.mixed_precision.set_global_policy(policy)
        model = heads.random_head(kind, initializer_range=0.15)
        model.segment_len = model.segment_len and 256
        features = long_features(kind)
        scale = 2.0**10 if policy == "mixed_float16" else 1.0

        def gradients():
            with tf.GradientTape() as tape:
                scaled = scale * loss(kind, features, model(features, training=True))
            found = tape.gradient(scaled, model.trainable_variables, unconnected_gradients="zero")
            return [tf.convert_to_tensor(gradient) / scale for gradient in found]

        if form != "eager":
            gradients = tf.function(gradients, autograph=False, jit_compile=form == "compiled")
        variables = model.trainable_variables
        return {v.name: value.numpy() for v, value in zip(variables, gradients(), strict=True)}


@functools.cache
def expected_gradients(kind):
    return gradients_in("float32", kind, "eager")


@pytest.mark.parametrize(
    ("kind", "policy", "form"),
    [
        pytest.param(kind, policy, form, marks=[pytest.mark.long] * ((kind, form) not in QUICK_GRADIENTS))
        for kind in heads.HEADS
        for policy in ("mixed_bfloat16", "mixed_float16")
        for form in ("eager", "graph", "compiled")
    ],
)
def test_each_gradient_is_near_float32s(kind, policy, form, monkeypatch):
    """At 16 x 512 tokens, where sums in 16 bits would lose a third and more of a bias' gradient."""
    wider = dataclasses.replace(heads.CONFIG, d_model=64, d_head=32, d_inner=128)
    monkeypatch.setattr(heads, "CONFIG", wider)
    expected = expected_gradients(kind)
    largest = max(map(np.linalg.norm, expected.values()))
    for name, found in gradients_in(policy, kind, form).items():
        # What is added to all logits of a softmax has no gradient.
        size = max(np.linalg.norm(expected[name]), 0.02 * largest)
        assert np.linalg.norm(found - expected[name]) < 0.03 * size, name


def around(layer):
    ids = tf_keras.Input([heads.T], dtype=tf.int32, name="input_word_ids")
    outputs = layer({"input_word_ids": ids})
    outputs = outputs["sequence_output"][:, -1] if isinstance(outputs, dict) else outputs
    outputs = tf_keras.layers.Dense(2)(tf_keras.layers.Dropout(0.1)(outputs))
    return tf_keras.Model({"input_word_ids": ids}, outputs)


FILES = [("alone", "keras"), ("encoder", "h5"), ("encoder", "keras"), ("head", "keras"), ("head", "h5")]


@pytest.mark.parametrize(
    ("inside", "ending"),
    [pytest.param(*file, marks=[pytest.mark.integration] * (file not in FILES[:2])) for file in FILES],
)
@pytest.mark.filterwarnings("ignore:.*HDF5")
def test_files_of_keras_keep_the_policy_and_which_layers_are_frozen(tmp_path, inside, ending):
    with policy_restored():
        tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
        head = heads.random_head("classifier")
        model = head if inside == "alone" else around(head.encoder if inside == "encoder" else head)
        first, last = head.encoder.blocks[0], head.encoder.blocks[-1]
        first.trainable = False
        first.attention.trainable = True
        last.feed_forward.trainable = False
        head.pooling.trainable = False
        features = heads.random_features("classifier", np.random.default_rng(3))
        features = {"input_word_ids": features["input_word_ids"]}
        expected = model.predict(features, verbose=0)
        model.save(tmp_path / f"model.{ending}")
        clone = tf_keras.models.clone_model(model)
    loaded = tf_keras.models.load_model(tmp_path / f"model.{ending}")
    clone.set_weights(model.get_weights())
    trainable = [names.canonical(weight.name) for weight in model.trainable_weights]
    assert 0 < len(trainable) < len(model.weights)
    for found in (loaded, clone):
        np.testing.assert_array_equal(found.predict(features, verbose=0), expected)
        assert [names.canonical(weight.name) for weight in found.trainable_weights] == trainable
        assert {part.compute_dtype for part in found.layers} == {part.compute_dtype for part in model.layers}
    assert tf_keras.mixed_precision.global_policy().name == "float32"


def test_a_dtype_that_the_layers_would_not_have_is_refused():
    assert XLNetEncoder(heads.CONFIG, dtype=tf.float32).compute_dtype == "float32"
    with pytest.raises(UserError, match="dtype is 'mixed_bfloat16', but .* float32"):
        XLNetEncoder(heads.CONFIG, dtype="mixed_bfloat16")


GO_ROUND = {
    "keras": (lambda model, path: model.save(path), lambda model, path: tf_keras.models.load_model(path)),
    "pretrained": (
        lambda model, path: model.save_pretrained(path),
        lambda model, path: XLNetClassifier.from_pretrained(path),
    ),
    "weights.h5": (
        lambda model, path: model.save_weights(path),
        lambda model, path: model.load_weights(path) or model,
    ),
}


@pytest.mark.filterwarnings("error:.*not yet been built")
@pytest.mark.parametrize("ending", mostly_integration([*GO_ROUND], "keras", "pretrained"))
def test_a_model_that_was_never_called_has_weights(tmp_path, ending):
    model = XLNetClassifier(XLNetEncoder(heads.CONFIG), 3)
    save, load = GO_ROUND[ending]
    save(model, str(tmp_path / f"model.{ending}"))
    found = load(type(model).from_config(model.get_config()), str(tmp_path / f"model.{ending}"))
    clone = tf_keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    for weights, *others in zip(model.get_weights(), found.get_weights(), clone.get_weights(), strict=True):
        for other in others:
            np.testing.assert_array_equal(weights, other)
