"""Files of tagged words: each word has its tag; what is wrong with a file is named with its line."""

import gzip

import pyarrow
import pyarrow.parquet
import pytest

from tests.helpers.records.builders import jsonl
from tfrecord_builders.tagging.build import TaggingOptions, build_tagging
from tfrecord_builders.tagging.data import AnnotatedText, ReadColumns, names_in_ids, read_sentences
from xlnet_tf.errors import UserError
from xlnet_tf.text.tokenizer import XLNetTokenizer

COLUMNS = "-DOCSTART- -X- O\n\nKa N B-PER\ntomi N I-PER\n\n\n. . O\n-DOCSTART- -X- O\n\n\u00a0 N O"


def write(tmp_path, text, name="words.txt"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def write_jsonl(tmp_path, *rows):
    return jsonl(tmp_path / "rows.jsonl", rows)


@pytest.mark.parametrize("name", ["words.txt", "words.conll.gz"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_columns(tmp_path, name, newline):
    """A hard space is a word, a blank line an end, and documents are separated."""
    sentences = list(read_sentences(write(tmp_path, COLUMNS.replace("\n", newline), name)))
    assert [s.words for s in sentences] == [["Ka", "tomi"], ["."], ["\u00a0"]]
    assert [s.tags for s in sentences] == [["B-PER", "I-PER"], ["O"], ["O"]]
    assert [s.id for s in sentences] == [f"{name}:3", f"{name}:7", f"{name}:10"]
    assert [s.document for s in sentences] == [f"{name}#1", f"{name}#1", f"{name}#2"]
    assert sentences[0].location_of(1) == f"{tmp_path / name}:4"
    assert sentences[0].types == {"PER"} and sentences[1].types == set()


def test_columns_are_chosen_by_number(tmp_path):
    path = write(tmp_path, "0\tB-X\tNew York\tO\n1\tO\tist\tB-Y\n")
    (sentence,) = read_sentences(path, ReadColumns(word=2, tag=1))
    assert (sentence.words, sentence.tags) == (["New York", "ist"], ["B-X", "O"])
    (sentence,) = read_sentences(path, ReadColumns(word=-2))
    assert (sentence.words, sentence.tags) == (["New York", "ist"], ["O", "B-Y"])
    for text, tag_column in (("Ka\ntomi\n", -1), ("Ka N\ntomi N\n", 3)):  # not known, without a column
        (sentence,) = read_sentences(write(tmp_path, text), ReadColumns(tag=tag_column))
        assert sentence.words == ["Ka", "tomi"] and sentence.tags is None and sentence.types is None


def test_json_lines(tmp_path):
    path = write_jsonl(
        tmp_path,
        {"id": 7, "document": "d", "tokens": ["Ka", "to mi"], "tags": ["B-PER", "O"]},
        {"tokens": ["Ka"]},
        {"text": "Ka tomi", "entities": [{"start": 3, "end": 7, "label": "LOC"}]},
        {"text": "Ka", "entities": []},
        {"text": ""},
        {"id": None, "document": "", "tokens": ["Ka"]},
    )
    words, unknown, text, none, blank, nameless = read_sentences(path)
    assert (words.id, words.document, words.words, words.tags) == ("7", "d", ["Ka", "to mi"], ["B-PER", "O"])
    assert words.location_of(1) == f"{path}:1" and nameless.id == nameless.document == "rows.jsonl:6"
    assert unknown.types is None and unknown.id == "rows.jsonl:2"
    assert isinstance(text, AnnotatedText) and text.entities == [(3, 7, "LOC")] and text.types == {"LOC"}
    assert none.entities == [] and none.types == set() and blank.entities is blank.types is None
    table = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"tokens": [["Ka"], ["tomi", "ren"]]}), table)
    places = [sentence.location_of(1) for sentence in read_sentences(table)]
    assert places == [f"{table}, row {number}" for number in (1, 2)]


def test_bad_columns(tmp_path):
    for text, columns, message in (
        ("Ka N O\ntomi N O\nren O\n", {}, r"words.txt:3: 2 columns, but 3 .*'ren O'"),
        ("Ka\tO\n\tO\n", {}, r"words.txt:2: no word in column 0"),
        ("Ka O\n", {"word": 2}, r"words.txt:1: 2 columns, but --word_column is 2"),
    ):
        with pytest.raises(UserError, match=message):
            list(read_sentences(write(tmp_path, text), ReadColumns(**columns)))


def test_missing_damaged_and_badly_encoded_files(tmp_path):
    (tmp_path / "cut.gz").write_bytes(gzip.compress(COLUMNS.encode())[:-12])
    (tmp_path / "latin.txt").write_bytes("Ka O\nM\xfcn O\n".encode("latin-1"))
    for name, message in (
        ("none.txt", "does not exist"),
        ("", "is a folder without Parquet or Arrow files: give a file"),
        ("cut.gz", "cut.gz cannot be read to its end"),
        ("latin.txt", r"latin.txt:2: byte 2 \(fc\)"),
    ):
        with pytest.raises((UserError, FileNotFoundError), match=message):
            list(read_sentences(tmp_path / name))


