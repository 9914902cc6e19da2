"""What must hold for every head: padding, neighbours and other texts are irrelevant, all of it learns."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.models import heads, original
from tests.helpers.models.heads import arrays, assert_equal, by_token
from xlnet_tf.checkpoints import names
from xlnet_tf.errors import UserError
from xlnet_tf.models.classifier import classification_losses, regression_losses
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice
from xlnet_tf.models.question_answering import span_losses

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
    [
        "classifier_attn",
        *(
            pytest.param(kind, marks=pytest.mark.integration)
            for kind in ("classifier", "classifier_long", "span")
        ),
    ],
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


@pytest.mark.parametrize("kind", ["choice", "ranker"])
def test_a_texts_score_depends_on_that_text_only(kind):
    model = heads.random_head(kind)
    features = heads.random_features(kind, np.random.default_rng(11))
    before = model(features).numpy()
    for choice in range(heads.CHOICES):
        other = features["input_word_ids"].copy()
        other[:, (choice + 1) * heads.T - 3] += 1  # a word of the text: CLS is last
        changed = model({**features, "input_word_ids": other}).numpy() != before
        assert changed[:, choice].all() and changed.sum() == heads.B


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
            np.testing.assert_allclose(
                beam["start_top_log_probs"][row, rank], start_log_probs[row], atol=1e-5
            )
            ends = beam["end_top_index"][row, rank]
            np.testing.assert_allclose(
                beam["end_top_log_probs"][row, rank], end_log_probs[row, ends], atol=1e-5
            )
            assert sorted(ends) == list(range(heads.T))
    for name in ("start_top", "end_top"):
        assert (np.diff(beam[f"{name}_log_probs"]) <= 0).all()
    allowed = features["answer_mask"].astype(bool)
    assert np.take_along_axis(allowed, beam["start_top_index"], axis=1)[allowed.sum(1) >= 3].all()


def test_losses():
    logits = tf.math.log([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    losses = classification_losses(logits, tf.constant([1, -1]))
    np.testing.assert_allclose(losses, [np.log(4), 0], atol=1e-6)
    np.testing.assert_allclose(regression_losses(tf.constant([1.0, 3.0]), tf.constant([3, 3])), [4, 0])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.reduce_sum(classification_losses(logits, tf.constant([1, -1])))
    np.testing.assert_allclose(tape.gradient(loss, logits), [[0.5, -0.75, 0.25], [0, 0, 0]], atol=1e-6)
    outputs = {
        "start_logits": tf.math.log([[0.5, 0.5]]),
        "end_logits": tf.math.log([[0.25, 0.75]]),
        "no_answer_logits": tf.constant([0.0]),
    }
    features = {name: tf.constant([0]) for name in ("start_position", "end_position", "is_impossible")}
    np.testing.assert_allclose(span_losses(outputs, features), [np.log(2) + 0.5 * np.log(4)], atol=1e-6)


def test_rows_that_are_no_multiple_of_the_choices_are_refused():
    with pytest.raises(UserError, match="36 tokens wide; expected a multiple of 5"):
        XLNetMultipleChoice(XLNetEncoder(heads.CONFIG), 5)(
            heads.random_features("choice", np.random.default_rng(0))
        )
