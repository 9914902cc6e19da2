"""Streams of texts are answered as rows one by one, in their order, in bounded memory."""

import random
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import invent_texts
from tests.helpers.profiles import mostly_integration
from tests.helpers.serving import answering
from tests.helpers.serving.answering import assert_near, rows_of
from tests.helpers.serving.exports import KINDS
from tests.helpers.serving.toys import HOSTILE, built
from tests.text.test_tokenizer import hostile_texts
from xlnet_tf import task_registry
from xlnet_tf.checkpoints import open_checkpoint, save_checkpoint
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.models.question_answering import XLNetQuestionAnswering
from xlnet_tf.models.token_classifier import XLNetTokenClassifier
from xlnet_tf.serving.answers import text_answers
from xlnet_tf.serving.answers.options import FLOAT32, exact_buckets
from xlnet_tf.serving.answers.signatures import LOWEST, plain
from xlnet_tf.serving.answers.text_answers import answer_texts
from xlnet_tf.serving.export import export
from xlnet_tf.serving.graph.exported_model import ExportableModel
from xlnet_tf.serving.graph.graph_predictor import GraphPredictor
from xlnet_tf.serving.sources import open_served
from xlnet_tf.tasks.classification.serving import ClassificationModule
from xlnet_tf.tasks.multiple_choice.answering import MultipleChoiceAnswering
from xlnet_tf.tasks.multiple_choice.serving import MultipleChoiceModule
from xlnet_tf.tasks.question_answering.serving import QuestionAnsweringModule
from xlnet_tf.tasks.ranking.serving import RankingModule
from xlnet_tf.tasks.tagging.serving import TaggingModule
from xlnet_tf.text.cleaning import CARD_FILE
from xlnet_tf.text.sorted_windows import sorted_windows, text_bytes


def test_outputs_are_in_the_order_of_their_names():
    """A SavedModel has them in another order in each process; columns of shards follow this one."""
    columns = dict.fromkeys(["score", "label", "alert"], tf.TensorSpec([None]))
    graph = types.SimpleNamespace(structured_outputs=columns)
    function = GraphPredictor(graph, inputs=dict, without_padding=ExportableModel.without_padding)
    assert [*function.outputs] == ["alert", "label", "score"]


def test_answers_have_nothing_that_fills_up_a_batch():
    for module, row, answer, expected in (
        (TaggingModule, {"text": "Ada"}, {"num_entities": 1, "entity": ["Ada", ""], "start": [0, -1]},
         {"num_entities": 1, "entity": ["Ada"], "start": [0]}),
        (RankingModule, {"query": "a", "candidates": ["b", "c"]},
         {"scores": [0.1, 0.2, LOWEST], "order": [1, 0, -1]}, {"scores": [0.1, 0.2], "order": [1, 0]}),
        (MultipleChoiceModule, {"context": "a", "question": "b", "options": ["c"]},
         {"answer": 0, "option": "c", "probabilities": [1.0, 0.0]},
         {"answer": 0, "option": "c", "probabilities": [1.0]}),
    ):  # fmt: skip
        assert module.without_padding(row, answer) == expected


@pytest.mark.integration
@pytest.mark.parametrize("task", ["multiple_choice", "ranking", "tagging"])
def test_exported_weights_that_do_not_say_their_task_answer_without_padding(small_tokenizer, tmp_path, task):
    """As most of Hugging Face: the task was given with --head."""
    kind, external = KINDS[task], tmp_path / "external"
    kind.model(small_tokenizer).save_pretrained(tmp_path / "ours", small_tokenizer)
    save_checkpoint(open_checkpoint(str(tmp_path / "ours")), str(external), "hugging_face")
    (external / CARD_FILE).unlink()
    module = open_served(str(external), head=task, buckets=[]).load()
    rows = rows_of(kind, module)[:2]
    for name in {"options", "candidates"} & set(rows[0]):
        rows[1] = rows[1] | {name: rows[1][name][:1]}
    export(module, str(tmp_path / "served"), warmup_batches=(1,))
    served = open_served(str(tmp_path / "served"), inputs=()).load(FLOAT32)
    both = [list(answer_texts(each, iter(rows), batch_size=2)) for each in (served, module)]
    lengths = [[{n: len(v) for n, v in a.items() if isinstance(v, list)} for a in found] for found in both]
    assert lengths[0] == lengths[1]


@pytest.mark.parametrize("task", mostly_integration(task_registry.tasks(), "classification"))
def test_answers_are_those_of_each_row_alone_and_without_a_graph(small_tokenizer, monkeypatch, task):
    kind = KINDS[task]
    module = kind.module(kind.model(small_tokenizer), small_tokenizer)
    rows = rows_of(kind, module)
    if "options" in rows[0]:
        rows[1]["options"] = rows[1]["options"][:2]
    monkeypatch.setattr(text_answers, "_WINDOW", 1)
    tf.config.run_functions_eagerly(True)
    try:
        eager = list(answer_texts(module, iter(rows), batch_size=2))
    finally:
        tf.config.run_functions_eagerly(False)
    assert module.answer.experimental_get_tracing_count() == 0
    del vars(module)["_rows"]
    found = list(answer_texts(module, iter(rows), batch_size=2))
    for row, answer, without_graph in zip(rows, found, eager, strict=True):
        inputs = {name: tf.constant([value]) for name, value in row.items()}
        expected = {name: plain(values.numpy())[0] for name, values in module.answer(**inputs).items()}
        assert_near(answer, expected, row)
        assert_near(without_graph, expected, row)


