"""Tagging as a SavedModel: words, windows and entities are those of builder and tagging_predictions."""

import functools
import gzip
import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from official.core import exp_factory

from tests.conftest import invent_texts
from tests.helpers.serving.toys import built
from tfrecord_builders.tagging.build import TaggingOptions, build_tagging
from tfrecord_builders.tagging.data import AnnotatedText
from tfrecord_builders.tagging.schemes import label_set
from tfrecord_builders.tagging.words import SentenceEncoder
from xlnet_tf.errors import UserError
from xlnet_tf.models.token_classifier import XLNetTokenClassifier
from xlnet_tf.serving.graph.inputs import signature
from xlnet_tf.tasks.tagging import task as tagging
from xlnet_tf.tasks.tagging.files import entities, tagged_sentences
from xlnet_tf.tasks.tagging.serving import TaggingModule
from xlnet_tf.text import word_windows as windows_lib
from xlnet_tf.text.graph.characters import characters
from xlnet_tf.text.graph.tokenizer import GraphTokenizer
from xlnet_tf.text.graph.word_windows import word_windows
from xlnet_tf.text.graph.words import WordFinder
from xlnet_tf.text.tokenizer import XLNetTokenizer

TYPES = ["LOC", "PER"]
OPTIONS = {"seq_len": 24, "stride": 9}


def tagger(tokenizer, **options):
    labels = label_set(TYPES)
    return built(XLNetTokenClassifier, tokenizer, len(labels), labels=labels, **options)


@functools.cache
def graph(module):
    return signature(module.serve, **module.input_specs())


def serve(module, texts):
    answers = graph(module)(text=tf.constant(texts))
    return {name: values.numpy() for name, values in answers.items()}


def found_entities(answers, row):
    """The entities of a row, as tagging_predictions writes them."""
    number = answers["num_entities"][row]
    for name, padding in {"entity": b"", "label": b"", "start": -1, "end": -1, "score": 0}.items():
        assert (answers[name][row, number:] == padding).all()
    starts, ends = (answers[name][row, :number].tolist() for name in ("start", "end"))
    labels, texts = ([text.decode() for text in answers[name][row, :number]] for name in ("label", "entity"))
    found = zip(starts, ends, labels, texts)
    return [{"start": start, "end": end, "label": label, "text": text} for start, end, label, text in found]


def predict(model, tokenizer, texts, folder, **options):
    (folder / "spiece.model").write_bytes(tokenizer.model_proto)
    rows = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"tokenizer": str(folder / "spiece.model"), "test": [str(folder / "test.jsonl")]}
    options = {"types": TYPES, **options}
    examples = build_tagging(TaggingOptions(output_dir=str(folder), **files, **options))["test"]
    arrays = examples.arrays()
    features = {"input_word_ids": arrays["input_ids"], "input_type_ids": arrays["segment_ids"]}
    features["input_mask"] = (arrays["input_ids"] != 5).astype(np.int32)
    sentences = tagged_sentences(examples, {"tags": model(features).numpy().argmax(axis=-1)})
    return {int(s.id): entities(s, s.predicted) for s in sentences}, examples


def assert_like(module, model, texts, folder, raw=None, **options):
    """A module finds in texts what the way of training finds; texts without words have no entities."""
    answers = serve(module, raw or texts)
    expected, examples = predict(model, module.tokenizer, texts, folder, **options)
    for row in range(len(texts)):
        assert found_entities(answers, row) == expected.get(row, []), texts[row]
    return answers, examples


@pytest.fixture(scope="module")
def model(small_tokenizer):
    return tagger(small_tokenizer)


@pytest.fixture(scope="module")
def module(model, small_tokenizer):
    return TaggingModule(model, small_tokenizer, buckets=(8, 16), **OPTIONS)


@pytest.fixture(scope="module")
def texts():
    """Of no word to many windows."""
    invented = invent_texts(40, seed=3)
    return ["", invented[0], " ".join(invented[:20]), "ba", "...", " ".join(invented[20:25]), "  "]


def test_entities_equal_those_of_evaluation(module, model, texts, tmp_path):
    answers, examples = assert_like(module, model, texts, tmp_path, **OPTIONS)
    assert examples.records > 25 and examples.statistics["texts in several windows"] >= 2
    assert answers["num_entities"].sum() > 30 and answers["num_entities"][[0, 6]].tolist() == [0, 0]
    assert set(answers["label"].ravel()) == {b"", b"LOC", b"PER"}


def test_a_long_text_takes_no_more_memory_at_once(module, monkeypatch):
    sizes = []
    run = module.run
    note = lambda features: sizes.append(len(features["input_mask"])) or run(features)  # noqa: E731
    monkeypatch.setattr(module, "run", note)
    module.serve(tf.constant(["ba ne tor " * 200, "mi"]))
    assert max(sizes) == 16 and len(sizes) > 3
    sizes.clear()
    module.serve(tf.constant(["ba"] * 20))
    assert sizes == [20]


