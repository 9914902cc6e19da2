"""What `compile` makes of losses and metrics: heads answer logits, which tf_keras takes for probabilities."""

import re
import types

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.helpers.models import heads
from tests.helpers.models.checkpoints import CONFIGS
from xlnet_tf.errors import UserError
from xlnet_tf.models.classifier import XLNetClassifier, XLNetRegressor
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice, XLNetRanker
from xlnet_tf.models.question_answering import XLNetQuestionAnswering
from xlnet_tf.models.token_classifier import XLNetTokenClassifier

losses, metrics = tf_keras.losses, tf_keras.metrics
ENCODER = XLNetEncoder(CONFIGS["micro"])
MODELS = {
    "classifier": lambda: XLNetClassifier(ENCODER, 3),
    "multi_label": lambda: XLNetClassifier(ENCODER, 3, multi_label=True),
    "regressor": lambda: XLNetRegressor(ENCODER),
    "tagger": lambda: XLNetTokenClassifier(ENCODER, 3),
    "choice": lambda: XLNetMultipleChoice(ENCODER, 3),
    "ranker": lambda: XLNetRanker(ENCODER, 3),
    "span": lambda: XLNetQuestionAnswering(ENCODER),
}
LOGITS = np.random.default_rng(0).normal(0, 2, [40, 3]).astype(np.float32)
NUMBERS = np.arange(40) % 3
ONE_HOT = np.eye(3, dtype=np.float32)[NUMBERS]
SEVERAL = np.random.default_rng(1).integers(0, 2, [40, 3]).astype(np.float32)


def named(value):
    """Returns the same name in each process of a run, which a function's and an object's own are not."""
    return value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)


def compiled(name, *arguments, **options):
    model = MODELS[name]()
    model.compile("sgd", *arguments, **options)
    return model


def measured(model, answers, logits=LOGITS):
    """The loss and metrics of logits, as fit and evaluate compute them."""
    answers, logits = map(tf.constant, (answers, logits))
    if model.loss:
        model.compiled_loss(answers, logits)
    model.compiled_metrics.update_state(answers, logits)
    return {metric.name: float(metric.result()) for metric in model.metrics}


@pytest.mark.parametrize("head", ["classifier", "multi_label", "tagger", "choice", "ranker"])
@pytest.mark.parametrize(
    ("loss", "answers"),
    [
        ("sparse_categorical_crossentropy", NUMBERS),
        (losses.sparse_categorical_crossentropy, NUMBERS),
        ("CategoricalCrossentropy", ONE_HOT),
        (losses.categorical_focal_crossentropy, ONE_HOT),
        ("binary_crossentropy", SEVERAL),
        (losses.binary_crossentropy, SEVERAL),
        ("bce", SEVERAL),
        ("BinaryFocalCrossentropy", SEVERAL),
    ],
    ids=named,
)
def test_a_named_loss_takes_logits(head, loss, answers):
    softmax = answers is not SEVERAL
    if head != "ranker" and softmax == (head == "multi_label"):
        with pytest.raises(UserError, match="which does not fit"):
            compiled(head, loss)
        return
    probabilities = tf.nn.softmax(LOGITS) if softmax else tf.sigmoid(LOGITS)
    expected = np.mean(losses.get(loss)(tf.constant(answers), probabilities))
    np.testing.assert_allclose(measured(compiled(head, loss), answers)["loss"], expected, rtol=1e-4)
    if hasattr(metrics, str(getattr(loss, "__name__", loss))):  # not all losses are metrics
        [found] = measured(compiled(head, metrics=[loss]), answers).values()
        assert found == pytest.approx(expected, rel=1e-4)


def test_named_metrics_of_several_labels_take_logits():
    names = ["accuracy", "acc", "binary_accuracy", "BinaryAccuracy", metrics.binary_accuracy]
    probabilities = tf.sigmoid(LOGITS)
    expected = np.mean((probabilities > 0.5) == SEVERAL)
    for name in names:
        [found] = measured(compiled("multi_label", metrics=[name]), SEVERAL).values()
        assert found == pytest.approx(expected)
    [found] = measured(compiled("multi_label", metrics="AUC"), SEVERAL).values()
    auc = metrics.AUC()
    auc.update_state(SEVERAL, probabilities)
    assert found == pytest.approx(float(auc.result()))
    [found] = measured(compiled("multi_label", metrics=["crossentropy"]), SEVERAL).values()
    assert found == pytest.approx(np.mean(losses.binary_crossentropy(SEVERAL, probabilities)), rel=1e-4)
    [found] = measured(compiled("classifier", metrics=["accuracy"]), NUMBERS).values()
    assert found == pytest.approx(np.mean(LOGITS.argmax(axis=1) == NUMBERS))


