"""Tagging examples: no word is lost between the input, pieces, windows and what is put together again."""

import collections
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        self.counts = collections.Counter()
        self.skipped = []

    def count(self, name, number=1):
        self.counts[name] += number

    def skip(self, reason, place):
        self.skipped.append((reason, place))


@pytest.fixture(scope="module")
def tokenizer(tokenizer_file):
    return XLNetTokenizer(tokenizer_file)


@pytest.fixture
def notes():
    return Notes()


def words_row(words, tags=None):
    return TaggedWords("s", "d", "a.txt", 10, words, tags)


def text_row(text, *spans):
    return AnnotatedText("t", "d", "a.jsonl:3", text, [Entity(*span) for span in spans])


def build(tmp_path, tokenizer_file, **options):
    """Writes each split's text, or list of json rows, to a file and builds examples of 24 tokens."""
    for split in ("train", "dev", "test"):
        if split in options:
            content, suffix = options[split], ".txt"
            if not isinstance(content, str):
                content, suffix = "".join(json.dumps(row) + "\n" for row in content), ".jsonl"
            (tmp_path / (split + suffix)).write_text(content)
            options[split] = [str(tmp_path / (split + suffix))]
    options = {"tokenizer": str(tokenizer_file), "output_dir": str(tmp_path), "seq_len": 24, **options}
    return build_tagging(TaggingOptions(**options))


def together(examples):
    """The sentences as if the model had predicted the stored tags."""
    return tagged_sentences(examples, examples.arrays())


# Words that came as words.


@given(words=st.lists(WORDS, min_size=1, max_size=8))
def test_words_have_the_pieces_of_running_text(tokenizer, words):
    sentence = SentenceEncoder(tokenizer).encode(words_row(words), Notes())
    assert [sentence.text[begin:end] for begin, end in sentence.offsets] == words
    assert sentence.pieces == [tokenizer.encode(word) or [UNK_ID] for word in words]
    pieces = [piece for word in words for piece in tokenizer.encode(word)]
    assert pieces == tokenizer.encode(" ".join(words))


def test_a_word_without_pieces_is_unknown(tokenizer, notes):
    sentence = SentenceEncoder(tokenizer).encode(words_row(["ka", "\u00a0", "to"], ["O"] * 3), notes)
    assert sentence.pieces == [tokenizer.encode("ka"), [UNK_ID], tokenizer.encode("to")]
    assert notes.counts["words without a piece (now <unk>)"] == 1


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ka's (tomi)ren, 5,000 mi.", "Ka ' s ( tomi ) ren , 5 , 000 mi ."),
        ("  ka\tto\u00a0mi. ", "ka to mi ."),
        ("kato東京タdu", "kato 東 京 タ du"),
        ("東ka 京to", "東 ka 京 to"),
        ("cafe\u0301 na\u00efve", "cafe\u0301 na\u00efve"),
    ],
)
def test_words_begin_after_spaces_at_signs_and_in_unspaced_scripts(tokenizer, text, expected):
    sentence = SentenceEncoder(tokenizer).encode(text_row(text), Notes())
    assert [text[begin:end] for begin, end in sentence.offsets] == expected.split(" ")


def test_chinese_entities_are_exact(shared):
    """The tokenizer's pieces are 在北京, 大学学习 and 法国巴黎: they would hide where the entities are."""
    tokenizer = XLNetTokenizer(shared("data/xlnet_chinese/spiece.model"))
    text = "我在北京大学学习,Ling 在法国巴黎。"
    notes = Notes()
    row = text_row(text, (2, 6, "ORG"), (9, 13, "PER"), (15, 17, "LOC"), (17, 19, "LOC"))
    sentence = SentenceEncoder(tokenizer).encode(row, notes)
    assert [text[begin:end] for begin, end in sentence.offsets] == [
        *"我在北京大学学习,",
        "Ling",
        *"在法国巴黎。",
    ]
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
    words = " ".join(text[begin:end] for begin, end in sentence.offsets)
    assert words == "Ka to ( mi ) , ren mi ."
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
        if number % 8 == 0:
            text += "-DOCSTART- O\n\n"
        words = [str(rng.choice(["ka", "tomi", "rensol", "du", "."])) for _ in range(rng.integers(1, 30))]
        tags = [f"B-{word.upper()}" if word != "." else "O" for word in words]
        text += "".join(f"{word} {tag}\n" for word, tag in zip(words, tags)) + "\n"
        expected.append((words, tags))
    examples = build(tmp_path, tokenizer_file, train=text, document=document, stride=7)["train"]
    found = together(examples)
    assert [(sentence.words, sentence.gold) for sentence in found] == expected
    assert [sentence.predicted for sentence in found] == [tags for _, tags in expected]

    arrays, labels = examples.arrays(), examples.settings["labels"]
    assert examples.statistics["words"] == (arrays["tags"] >= 0).sum() == sum(len(w) for w, _ in expected)
    for ids, tags in zip(arrays["input_ids"], arrays["tags"], strict=True):
        length = (ids != PAD_ID).sum()
        assert (ids[:-length] == PAD_ID).all() and list(ids[-2:]) == [SEP_ID, CLS_ID]
        for position in np.flatnonzero(tags >= 0):
            word = tokenizer.decode(ids[position:-2]).split(" ")[0]
            assert labels[tags[position]] in (f"B-{word.upper()}", "O")
    if document:
        assert (arrays["input_ids"] != PAD_ID).sum(axis=1).mean() > 20


