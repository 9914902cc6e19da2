"""Tagging examples: no word is lost between the input, pieces, windows and what is put together again."""

import collections
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.records import builders
from tfrecord_builders.tagging.build import TaggingOptions, build_tagging
from tfrecord_builders.tagging.data import AnnotatedText, Entity, TaggedWords, read_sentences
from tfrecord_builders.tagging.words import SentenceEncoder
from xlnet_tf.errors import UserError
from xlnet_tf.tasks.tagging.files import TaggedSentence, entities, tagged_sentences
from xlnet_tf.text.cleaning import clean_text
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID, UNK_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.vocabulary import UNDERLINE

WORDS = st.text(st.sampled_from("kato.,5é½東あ\u0301\u00a0\u200bX "), min_size=1, max_size=6)


class Notes:
    """What a builder says to its writer."""

    def __init__(self):
        self.counts, self.skipped = collections.Counter(), []

    def count(self, name, number=1):
        self.counts[name] += number

    def skip(self, reason, place):
        self.skipped.append((reason, place))


@pytest.fixture
def notes():
    return Notes()


def words_row(words, tags=None):
    return TaggedWords("s", "d", "a.txt", 10, words, tags)


def text_row(text, *spans):
    return AnnotatedText("t", "d", "a.jsonl:3", text, [Entity(*span) for span in spans])


def build(tmp_path, tokenizer, **options):
    return builders.build("tagging", tmp_path, tokenizer, **options)


def words_of(sentence, text):
    return [text[begin:end] for begin, end in sentence.offsets]


def together(examples):
    """The sentences as if the model had predicted the stored tags."""
    return tagged_sentences(examples, examples.arrays())


# Words that came as words.


@given(words=st.lists(WORDS, min_size=1, max_size=8))
def test_words_have_the_pieces_of_running_text(tokenizer, words):
    notes = Notes()
    sentence = SentenceEncoder(tokenizer).encode(words_row(words), notes)
    assert words_of(sentence, sentence.text) == words
    assert sentence.pieces == [tokenizer.encode(word) or [UNK_ID] for word in words]
    assert notes.counts["words without a piece (now <unk>)"] == sum(not tokenizer.encode(w) for w in words)
    pieces = [piece for word in words for piece in tokenizer.encode(word)]
    assert pieces == tokenizer.encode(" ".join(words))


def test_broken_tags_are_counted_or_an_error_with_file_and_line(tokenizer, notes):
    row = words_row(["ka", "to", "mi"], ["O", "I-PER", "I-LOC"])
    assert SentenceEncoder(tokenizer).encode(row, notes).tags == ["O", "B-PER", "B-LOC"]
    assert notes.counts["tags repaired (not allowed by bio)"] == 2
    with pytest.raises(UserError, match=r"a.txt:11: I-PER is not allowed here .*before it: O"):
        SentenceEncoder(tokenizer, repair=False).encode(row, notes)
    with pytest.raises(UserError, match=r"a.txt:11: the tag is 'S-PER', expected .* U-TYPE"):
        SentenceEncoder(tokenizer, "bilou").encode(words_row(["ka", "to"], ["O", "S-PER"]), notes)


# Texts.


@given(text=st.text(st.sampled_from("kato.,5é½東あ́'\u00a0\u200bX  🩷\uff9e"), max_size=30))
def test_the_words_of_a_text_are_all_of_it(tokenizer, text):
    sentence = SentenceEncoder(tokenizer).encode(text_row(text), Notes())
    assert all(sentence.pieces)
    if not set(text) & set("東あ"):  # these are pieces of their own
        assert [piece for word in sentence.pieces for piece in word] == tokenizer.encode(text)
    ends = [0, *(end for _, end in sentence.offsets)]
    for (begin, end), before in zip(sentence.offsets, ends):
        assert begin >= before and text[begin:end] == text[begin:end].strip() != ""
    outside = set(range(len(text))).difference(*(range(*offsets) for offsets in sentence.offsets))
    assert not [text[i] for i in outside if text[i] in "kato.,5é½東あ'X"]