def test_each_output_of_question_answering_gets_its_own():
    loss = {"start_logits": "sparse_categorical_crossentropy", "no_answer_logits": "binary_crossentropy"}
    loss["end_logits"] = losses.SparseCategoricalCrossentropy(from_logits=True)
    model = compiled("span", loss, {"no_answer_logits": ["accuracy"], "start_logits": "accuracy"})
    rng = np.random.default_rng(0)
    logits = {
        name: tf.constant(rng.normal(0, 2, [8, 5]), tf.float32) for name in ("start_logits", "end_logits")
    }
    logits["no_answer_logits"] = tf.constant(rng.normal(0, 2, [8]), tf.float32)
    answers = {"start_logits": np.arange(8) % 5, "end_logits": np.arange(8) % 4}
    answers["no_answer_logits"] = np.arange(8) % 2
    answers = {name: tf.constant(values) for name, values in answers.items()}
    total = float(model.compiled_loss(answers, logits))
    spans = [tf.nn.sparse_softmax_cross_entropy_with_logits(answers[n], logits[n]) for n in (*answers,)[:2]]
    impossible = tf.nn.sigmoid_cross_entropy_with_logits(
        tf.cast(answers["no_answer_logits"], tf.float32), logits["no_answer_logits"]
    )
    assert total == pytest.approx(sum(map(np.mean, (*spans, impossible))), rel=1e-5)
    model.compiled_metrics.update_state(answers, logits)
    found = {metric.name: float(metric.result()) for metric in model.compiled_metrics.metrics}
    expected = np.mean((logits["no_answer_logits"].numpy() > 0) == answers["no_answer_logits"].numpy())
    assert found["no_answer_logits_accuracy"] == pytest.approx(expected)
    wrong = r"loss\['no_answer_logits'\] has .*, a logit for each label: write tf_keras.losses.BinaryCross"
    for loss in ("sparse_categorical_crossentropy", {"class_name": "CategoricalCrossentropy", "config": {}}):
        with pytest.raises(UserError, match=wrong):
            compiled("span", {"start_logits": None, "no_answer_logits": loss})
    with pytest.raises(UserError, match=wrong):
        compiled("span", losses.sparse_categorical_crossentropy)  # stands for all outputs


@pytest.mark.parametrize("metric", [metrics.Precision(), metrics.Recall(), metrics.AUC()])
def test_the_line_for_metrics_of_probabilities_can_be_run(metric):
    with pytest.raises(UserError, match="write metric.update_state") as error:
        compiled("classifier", metrics=[metric])
    line = re.search(r"write (metric.*) after fit", str(error.value))[1]
    model = types.SimpleNamespace(predict=lambda x: x)
    exec(line, {"np": np, "tf": tf, "y": [*NUMBERS], "x": LOGITS, "model": model, "metric": metric})
    expected = type(metric)()
    expected.update_state(NUMBERS == 1, tf.nn.softmax(LOGITS)[:, 1])
    assert metric.result() == expected.result()


@pytest.mark.parametrize(
    ("head", "argument", "value", "line"),
    [
        ("classifier", "loss", losses.SparseCategoricalCrossentropy(), "losses.SparseCategoricalCrossent"),
        ("tagger", "loss", losses.CategoricalCrossentropy(), "losses.CategoricalCrossentropy"),
        ("choice", "loss", losses.CategoricalFocalCrossentropy(), "losses.CategoricalFocalCrossentropy"),
        ("ranker", "loss", losses.BinaryCrossentropy(), "losses.BinaryCrossentropy"),
        ("multi_label", "loss", losses.BinaryCrossentropy(), "losses.BinaryCrossentropy"),
        # of another kind of outputs
        ("classifier", "loss", "binary_crossentropy", "losses.SparseCategoricalCrossentropy"),
        ("classifier", "loss", losses.BinaryCrossentropy(from_logits=True), "losses.SparseCategoricalCross"),
        ("multi_label", "loss", "categorical_crossentropy", "losses.BinaryCrossentropy"),
        ("regressor", "loss", "binary_crossentropy", "losses.MeanSquaredError"),
        ("regressor", "loss", losses.sparse_categorical_crossentropy, "losses.MeanSquaredError"),
        # without a form for logits
        ("classifier", "loss", "kld", "losses.SparseCategoricalCrossentropy"),
        ("multi_label", "loss", losses.Poisson(), "losses.BinaryCrossentropy"),
        # metrics
        ("classifier", "metrics", [metrics.SparseCategoricalCrossentropy()], "metrics.SparseCategoricalC"),
        ("classifier", "metrics", ["ce"], "metrics.SparseCategoricalCrossentropy"),
        ("multi_label", "weighted_metrics", [metrics.AUC(name="a")], "metrics.AUC"),
        ("multi_label", "metrics", ["accuracy", metrics.BinaryAccuracy()], "metrics.BinaryAccuracy"),
        ("multi_label", "metrics", metrics.BinaryIoU(), "metrics.BinaryIoU"),
        ("multi_label", "metrics", ["categorical_accuracy"], "metrics.BinaryAccuracy"),
        ("classifier", "metrics", [metrics.BinaryAccuracy()], "metrics.SparseCategoricalAccuracy"),
        ("tagger", "metrics", [metrics.Accuracy()], "metrics.SparseCategoricalAccuracy"),
        ("classifier", "metrics", [metrics.AUC(from_logits=True)], None),
        *(
            ("multi_label", "metrics", [metric], None)
            for metric in ("Recall", metrics.F1Score(threshold=0.5), metrics.PrecisionAtRecall(0.5))
        ),
    ],
    ids=named,
)
def test_what_would_be_wrong_is_refused_with_the_line_to_write(head, argument, value, line):
    with pytest.raises(UserError, match=f"^{argument} has .*, which does not fit .*: write .*") as error:
        compiled(head, **{argument: value})
    written = str(error.value).partition(": write ")[2].removesuffix(".")
    if line is None:
        assert "metric.update_state(" in written and "(model.predict(x))" in written
        return
    assert written.startswith(f"tf_keras.{line}")
    compiled(head, **{argument: eval(written)})


