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
from seqeval.metrics.sequence_labeling import get_entities

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
from xlnet_tf.text.graph.words import WordFinder, Words
from xlnet_tf.text.tokenizer import XLNetTokenizer

TYPES = ["LOC", "PER"]
OPTIONS = {"seq_len": 24, "stride": 9}


def tagger(tokenizer, **options):
    labels = label_set(TYPES)
    return built(XLNetTokenClassifier, tokenizer, len(labels), labels=labels, **options)


@functools.cache
def graph(module):
    """The graph of serving_default alone, which is traced faster than all signatures."""
    return signature(module.serve, **module.input_specs())


def serve(module, texts):
    answers = graph(module)(text=tf.constant(texts))
    return {name: values.numpy() for name, values in answers.items()}


def found_entities(answers, row):
    """The entities of a row, as tagging_predictions writes them, and their scores."""
    number = answers["num_entities"][row]
    for name, padding in {"entity": b"", "label": b"", "start": -1, "end": -1, "score": 0}.items():
        assert (answers[name][row, number:] == padding).all()
    keys = {"start": "start", "end": "end", "label": "label", "entity": "text"}
    columns = [answers[name][row, :number].tolist() for name in keys]
    rows = [dict(zip(keys.values(), values)) for values in zip(*columns)]
    decoded = [{k: v.decode() if isinstance(v, bytes) else v for k, v in row.items()} for row in rows]
    return decoded, answers["score"][row, :number]


def predict(model, tokenizer, texts, folder, **options):
    """The entities of texts on the way of training: records, windows, tags, words."""
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
        assert found_entities(answers, row)[0] == expected.get(row, []), texts[row]
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


@pytest.mark.integration
def test_a_temperature_changes_scores_and_no_entity(module, model, small_tokenizer, texts):
    calibrated = TaggingModule(model, small_tokenizer, buckets=(8, 16), temperature=[2.0], **OPTIONS)
    before, after = serve(module, texts), serve(calibrated, texts)
    for name in ("num_entities", "entity", "label", "start", "end"):
        np.testing.assert_array_equal(before[name], after[name])
    assert (after["score"] < before["score"]).any()
    features = {"input_word_ids": tf.constant([[30, 31, 4, 3]]), "input_mask": tf.ones([1, 4], tf.int32)}
    features["input_type_ids"] = tf.constant([[0, 0, 0, 2]])
    expected = tf.nn.softmax(model(features) / 2)
    np.testing.assert_allclose(calibrated.serve_tokens(features)["probabilities"], expected, rtol=1e-4)


def test_a_score_is_the_mean_of_its_words(module, model, small_tokenizer):
    text = "ba ne, tor mi kal su."
    words = sentence_encoder(small_tokenizer).encode(AnnotatedText("", "", "", text, None), None)
    ids = [piece for word in words.pieces for piece in word]
    first_pieces = np.cumsum([0, *map(len, words.pieces)])[:-1]
    features = {"input_word_ids": [[*ids, 4, 3]], "input_mask": [[1] * (len(ids) + 2)]}
    features["input_type_ids"] = [[0] * (len(ids) + 1) + [2]]
    features = {name: tf.constant(values) for name, values in features.items()}
    probabilities = tf.nn.softmax(model(features)).numpy()
    expected = probabilities[0].max(axis=-1)

    tokens = module.serve_tokens(features)
    np.testing.assert_allclose(tokens["probabilities"], probabilities, rtol=1e-4)
    np.testing.assert_allclose(tokens["scores"][0], expected, rtol=1e-4)
    tags = [module.labels[tag].encode() for tag in probabilities[0].argmax(axis=-1)]
    assert tokens["labels"].numpy()[0].tolist() == tags

    found, scores = found_entities(serve(module, [text]), 0)
    assert found
    for entity, score in zip(found, scores):
        inside = [entity["start"] <= begin < entity["end"] for begin, _ in words.offsets]
        np.testing.assert_allclose(score, expected[first_pieces[inside]].mean(), rtol=1e-4)


