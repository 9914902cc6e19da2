"""CoNLL-U and tags that mark no entities: each word has its tag, and its place in the text."""

import pytest

from tests.tfrecord_builders.tagging.test_data import write
from tfrecord_builders.tagging.build import TaggingOptions, build_tagging
from tfrecord_builders.tagging.data import ReadColumns, read_sentences
from xlnet_tf.errors import UserError
from xlnet_tf.text.tokenizer import XLNetTokenizer


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


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("1 ka DET", 3, "a.conllu:1: 1 columns, expected CoNLL-U's 10 with tabs"),
        (word("x", "ka"), 3, "a.conllu:1: ID is 'x', expected CoNLL-U's number of a word"),
        (TEXT, 12, "tag_column is 12, expected 0 to 9: ID, FORM"),
    ],
)
def test_broken_lines_and_columns_are_named(tmp_path, text, column, message):
    with pytest.raises(UserError, match=message):
        list(
            read_sentences(write(tmp_path, text, "a.conllu"), *([ReadColumns(tag=column)] if column else []))
        )


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


@pytest.mark.parametrize(
    ("tags", "options", "message"),
    [
        ("DET", {"scheme": "bio"}, "--scheme=tags"),
        ("B-X", {}, "do not begin with B- or I-"),
        ("DET", {"types": ["ADP", "AUX", "DET", "NOUN", "PUNCT"]}, "unknown tag 'PART'.*all tags with --ty"),
    ],
)
def test_tags_of_entities_and_unknown_ones_are_refused(tmp_path, tokenizer_file, tags, options, message):
    with pytest.raises(UserError, match=message):
        build(tmp_path, tokenizer_file, TEXT.replace("DET", tags), **options)
