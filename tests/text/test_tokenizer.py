"""The tokenizer equals the original's, one text at a time and in batches."""

import functools
import gzip
import itertools
import json
import pickle
import random

import numpy as np
import pytest
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from xlnet_tf.errors import UserError
from xlnet_tf.text import special_tokens
from xlnet_tf.text.cleaning import CleaningConfig, clean_text
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.training import train_tokenizer
from xlnet_tf.text.vocabulary import UNDERLINE

HOSTILE = ["", " ", "\u3000\t", "1,2,3,,4, 5 ,6", "12,", ",5,", "x1,", "2008,2009, 2010,", "٣,٤, ٢٠٠٨,",
           "²,½,①, 5²,", "中文2008,2009年，5，", "価格は1,000円、", "😀5,😀,5😀,", "e\u0301\u0301,5\u0301,",
           "5\u0000,\u0007 5\u200b, 5\u00a0,", "<sep><cls> 5,<mask>,<eop> </s>", "▁5, ▁▁7,", "ﬁ1,Ⅷ,",
           "''5,'' ``12,``", "a" * 300 + "5," * 50, "\ud7ff\ue000\uffff,5,"]  # fmt: skip


@functools.cache
def load_processor(model_proto):
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model_proto)
    return processor


def define_encode(tokenizer, text):
    """The original's encode_pieces, written as plainly as can be: pieces, one after another."""
    processor = load_processor(tokenizer.model_proto)
    result = []
    for piece in processor.encode(clean_text(text, tokenizer.cleaning), out_type=str):
        if len(piece) >= 2 and piece.endswith(",") and piece[-2].isdigit():
            number = processor.encode(piece[:-1].replace(UNDERLINE, ""), out_type=str)
            if not piece.startswith(UNDERLINE) and number[0].startswith(UNDERLINE):
                number = ([number[0][1:]] if number[0] != UNDERLINE else []) + number[1:]
            result += [*number, ","]
        else:
            result.append(piece)
    return result


def rows_of(ids, lengths):
    ends = np.cumsum(lengths)
    return [ids[end - length : end].tolist() for end, length in zip(ends, lengths)]


def hostile_texts(count, seed):
    rng = random.Random(seed)
    alphabet = "0123456789,,,,,   '`<>▁.abc中文円٣²½é\u0301😀\u00a0\u200b\x07<sep>"
    return HOSTILE + ["".join(rng.choices(alphabet, k=rng.randint(0, 30))) for _ in range(count)]


def test_the_published_ids_of_the_released_model(shared):
    tokenizer = XLNetTokenizer(shared("data/xlnet_cased/spiece.model"))
    for case in json.loads(shared("data/xlnet_cased/golden_tokenization.json").read_text()):
        assert tokenizer.encode(case["text"]) == case["ids"]
        assert tokenizer.encode_batch([case["text"]])[0].tolist() == case["ids"]


def test_the_golden_cases_of_the_original(shared):
    path = shared("golden/data/sp300.model")
    cases = json.loads(shared("golden/cases/tokenization_sp300.json").read_text(encoding="utf-8"))
    for case in cases:
        cleaning = CleaningConfig(lower=case["lower"], keep_accents=case["keep_accents"])
        tokenizer = XLNetTokenizer(path, cleaning=cleaning)
        assert clean_text(case["text"], cleaning) == case["preprocessed"]
        assert tokenizer.encode_pieces(case["text"]) == case["pieces"]
        assert tokenizer.encode(case["text"]) == case["ids"]
        assert tokenizer.encode_batch([case["text"]])[0].tolist() == case["ids"]


def test_hostile_texts_follow_the_definition(any_tokenizer):
    texts = hostile_texts(400, seed=1)
    vocabulary = {piece: piece_id for piece_id, piece in enumerate(any_tokenizer.pieces)}
    for text, row in zip(texts, rows_of(*any_tokenizer.encode_batch(texts)), strict=True):
        pieces = define_encode(any_tokenizer, text)
        assert any_tokenizer.encode_pieces(text) == pieces, repr(text)
        ids = any_tokenizer.encode(text)
        assert ids == row, repr(text)
        for piece, piece_id in zip(pieces, ids, strict=True):
            expected = vocabulary.get(piece, 0)
            control = expected in range(special_tokens.BOS_ID, special_tokens.EOP_ID)
            assert piece_id == (0 if control else expected)


@pytest.mark.parametrize("name", ["abc_news.sent", "imdb_unsup_20000docs"])
def test_a_batch_of_real_text_equals_its_lines(shared, name):
    with gzip.open(shared(f"data/pretrain/{name}.txt.gz"), "rt", encoding="utf-8") as file:
        texts = list(itertools.islice(file, 0, 4000, 2))
    tokenizer = XLNetTokenizer(shared("data/xlnet_cased/spiece.model"))
    rows = rows_of(*tokenizer.encode_batch(texts))
    assert rows == [tokenizer.encode(text) for text in texts]
    pieces = [define_encode(tokenizer, text) for text in texts[:300]]
    assert pieces == [tokenizer.encode_pieces(text) for text in texts[:300]]


