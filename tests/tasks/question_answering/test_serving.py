"""Question answering as a SavedModel: what the builder, the model and squad_answers say, in one graph."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from official.core import exp_factory

from tests.conftest import invent_texts
from tests.helpers.serving.toys import built
from tfrecord_builders.squad.build import SquadOptions, build_squad
from xlnet_tf.errors import UserError
from xlnet_tf.models.question_answering import XLNetQuestionAnswering
from xlnet_tf.serving.graph.inputs import signature
from xlnet_tf.tasks.question_answering import answers as squad_answers
from xlnet_tf.tasks.question_answering import task as question_answering
from xlnet_tf.tasks.question_answering.serving import QuestionAnsweringModule
from xlnet_tf.text import windows as windows_lib
from xlnet_tf.text.graph.passage_windows import shows_best, split_windows, window_tokens

OPTIONS = {"seq_len": 40, "max_question_len": 10, "stride": 9}
MAX_ANSWER_LEN = 7


@functools.cache
def graph(module):
    return signature(module.serve, **module.input_specs())


def serve(module, rows):
    questions, contexts = map(tf.constant, zip(*rows))
    answers = graph(module)(question=questions, context=contexts)
    return {name: values.numpy() for name, values in answers.items()}


def predict(module, model, rows, folder, **options):
    data = [
        {"context": context, "qas": [{"id": str(number), "question": question}]}
        for number, (question, context) in enumerate(rows)
    ]
    (folder / "rows.json").write_text(json.dumps({"version": "1.1", "data": [{"paragraphs": data}]}))
    (folder / "spiece.model").write_bytes(module.tokenizer.model_proto)
    files = {"tokenizer": str(folder / "spiece.model"), "test": str(folder / "rows.json")}
    examples = build_squad(SquadOptions(output_dir=str(folder), **files, **options))["test"]
    arrays = examples.arrays()
    features = {"input_word_ids": arrays["input_ids"], "input_type_ids": arrays["segment_ids"]}
    features |= {"input_mask": arrays["input_ids"] != 5, "answer_mask": arrays["answer_mask"]}
    outputs = [
        model({name: values[start : start + 64] for name, values in features.items()})
        for start in range(0, examples.records, 64)
    ]
    beams = {name: np.concatenate([output[name] for output in outputs]) for name in outputs[0]}
    if "segment_len" in options:
        for name in ("start_top_index", "end_top_index"):
            beams[name] = window_tokens(features["answer_mask"], beams[name]).numpy()
    questions = list(squad_answers.read_questions(examples))
    return squad_answers.predict(questions, beams, max_answer_len=module.max_answer_len)


def assert_like(answers, predictions, rows):
    for row, prediction in enumerate(predictions):
        context, candidates = rows[row][1], prediction.candidates
        found = [text.decode() for text in answers["answers"][row]]
        given = [text for text in found if text]
        distinct = list(dict.fromkeys(given))  # equal words in two places are one candidate there
        expected = [candidate.text for candidate in candidates]
        assert distinct == (expected if distinct == given else expected[: len(distinct)])
        for text, start, end, score in zip(found, *(answers[n][row] for n in ("starts", "ends", "scores"))):
            assert (start, end, score) == (-1, -1, 0) if text == "" else context[start:end] == text
        if candidates:
            best = candidates[0]
            assert answers["starts"][row, 0] == best.begin
            score = np.exp(best.start_log_prob + best.end_log_prob)
            np.testing.assert_allclose(answers["scores"][row, 0], score, rtol=1e-3)
        np.testing.assert_allclose(answers["null_odds"][row], prediction.no_answer_logit, atol=1e-4)


@pytest.fixture(scope="module")
def model(small_tokenizer):
    return built(XLNetQuestionAnswering, small_tokenizer, start_top=4, end_top=3)


@pytest.fixture(scope="module")
def module(model, small_tokenizer):
    """It refuses about half of its answers."""
    options = {**OPTIONS, "buckets": (16, 24), "max_answer_len": MAX_ANSWER_LEN}
    return QuestionAnsweringModule(model, small_tokenizer, threshold=-0.5, **options)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    texts = invent_texts(60, seed=2)
    lengths = [0, 1, 2, 5, 0, 3, 12, 1, 1, 1]
    return [
        (" ".join(texts[number].split()[: rng.integers(0, 6)]), " ".join(texts[number : number + length]))
        for number, length in enumerate(lengths)
    ]


@pytest.fixture(scope="module")
def answers(module, rows):
    return serve(module, rows)


def test_answers_equal_those_of_evaluation(module, model, rows, answers, tmp_path):
    predictions = predict(module, model, rows, tmp_path, **OPTIONS)
    assert max(len(prediction.question.windows) for prediction in predictions) > 16
    assert_like(answers, predictions, rows)
    for row, prediction in enumerate(predictions):
        assert answers["answer"][row].decode() == prediction.answer(module.threshold)


@pytest.mark.integration
def test_answers_read_in_segments_equal_those_of_evaluation(small_tokenizer, rows, tmp_path):
    memory = {"segment_len": 20, "encoder_options": {"memory_len": 30}}
    model = built(XLNetQuestionAnswering, small_tokenizer, start_top=4, end_top=3, **memory)
    options = {**OPTIONS, "seq_len": 60}
    limits = {"threshold": -0.5, "max_answer_len": MAX_ANSWER_LEN}
    module = QuestionAnsweringModule(model, small_tokenizer, **limits, **options)
    predictions = predict(module, model, rows, tmp_path, **options, segment_len=20)
    assert max(len(prediction.question.windows) for prediction in predictions) > 8
    assert_like(serve(module, rows), predictions, rows)
    with pytest.raises(UserError, match="seq_len is 50; expected a multiple of 20"):
        QuestionAnsweringModule(model, small_tokenizer, **{**OPTIONS, "seq_len": 50})
    with pytest.raises(UserError, match="max_question_len is 17; expected 1 to 16, so that segments of 20"):
        QuestionAnsweringModule(model, small_tokenizer, **{**OPTIONS, "seq_len": 60, "max_question_len": 17})


def test_a_long_context_takes_no_more_memory_at_once(module, monkeypatch):
    """Windows are read 16 at once, or as many as there are rows."""
    sizes, read = [], module.serve_tokens
    note = lambda features: sizes.append(len(features["input_word_ids"])) or read(features)  # noqa: E731
    monkeypatch.setattr(module, "serve_tokens", note)
    question, context = tf.constant(["ba ne?", "tor"]), tf.constant(["ba ne " * 1000, "mi"])
    answers = module.serve(question, context)
    assert max(sizes) == 16 and len(sizes) > 10 and answers["answer"].shape == [2]
    sizes.clear()
    module.serve(tf.constant(["ba"] * 20), tf.constant(["mi tor"] * 20))
    assert sizes == [20]


SIZES = st.lists(st.tuples(st.integers(0, 120), st.integers(1, 20)), min_size=1, max_size=4)


@given(SIZES, st.integers(1, 30))
@settings(deadline=None, max_examples=25)
def test_windows_are_those_of_python(sizes, stride):
    tokens, rooms = np.array(sizes, np.int32).T
    found = split_windows(tf.constant(tokens), tf.constant(rooms), stride)
    numbers = found.number.numpy()
    each = [windows_lib.split_windows(*size, stride) for size in sizes]
    assert list(zip(found.first.numpy(), found.length.numpy())) == [w for windows in each for w in windows]
    assert found.row.numpy().tolist() == [row for row, windows in enumerate(each) for _ in windows]
    places = tf.tile(tf.range(20)[None], [len(found.row), 1])
    best = shows_best(found, places, 20, stride).numpy()
    for number, (row, first, length) in enumerate(zip(found.row, found.first, found.length)):
        windows, token = each[row], slice(int(first), int(first + length))
        choice = windows_lib.best_windows(windows, sizes[row][0])[token]
        assert (best[number, :length] == (choice == numbers[number])).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_question_len": 37}, "max_question_len is 37; expected 1 to 36.* at least 41$"),
        ({"stride": 0}, "stride is 0"),
        ({"n_best": 0}, "n_best is 0; expected at least 1"),
        ({"max_answer_len": 0}, "max_answer_len is 0; expected at least 1"),
        ({"threshold": float("nan")}, "threshold is NaN; expected a number, or None"),
        ({"start_top": 41}, "seq_len is 40, but the model looks at 41 tokens"),
    ],
)
def test_what_does_not_fit_is_refused(model, small_tokenizer, options, message):
    options = {**OPTIONS, **options}
    model = XLNetQuestionAnswering(model.encoder, start_top=options.pop("start_top", 4))
    model.build()
    with pytest.raises(UserError, match=message):
        QuestionAnsweringModule(model, small_tokenizer, **options)


@pytest.mark.integration
def test_buckets_have_as_many_tokens_as_the_model_looks_at(model, small_tokenizer):
    model = XLNetQuestionAnswering(model.encoder, start_top=9, end_top=2)
    model.build()
    model.tokenizer = small_tokenizer
    module = QuestionAnsweringModule.of_model(model)  # whose shortest bucket is of 8 tokens otherwise
    assert module.buckets[:2] == (16, 24)
    assert module.ask(["ba?", "ne tor mi"], {}, 1)["answers"]


@pytest.mark.parametrize(("segment_len", "expected"), [(66, 31), (67, 32), (68, 64), (0, 64)])
def test_questions_have_room_in_each_segment(small_tokenizer, segment_len, expected):
    model = built(XLNetQuestionAnswering, small_tokenizer, start_top=4, end_top=3, segment_len=segment_len)
    model.tokenizer = small_tokenizer
    assert QuestionAnsweringModule.of_model(model).max_question_len == expected


def test_serving_options_come_from_the_run(model, small_tokenizer, tmp_path):
    """Its windows are those of its examples, its threshold that of its best evaluation."""
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    questions = [{"id": "a", "question": "ba?", "answers": [{"text": "ne", "answer_start": 0}]}]
    questions += [{"id": "b", "question": "mi?", "answers": [], "is_impossible": True}]
    for number, version in enumerate(["1.1", "v2.0"], 1):
        paragraph = {"context": "ne tor", "qas": questions[:number]}
        data = {"version": version, "data": [{"paragraphs": [paragraph]}]}
        (tmp_path / f"{version}.json").write_text(json.dumps(data))
        files = {"tokenizer": str(tmp_path / "spiece.model"), "train": str(tmp_path / f"{version}.json")}
        build_squad(SquadOptions(output_dir=str(tmp_path / version), **files, **OPTIONS))

    def served(version, **overrides):
        params = exp_factory.get_exp_config(question_answering.EXPERIMENT)
        params.task.train_data.input_path = str(tmp_path / version / "train")
        params.task.override({"n_best": 3, "max_answer_len": 7, **overrides})
        task = question_answering.QuestionAnsweringTask(params.task)
        options = QuestionAnsweringModule.options_of_run(task)
        return QuestionAnsweringModule(model, small_tokenizer, **options)

    module = served("v2.0")
    assert module.threshold == squad_answers.UNDECIDED
    for name, value in {**OPTIONS, "n_best": 3, "max_answer_len": 7}.items():
        assert getattr(module, name) == value
    best = tmp_path / "v2.0" / "train" / "best"
    best.mkdir()
    (best / "metrics.json").write_text(json.dumps({"best_f1_threshold": -1.5}))
    assert served("v2.0").threshold == -1.5
    assert served("v2.0", no_answer_threshold=0.5).threshold == 0.5
    assert served("1.1").threshold is None
