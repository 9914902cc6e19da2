"""Models made from checkpoints have their weights, settings and labels."""

import json

import numpy as np
import pytest
import tf_keras
from absl import logging

from tests.helpers.models.saved import CONFIG, LABELS, fine_tuned, new_model, predict
from tests.helpers.profiles import pairs
from xlnet_tf.checkpoints import Checkpoint, names, open_checkpoint, save_checkpoint, save_model
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.errors import UserError
from xlnet_tf.models.classifier import XLNetClassifier, XLNetRegressor
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice, XLNetRanker
from xlnet_tf.models.question_answering import XLNetQuestionAnswering
from xlnet_tf.models.token_classifier import XLNetTokenClassifier
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer


@pytest.fixture
def logged(monkeypatch):
    lines = []
    monkeypatch.setattr(logging, "info", lambda message, *values: lines.append(message % values))
    return lines


def test_the_encoder_of_any_checkpoint(golden):
    path = golden("tiny_ckpt_heads")
    encoder = XLNetEncoder.from_pretrained(path, dropout=0.25, memory_len=4)
    assert (encoder.dropout, encoder.memory_len) == (0.25, 4)
    arrays = open_checkpoint(path).arrays
    assert {names.canonical(v.name) for v in encoder.variables} == set(names.encoder_shapes(encoder.config))
    for variable in encoder.variables:
        np.testing.assert_array_equal(variable, arrays[names.canonical(variable.name)])


@pytest.mark.parametrize(
    ("format", "kind"),
    pairs(
        [None, "ours", "original", "hugging_face"],
        [
            (XLNetClassifier, {"summary": "first", "projection": False}),
            (XLNetClassifier, {"multi_label": True}),
            (XLNetTokenClassifier, {}),
        ],
    ),
)
def test_save_model_keeps_all_that_the_weights_do_not_tell(tmp_path, small_tokenizer, format, kind):
    """Labels, how texts are read, and how they are cleaned, whatever the weights are converted to."""
    model_class, options = kind
    tf_keras.utils.set_random_seed(0)
    encoder = XLNetEncoder(CONFIG, clamp_len=3, attention_type="uni", memory_len=7)
    model = model_class(encoder, 3, labels=["schlecht", "naja", "schön"], **options)
    model.build()
    cleaning = CleaningConfig(lower=True, keep_accents=True)
    tokenizer = XLNetTokenizer(model_proto=small_tokenizer.model_proto, cleaning=cleaning)
    save_model(model, tmp_path / "saved", tokenizer)
    path = tmp_path / "saved"
    if format:
        path = tmp_path / "other"
        save_checkpoint(open_checkpoint(tmp_path / "saved"), str(path), format)
    found = model_class.from_pretrained(path)
    expected = {**model.get_config(), "encoder": None, "name": found.name}
    assert found.get_config() | {"encoder": None} == expected
    assert (found.encoder.clamp_len, found.encoder.attention_type, found.encoder.memory_len) == (3, "uni", 0)
    assert XLNetTokenizer.from_pretrained(path).cleaning == cleaning


def test_the_number_of_choices_comes_from_the_data_of_a_run_or_is_asked_for(tmp_path):
    model = XLNetRanker(XLNetEncoder(CONFIG), 5)
    model.build()
    save_model(model, tmp_path / "run")
    (tmp_path / "run/model.json").unlink()  # as in runs of earlier versions
    manifest = {"kind": "examples", "task": "ranking", "sequences": 5, "settings": {}}
    (tmp_path / "run/manifest.json").write_text(json.dumps(manifest))
    assert XLNetRanker.from_pretrained(tmp_path / "run").num_choices == 5
    assert XLNetRanker.from_pretrained(tmp_path / "run", 2).num_choices == 2
    with pytest.raises(UserError, match=r"ranking, which XLNetRanker\.from_pretrained loads: give num_"):
        XLNetMultipleChoice.from_pretrained(tmp_path / "run")  # whose head is new
    (tmp_path / "run/manifest.json").unlink()
    with pytest.raises(UserError, match="does not say how many choices a row has: give num_choices, such as"):
        XLNetRanker.from_pretrained(tmp_path / "run")


@pytest.mark.parametrize(
    ("model_class", "options", "part"),
    [
        (XLNetRegressor, {"head_name": "sts-b"}, "regression_sts-b"),
        (XLNetQuestionAnswering, {"start_top": 3}, "span"),
        (XLNetMultipleChoice, {"num_choices": 4, "segment_len": 2}, "choice"),
        (XLNetRanker, {"num_choices": 2, "summary": "mean"}, "ranking"),
    ],
)
def test_new_heads_without_labels_say_so(pretrained, logged, model_class, options, part):
    model = model_class.from_pretrained(pretrained, dropout=0.2, **options)
    assert logged[-1].endswith(f"has no head {part}: a new one begins with random weights")
    assert model.encoder.dropout == 0.2
    assert model.get_config().items() >= options.items()
    np.testing.assert_array_equal(
        model.encoder.word_embedding, open_checkpoint(pretrained).arrays["word_embedding/embeddings"]
    )
    with pytest.raises(UserError, match="unknown option labels"):
        model_class.from_pretrained(pretrained, labels=LABELS, **options)