def test_unknown_characters_may_hide_a_comma():
    """Without a comma in the vocabulary '5,' may be part of an unknown run."""
    path = io_model(["ba", "ne"], without={","})
    tokenizer = XLNetTokenizer(model_proto=path)
    texts = ["ba ٣, ne", "ba٣,ne", "5,", "7 ,", "ba"]
    assert tokenizer.commas.unknown_may_end_in_comma
    assert rows_of(*tokenizer.encode_batch(texts)) == [tokenizer.encode(text) for text in texts]
    for text in texts:
        assert tokenizer.encode_pieces(text) == define_encode(tokenizer, text)
    assert tokenizer.encode_pieces("ba٣,ne").count(",") == 1


def io_model(words, without):
    """Returns a model trained on words, some pieces renamed away."""
    model = ModelProto.FromString(train_tokenizer([f"{word}, {word}" for word in words] * 20, 25).model_proto)
    for piece in model.pieces:
        if piece.piece in without:
            piece.piece = "\ue000"
    return model.SerializeToString()


def test_word_starts(shared):
    tokenizer = XLNetTokenizer(shared("data/xlnet_cased/spiece.model"))
    for piece, starts in (("▁the", 1), ("<eop>", 1), (",", 1), ("(", 1), ("'", 0), ("ing", 0), ("=", 0)):
        assert tokenizer.word_starts[tokenizer.pieces.index(piece)] == starts, piece
    np.testing.assert_array_equal(tokenizer.word_starts, tokenizer.original_word_starts)
    chinese = XLNetTokenizer(shared("data/xlnet_chinese/spiece.model"))
    index = chinese.pieces.index("新闻")
    assert chinese.word_starts[index] and not chinese.original_word_starts[index]


def with_bytes(tokenizer):
    """Returns the model of a tokenizer with byte fallback."""
    model = ModelProto.FromString(tokenizer.model_proto)
    model.trainer_spec.byte_fallback = True
    for byte in range(256):
        model.pieces.add(piece=f"<0x{byte:02X}>", score=-20.0, type=model.SentencePiece.BYTE)
    return model.SerializeToString()


def test_bytes_start_no_word(small_tokenizer):
    tokenizer = XLNetTokenizer(model_proto=with_bytes(small_tokenizer))
    assert tokenizer.original_word_starts[-256:].all() and not tokenizer.word_starts[-256:].any()
    np.testing.assert_array_equal(tokenizer.word_starts[:-256], small_tokenizer.word_starts)
    ids = tokenizer.encode("ba ☃ ne")
    assert "<0xE2>" in [tokenizer.pieces[number] for number in ids]
    begins = [tokenizer.pieces[number].startswith(UNDERLINE) for number in ids]
    assert tokenizer.word_starts[ids].tolist() == begins and sum(begins) == 3


def test_workers_get_the_same_tokenizer(small_tokenizer):
    copy = pickle.loads(pickle.dumps(small_tokenizer))
    text = "ba ne 12, tor"
    assert copy.encode(text) == small_tokenizer.encode(text)
    assert copy.fingerprint == small_tokenizer.fingerprint and len(copy.fingerprint) == 64


def test_pieces_that_do_not_show_where_words_begin_are_refused(small_tokenizer):
    for spec, setting, value in (
        ("trainer_spec", "treat_whitespace_as_suffix", True),
        ("trainer_spec", "split_by_whitespace", False),
        ("normalizer_spec", "add_dummy_prefix", False),
        ("normalizer_spec", "escape_whitespaces", False),
    ):
        model = ModelProto.FromString(small_tokenizer.model_proto)
        setattr(getattr(model, spec), setting, value)
        with pytest.raises(UserError, match=f"was trained with {setting}={str(value).lower()}, so its piec"):
            XLNetTokenizer(model_proto=model.SerializeToString())


def test_a_model_without_the_symbols_is_refused(tmp_path, small_tokenizer):
    model = ModelProto.FromString(small_tokenizer.model_proto)
    model.pieces[4].piece, model.pieces[5].piece, model.pieces[6].piece = "<pad>", "<sep>", "[MASK]"
    (tmp_path / "other.model").write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match="other.model.*<sep> has id 5, expected 4.*<mask> is") as error:
        XLNetTokenizer(tmp_path / "other.model")
    assert "train-tokenizer" in str(error.value)
    for content in (b"", b"not a model"):
        (tmp_path / "wrong.model").write_bytes(content)
        with pytest.raises(UserError, match="wrong.model"):
            XLNetTokenizer(tmp_path / "wrong.model")
    model = ModelProto.FromString(small_tokenizer.model_proto)
    model.pieces[3].type, model.pieces[8].type = model.SentencePiece.NORMAL, model.SentencePiece.CONTROL
    with pytest.raises(UserError, match="<cls> is not a control symbol.*<eop> is a control symbol"):
        XLNetTokenizer(model_proto=model.SerializeToString())
