"""Answers without TensorFlow equal those of the exported model, on texts of every kind."""

import random

import numpy as np
import pytest

from tests.helpers.serving import answering
from tests.helpers.serving.exports import KINDS
from tests.helpers.serving.toys import HOSTILE, built
from tests.text.test_tokenizer import hostile_texts
from xlnet_tf import task_registry
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.models.question_answering import XLNetQuestionAnswering
from xlnet_tf.models.token_classifier import XLNetTokenClassifier
from xlnet_tf.serving.answers.text_answers import answer_texts
from xlnet_tf.tasks.classification.serving import ClassificationModule
from xlnet_tf.tasks.multiple_choice.answering import MultipleChoiceAnswering
from xlnet_tf.tasks.question_answering.serving import QuestionAnsweringModule
from xlnet_tf.tasks.tagging.serving import TaggingModule

TEXTS = ["", " ", "\u3000 ", "<sep>", "<sep> ba <mask>", "ba ne, 5,000", "\U0001f600 ba\u0301 ne", *HOSTILE]


def rows_of(ranks, count, seed):
    """Returns random rows: hostile texts, invented ones, and some longer than any sequence."""
    chance = random.Random(seed)
    texts = [*TEXTS, *hostile_texts(60, seed), *answering.words(60, seed)]
    texts += [" ".join(chance.choices(texts, k=12)) for _ in range(20)]

    def value(rank):
        return chance.choice(texts) if rank == 1 else chance.choices(texts, k=chance.randint(1, 4))

    return [{name: value(rank) for name, rank in ranks.items()} for _ in range(count)]


@pytest.mark.integration
@pytest.mark.parametrize("task", task_registry.tasks())
def test_answers_are_those_of_the_exported_model(small_tokenizer, task):
    kind = KINDS[task]
    module = kind.module(kind.model(small_tokenizer), small_tokenizer)
    without = answering.of_module(module, task)
    assert without.input_ranks() == module.input_ranks()
    rows = rows_of(module.input_ranks(), 40, seed=len(task))
    rows += answering.rows_of(kind, module)
    expected = [*answer_texts(module, rows, 7)]
    found = [*answer_texts(without, rows, 5)]
    for row, answer, one in zip(rows, found, expected, strict=True):
        answering.assert_near(answer, one, row)
        answering.assert_near(without.readable(row, answer), module.readable(row, one), row)
    specs = module.batch_predictor().outputs
    assert {name: (info.dtype, info.rank) for name, info in without.outputs.items()} == {
        name: (info.dtype, info.rank) for name, info in specs.items()
    }


VARIANTS = {
    "several labels, cut in the middle": (
        "classification",
        lambda tokenizer: ClassificationModule(
            built(XLNetClassifier, tokenizer, 3, labels=["a", "b", "c"], multi_label=True),
            tokenizer,
            seq_len=24,
            truncation="middle",
            temperature=[0.5, 1.0, 2.0],
            alert={"label": "b", "threshold": 0.5},
        ),
    ),
    "a question in each segment": (
        "question_answering",
        lambda tokenizer: QuestionAnsweringModule(
            built(
                XLNetQuestionAnswering,
                tokenizer,
                start_top=4,
                end_top=3,
                segment_len=16,
                encoder_options={"memory_len": 16},
            ),
            tokenizer,
            seq_len=32,
            max_question_len=5,
            stride=9,
        ),
    ),
    "tags of single words": (
        "tagging",
        lambda tokenizer: TaggingModule(
            built(XLNetTokenClassifier, tokenizer, 3, labels=["noun", "verb", "sign"]),
            tokenizer,
            seq_len=24,
            stride=5,
            temperature=[0.5],
        ),
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", VARIANTS)
def test_answers_with_other_options(small_tokenizer, name):
    task, make = VARIANTS[name]
    module = make(small_tokenizer)
    without = answering.of_module(module, task)
    rows = rows_of(module.input_ranks(), 20, seed=len(name))
    for row, *pair in zip(rows, answer_texts(without, rows, 5), answer_texts(module, rows, 7), strict=True):
        answering.assert_near(*pair, row)


def test_rows_with_fewer_options_overflow_nothing(small_tokenizer):
    def graph(features):
        return {"logits": np.zeros(len(features["input_word_ids"]), np.float32)}

    model = MultipleChoiceAnswering(graph, small_tokenizer, seq_len=24, max_qa_len=8, temperature=[0.5])
    options = [["ba", "ne"], ["ba"], []]
    with np.errstate(over="raise", invalid="raise"):
        found = model.serve(context=["ba"] * 3, question=["ne"] * 3, options=options)
    np.testing.assert_array_equal(found["probabilities"], np.float32([[0.5, 0.5], [1, 0], [0, 0]]))
