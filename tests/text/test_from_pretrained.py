"""A tokenizer finds its model and its cleaning in a folder, and packs texts for the models."""

import json

import numpy as np
import pytest
from absl import logging
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tests.conftest import invent_texts
from xlnet_tf.errors import UserError
from xlnet_tf.text.cleaning import DEFAULT_CLEANING, CleaningConfig
from xlnet_tf.text.packing import pack
from xlnet_tf.text.special_tokens import PAD_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer


@pytest.fixture
def folder(tmp_path, small_tokenizer):
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    return tmp_path


def test_cleaning_of_hugging_face_files_and_of_a_run(folder):
    for theirs, ours in (
        ({"do_lower_case": True, "model_max_length": 512}, CleaningConfig(lower=True)),
        ({"keep_accents": True}, CleaningConfig(keep_accents=True)),
        ({"remove_space": False}, CleaningConfig(collapse_whitespace=False)),
        ({}, DEFAULT_CLEANING),
    ):
        (folder / "tokenizer_config.json").write_text(json.dumps(theirs))
        assert XLNetTokenizer.from_pretrained(folder).cleaning == ours
    cleaning = CleaningConfig(lower=True, normalize_quotes=False)  # a run's manifest decides
    (folder / "manifest.json").write_text(json.dumps({"cleaning": cleaning.to_dict(), "kind": "examples"}))
    assert XLNetTokenizer.from_pretrained(folder).cleaning == cleaning


def test_a_folder_or_the_file_itself(folder, small_tokenizer):
    for path in (folder, str(folder), folder / "spiece.model"):
        tokenizer = XLNetTokenizer.from_pretrained(path)
        assert tokenizer.fingerprint == small_tokenizer.fingerprint
        assert tokenizer.cleaning == DEFAULT_CLEANING


@pytest.mark.parametrize("cleaning", [DEFAULT_CLEANING, CleaningConfig(lower=True, keep_accents=True)])
def test_tokenizer_json_alone_is_the_same_tokenizer(tmp_path, small_tokenizer, cleaning):
    """All that transformers 5 writes: pieces with a score of 0 were not trained, but given."""
    given = ModelProto.FromString(small_tokenizer.model_proto)
    for piece in ("#", "\u00a7"):
        given.pieces.add(piece=piece, type=given.SentencePiece.USER_DEFINED)
    expected = XLNetTokenizer(model_proto=given.SerializeToString(), cleaning=cleaning)
    expected.save_pretrained(tmp_path)
    (tmp_path / "spiece.model").unlink()
    (tmp_path / "SHA256SUMS").unlink(missing_ok=True)
    texts = [*invent_texts(30), "Ba# \u00a7ne) <mask><eop> \u00c9 5,000..."]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/tokenizer.json").write_bytes((tmp_path / "tokenizer.json").read_bytes())
    (tmp_path / "other/spiece.model").write_bytes(small_tokenizer.model_proto)
    (tmp_path / "other/manifest.json").write_text(json.dumps({"cleaning": cleaning.to_dict()}))
    for path in (tmp_path, tmp_path / "tokenizer.json", tmp_path / "other/tokenizer.json"):
        tokenizer = XLNetTokenizer.from_pretrained(path)
        assert tokenizer.cleaning == cleaning
        assert tokenizer.piece_table.splits_like(expected.piece_table)
        assert [*map(tokenizer.encode, texts)] == [*map(expected.encode, texts)]
    assert not tokenizer.piece_table.splits_like(small_tokenizer.piece_table)


NEVER = {"type": "Metaspace", "prepend_scheme": "never"}
NO_PREFIX = {"type": "Sequence", "pretokenizers": [{"add_prefix_space": False}]}
OTHER = {"model": {"type": "Unigram", "vocab": [["a", 0.0]]}, "added_tokens": []}


