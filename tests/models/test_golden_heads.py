"""The heads' values, losses and gradients equal those of the original's code."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.models import original
from xlnet_tf.models.classifier import (
    XLNetClassifier,
    XLNetRegressor,
    classification_losses,
    regression_losses,
)
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice
from xlnet_tf.models.question_answering import XLNetQuestionAnswering, span_losses

FORWARD = {"atol": 2e-5, "rtol": 1e-5}


@pytest.mark.parametrize(
    ("name", "head", "options", "losses"),
    [
        ("cls_imdb_last", (XLNetClassifier, 2, "imdb"), {"pool_padding": True}, classification_losses),
        (
            "cls_imdb_mean_noproj",
            (XLNetClassifier, 2, "imdb"),
            {"pool_padding": True, "summary": "mean", "projection": False},
            classification_losses,
        ),
        ("regression_stsb", (XLNetRegressor, "sts-b"), {}, regression_losses),
        ("race", (XLNetMultipleChoice, 4), {}, classification_losses),
    ],
)
def test_pooled_heads(name, head, options, losses):
    case, _ = original.load_case(name)
    logits = original.head(*head, **options)(original.head_features(case))
    np.testing.assert_allclose(logits, case["logits"], **FORWARD)
    tolerance = {"atol": 1e-4, "rtol": 1e-5} if losses is regression_losses else FORWARD
    np.testing.assert_allclose(losses(logits, case["label_ids"]), case["per_example_loss"], **tolerance)


def test_span_training():
    case, _ = original.load_case("squad_train")
    features = original.head_features(case)
    outputs = original.head(XLNetQuestionAnswering)(features)
    for place in ("start", "end"):
        log_probs = tf.nn.log_softmax(outputs[f"{place}_logits"])
        np.testing.assert_allclose(log_probs, case[f"{place}_log_probs"], **FORWARD)
    np.testing.assert_allclose(outputs["no_answer_logits"], case["cls_logits"], **FORWARD)
    np.testing.assert_allclose(tf.reduce_mean(span_losses(outputs, features)), case["total_loss"], **FORWARD)


def test_span_prediction():
    case, _ = original.load_case("squad_predict")
    outputs = original.head(XLNetQuestionAnswering)(original.head_features(case))
    for name in ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index"):
        got = np.reshape(outputs[name], case[name].shape)
        np.testing.assert_allclose(got, case[name], **FORWARD, err_msg=name)
    np.testing.assert_allclose(outputs["no_answer_logits"], case["cls_logits"], **FORWARD)


def test_span_gradients():
    case, _ = original.load_case("squad_train")
    gradients, _ = original.load_case("squad_train_grads")
    model = original.head(XLNetQuestionAnswering)
    features = original.head_features(case)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(span_losses(model(features), features))
    ours = tape.gradient(loss, original.variables(model))
    theirs = original.their_arrays(gradients, "grad:")
    assert {name for name, gradient in ours.items() if gradient is not None} == set(theirs)
    for name in theirs:
        np.testing.assert_allclose(
            tf.convert_to_tensor(ours[name]), theirs[name], atol=1e-5, rtol=1e-4, err_msg=name
        )