def test_a_document_is_one_text_and_two_documents_are_not(tmp_path, tokenizer_file):
    text = "ka B-X\n\nto O\nmi O\n\n-DOCSTART- O\n\nren O\n"
    rows = [{"document": d, "tokens": [w], "tags": ["B-X"], "id": w} for d, w in ("ak", "at", "bm")]
    rows += [{"tokens": ["ren"], "tags": ["O"]}, {"tokens": ["sol"], "tags": ["O"]}]
    sets = build(tmp_path, tokenizer_file, train=text, dev=rows, document=True)
    parts = [[(p["id"], p["first"]) for p in line["parts"]] for line in sets["train"].sidecar()]
    assert parts == [[("train.txt:1", 0), ("train.txt:3", 0)], [("train.txt:8", 0)]]
    parts = [[p["id"] for p in line["parts"]] for line in sets["dev"].sidecar()]
    assert parts == [["k", "t"], ["m"], ["dev.jsonl:4"], ["dev.jsonl:5"]]


def test_a_word_longer_than_a_sequence_is_cut_not_lost(tmp_path, tokenizer_file):
    long = "ka5" * 40
    examples = build(tmp_path, tokenizer_file, train=f"to O\n{long} B-X\nmi O\n")["train"]
    (sentence,) = together(examples)
    assert sentence.words == ["to", long, "mi"] and sentence.predicted == ["O", "B-X", "O"]
    assert examples.statistics["words cut to a sequence's length"] == 1


@pytest.mark.parametrize("columns", [True, False])
def test_files_of_one_name_are_different_documents_with_different_ids(tmp_path, tokenizer_file, columns):
    files = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / ("x.txt" if columns else "x.jsonl"))
        row = json.dumps({"document": "1", "tokens": ["ka"], "tags": ["B-X"]})
        files[-1].write_text("ka B-X\n" if columns else row)
    examples = build_tagging(
        TaggingOptions(str(tokenizer_file), str(tmp_path), train=[*map(str, files)], document=True)
    )["train"]
    ids = [[part["id"] for part in line["parts"]] for line in examples.sidecar()]
    assert ids == [[f"a/{files[0].name}:1"], [f"b/{files[0].name}:1"]]


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
    assert [(s.words, s.gold, s.predicted) for s in sentences] == [
        (["to"], None, ["O"]),
        (["mi", "mi"], None, ["O", "O"]),
    ]
    null = [{"tokens": ["to"], "tags": None}, {"text": "mi mi", "entities": None}]
    assert not build(tmp_path, tokenizer_file, test=null, types=["X"])["test"].settings["tagged"]
    alone = build(tmp_path, tokenizer_file, test="to\n", types=["X"])["test"]
    assert alone.settings["labels"] == sets["train"].settings["labels"] == ["O", "B-X", "I-X"]


def test_sentences_without_words_are_counted(tmp_path, tokenizer_file):
    rows = [{"tokens": [], "tags": []}, {"text": " \t", "entities": []}, {"tokens": ["ka"], "tags": ["B-X"]}]
    examples = build(tmp_path, tokenizer_file, train=rows)["train"]
    assert examples.records == 1
    path = tmp_path / "train.jsonl"
    assert examples.skipped == {"no words": {"count": 2, "places": [f"{path}:1", f"{path}:2"]}}


@pytest.mark.parametrize(
    "name,sentences,words",
    [("valid", 3250, 51362), pytest.param("train", 14041, 203621, marks=pytest.mark.long)],
)
def test_conll2003_loses_no_word(tmp_path, shared, name, sentences, words):
    file = shared(f"data/conll2003/bio_{name}.txt.gz")
    model = shared("data/xlnet_cased/spiece.model")
    examples = build_tagging(TaggingOptions(str(model), str(tmp_path), train=[str(file)]))["train"]
    assert (examples.statistics["sentences"], examples.statistics["words"]) == (sentences, words)
    for row, sentence in zip(read_sentences(file), together(examples), strict=True):
        assert (sentence.words, sentence.gold, sentence.predicted) == (row.words, row.tags, row.tags)

    tokenizer = XLNetTokenizer(model)
    words = {word for row in read_sentences(file) for word in row.words}
    sentence = SentenceEncoder(tokenizer).encode(words_row(sorted(words)), Notes())
    for word, pieces in zip(sorted(words), sentence.pieces):
        assert UNK_ID in pieces or tokenizer.decode(pieces) == clean_text(word).strip()