@pytest.mark.parametrize("memory_len", [0, 3])
def test_segments_of_a_run_are_read_as_they_were(tmp_path, memory_len):
    encoder = XLNetEncoder(CONFIG, memory_len=memory_len or 5)
    model = XLNetClassifier(encoder, 3, segment_len=5)
    model.build()
    fine_tuned(model, tmp_path, settings={"segment_len": 5, "memory_len": memory_len})
    np.testing.assert_array_equal(predict(XLNetClassifier.from_pretrained(tmp_path)), predict(model))


def test_a_folder_of_another_task_says_which_class_loads_it(tmp_path, logged):
    fine_tuned(new_model(XLNetTokenClassifier), tmp_path)
    instead = "but tagging, which XLNetTokenClassifier.from_pretrained loads"
    for model_class, needs in ((XLNetClassifier, r"labels=\[...\]"), (XLNetMultipleChoice, "num_choices")):
        with pytest.raises(UserError, match=f"{instead}: give {needs}"):
            model_class.from_pretrained(tmp_path)
    for model_class in (XLNetRegressor, XLNetQuestionAnswering):
        model_class.from_pretrained(tmp_path)
        assert f"{instead}: a new one begins with random weights" in logged[-1]


def test_a_new_head_next_to_an_old_one(tmp_path, logged):
    """The projection below the logits is taken over; the old logits are left aside."""
    old = new_model(XLNetClassifier)
    fine_tuned(old, tmp_path, "classification")
    new = XLNetClassifier.from_pretrained(tmp_path, ["a", "b"], head_name="other")
    assert "no head classification_other" in logged[-1]
    np.testing.assert_array_equal(new.pooling.projection.kernel, old.pooling.projection.kernel)
    assert new.dense.kernel.shape == [CONFIG.d_model, 2]


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (None, {}, r"no head classification_task: give labels=\[...\]"),
        ("good", {}, "labels is 'good'; expected a list"),
        (LABELS, {"dropout": 2.0}, "dropout is 2.0; expected a number from 0 to less than 1"),
        (["good"], {}, "expected at least 2"),
        (["good", "good"], {}, "each of them once"),
        (LABELS, {"dropuot": 0.2}, "unknown option dropuot; expected some of .*dropout.*summary"),
        (LABELS, {"summary": "best"}, "the summary is 'best'"),
        (LABELS, {"head_name": "a/b"}, "head_name is 'a/b'"),
    ],
)
def test_wrong_arguments(pretrained, labels, options, message):
    with pytest.raises(UserError, match=message):
        XLNetClassifier.from_pretrained(pretrained, labels, **options)


def test_wrong_checkpoints(tmp_path, pretrained):
    model = new_model(XLNetClassifier)
    fine_tuned(model, tmp_path)
    with pytest.raises(UserError, match="has 3 classes; the given labels are no, yes"):
        XLNetClassifier.from_pretrained(tmp_path, ["no", "yes"])
    arrays = dict(open_checkpoint(tmp_path).arrays.entries)
    del arrays["classification_task/logits/bias"]
    save_checkpoint(Checkpoint("", "ours", Arrays(arrays), CONFIG), str(tmp_path / "no_bias"), "ours")
    with pytest.raises(UserError, match="classification_task/logits/bias has the shape None; expected"):
        XLNetClassifier.from_pretrained(tmp_path / "no_bias")
    (tmp_path / "xlnet_config.json").unlink()
    with pytest.raises(UserError, match="neither xlnet_config.json nor config.json"):
        XLNetEncoder.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        XLNetEncoder.from_pretrained(tmp_path / "nowhere")
    arrays = dict(open_checkpoint(pretrained).arrays.entries)
    del arrays["word_embedding/embeddings"]
    (tmp_path / "part").mkdir()
    part = Checkpoint(pretrained, "ours", Arrays(arrays), CONFIG)
    with pytest.raises(UserError, match="word_embedding"):
        save_checkpoint(part, str(tmp_path / "part"), "ours")


def test_labels_of_a_new_model_are_a_list_as_well(tmp_path):
    encoder = XLNetEncoder(CONFIG)
    for model_class in (XLNetClassifier, XLNetTokenClassifier):
        with pytest.raises(UserError, match="3 labels for 2 classes"):
            model_class(encoder, 2, labels=LABELS)
    for labels in ("ab", {0: "a", 1: "b"}, {"a", "b"}):
        with pytest.raises(UserError, match="labels is .*; expected a list"):
            XLNetClassifier(encoder, 2, labels=labels)
    assert XLNetTokenClassifier(encoder, 2, labels=dict.fromkeys(["a", "b"]).keys()).labels == ["a", "b"]
    model = XLNetClassifier(encoder, 3)
    model.build()
    save_model(model, tmp_path)  # labels that nobody named can still be given
    assert list(XLNetClassifier.from_pretrained(tmp_path, LABELS).labels) == LABELS


def test_what_is_no_encoder_and_no_config_is_named():
    with pytest.raises(UserError, match="the encoder is XLNetConfig.*; expected an XLNetEncoder"):
        XLNetClassifier(CONFIG, 2)
    with pytest.raises(UserError, match="config is 'base'; expected an XLNetConfig"):
        XLNetEncoder("base")
