"""One call of a model answers texts by name, for every task, however it was saved."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from absl import logging

from tests.helpers.serving.answering import assert_near, columns_of
from tests.helpers.serving.exports import KINDS
from xlnet_tf import task_registry
from xlnet_tf.checkpoints import open_checkpoint, save_checkpoint
from xlnet_tf.checkpoints.model_card import ModelCard
from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.models.question_answering import XLNetQuestionAnswering
from xlnet_tf.serving.answers.text_answers import answer_texts, normalize_inputs, split_rows
from xlnet_tf.serving.sources import open_served
from xlnet_tf.tasks.classification.serving import AlertRule
from xlnet_tf.text.tokenizer import XLNetTokenizer

OPTIONS = {
    "classification": {"alert": {"label": "bad", "threshold": 0.4}},
    "regression": {"pair": True},
    "multiple_choice": {"max_qa_len": 12},
    "ranking": {"max_query_len": 7},
    "question_answering": {"threshold": 0.0, "max_question_len": 10, "stride": 9},
}
CLOSE = {"rel": 3e-6, "abs": 1e-6}  # a few float32 roundings
CHOICES = {"multiple_choice": {"num_choices": 2}, "ranking": {"num_choices": 2}}


MANY = {"options": ["ba", "ne tor"], "candidates": ["ba", "ne tor"]}


@pytest.mark.integration
@pytest.mark.parametrize("task", task_registry.tasks())
def test_a_saved_model_answers_as_the_exported_one(tmp_path, small_tokenizer, task):
    kind = KINDS[task]
    model = kind.model(small_tokenizer)
    module = kind.module(model, small_tokenizer)
    columns = columns_of(kind, module)
    served = module.answer(**{name: tf.constant(values) for name, values in columns.items()})
    served = {name: values.numpy() for name, values in served.items()}
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]

    expected = [
        module.readable(row, module.without_padding(row, answer))
        for row, answer in zip(rows, split_rows(served), strict=True)
    ]
    model.save_pretrained(tmp_path / "ours", small_tokenizer, seq_len=40, **OPTIONS.get(task, {}))
    save_checkpoint(open_checkpoint(tmp_path / "ours"), str(tmp_path / "again"), "ours")
    first, found = (
        type(model).from_pretrained(tmp_path / folder, **CHOICES.get(task, {}))
        for folder in ("ours", "again")
    )
    assert first.current_card().serving == found.current_card().serving
    for weights, converted in zip(first.get_weights(), found.get_weights(), strict=True):
        np.testing.assert_array_equal(weights, converted)
    assert_near(found.answer(**columns), expected, **CLOSE)
    assert_near(found.answer(*rows[-1].values()), expected[-1], **CLOSE)
    found.save(tmp_path / "model.keras")
    loaded = tf_keras.models.load_model(tmp_path / "model.keras")
    assert loaded.tokenizer.fingerprint == small_tokenizer.fingerprint
    assert_near(loaded.answer(**columns), expected, **CLOSE)
    for path in ("ours", "model.keras"):
        opened = open_served(str(tmp_path / path), inputs=()).load("float32")
        answers = answer_texts(opened, iter(rows), batch_size=2)
        assert_near([opened.readable(*pair) for pair in zip(rows, answers)], expected, **CLOSE)


@pytest.fixture
def classifier(small_tokenizer, eagerly):
    """A classifier, which answers without tracing a graph."""
    model = KINDS["classification"].model(small_tokenizer)
    model.tokenizer = small_tokenizer
    return model


def test_answers_are_by_name(classifier):
    [one, other] = classifier.answer(["ba ne", "tor"])
    assert [*one] == ["label", "score", "probabilities"] and [*one["probabilities"]] == classifier.labels
    assert one["score"] == max(one["probabilities"].values()) == one["probabilities"][one["label"]]
    logits = classifier(classifier.tokenizer(["ba ne", "tor"], seq_len=16)).numpy()
    for row, answer in zip(tf.nn.softmax(logits).numpy(), (one, other)):
        np.testing.assert_allclose([*answer["probabilities"].values()], row, atol=1e-6)
    assert_near(classifier.answer("tor"), other, **CLOSE)
    assert classifier.answer(text for text in ("ba ne", "tor")) == [one, other]
    assert classifier.answer([]) == []
    model = XLNetClassifier(classifier.encoder, 2, labels=["a", "b"], multi_label=True)
    model.build()
    model.dense.bias.assign([9.0, -9.0])
    model.tokenizer = classifier.tokenizer
    answer = model.answer("ba")
    assert answer["assigned"] == answer["labels"] == ["a"]  # the second is the old name
    assert answer["probabilities"]["b"] < 0.5 < answer["probabilities"]["a"]


@pytest.mark.integration
@pytest.mark.parametrize("task", task_registry.tasks())
def test_answers_are_of_the_weights_as_they_are_now(small_tokenizer, task):
    asked, other = KINDS[task].model(small_tokenizer), KINDS[task].model(small_tokenizer)
    module = KINDS[task].module(asked, small_tokenizer)
    texts = {name: MANY.get(name, "ba ne ba tor") for name in module.input_ranks()}
    for number, model in enumerate((asked, other)):
        model.tokenizer = small_tokenizer
        for weight in model.weights:
            weight.assign(tf.random.stateless_normal(weight.shape, [number, 1], stddev=0.3))
    before = asked.answer(**texts)
    asked.set_weights(other.get_weights())
    expected = other.answer(**texts)
    assert_near(asked.answer(**texts), expected, **CLOSE)
    assert str(before) != str(expected)


def test_answers_follow_the_model_as_it_is_now(classifier):
    text = "ba ne ba tor"
    assert "label" in classifier.answer(text)
    classifier.multi_label = True
    assert "labels" in classifier.answer(text)
    classifier.labels[0] = "other"
    assert "other" in classifier.answer(text)["probabilities"]
    classifier.card = ModelCard.of_model(classifier)
    classifier.card.serving["alert"] = {"label": "other", "threshold": 0.0}
    assert classifier.answer(text)["alert"] is True
    first = vars(classifier)["_answering"][1]
    classifier.answer(text)
    assert vars(classifier)["_answering"][1] is first


def test_options_may_be_of_any_type_that_answering_takes(classifier, tmp_path):
    alert = AlertRule("bad", np.float32(0.5))
    options = {"seq_len": np.int64(32), "temperature": [np.float32(1.5)], "alert": alert}
    classifier.save_pretrained(tmp_path / "model", **options)
    found = XLNetClassifier.from_pretrained(tmp_path / "model")
    expected = {"seq_len": 32, "temperature": [1.5], "alert": {"label": "bad", "threshold": 0.5}}
    assert found.current_card().serving == expected and "alert" in found.answer("ba")
    again = XLNetClassifier.from_pretrained(tmp_path / "model", ["x", "y"], head_name="new")
    assert not again.current_card().serving and again.answer("ba")["label"] in "xy"  # takes nothing over
    files = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    with pytest.raises(UserError, match="save_pretrained: temperature is 'hot'; expected a list"):
        classifier.save_pretrained(tmp_path / "model", temperature="hot")
    with pytest.raises(UserError, match="unknown option max_answer_len"):
        classifier.save_pretrained(tmp_path / "model", max_answer_len=5)
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    classifier.save_pretrained(tmp_path / "wrong", alert={"label": "awful", "threshold": 0.5})
    with pytest.raises(UserError, match="alert.label is 'awful'; expected one of bad, fair, good"):
        XLNetClassifier.from_pretrained(tmp_path / "wrong").answer("ba")


@pytest.mark.integration
def test_training_forgets_what_was_measured_before(classifier, tmp_path):
    alert = {"label": "bad", "threshold": 0.4}
    classifier.save_pretrained(tmp_path, seq_len=24, temperature=[5.0], alert=alert)
    model = XLNetClassifier.from_pretrained(tmp_path)
    assert "alert" in model.answer("ba")
    features = model.tokenizer(["ba ne", "tor"], seq_len=16)
    model.compile("sgd", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(features, [0, 1], sample_weight=[1.0, 2.0], verbose=0)
    model.evaluate(features, [0, 1], sample_weight=[1.0, 2.0], verbose=0)
    assert "alert" not in model.answer("ba") and model.current_card().serving == {"seq_len": 24}


@pytest.mark.parametrize(
    ("texts", "inputs", "message"),
    [
        ((), {}, "this model answers text; found nothing"),
        ((7,), {}, "text is 7; expected a string"),
        ((["a", None],), {}, r"text\[1\] is None; expected a string"),
        ((b"a",), {}, "decode it"),
        ((["a", "ä" * 262_145],), {}, r"text\[1\] has 524290 bytes; expected at most 524288: divide it"),
        ((["a"], ["b", "c"]), {}, "there are 1 of text_a, 2 of text_b"),
        ((["ba"],), {"batch_size": 0}, "batch_size is 0; expected a whole number of at"),
    ],
)
def test_wrong_inputs_are_named(classifier, texts, inputs, message):
    with pytest.raises(UserError, match=message):
        classifier.answer(*texts, **inputs)


def test_what_a_model_cannot_answer_with_is_named(classifier, small_tokenizer):
    choice = KINDS["multiple_choice"].model(small_tokenizer)
    with pytest.raises(UserError, match="has no tokenizer: set model.tokenizer"):
        choice.answer("ba", "ne", ["tor"])
    choice.tokenizer = small_tokenizer
    with pytest.raises(UserError, match="options of row 1 are empty; expected at least one"):
        choice.answer(["ba", "ba"], ["ne", "ne"], [["tor"], []])
    classifier.labels = ["good", "good", "bad"]
    with pytest.raises(UserError, match="labels good, good, bad, .*: expected each of them once"):
        classifier.answer("ba")
    with pytest.raises(UserError, match=r"labels\[1\] is .*half of a surrogate pair"):
        XLNetClassifier(classifier.encoder, 2, labels=["a", "b\ud800"])


_CHOICE = {"context": 1, "question": 1, "options": 2}


@pytest.mark.parametrize(
    ("ranks", "texts", "expected"),
    [
        ({"text": 1}, [("ba",)], [{"text": "ba"}]),
        ({"text": 1}, [np.str_("ba")], {"text": "ba"}),
        (_CHOICE, ["ba", "ne", ("a", "b")], {"context": "ba", "question": "ne", "options": ["a", "b"]}),
        ({"text": 1, "options": 2}, [["ba"], np.array([["a"]])], [{"text": "ba", "options": ["a"]}]),
        ({"options": 2}, [[["a"], []]], [{"options": ["a"]}, {"options": []}]),
    ],
)
def test_texts_come_as_lists_tuples_and_arrays(ranks, texts, expected):
    rows, many = normalize_inputs(ranks, texts, {})
    assert (rows if many else rows[0]) == expected
    message = "question is a list, context is 'ba'; expected lists of equal length, or one text each"
    with pytest.raises(UserError, match=message):
        normalize_inputs({"question": 1, "context": 1}, [["a", "b"], "ba"], {})


def test_a_column_of_pandas_is_read_in_its_order_and_no_table():
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(["ba", "ne"], index=[1, 0])
    assert normalize_inputs({"text": 1}, [column], {}) == ([{"text": "ba"}, {"text": "ne"}], True)
    with pytest.raises(UserError, match="text is a DataFrame; expected one of its columns"):
        normalize_inputs({"text": 1}, [pandas.DataFrame({"text": ["ba", "ne"]})], {})


def test_the_tokenizers_that_are_not_read_are_named(tmp_path, small_tokenizer):
    KINDS["classification"].model(small_tokenizer).save_pretrained(tmp_path)
    (tmp_path / "unigram.model").touch()
    (tmp_path / "tokenizer.json").touch()
    model = XLNetClassifier.from_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"has no tokenizer \(.* has no spiece.model\): set model.tokenizer"):
        model.answer("ba")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="has no spiece.model, and unigram.model is not read: copy"):
        XLNetTokenizer.from_pretrained(tmp_path)


@pytest.mark.integration
def test_a_model_with_the_tokenizer_of_transformers_5_answers(tmp_path, small_tokenizer):
    """Its folder has tokenizer.json alone; in other formats it has spiece.model, too."""
    model = KINDS["classification"].model(small_tokenizer)
    model.save_pretrained(tmp_path / "ours", small_tokenizer)
    save_checkpoint(open_checkpoint(tmp_path / "ours"), str(tmp_path / "theirs"), "hugging_face")
    checksums.remove(tmp_path / "theirs")
    (tmp_path / "theirs/spiece.model").unlink()
    assert (tmp_path / "theirs/tokenizer.json").exists()
    save_checkpoint(open_checkpoint(tmp_path / "theirs"), str(tmp_path / "back"), "ours")
    assert (tmp_path / "back/spiece.model").exists()
    model.tokenizer = small_tokenizer
    for folder in ("theirs", "back"):
        found = XLNetClassifier.from_pretrained(tmp_path / folder)
        assert found.answer("ba ne tor, 5,") == model.answer("ba ne tor, 5,")


@pytest.mark.integration
def test_answers_of_a_head_that_was_never_trained_are_warned_of_once(tmp_path, classifier, monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, "warning", lambda message, *values: warnings.append(message % values))
    classifier.save_pretrained(tmp_path)
    XLNetClassifier.from_pretrained(tmp_path).answer("ba")
    assert not warnings
    new = XLNetQuestionAnswering.from_pretrained(tmp_path)
    new.answer("ba", "ne ba")
    new.answer("ba", "ne ba")
    [warning] = warnings
    assert "the head of this XLNetQuestionAnswering is new and has random weights" in warning
    trained = XLNetClassifier.from_pretrained(tmp_path, ["x", "y"], head_name="new")
    for weight in trained.trainable_weights:
        weight.assign_add(tf.ones_like(weight))
    trained.answer("ba")
    assert len(warnings) == 1


def test_objects_of_keras_3_are_refused(classifier):
    keras = pytest.importorskip("keras", minversion="3")
    with pytest.raises(UserError, match="optimizer is of Keras 3 .*: write tf_keras' own Adam"):
        classifier.compile(keras.optimizers.Adam())
    with pytest.raises(UserError, match="metrics is of Keras 3"):
        classifier.compile("adam", metrics=[keras.metrics.SparseCategoricalAccuracy()])
    with pytest.raises(UserError, match="the input is of Keras 3 .*: write tf_keras.Input"):
        classifier({"input_word_ids": keras.Input([8])})
