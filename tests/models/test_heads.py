"""What must hold for every head: padding, neighbours and other texts are irrelevant, all of it learns."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.models import heads, original
from tests.helpers.models.heads import arrays, assert_equal, by_token
from tests.helpers.profiles import mostly_integration
from xlnet_tf.checkpoints import names
from xlnet_tf.errors import UserError
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice

KINDS = [*heads.HEADS, *heads.OTHERS]


@pytest.mark.parametrize("kind", KINDS)
def test_padding_is_irrelevant(kind):
    model = heads.random_head(kind)
    features = heads.random_features(kind, np.random.default_rng(4))
    before = by_token(model(features), features)
    padding = features["input_mask"] == 0
    assert padding.any()
    features["input_word_ids"][padding] = np.arange(padding.sum()) % heads.CONFIG.n_token
    features["input_type_ids"][padding] = 1
    assert_equal(by_token(model(features), features), before, atol=0, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_variable_learns(kind):
    model = heads.random_head(kind)
    features = heads.random_features(kind, np.random.default_rng(6))
    with tf.GradientTape() as tape:
        outputs = model(features)
        outputs = list(outputs.values()) if isinstance(outputs, dict) else [outputs]
        loss = sum(tf.reduce_sum(tf.sin(tf.where(output > -1e29, output, 0.0))) for output in outputs)
    variables = original.variables(model)
    trained = {names.canonical(variable.name) for variable in model.trainable_variables}
    assert set(variables) - trained == {"mask_embedding"}  # of the query stream
    for name, gradient in tape.gradient(loss, {name: variables[name] for name in trained}).items():
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, name


@pytest.mark.parametrize(
    "kind",
    mostly_integration(["classifier_attn", "classifier", "classifier_long", "span"], "classifier_attn"),
)
def test_dropout_is_a_function_of_its_seed(kind):
    """The head's own dropout as well: the encoder's is off."""
    model = heads.random_head(kind)
    for layer in model.submodules:
        if type(layer).__name__ in ("SequenceSummary", "AttentionPooling"):
            layer.dropout = 0.5
    if kind == "span":
        model.encoder.dropout = 0.5
    features = heads.random_features(kind, np.random.default_rng(10))

    def logits(**inputs):
        return by_token(model({**features, **inputs}, training=True), features)

    seeds = [tf.constant([1, 2]), tf.constant([1, 3])]
    assert_equal(logits(dropout_seed=seeds[0]), logits(dropout_seed=seeds[0]), atol=0, rtol=0)
    for first, second in ((logits(dropout_seed=seed) for seed in seeds), (logits(), logits())):
        assert any(np.abs(first[name] - second[name]).max() > 0.01 for name in first)
    assert_equal(by_token(model(features, training=False), features), by_token(model(features), features))


def test_the_best_spans_are_those_of_all_spans():
    """The beam against every pair of a beginning and an end."""
    model = heads.random_head("span")
    model.start_top, model.end_top = 3, heads.T
    features = heads.random_features("span", np.random.default_rng(12), training=False)
    beam = arrays(model(features))
    for start in range(heads.T):
        given = {**features, "start_position": np.full([heads.B], start, np.int32)}
        outputs = model(given)
        start_log_probs = tf.nn.log_softmax(outputs["start_logits"])[:, start]
        end_log_probs = tf.nn.log_softmax(outputs["end_logits"]).numpy()
        for row, rank in np.argwhere(beam["start_top_index"] == start):
            found, ends = beam["start_top_log_probs"][row, rank], beam["end_top_index"][row, rank]
            np.testing.assert_allclose(found, start_log_probs[row], atol=1e-5)
            found = beam["end_top_log_probs"][row, rank]
            np.testing.assert_allclose(found, end_log_probs[row, ends], atol=1e-5)
            assert sorted(ends) == list(range(heads.T))
    for name in ("start_top", "end_top"):
        assert (np.diff(beam[f"{name}_log_probs"]) <= 0).all()
    allowed = features["answer_mask"].astype(bool)
    assert np.take_along_axis(allowed, beam["start_top_index"], axis=1)[allowed.sum(1) >= 3].all()


def test_rows_that_are_no_multiple_of_the_choices_are_refused():
    features = heads.random_features("choice", np.random.default_rng(0))
    with pytest.raises(UserError, match="36 tokens wide; expected a multiple of 5"):
        XLNetMultipleChoice(XLNetEncoder(heads.CONFIG), 5)(features)
