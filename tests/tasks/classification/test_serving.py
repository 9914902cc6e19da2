"""Served classifiers and regressors give what the model gives for the same texts, tokenized in Python."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import invent_texts
from tests.helpers.serving.toys import HOSTILE, built
from xlnet_tf.errors import UserError
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.records.examples import ExampleWriter
from xlnet_tf.serving.answers.options import buckets_for
from xlnet_tf.serving.sources import open_served
from xlnet_tf.tasks.classification.serving import AlertRule, ClassificationModule
from xlnet_tf.text.packing import pack

LABELS = ["bad", "fair", "good"]
SEQ_LEN = 48
TEXTS = [*HOSTILE, *invent_texts(8), " ".join(invent_texts(20))]


@pytest.fixture(scope="module")
def model(small_tokenizer):
    return built(XLNetClassifier, small_tokenizer, 3, labels=LABELS)


@pytest.fixture(scope="module")
def module(model, small_tokenizer):
    return ClassificationModule(model, small_tokenizer, seq_len=SEQ_LEN, alert=AlertRule("bad", 0.4))


def test_answers_are_the_models(model, module, small_tokenizer):
    answers = module.serve(text=tf.constant(TEXTS))
    expected = tf.nn.softmax(model(small_tokenizer(TEXTS, seq_len=SEQ_LEN))).numpy()
    np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)
    assert np.ptp(expected, axis=0).max() > 0.1  # the texts differ
    best = expected.argmax(axis=1)
    assert [label.decode() for label in answers["label"].numpy()] == [LABELS[index] for index in best]
    np.testing.assert_allclose(answers["score"], expected.max(axis=1), atol=1e-5)
    np.testing.assert_array_equal(answers["alert"], expected[:, 0] >= 0.4)
    assert (answers["labels"].numpy() == np.array(LABELS, object).astype(bytes)).all()


def test_buckets_for_a_sets_texts_leave_least_padding(tmp_path, small_tokenizer):
    settings = {"task": "toy", "split": "dev", "seq_len": 128, "columns": [], "settings": {}}
    with ExampleWriter(tmp_path, tokenizer=small_tokenizer, **settings) as writer:
        for number in range(300):
            writer.write(pack([30] * (10 if number % 3 else 60), seq_len=128)._asdict(), {})
    assert buckets_for(str(tmp_path), 128) == [16, 64]
    assert buckets_for(str(tmp_path), 40) == [16, 40]


def test_buckets_change_nothing_but_the_work(model, module, small_tokenizer):
    texts = tf.constant(TEXTS[:12])
    padded = []
    for buckets in ([], [8, 16, 40]):
        other = ClassificationModule(model, small_tokenizer, seq_len=SEQ_LEN, buckets=buckets)
        np.testing.assert_allclose(
            other.serve(text=texts)["probabilities"], module.serve(text=texts)["probabilities"], atol=1e-5
        )
        padded.append(other.pack(other.texts.encode([TEXTS[0]]))["input_word_ids"].shape[1])
    assert padded == [48, 8]


@pytest.mark.integration
def test_long_texts_are_read_in_segments(small_tokenizer):
    options = {"segment_len": 16, "encoder_options": {"memory_len": 16}}
    model = built(XLNetClassifier, small_tokenizer, 2, **options)
    module = ClassificationModule(model, small_tokenizer, seq_len=SEQ_LEN)
    answers = module.signatures()["serving_default"](text=tf.constant(TEXTS))
    expected = tf.nn.softmax(model(small_tokenizer(TEXTS, seq_len=SEQ_LEN)))
    np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)
    with pytest.raises(UserError, match="reads in segments of 16"):
        ClassificationModule(model, small_tokenizer, seq_len=SEQ_LEN, buckets=[32])
    with pytest.raises(UserError, match="^seq_len is 40; expected a multiple of 16"):
        ClassificationModule(model, small_tokenizer, seq_len=40)


def test_texts_have_whole_segments_unless_an_option_says_otherwise(small_tokenizer, tmp_path):
    model = built(XLNetClassifier, small_tokenizer, 2, segment_len=96)
    model.save_pretrained(tmp_path, small_tokenizer)
    model.tokenizer = small_tokenizer
    assert ClassificationModule.of_model(model).seq_len == 480
    assert open_served(str(tmp_path)).options["seq_len"] == 480
    assert open_served(str(tmp_path), inputs=()).load("float32").seq_len == 480


def test_mismatches_are_named(model, module, small_tokenizer):
    """tests/serving/test_server_contract.py has inputs of wrong shapes."""
    tokens = module.signatures()["tokens"]
    ids, ones = tf.constant([[9, 4, 3]]), tf.ones([1, 3], tf.int32)
    long = tf.ones([1, SEQ_LEN + 1], tf.int32)
    for (words, mask, types), message in (
        ((ids + 90, ones, ones), "input_word_ids has ids above 89"),
        ((ids, ones * 2, ones), "input_mask has others than 0 to 1"),
        ((long, long, long), f"input_word_ids has more than {SEQ_LEN}"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            tokens(input_word_ids=words, input_mask=mask, input_type_ids=types)
    for buckets in ([16, 8], [3], [SEQ_LEN + 1]):
        with pytest.raises(UserError, match="ascending numbers from 4 to seq_len"):
            ClassificationModule(model, small_tokenizer, seq_len=SEQ_LEN, buckets=buckets)
    with pytest.raises(UserError, match="truncation is 'start'"):
        ClassificationModule(model, small_tokenizer, seq_len=SEQ_LEN, truncation="start")
