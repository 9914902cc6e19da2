"""Heads are compiled, fitted, evaluated and saved as any tf_keras model."""

import numpy as np
import pytest
import tf_keras

from tests.helpers.models.saved import CONFIG, LABELS, invent_features, new_model, predict
from tests.helpers.zipfile_fault import needs_sound_zipfile
from xlnet_tf.errors import UserError
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.training.optimizer import OptimizerConfig, build_optimizer

LOSS = {"loss": tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True), "metrics": ["accuracy"]}


def optimizers():
    ours = OptimizerConfig(learning_rate=1e-2, warmup_steps=2, layer_decay=0.9)
    return {"adam": tf_keras.optimizers.Adam(3e-3), "ours": build_optimizer(ours, 100, CONFIG.n_layer)}


def test_answers_may_be_lists():
    """A list stands for the answers of several outputs in tf_keras."""
    features, labels = invent_features(rows=8)
    found = []
    for answers in (labels, labels.tolist(), tuple(labels)):
        model = new_model(XLNetClassifier)
        model.compile(tf_keras.optimizers.SGD(0.1), run_eagerly=True, **LOSS)
        fitted = model.fit(features, answers, verbose=0, validation_data=(features, answers))
        found.append([fitted.history["val_loss"], model.evaluate(features, answers, verbose=0)])
    assert found[0] == found[1] == found[2]
    for answers in (["bad"] * 8, np.array(["bad"] * 8)):
        with pytest.raises(UserError, match="y has 'bad'; expected numbers"):
            model.fit(features, answers)
    with pytest.raises(UserError, match="differ in length; expected lists of one length"):
        model.fit(features, [[1], [1, 2]] * 4)


@needs_sound_zipfile
@pytest.mark.integration
@pytest.mark.parametrize("optimizer", [pytest.param("adam", marks=pytest.mark.long), "ours"])
def test_fit_learns_and_resumes_from_a_saved_model(pretrained, tmp_path, optimizer):
    features, labels = invent_features()
    tf_keras.utils.set_random_seed(3)
    model = XLNetClassifier.from_pretrained(pretrained, LABELS)
    model.compile(optimizers()[optimizer], **LOSS)
    path = str(tmp_path / "best.keras")
    callbacks = [
        tf_keras.callbacks.ModelCheckpoint(path, monitor="val_accuracy", mode="max", save_best_only=True),
        tf_keras.callbacks.EarlyStopping("val_loss", patience=10, restore_best_weights=True),
    ]
    options = {"validation_data": (features, labels), "callbacks": callbacks, "verbose": 0}
    model.fit(features, labels, batch_size=16, epochs=30, **options)
    best = tf_keras.models.load_model(path)
    assert isinstance(best, XLNetClassifier) and list(best.labels) == LABELS
    assert best.evaluate(features, labels, verbose=0)[1] > 0.9
    assert best.optimizer.iterations.numpy() > 0
    best.fit(features, labels, verbose=0)


@pytest.mark.integration
def test_formats_of_tf_keras(pretrained, tmp_path):
    features, labels = invent_features()
    model = XLNetClassifier.from_pretrained(pretrained, LABELS)
    model.compile("adam", **LOSS)
    model.fit(features, labels, verbose=0)
    model.save(tmp_path / "saved_model")
    restored = tf_keras.models.load_model(tmp_path / "saved_model")
    assert isinstance(restored, XLNetClassifier)
    found, expected = (each.evaluate(features, labels, verbose=0) for each in (restored, model))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    logits = restored.predict(features, verbose=0)
    np.testing.assert_allclose(logits, predict(model), atol=1e-5)
    model.save_weights(tmp_path / "weights")
    other = XLNetClassifier.from_pretrained(pretrained, LABELS)
    other.load_weights(tmp_path / "weights").expect_partial()
    np.testing.assert_array_equal(predict(other), predict(model))