def test_another_tokenizer_json_is_named(tmp_path, small_tokenizer):
    small_tokenizer.save_pretrained(tmp_path)
    (tmp_path / "spiece.model").unlink()
    (tmp_path / "SHA256SUMS").unlink(missing_ok=True)
    file = tmp_path / "tokenizer.json"
    good = json.loads(file.read_text())
    for fields, message in (
        (None, "tokenizer.json is not JSON"),
        ({"model": {"type": "BPE", "vocab": {}}}, "model.type is 'BPE'; expected Unigram"),
        ({"model": {"type": "Unigram"}}, r"is not as Hugging Face's .* write it \(KeyError\('vocab'\)"),
        ({"model": {"type": "Unigram", "vocab": []}}, "its first pieces are none, expected <unk>"),
        ({"added_tokens": [{"id": 90, "content": "<x>"}]}, "adds '<x>' to the model's 90 pieces: expected"),
        ({"pre_tokenizer": NEVER}, "json was trained with add_dummy_prefix=false, so its pieces do not show"),
        ({"pre_tokenizer": NO_PREFIX}, "tokenizer.json was trained with add_dummy_prefix=false"),
        (OTHER, "is not an XLNet tokenizer: its first pieces are a, expected <unk>, <s>"),
    ):
        file.write_text(json.dumps(good | fields) if fields else "{")
        with pytest.raises(UserError, match=message):
            XLNetTokenizer.from_pretrained(tmp_path)


def test_errors_of_a_folder_are_named(folder):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist: expected a folder with spiece.mo"):
        XLNetTokenizer.from_pretrained(folder / "nowhere")
    for name, content, message in (
        ("tokenizer_config.json", '{"do_lower_case": "yes"}', "'lower' is 'yes'; expected true or false"),
        ("manifest.json", '{"cleaning": {"uncased": true}}', "'uncased'"),
        ("manifest.json", "{}", "manifest.json has no 'cleaning'"),
        ("manifest.json", "[1", "manifest.json is not JSON"),
        ("spiece.model", None, "has no spiece.model: copy"),
    ):
        (folder / name).write_text(content) if content else (folder / name).unlink()
        with pytest.raises(UserError, match=message):
            XLNetTokenizer.from_pretrained(folder)


def test_texts_become_packed_rows(small_tokenizer):
    texts, pairs = invent_texts(20, seed=1) + [""], invent_texts(21, seed=2)
    for second in (None, pairs):
        features = small_tokenizer(texts, second, seq_len=24)
        assert [array.dtype for array in features.values()] == [np.int32, np.uint8, np.uint8]
        for row, text in enumerate(texts):
            pair = second and small_tokenizer.encode(second[row])
            expected = pack(small_tokenizer.encode(text), pair, seq_len=24)
            np.testing.assert_array_equal(features["input_word_ids"][row], expected.input_ids)
            np.testing.assert_array_equal(features["input_type_ids"][row], expected.segment_ids)
            np.testing.assert_array_equal(features["input_mask"][row], expected.input_ids != PAD_ID)


def test_no_texts_give_no_rows_and_arrays_are_lists(small_tokenizer):
    for pairs in (None, []):
        assert {array.shape for array in small_tokenizer([], pairs, seq_len=9).values()} == {(0, 9)}
    texts = invent_texts(3)
    rows = [small_tokenizer(one)["input_word_ids"] for one in (np.array(texts, object), texts)]
    np.testing.assert_array_equal(*rows)


def test_cut_texts_are_counted(small_tokenizer, monkeypatch):
    lines = []
    monkeypatch.setattr(logging, "info", lambda message, *values: lines.append(message % values))
    small_tokenizer(["ba", "ba ne tor mi kal su ren do", "ne"], seq_len=8)
    small_tokenizer(["ba", "ne"], seq_len=8)
    assert lines == ["1 of 3 texts were cut to seq_len=8"]


def test_inputs_that_are_not_lists_of_texts_are_named(small_tokenizer):
    table = pytest.importorskip("pandas").DataFrame({"text": ["ba", "ne"]})
    for texts, pairs, message in (
        (b"one text", None, "texts is one bytes; expected a list"),
        (["a", float("nan")], None, r"texts\[1\] is nan; expected a string"),
        (["a"], [None], r"text_pairs\[0\] is None"),
        (["a", "b"], ["c"], "2 texts and 1 text_pairs"),
        (["a"], [], "1 texts and 0 text_pairs"),
        (table, None, "texts is a DataFrame; expected one of its columns, such as table"),
    ):
        with pytest.raises(UserError, match=message):
            small_tokenizer(texts, pairs)