def test_what_fits_or_is_the_users_own_is_left_alone():
    class OwnAUC(metrics.AUC):
        def update_state(self, y_true, y_pred, sample_weight=None):
            return super().update_state(y_true, tf.sigmoid(y_pred), sample_weight)

    def own_loss(answers, logits):
        return tf.reduce_mean(logits)

    right = losses.SparseCategoricalCrossentropy(from_logits=True)
    for head, loss, metric in (
        ("classifier", right, metrics.SparseTopKCategoricalAccuracy(2)),
        ("classifier", own_loss, "sparse_categorical_accuracy"),
        ("multi_label", "hinge", OwnAUC()),
        ("multi_label", None, metrics.BinaryAccuracy(threshold=-1.0)),
        ("multi_label", None, metrics.F1Score("micro")),
        ("regressor", "mse", metrics.RootMeanSquaredError()),
        ("regressor", losses.Huber(), "accuracy"),
    ):
        model = compiled(head, loss, [metric])
        found = model._compile_config.config
        assert found["loss"] is loss and found["metrics"] == [metric]


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("loss", ["mse", "MeanAbsoluteError", losses.Huber(), losses.log_cosh], ids=named)
def test_classes_are_no_numbers_but_a_teachers_logits_are(loss):
    rng = np.random.default_rng(0)
    features, model = heads.random_features("classifier", rng), heads.random_head("classifier")
    labels = np.arange(heads.B) % model.num_labels
    one_hot = np.eye(model.num_labels, dtype=np.int64)[labels]
    for answers in (labels, labels.astype(np.float32), one_hot):
        model.compile("sgd", loss)
        with pytest.raises(
            ValueError, match="labels are classes .*SparseCategoricalCrossentropy.from_logits"
        ):
            model.fit(features, answers, verbose=0)
    teacher = rng.normal(size=one_hot.shape).astype(np.float32)
    model.compile("sgd", loss, metrics=["mse"])
    model.fit(features, teacher, verbose=0)
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["mse"])
    with pytest.raises(ValueError, match="metrics has mean_squared_error, and the labels are classes"):
        model.evaluate(features, labels, verbose=0)


@pytest.mark.usefixtures("eagerly")
def test_what_answers_numbers_may_be_compared_with_them():
    rng = np.random.default_rng(0)
    features, model = heads.random_features("regressor", rng), heads.random_head("regressor")
    model.compile("sgd", "mse", ["mae"])
    model.fit(features, np.arange(heads.B), verbose=0)


@pytest.mark.usefixtures("eagerly")
def test_habits_of_keras_learn_and_saved_models_stay_compiled(tmp_path):
    """What a file holds is checked, too: earlier versions saved what trains wrongly."""
    features = heads.random_features("classifier", np.random.default_rng(0))
    model = heads.random_head("classifier")
    labels = np.arange(heads.B) % model.num_labels
    model.compile("adam", "sparse_categorical_crossentropy", ["accuracy"])
    model.fit(features, labels, verbose=0)
    model.save(tmp_path / "model.keras")
    again = tf_keras.models.load_model(tmp_path / "model.keras")
    assert again.optimizer.iterations.numpy() == 1 and again.optimizer.variables
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(features))
    assert again.evaluate(features, labels, verbose=0)[0] == pytest.approx(np.mean(expected), rel=1e-5)
    config = model.get_compile_config()
    config["loss"]["config"]["from_logits"] = False
    again = heads.random_head("classifier")
    again.compile_from_config(config)
    assert not again._is_compiled