def test_chinese_entities_are_exact(shared, notes):
    """The tokenizer's pieces are 在北京, 大学学习 and 法国巴黎: they would hide where the entities are."""
    tokenizer = XLNetTokenizer(shared("data/xlnet_chinese/spiece.model"))
    text = "我在北京大学学习,Ling 在法国巴黎。"
    row = text_row(text, (2, 6, "ORG"), (9, 13, "PER"), (15, 17, "LOC"), (17, 19, "LOC"))
    sentence = SentenceEncoder(tokenizer).encode(row, notes)
    assert words_of(sentence, text) == [*"我在北京大学学习,", "Ling", *"在法国巴黎。"]
    found = TaggedSentence("", text, sentence.offsets, None, sentence.tags)
    assert [e["text"] for e in entities(found, sentence.tags)] == ["北京大学", "Ling", "法国", "巴黎"]
    assert not notes.counts and not notes.skipped
    pieces = [tokenizer.id_to_piece(piece) for word in sentence.pieces for piece in word]
    assert "".join(pieces).replace(UNDERLINE, "") == text.replace(" ", "")
    assert pieces.count(UNDERLINE) == tokenizer.encode_pieces(text).count(UNDERLINE)


def test_entities_become_tags_of_words(tokenizer, notes):
    text = "Ka to (mi), ren mi."
    row = text_row(text, (0, 5, "PER"), (7, 9, "LOC"), (12, 15, "LOC"), (15, 18, "LOC"))
    sentence = SentenceEncoder(tokenizer).encode(row, notes)
    assert words_of(sentence, text) == ["Ka", "to", "(", "mi", ")", ",", "ren", "mi", "."]
    assert sentence.tags == ["B-PER", "I-PER", "O", "B-LOC", "O", "O", "B-LOC", "B-LOC", "O"]
    assert not notes.skipped and not notes.counts  # the space before the last entity is not part of it


def test_entities_that_do_not_fit_are_counted(tokenizer, notes):
    text = "Kato mi  ren sol"
    row = text_row(text, (0, 2, "PER"), (3, 7, "LOC"), (7, 9, "LOC"), (9, 16, "LOC"), (13, 16, "PER"))
    sentence = SentenceEncoder(tokenizer).encode(row, notes)
    assert sentence.tags == ["B-PER", "O", "B-LOC", "I-LOC"]
    assert notes.counts == {"entities with a border within a word (moved to the word's)": 1}
    assert notes.skipped == [
        ("entity that overlaps the one before", "a.jsonl:3 characters 3-7"),
        ("entity without a word", "a.jsonl:3 characters 7-9"),
        ("entity that overlaps the one before", "a.jsonl:3 characters 13-16"),
    ]


# Examples.


@pytest.mark.parametrize("document", [False, True])
def test_each_word_is_predicted_once_at_its_first_piece(tmp_path, tokenizer, tokenizer_file, document):
    rng = np.random.default_rng(0)
    text, expected = "", []
    for number in range(40):
        words = [str(rng.choice(["ka", "tomi", "rensol", "du", "."])) for _ in range(rng.integers(1, 30))]
        tags = [f"B-{word.upper()}" if word != "." else "O" for word in words]
        text += "" if number % 8 else "-DOCSTART- O\n\n"
        text += "".join(f"{word} {tag}\n" for word, tag in zip(words, tags)) + "\n"
        expected.append((words, tags, tags))
    examples = build(tmp_path, tokenizer_file, train=text, document=document, stride=7)["train"]
    assert [
        (sentence.words, sentence.gold, sentence.predicted) for sentence in together(examples)
    ] == expected
    arrays, labels = examples.arrays(), examples.settings["labels"]
    assert examples.statistics["words"] == (arrays["tags"] >= 0).sum() == sum(len(w) for w, *_ in expected)
    for ids, tags in zip(arrays["input_ids"], arrays["tags"], strict=True):
        length = (ids != PAD_ID).sum()
        assert (ids[:-length] == PAD_ID).all() and list(ids[-2:]) == [SEP_ID, CLS_ID]
        for position in np.flatnonzero(tags >= 0):
            word = tokenizer.decode(ids[position:-2]).split(" ")[0]
            assert labels[tags[position]] in (f"B-{word.upper()}", "O")
    assert not document or (arrays["input_ids"] != PAD_ID).sum(axis=1).mean() > 20


