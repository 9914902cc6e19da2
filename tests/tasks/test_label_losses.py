"""Weights of classes equal repeated examples, smoothing equals its formula, and nonsense is refused."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight

from xlnet_tf.errors import UserError
from xlnet_tf.models.classifier import classification_losses
from xlnet_tf.tasks.label_losses import LabelConfig, label_set_losses, training_losses

LABELS = ["a", "a,b", "c:1"]
C = len(LABELS)


def setting(weights) -> str:
    return ",".join(f"{label}:{weight}" for label, weight in zip(LABELS, weights))


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, C - 1), min_size=1, max_size=20),
    st.lists(st.integers(1, 4), min_size=C, max_size=C),
    st.sampled_from([0.0, 0.3]),
)
def test_weights_equal_repeated_examples(labels, repeats, smoothing):
    """The mean over the training set, and so the gradient, is that of a set with examples repeated."""
    labels = np.array(labels)
    logits = np.random.default_rng(0).normal(size=[len(labels), C]).astype(np.float32)
    weights = LabelConfig(class_weights=setting(repeats)).weights(LABELS, np.bincount(labels, minlength=C))
    times = np.array(repeats)[labels]
    found = training_losses(classification_losses(logits, labels), logits, labels, weights, smoothing)
    logits, labels = np.repeat(logits, times, axis=0), np.repeat(labels, times)
    expected = training_losses(classification_losses(logits, labels), logits, labels, None, smoothing)
    assert float(tf.reduce_mean(found)) == pytest.approx(float(tf.reduce_mean(expected)), rel=1e-5)


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 1), min_size=C, max_size=C), min_size=1, max_size=20),
    st.lists(st.integers(1, 4), min_size=C, max_size=C),
)
def test_weights_of_label_sets_equal_repeated_examples_of_each_label(targets, repeats):
    targets = np.array(targets)
    logits = np.random.default_rng(0).normal(size=targets.shape).astype(np.float32)
    weights = LabelConfig(class_weights=setting(repeats)).label_set_weights(LABELS, targets)
    of_labels = []
    for label in range(C):
        times = np.where(targets[:, label] == 1, repeats[label], 1)
        column = [np.repeat(values[:, label : label + 1], times, axis=0) for values in (logits, targets)]
        of_labels.append(float(tf.reduce_mean(label_set_losses(*column))))
    found = float(tf.reduce_mean(label_set_losses(logits, targets, weights)))
    assert found == pytest.approx(np.mean(of_labels), rel=1e-5)


def test_balanced_weights_are_those_of_scikit_learn():
    labels = np.array([0] * 7 + [2] * 2 + [3])
    counts = np.array([7, 0, 2, 1])
    balanced = LabelConfig(class_weights="balanced")
    expected = compute_class_weight("balanced", classes=np.unique(labels), y=labels)
    np.testing.assert_allclose(balanced.weights(list("abcd"), counts)[[0, 2, 3]], expected, rtol=1e-6)
    targets = np.stack([labels == 2, labels < 9], axis=1)  # all texts have the second label
    weights = balanced.label_set_weights(list("ab"), targets)
    np.testing.assert_allclose(weights, [[10 / 16, 0], [10 / 4, 1]], rtol=1e-6)
    assert LabelConfig().weights(list("abcd"), counts) is None
    assert LabelConfig().label_set_weights(list("ab"), targets) is None


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_smoothing_is_that_of_keras(smoothing):
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=[5, C]).astype(np.float32), rng.integers(0, C, 5)
    found = training_losses(classification_losses(logits, labels), logits, labels, None, smoothing)
    options = {"from_logits": True, "label_smoothing": smoothing, "reduction": "none"}
    keras = tf_keras.losses.CategoricalCrossentropy(**options)
    np.testing.assert_allclose(found, keras(np.eye(C)[labels], logits), rtol=1e-5)
    targets = rng.integers(0, 2, [5, C])
    binary = tf_keras.losses.BinaryCrossentropy(**options)
    found = label_set_losses(logits, targets, None, smoothing)
    np.testing.assert_allclose(found, binary(targets.astype(np.float32), logits), rtol=1e-5)


@pytest.mark.parametrize("text", ["", "a:2,c:1:3", "a,b:2,a:3"])
def test_labels_may_have_commas_and_colons(text):
    LabelConfig(class_weights=text).check_labels(LABELS)


@pytest.mark.parametrize(
    "text", ["often", "a:2,other:3", "a:2,a:3", "a:2,", "a:0", "a:-1", "a:nan", "a:1e999", "a:two"]
)
def test_weights_that_cannot_be_are_named(text):
    at = text if text == "a:2," else text.rpartition(",")[2]
    with pytest.raises(UserError, match=f"at '{at}', expected LABEL:WEIGHT.*the labels are a, a,b, c:1"):
        LabelConfig(class_weights=text).check_labels(LABELS)


def test_settings_that_do_not_fit_are_refused():
    for smoothing in (-0.1, 1.0, float("nan")):
        with pytest.raises(UserError, match="label_smoothing.*expected 0 or more, and less than 1"):
            LabelConfig(label_smoothing=smoothing).check_labels(LABELS)
    for changes in ({"label_smoothing": 0.1}, {"class_weights": "balanced"}):
        with pytest.raises(UserError, match="are for examples with labels"):
            LabelConfig(**changes).check_labels([])