@pytest.mark.parametrize("tags", ["O", "O I-X I-X O", "B-X B-X I-X I-Y I-Y B-Y O I-X"])
def test_entities_are_those_of_conlleval(module, monkeypatch, tags):
    """In two texts, cut anywhere: an entity never continues in the next one."""
    tags = tags.split()
    monkeypatch.setattr(module, "labels", ("O", "B-X", "I-X", "B-Y", "I-Y"))
    for cut in range(len(tags) + 1):
        rows = [tags[:cut], tags[cut:]]
        row = tf.constant([0] * cut + [1] * (len(tags) - cut), tf.int64)
        places = [place for part in rows for place in range(len(part))]
        places = tf.constant(places, tf.int64)
        words = Words(None, row, places, places + 1)
        codes = tf.RaggedTensor.from_row_lengths(tf.range(65, 65 + len(tags)), [cut, len(tags) - cut])
        numbers = tf.constant([module.labels.index(tag) for tag in tags])
        found = module._entities(codes, words, numbers, tf.ones([len(tags)]))
        for number, part in enumerate(rows):
            count = found["num_entities"][number]
            columns = (found[name].numpy()[number, :count].tolist() for name in ("label", "start", "end"))
            expected = [(label.encode(), first, last + 1) for label, first, last in get_entities(part)]
            assert list(zip(*columns)) == expected


HOSTILE = [
    b"",
    b" \t\n\xc2\xa0 ",
    b"\xff\xfe\x80",
    b"ba \xf0\x9f ne\xc3 tor \xed\xa0\x80",
    b"\x00\x01\x02 ba\x00ne \x7f",
    b"<sep> <cls> ba <mask> <pad> <eop> ne<eop>mi <s>",
    "\u202e\u200bba\ufeff ne\u0301\u0301 \ud7ff \U0010ffff \ufffe ½ﬁ ´".encode(),
    b"``'' ,,,, 5,000, 12,",
    "東京´ba東\u0301あ \u3099ไทย".encode(),
    "東".encode() * 40 + "´".encode() * 30,
    b"ne" * 2000,
]


def test_hostile_texts_have_defined_entities(module, model, tmp_path):
    texts = [text.decode(errors="replace") for text in HOSTILE]
    assert_like(module, model, texts, tmp_path, raw=HOSTILE, **OPTIONS)


def test_no_text_has_a_word(module):
    answers = serve(module, [b"", b" "])
    assert answers["num_entities"].tolist() == [0, 0] and answers["entity"].shape == (2, 0)


def test_a_long_text_takes_no_more_memory_at_once(module, monkeypatch):
    sizes = []
    run = module.run
    monkeypatch.setattr(
        module, "run", lambda features: sizes.append(len(features["input_mask"])) or run(features)
    )
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
    """Its windows are those of its examples."""
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
    found = find_words(tokenizer)(tf.constant([text.encode() for text in texts]))
    rows = {row: [] for row in range(len(texts))}
    columns = [found.row.numpy().tolist(), found.begins.numpy().tolist(), found.ends.numpy().tolist()]
    for row, begin, end, pieces in zip(*columns, found.pieces.to_list()):
        rows[row].append(((begin, end), pieces))
    encoder = sentence_encoder(tokenizer)
    for text, words in zip(texts, rows.values()):
        sentence = encoder.encode(AnnotatedText("", "", "", text, None), None)
        assert words == list(zip(sentence.offsets, sentence.pieces)), text


@functools.cache
def sentence_encoder(tokenizer):
    return SentenceEncoder(tokenizer)


@functools.cache
def find_words(tokenizer):
    texts = GraphTokenizer(tokenizer)
    finder = WordFinder(tokenizer, texts)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def find(batch):
        return finder(batch, characters(tf.strings.join([texts.valid(batch), " "])))

    return find


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
