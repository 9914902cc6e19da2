"""Heads are restored from the formats of others: the original's and Hugging Face's."""

import contextlib
import functools
import json

import numpy as np
import pytest
import tf_keras

from tests.helpers.models import heads, original
from tests.helpers.models.saved import CONFIG, LABELS, fine_tuned, new_model, predict
from tests.helpers.profiles import pairs
from xlnet_tf.checkpoints import names, open_checkpoint, save_checkpoint
from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums
from xlnet_tf.models import loading
from xlnet_tf.models.classifier import XLNetClassifier, XLNetRegressor
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice, XLNetRanker
from xlnet_tf.models.question_answering import XLNetQuestionAnswering
from xlnet_tf.models.token_classifier import XLNetTokenClassifier


@pytest.fixture(scope="module")
def of_the_original(tmp_path_factory):
    """Returns a function of a format: weights that the original fine-tuned; None: as it wrote them."""
    source = original.write_fine_tuned(tmp_path_factory.mktemp("original") / "source")

    @functools.cache
    def converted(format):
        if format is None:
            return source
        save_checkpoint(open_checkpoint(source), path := str(tmp_path_factory.mktemp(format)), format)
        return path

    return converted


@pytest.mark.parametrize(
    ("kind", "format"), pairs(["regressor", "choice", "span", "ranker"], ["ours", "original", "hugging_face"])
)
def test_heads_without_labels_are_restored(tmp_path, kind, format):
    tf_keras.utils.set_random_seed(1)
    model = heads.HEADS[kind](XLNetEncoder(CONFIG, initializer_range=0.4))
    model.build()
    read = {"summary": "first"} if kind == "regressor" else {}
    fine_tuned(model, tmp_path / "run", settings={"start_top": 2, "end_top": 3, **read})
    save_checkpoint(open_checkpoint(tmp_path / "run"), str(tmp_path / "other"), format)
    if format == "hugging_face" and kind == "span":
        (tmp_path / "other/params.yaml").unlink()  # config.json tells as much
    choices = {"num_choices": heads.CHOICES} if kind in ("choice", "ranker") else {}
    found = type(model).from_pretrained(tmp_path / "other", **choices)
    features = heads.random_features(kind, np.random.default_rng(2), training=False)
    heads.assert_equal(heads.arrays(found(features)), heads.arrays(model(features)), rtol=0)
    found, expected = (each.get_config() | {"encoder": None} for each in (found, model))
    assert found == expected


@pytest.mark.parametrize(
    ("kind", "format"),
    pairs(
        [
            (XLNetEncoder, {}),
            (XLNetClassifier, {"head_name": "imdb"}),
            (XLNetClassifier, {"head_name": "new", "labels": LABELS}),
            (XLNetClassifier, {"head_name": "mnli_matched", "summary": "attn"}),
            (XLNetRegressor, {}),
            (XLNetQuestionAnswering, {}),
            (XLNetMultipleChoice, {"num_choices": 4}),
            (XLNetRanker, {"num_choices": 2}),
            (XLNetTokenClassifier, {"labels": LABELS}),
        ],
        [None, "ours", "original", "hugging_face"],
    ),
)
def test_checkpoints_that_the_original_fine_tuned_have_no_query_stream(of_the_original, golden, kind, format):
    model_class, options = kind
    paths = of_the_original(format), golden("tiny_ckpt_heads")
    found, expected = (model_class.from_pretrained(path, **options) for path in paths)
    unread = (names.QUERY_START, *(f"{part}/" for part in ("classification_new", "ranking", "tagging")))
    for ours, theirs in zip(found.variables, expected.variables, strict=True):
        if not names.canonical(ours.name).startswith(unread):
            np.testing.assert_array_equal(ours, theirs, err_msg=ours.name)