@pytest.mark.integration
def test_a_model_that_reads_in_segments(small_tokenizer, texts, tmp_path):
    model = tagger(small_tokenizer, segment_len=8, encoder_options={"memory_len": 8})
    options = {"seq_len": 16, "stride": 7}
    module = TaggingModule(model, small_tokenizer, **options)
    assert_like(module, model, texts, tmp_path, **options)


def test_serving_options_come_from_the_run(model, small_tokenizer, tmp_path):
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    (tmp_path / "train.txt").write_text("ba B-PER\nne O\n")
    files = {"tokenizer": str(tmp_path / "spiece.model"), "train": [str(tmp_path / "train.txt")]}
    build_tagging(TaggingOptions(output_dir=str(tmp_path), types=TYPES, **files, **OPTIONS))
    params = exp_factory.get_exp_config(tagging.EXPERIMENT)
    params.task.train_data.input_path = str(tmp_path / "train")
    options = TaggingModule.options_of_run(tagging.TaggingTask(params.task))
    module = TaggingModule(model, small_tokenizer, **options)
    assert (module.seq_len, module.stride) == (24, 9)


# Words.


def assert_words(tokenizer, texts):
    find, encoder = finders(tokenizer)
    found = find(tf.constant([text.encode() for text in texts]))
    rows = {row: [] for row in range(len(texts))}
    columns = [found.row.numpy().tolist(), found.begins.numpy().tolist(), found.ends.numpy().tolist()]
    for row, begin, end, pieces in zip(*columns, found.pieces.to_list()):
        rows[row].append(((begin, end), pieces))
    for text, words in zip(texts, rows.values()):
        sentence = encoder.encode(AnnotatedText("", "", "", text, None), None)
        assert words == list(zip(sentence.offsets, sentence.pieces)), text


@functools.cache
def finders(tokenizer):
    texts = GraphTokenizer(tokenizer)
    finder = WordFinder(tokenizer, texts)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def find(batch):
        return finder(batch, characters(tf.strings.join([texts.valid(batch), " "])))

    return find, SentenceEncoder(tokenizer)


ANY_TEXT = st.text(st.sampled_from("bane.,5é½東京あไทย\u0301´'\u00a0\u200bX \x00<eop>🩷\uff9e"), max_size=20)


@given(st.lists(ANY_TEXT, min_size=1, max_size=5))
@settings(deadline=None)
@pytest.mark.integration
def test_words_are_those_of_the_builder(small_tokenizer, texts):
    assert_words(small_tokenizer, texts)


@pytest.mark.integration
def test_words_of_chinese_texts(shared):
    tokenizer = XLNetTokenizer(shared("data/xlnet_chinese/spiece.model"))
    with gzip.open(shared("data/chnsenticorp/train.tsv.gz"), "rt") as file:
        lines = [line.rstrip("\n") for line in file][1:400]
    assert_words(tokenizer, lines)
    assert_words(XLNetTokenizer(shared("data/xlnet_cased/spiece.model")), lines[:100])


# Windows.

NUMBERS, NUMBER = tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.int64)
graph_windows = tf.function(word_windows, input_signature=[NUMBERS, NUMBERS, NUMBER, NUMBER])


@given(
    st.lists(st.lists(st.integers(1, 9), max_size=40), min_size=1, max_size=4), st.integers(9, 40), st.data()
)
@settings(deadline=None, max_examples=40)
def test_windows_are_those_of_python(texts, room, data):
    stride = data.draw(st.integers(1, room))
    row = [number for number, lengths in enumerate(texts) for _ in lengths]
    lengths = [length for lengths in texts for length in lengths]
    found = graph_windows(lengths, row, room, stride)
    expected, base = [], 0
    for lengths in filter(None, texts):
        windows = windows_lib.windows(lengths, room, stride)
        expected += [tuple(place + base for place in window) for window in windows]
        base += len(lengths)
    assert list(zip(*(values.numpy().tolist() for values in found))) == expected


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (["B-X", "NOUN"], {}, "the model has the labels NOUN; expected O"),
        (["O", "B-X"], {"stride": 23}, "stride is 23; expected 1 to 22"),
        (["O", "B-X"], {"stride": 0}, "stride is 0; expected 1 to 22"),
    ],
)
def test_what_does_not_fit_is_refused(small_tokenizer, labels, options, message):
    model = built(XLNetTokenClassifier, small_tokenizer, 2, labels=labels)
    with pytest.raises(UserError, match=message):
        TaggingModule(model, small_tokenizer, **{"seq_len": 24, **options})