def test_two_windows_are_in_memory_at_most(small_tokenizer, monkeypatch, eagerly):
    kind = KINDS["classification"]
    module = kind.module(kind.model(small_tokenizer), small_tokenizer)
    monkeypatch.setattr(text_answers, "_WINDOW", 2)
    read = 0

    def rows():
        nonlocal read
        for read in range(1, 41):
            yield {"text": "ba " * (read % 7)}

    for answered, _ in enumerate(answer_texts(module, rows(), batch_size=3), 1):
        assert read <= answered + 2 * 2 * 3
    assert answered == read == 40
    assert (
        exact_buckets(40, 0) == [8, 16, 24, 32] and exact_buckets(40, 8) is None
    )  # padding follows the text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(7, [[6, 3], [5, 2], [4, 0]])]),
        ({"earlier_first": True}, [(7, [[3, 6], [2, 5], [0, 4]])]),
        ({"most": 5}, [(4, [[3, 2], [0]]), (3, [[2, 1], [0]])]),
        ({"batch": lambda largest: 4 - largest}, [(7, [[6], [3], [5, 2], [4, 0]])]),
    ],
)
def test_windows_and_batches(options, expected):
    rows = [1, None, 2, 3, 1, 2, 3]
    windows = list(sorted_windows(rows, lambda row: row, **{"batch": 2, **options}))
    assert [row for window, _ in windows for row in window] == rows
    assert [(len(window), batches) for window, batches in windows] == expected


def test_a_window_of_long_texts_ends_early():
    windows = sorted_windows([{"text": "é" * 30}] * 5, text_bytes, batch=64, most=100)
    assert [len(window) for window, _ in windows] == [2, 2, 1]
    assert text_bytes({"context": "é", "options": ["a", "é"]}) == 5


TEXTS = ["", " ", "\u3000 ", "<sep>", "<sep> ba <mask>", "ba ne, 5,000", "\U0001f600 ba\u0301 ne", *HOSTILE]


def random_rows(ranks, count, seed):
    """Returns random rows: hostile texts, invented ones, and some longer than any sequence."""
    chance = random.Random(seed)
    texts = [*TEXTS, *hostile_texts(60, seed), *invent_texts(60, seed)]
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
    rows = random_rows(module.input_ranks(), 40, seed=len(task))
    rows += rows_of(kind, module)
    expected = [*answer_texts(module, rows, 7)]
    found = [*answer_texts(without, rows, 5)]
    for row, answer, one in zip(rows, found, expected, strict=True):
        assert_near(answer, one, row)
        assert_near(without.readable(row, answer), module.readable(row, one), row)
    both = (without.outputs, module.batch_predictor().outputs)
    one, other = ({name: (info.dtype, info.rank) for name, info in each.items()} for each in both)
    assert one == other


def several_labels(tokenizer):
    model = built(XLNetClassifier, tokenizer, 3, labels=["a", "b", "c"], multi_label=True)
    options = {"temperature": [0.5, 1.0, 2.0], "alert": {"label": "b", "threshold": 0.5}}
    return ClassificationModule(model, tokenizer, seq_len=24, truncation="middle", **options)


def question_in_each_segment(tokenizer):
    options = {"start_top": 4, "end_top": 3, "segment_len": 16, "encoder_options": {"memory_len": 16}}
    model = built(XLNetQuestionAnswering, tokenizer, **options)
    return QuestionAnsweringModule(model, tokenizer, seq_len=32, max_question_len=5, stride=9)


def tags_of_single_words(tokenizer):
    model = built(XLNetTokenClassifier, tokenizer, 3, labels=["noun", "verb", "sign"])
    return TaggingModule(model, tokenizer, seq_len=24, stride=5, temperature=[0.5])


VARIANTS = {
    several_labels: "classification",
    question_in_each_segment: "question_answering",
    tags_of_single_words: "tagging",
}


@pytest.mark.integration
@pytest.mark.parametrize("make", VARIANTS)
def test_answers_with_other_options(small_tokenizer, make):
    module = make(small_tokenizer)
    without = answering.of_module(module, VARIANTS[make])
    rows = random_rows(module.input_ranks(), 20, seed=20)
    for row, *pair in zip(rows, answer_texts(without, rows, 5), answer_texts(module, rows, 7), strict=True):
        assert_near(*pair, row)


def test_rows_with_fewer_options_overflow_nothing(small_tokenizer):
    def graph(features):
        return {"logits": np.zeros(len(features["input_word_ids"]), np.float32)}

    model = MultipleChoiceAnswering(graph, small_tokenizer, seq_len=24, max_qa_len=8, temperature=[0.5])
    options = [["ba", "ne"], ["ba"], []]
    with np.errstate(over="raise", invalid="raise"):
        found = model.serve(context=["ba"] * 3, question=["ne"] * 3, options=options)
    np.testing.assert_array_equal(found["probabilities"], np.float32([[0.5, 0.5], [1, 0], [0, 0]]))