def test_bad_json_lines(tmp_path):
    def spans(begin, end, label="X"):
        return {"text": "Ka", "entities": [{"start": begin, "end": end, "label": label}]}

    for row, message in (
        ({"words": ["Ka"]}, 'found words, expected "tokens"'),
        ({"tokens": ["Ka", "mi"], "tags": ["O"]}, "2 tokens but 1 tags"),
        ({"tokens": ["Ka", ""]}, "token 1 is empty"),
        ({"tokens": [{"word": "Ka"}]}, 'tokens are {"word": "Ka"}, expected a list of texts'),
        (spans(0, 3), "0 to 3 of a text of 2"),
        (spans(0.0, 2), "expected whole numbers"),
        (spans(0, 2, " "), "label is ' '"),
        ({"text": "Ka", "entities": [{"start": 0, "end": 2}]}, "expected exactly start, end and label"),
    ):
        path = write_jsonl(tmp_path, {"tokens": ["Ka"]}, row)
        with pytest.raises(UserError, match=r"rows\.jsonl:2: .*" + message):
            list(read_sentences(path))


def test_files_have_distinct_names_in_ids():
    for paths, names in (
        (["a/x.txt", "b/x.txt", "c/y.txt"], ["a/x.txt", "b/x.txt", "y.txt"]),
        (["x.txt", "./a/x.txt", "/b/a/x.txt"], ["x.txt", "a/x.txt", "b/a/x.txt"]),
        (["x.txt", "x.txt"], ["x.txt", "x.txt"]),
        (["a/x\udcff.txt", "x\udcfe.txt"], [r"x\udcff.txt", r"x\udcfe.txt"]),  # names that are not UTF-8
    ):
        assert names_in_ids(paths) == names


def word(number, form, tag="_", misc="_", xpos="_"):
    return "\t".join([str(number), form, "_", tag, xpos, "_", "_", "_", "_", misc])


TEXT = "\n".join(
    [
        *("# newdoc id = d1", "# sent_id = s1", "# text = kato du, ren."),
        word(1, "ka", "DET"),
        word(2, "tomi", "NOUN", "SpaceAfter=No", "NN"),
        word(3, ",", "PUNCT"),
        word("4-5", "cannot", misc="SpaceAfter=No"),
        *(word(4, "can", "AUX"), word(5, "not", "PART"), word(6, ".", "PUNCT")),
        *(word("6.1", "left", "VERB"), "", word("1-2", "du", misc="_")),
        *(word(1, "de", "ADP"), word(2, "le", "DET"), word(3, "sol", "NOUN"), "", ""),
    ]
)


def test_words_tags_and_spaces(tmp_path):
    first, second = read_sentences(write(tmp_path, TEXT, "a.conllu"))
    assert (first.id, second.id) == ("s1", "a.conllu:14")
    assert first.words == ["ka", "tomi", ",", "can", "not", "."]
    assert first.tags == ["DET", "NOUN", "PUNCT", "AUX", "PART", "PUNCT"]
    assert first.spaces == (True, False, True, False, False, True)
    assert first.location_of(3).endswith("a.conllu:8")
    assert (second.words, second.spaces) == (["de", "le", "sol"], (True, True, True))
    by_number = read_sentences(write(tmp_path, TEXT, "a.conllu"), ReadColumns(tag=4))
    assert [sentence.tags and sentence.tags[1] for sentence in by_number] == ["NN", None]


def test_broken_lines_and_columns_of_conllu_are_named(tmp_path):
    for text, column, message in (
        ("1 ka DET", 3, "a.conllu:1: 1 columns, expected CoNLL-U's 10 with tabs"),
        (word("x", "ka"), 3, "a.conllu:1: ID is 'x', expected CoNLL-U's number of a word"),
        (TEXT, 12, "tag_column is 12, expected 0 to 9: ID, FORM"),
    ):
        with pytest.raises(UserError, match=message):
            list(read_sentences(write(tmp_path, text, "a.conllu"), ReadColumns(tag=column)))


def build(tmp_path, tokenizer_file, text=TEXT, **options):
    options = {"train": [str(write(tmp_path, text, "train.conllu"))], "scheme": "tags"} | options
    return build_tagging(TaggingOptions(str(tokenizer_file), str(tmp_path / "sets"), seq_len=24, **options))


def test_examples_have_the_pieces_of_the_running_text(tmp_path, tokenizer_file):
    tokenizer = XLNetTokenizer(tokenizer_file)
    examples = build(tmp_path, tokenizer_file)["train"]
    assert examples.settings["labels"] == ["ADP", "AUX", "DET", "NOUN", "PART", "PUNCT"]
    [part] = next(iter(examples.sidecar()))["parts"]
    assert part["text"] == "ka tomi, cannot."
    words = [part["text"][begin:end] for begin, end in part["offsets"]]
    assert words == ["ka", "tomi", ",", "can", "not", "."]
    assert part["tags"] == ["DET", "NOUN", "PUNCT", "AUX", "PART", "PUNCT"]
    ids = examples.arrays()["input_ids"][0]
    comma = tokenizer.encode("ka,")[len(tokenizer.encode("ka")) :]
    assert list(ids[part["positions"][2] : part["positions"][3]]) == comma  # without a space before it


def test_tags_of_entities_and_unknown_ones_are_refused(tmp_path, tokenizer_file):
    types = ["ADP", "AUX", "DET", "NOUN", "PUNCT"]
    for tags, options, message in (
        ("DET", {"scheme": "bio"}, "--scheme=tags"),
        ("B-X", {}, "do not begin with B- or I-"),
        ("DET", {"types": types}, "unknown tag 'PART'.*all tags with --ty"),
    ):
        with pytest.raises(UserError, match=message):
            build(tmp_path, tokenizer_file, TEXT.replace("DET", tags), **options)
