"""Served choices and rankings give what the model gives for sequences packed by the builders."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import invent_texts
from tests.helpers.serving.toys import HOSTILE, built
from tfrecord_builders.race import build as race
from tfrecord_builders.ranking import build as ranking
from xlnet_tf.errors import UserError
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice, XLNetRanker
from xlnet_tf.serving.graph.exported_model import ExportableModel
from xlnet_tf.serving.graph.inputs import serialized_example
from xlnet_tf.tasks.multiple_choice.serving import MultipleChoiceModule, join_options
from xlnet_tf.tasks.ranking.serving import RankingModule
from xlnet_tf.text.special_tokens import PAD_ID

SEQ_LEN, CHOICES = 32, 3
TEXTS = [*HOSTILE, *invent_texts(10)]
OPTIONS = [TEXTS[row : row + 1] + invent_texts(2, seed=row) for row in range(len(TEXTS))]


def features(columns):
    ids = np.array([row["input_ids"] for row in columns])
    types = np.array([row["segment_ids"] for row in columns])
    return {"input_word_ids": ids, "input_mask": ids != PAD_ID, "input_type_ids": types}


def test_choice(small_tokenizer):
    max_qa_len = 12  # cuts some of the questions
    model = built(XLNetMultipleChoice, small_tokenizer, CHOICES)
    module = MultipleChoiceModule(model, small_tokenizer, max_qa_len=max_qa_len, seq_len=SEQ_LEN)
    questions = [f"{text} _ {text[:3]}" if row % 2 else text for row, text in enumerate(TEXTS)]
    columns = []
    for context, question, options in zip(TEXTS[::-1], questions, OPTIONS):
        answers = [race.join_option(question, option) for option in options]
        ids = small_tokenizer.encode_rows([context, *answers], "texts")
        columns.append(race.option_sequences(ids[0], ids[1:], SEQ_LEN, max_qa_len))
    expected = model(features(columns)).numpy()
    inputs = map(tf.constant, (TEXTS[::-1], questions, OPTIONS))
    answers = module.signatures()["serving_default"](**dict(zip(("context", "question", "options"), inputs)))
    np.testing.assert_allclose(answers["logits"], expected, atol=2e-5)
    np.testing.assert_allclose(answers["probabilities"], tf.nn.softmax(expected), atol=1e-5)
    chosen = [OPTIONS[row][index].encode() for row, index in enumerate(expected.argmax(axis=1))]
    assert answers["option"].numpy().tolist() == chosen
    context, question = tf.constant(TEXTS[::-1][:1]), tf.constant(questions[:1])
    two = module.serve(context=context, question=question, options=[OPTIONS[0][1:]])
    np.testing.assert_allclose(two["logits"], expected[:1, 1:], atol=2e-5)  # the number is free


def test_options_are_joined_as_by_the_builder():
    questions = ["", "_", "a __ b _", "a", "__ a", "a_b", "\\1 _ \\0"]
    options = [["x", "", "\\1", "a_b"]] * len(questions)
    joined = join_options(tf.constant(questions), tf.constant(options)).numpy()
    for question, row, found in zip(questions, options, joined, strict=True):
        assert [text.decode() for text in found] == [race.join_option(question, option) for option in row]


@pytest.mark.integration
def test_ranking(small_tokenizer):
    model = built(XLNetRanker, small_tokenizer, CHOICES)
    module = RankingModule(model, small_tokenizer, max_query_len=7, seq_len=SEQ_LEN)
    ids = [small_tokenizer.encode_rows([query, *row], "texts") for query, row in zip(TEXTS[::-1], OPTIONS)]
    columns = [ranking.candidate_sequences(query[:7], passages, CHOICES, SEQ_LEN) for query, *passages in ids]
    expected = model(features(columns)).numpy()
    function = module.signatures()["serving_default"]
    answers = function(query=tf.constant(TEXTS[::-1]), candidates=tf.constant(OPTIONS))
    np.testing.assert_allclose(answers["scores"], expected, atol=2e-5)
    order = np.argsort(-answers["scores"].numpy(), axis=1, kind="stable")
    np.testing.assert_array_equal(answers["order"], order)
    for candidates in (tf.constant([TEXTS]), tf.zeros([1, 0], tf.string)):  # any number
        found = function(query=tf.constant(TEXTS[-1:]), candidates=candidates)
        assert found["scores"].shape == candidates.shape


@pytest.mark.integration
def test_examples_with_fewer_texts_than_others_are_answered_as_alone(small_tokenizer):
    ranker, chooser = (built(kind, small_tokenizer, CHOICES) for kind in (XLNetRanker, XLNetMultipleChoice))
    ranking_module = RankingModule(ranker, small_tokenizer, max_query_len=7, seq_len=SEQ_LEN)
    choice_module = MultipleChoiceModule(chooser, small_tokenizer, max_qa_len=12, seq_len=SEQ_LEN)
    texts = [invent_texts(4), invent_texts(2, seed=1), [""]]
    rank, choose = (m.signatures()["examples"] for m in (ranking_module, choice_module))

    def examples(**lists):
        return tf.constant(
            [
                serialized_example({**dict.fromkeys(("query", "context", "question"), "ba"), **row})
                for row in [dict(zip(lists, values)) for values in zip(*lists.values())]
            ]
        )

    together, chosen = rank(examples=examples(candidates=texts)), choose(examples=examples(options=texts))
    for row, each in enumerate(texts):
        alone = rank(examples=examples(candidates=[each]))
        np.testing.assert_allclose(together["scores"][row, : len(each)], alone["scores"][0], atol=2e-5)
        expected = [*alone["order"][0].numpy(), *[-1] * (4 - len(each))]
        np.testing.assert_array_equal(together["order"][row], expected)
        alone = choose(examples=examples(options=[each]))
        expected = [*alone["probabilities"][0].numpy(), *[0] * (4 - len(each))]
        np.testing.assert_allclose(chosen["probabilities"][row], expected, atol=1e-5)
        assert chosen["option"][row] == alone["option"][0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="options has none"):
        choose(examples=examples(options=[[]]))


def test_other_texts_must_have_room(small_tokenizer):
    model = built(XLNetRanker, small_tokenizer, CHOICES)
    for module, name in ((RankingModule, "max_query_len"), (MultipleChoiceModule, "max_qa_len")):
        message = (
            f"{name} is 12; expected 1 to 8, so that sequences of 12 tokens .*, or a seq_len of at least 16$"
        )
        with pytest.raises(UserError, match=message):
            module(model, small_tokenizer, **{name: 12}, seq_len=12)


def test_a_text_beyond_the_limit_is_refused_wherever_it_stands():
    big = "a" * ((1 << 19) + 1)
    for query, candidates in (
        ([big], tf.ragged.constant([["a"]])),
        (["a"], tf.ragged.constant([["a", big]])),
        (["a"], tf.constant([["a", big]])),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="has a text of more than 524288 bytes"):
            ExportableModel.check_inputs({"query": tf.constant(query), "candidates": candidates})