def test_a_document_is_one_text_and_two_documents_are_not(tmp_path, tokenizer_file):
    text = "ka B-X\n\nto O\nmi O\n\n-DOCSTART- O\n\nren O\n"
    rows = [{"document": d, "tokens": [w], "tags": ["B-X"], "id": w} for d, w in ("ak", "at", "bm")]
    rows += [{"tokens": ["ren"], "tags": ["O"]}, {"tokens": ["sol"], "tags": ["O"]}]
    sets = build(tmp_path, tokenizer_file, train=text, dev=rows, document=True)
    parts = [[(p["id"], p["first"]) for p in line["parts"]] for line in sets["train"].sidecar()]
    assert parts == [[("train.txt:1", 0), ("train.txt:3", 0)], [("train.txt:8", 0)]]
    parts = [[p["id"] for p in line["parts"]] for line in sets["dev"].sidecar()]
    assert parts == [["k", "t"], ["m"], ["dev.jsonl:4"], ["dev.jsonl:5"]]
    # Files of one name are different documents with different ids.
    files = [str(tmp_path / folder / "x.txt") for folder in ("a", "b")]
    for file in map(pathlib.Path, files):
        file.parent.mkdir()
        file.write_text("ka B-X\n")
    options = TaggingOptions(str(tokenizer_file), str(tmp_path / "two"), train=files, document=True)
    parts = [[part["id"] for part in line["parts"]] for line in build_tagging(options)["train"].sidecar()]
    assert parts == [["a/x.txt:1"], ["b/x.txt:1"]]


def test_words_that_are_too_long_are_cut_and_sentences_without_words_skipped(tmp_path, tokenizer_file):
    long = "ka5" * 40
    rows = [{"tokens": ["to", long, "mi"], "tags": ["O", "B-X", "O"]}]
    rows += [{"tokens": [], "tags": []}, {"text": " \t", "entities": []}]
    examples = build(tmp_path, tokenizer_file, train=rows)["train"]
    (sentence,) = together(examples)
    assert sentence.words == ["to", long, "mi"] and sentence.predicted == ["O", "B-X", "O"]
    assert examples.statistics["words cut to a sequence's length"] == 1
    places = [f"{tmp_path}/train.jsonl:{line}" for line in (2, 3)]
    assert examples.skipped == {"no words": {"count": 2, "places": places}}


def test_offsets_of_a_long_text_round_trip(tmp_path, tokenizer_file):
    text = "Ka tomi, (ren) sol. " * 20
    spans = [{"start": 20 * i + 10, "end": 20 * i + 13, "label": "LOC"} for i in range(20)]
    examples = build(tmp_path, tokenizer_file, train=[{"id": "x", "text": text, "entities": spans}])["train"]
    assert examples.records > 5 and examples.statistics["texts in several windows"] == 1
    (sentence,) = together(examples)
    assert sentence.id == "x" and sentence.text == text
    assert entities(sentence, sentence.predicted) == [{**span, "text": "ren"} for span in spans]


def test_test_data_may_have_no_tags(tmp_path, tokenizer_file):
    sets = build(tmp_path, tokenizer_file, train="ka B-X\n", test=[{"tokens": ["to"]}, {"text": "mi mi"}])
    assert sets["train"].settings["tagged"] and not sets["test"].settings["tagged"]
    assert (sets["test"].arrays()["tags"] == -1).all()
    sentences = tagged_sentences(sets["test"], {"tags": np.zeros([2, 24], np.int32)})
    found = [(s.words, s.gold, s.predicted) for s in sentences]
    assert found == [(["to"], None, ["O"]), (["mi", "mi"], None, ["O", "O"])]
    for test in ([{"tokens": ["to"], "tags": None}, {"text": "mi mi", "entities": None}], "to\n"):
        alone = build(tmp_path, tokenizer_file, test=test, types=["X"], overwrite=True)["test"]
        assert alone.settings["labels"] == ["O", "B-X", "I-X"] and not alone.settings["tagged"]


@pytest.mark.integration
def test_conll2003_loses_no_word(tmp_path, shared):
    file, model = shared("data/conll2003/bio_valid.txt.gz"), shared("data/xlnet_cased/spiece.model")
    examples = build_tagging(TaggingOptions(str(model), str(tmp_path), train=[str(file)]))["train"]
    assert (examples.statistics["sentences"], examples.statistics["words"]) == (3250, 51362)
    for row, sentence in zip(read_sentences(file), together(examples), strict=True):
        assert (sentence.words, sentence.gold, sentence.predicted) == (row.words, row.tags, row.tags)

    tokenizer = XLNetTokenizer(model)
    words = sorted({word for row in read_sentences(file) for word in row.words})
    for word, pieces in zip(words, SentenceEncoder(tokenizer).encode(words_row(words), Notes()).pieces):
        assert UNK_ID in pieces or tokenizer.decode(pieces) == clean_text(word).strip()