def test_heads_of_the_original(golden):
    path = golden("tiny_ckpt_heads")
    model = XLNetClassifier.from_pretrained(path, head_name="mnli_matched")
    assert list(model.labels) == ["0", "1", "2"]
    kernel = next(v for v in model.variables if "classification_mnli_matched/logits/kernel" in v.name)
    np.testing.assert_array_equal(kernel, open_checkpoint(path).arrays[names.canonical(kernel.name)])
    imdb = XLNetClassifier.from_pretrained(path, ["no", "yes"], head_name="imdb")
    assert imdb.labels == ["no", "yes"]
    with pytest.raises(UserError, match="several heads for .*: give head_name, one of imdb, mnli"):
        XLNetClassifier.from_pretrained(path, ["no", "yes"])


@pytest.mark.parametrize(("named", "pooling"), [(True, "mean"), (False, "last")])
def test_a_classifier_of_hugging_face(tmp_path, named, pooling):
    model = new_model(XLNetClassifier)
    fine_tuned(model, tmp_path / "ours")
    save_checkpoint(open_checkpoint(tmp_path / "ours"), str(tmp_path / "theirs"), "hugging_face")
    checksums.remove(tmp_path / "theirs")
    file = tmp_path / "theirs/config.json"
    id2label = {str(index): label if named else f"LABEL_{index}" for index, label in enumerate(LABELS)}
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"id2label": id2label, "summary_type": pooling})
    )
    found = XLNetClassifier.from_pretrained(tmp_path / "theirs")
    assert list(found.labels) == (LABELS if named else ["0", "1", "2"])
    assert (found.pooling.method, found.pooling.pool_padding) == (pooling, False)
    if pooling == "last":
        np.testing.assert_array_equal(predict(found), predict(model))
    other = ["x", "y", "z"]
    if named:
        with pytest.raises(UserError, match="has the labels bad, fair, good"):
            XLNetClassifier.from_pretrained(tmp_path / "theirs", other)
    else:
        assert list(XLNetClassifier.from_pretrained(tmp_path / "theirs", other).labels) == other


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id2label": {"0": "a", "1": "b", "3": "c"}}, "id2label is .*; expected the numbers from 0 on"),
        ({"id2label": {"0": "a", "1": "b"}}, "has 3 classes, and the files next to it name 2: a, b"),
        ({"problem_type": "ranking"}, "problem_type is 'ranking'; expected one of regression, single_label_"),
        ({"problem_type": "regression"}, "but regression_task, which XLNetRegressor.from_pretrained loads"),
    ],
)
def test_a_config_of_hugging_face_that_does_not_fit_its_head(tmp_path, fields, message):
    fine_tuned(new_model(XLNetClassifier), tmp_path / "ours")
    save_checkpoint(open_checkpoint(tmp_path / "ours"), str(tmp_path / "theirs"), "hugging_face")
    checksums.remove(tmp_path / "theirs")
    file = tmp_path / "theirs/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    with pytest.raises(UserError, match=message):
        XLNetClassifier.from_pretrained(tmp_path / "theirs")


def test_labels_that_do_not_fit_the_head_are_not_converted_silently(tmp_path, caplog):
    fine_tuned(new_model(XLNetClassifier), tmp_path / "ours")
    card = tmp_path / "ours/model.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"labels": ["bad", "good"]}))
    checksums.remove(tmp_path / "ours")
    save_checkpoint(open_checkpoint(tmp_path / "ours"), str(tmp_path / "theirs"), "hugging_face")
    said = "the head classification_task has 3 classes, and the files next to it name 2: config.json gets no"
    assert said in caplog.text
    assert "id2label" not in json.loads((tmp_path / "theirs/config.json").read_text())


@pytest.mark.parametrize("format", [None, "ours"])
def test_what_a_checkpoint_lacks_is_as_random_as_if_nothing_were_loaded(of_the_original, format, monkeypatch):
    """A new head, and the start of the query stream: no random numbers are drawn for the rest."""

    def weights():
        tf_keras.utils.set_random_seed(7)
        options = {"head_name": "new", "summary": "attn"}
        model = XLNetClassifier.from_pretrained(of_the_original(format), LABELS, **options)
        return [*model.get_weights(), tf_keras.initializers.RandomNormal()([3])]

    found = weights()
    monkeypatch.setattr(loading, "building_from", lambda _: contextlib.nullcontext(()))
    for value, expected in zip(found, weights(), strict=True):
        np.testing.assert_array_equal(value, expected)
