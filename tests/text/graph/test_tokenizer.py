"""Ids and offsets made in a graph are those of the Python path, for any bytes."""

import functools
import gzip
import itertools
import random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.profiles import examples
from tests.text.test_offsets import AWKWARD, model_proto  # noqa: F401
from tests.text.test_tokenizer import hostile_texts, io_model, with_bytes
from xlnet_tf.errors import UserError
from xlnet_tf.text.cleaning import DEFAULT_CLEANING, CleaningConfig
from xlnet_tf.text.graph.tokenizer import GraphTokenizer
from xlnet_tf.text.offsets import encode_with_offsets
from xlnet_tf.text.tokenizer import XLNetTokenizer

BROKEN = [b"\xff", b"\xe2\x96", b"\xf0\x9f\x98", b"\xed\xa0\x80"]
BROKEN += [b"\xc0\xaf", b"\x80", b"\xf4\x90\x80\x80", b"\x00"]
BYTES = st.one_of(
    st.binary(max_size=20),
    st.lists(st.sampled_from([each.encode() for each in AWKWARD] + BROKEN), max_size=30).map(b"".join),
)
CLEANINGS = [
    DEFAULT_CLEANING,
    CleaningConfig(lower=True, keep_accents=True, normalize_quotes=False, collapse_whitespace=False),
    *(
        pytest.param(cleaning, marks=pytest.mark.integration)
        for cleaning in (CleaningConfig(lower=True), CleaningConfig(keep_accents=True))
    ),
]
MODEL = "data/xlnet_cased/spiece.model"


@functools.cache
def load(path_or_proto, cleaning=DEFAULT_CLEANING):
    """Returns the tokenizer and its graph version."""
    if isinstance(path_or_proto, bytes):
        tokenizer = XLNetTokenizer(model_proto=path_or_proto, cleaning=cleaning)
    else:
        tokenizer = XLNetTokenizer(path_or_proto, cleaning=cleaning)
    return tokenizer, GraphTokenizer(tokenizer)


def check_ids(tokenizer, graph, texts):
    """Compares the ids of many texts, str or bytes."""
    ids, lengths = tokenizer.encode_batch([decode(text) for text in texts])
    found = graph.encode(texts)
    assert found.dtype == tf.int32
    np.testing.assert_array_equal(found.row_lengths(), lengths)
    np.testing.assert_array_equal(found.values, ids)


def check_offsets(tokenizer, graph, texts):
    found = graph.encode_with_offsets(texts)
    assert {part.dtype for part in found} == {tf.int32}
    rows = zip(texts, *(part.to_list() for part in found), strict=True)
    for text, *row in rows:
        expected = encode_with_offsets(tokenizer, decode(text))
        assert row == [expected.ids, expected.begins.tolist(), expected.ends.tolist()], repr(text)


def decode(text):
    return text.decode(errors="replace") if isinstance(text, bytes) else text


@pytest.mark.parametrize("cleaning", CLEANINGS, ids=str)
@given(texts=st.lists(BYTES, max_size=4))
@examples(12, 300)
def test_any_bytes(model_proto, cleaning, texts):  # noqa: F811
    tokenizer, graph = load(model_proto, cleaning)
    check_ids(tokenizer, graph, texts)
    check_offsets(tokenizer, graph, texts)
    assert graph.valid(tf.constant(texts, tf.string)).numpy().tolist() == [
        decode(text).encode() for text in texts
    ]


@pytest.mark.parametrize("cleaning", CLEANINGS, ids=str)
def test_hostile_texts_and_characters_from_all_of_unicode(shared, cleaning):
    tokenizer, graph = load(shared(MODEL), cleaning)
    rng, characters = random.Random(0), [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    every = ["".join(rng.choices(characters[: rng.choice([0x500, 0x3100, None])], k=20)) for _ in range(150)]
    texts = every + hostile_texts(800, seed=5)
    check_ids(tokenizer, graph, texts)
    check_offsets(tokenizer, graph, texts[:300])


def test_hostile_texts_of_the_chinese_model(shared):
    tokenizer, graph = load(shared("data/xlnet_chinese/spiece.model"))
    texts = hostile_texts(300, seed=6)
    texts += shared("data/chnsenticorp/dev.tsv").read_text(encoding="utf-8").splitlines()[:200]
    check_ids(tokenizer, graph, texts)
    check_offsets(tokenizer, graph, texts)


def test_real_sentences(shared):
    tokenizer, graph = load(shared(MODEL))
    texts = []
    for name in ("abc_news.sent", "imdb_unsup_20000docs"):
        with gzip.open(shared(f"data/pretrain/{name}.txt.gz"), "rb") as file:
            texts += itertools.islice(
                (line for line in file if line.strip()), 5000 if "news" in name else 500
            )
    for begin in range(0, len(texts), 2000):
        check_ids(tokenizer, graph, texts[begin : begin + 2000])
    check_offsets(tokenizer, graph, texts[::50])


def test_a_megabyte(shared):
    tokenizer, graph = load(shared(MODEL))
    words = " ".join(f"Caf\u00e9 ``{number},'' \u00bd" for number in range(60_000))
    assert len(words) > 1_000_000
    check_ids(tokenizer, graph, ["a", words, "", "b"])


def test_ids_to_text_and_pieces(shared):
    tokenizer, graph = load(shared(MODEL))
    rng = random.Random(0)
    rows = [rng.choices([*range(12), *range(tokenizer.vocab_size)], k=rng.randint(0, 12)) for _ in range(200)]
    rows = [[], [0, 0], [3, 4], *rows]
    ids = tf.ragged.constant(rows, tf.int32, row_splits_dtype=tf.int32)
    assert graph.decode(ids).numpy().tolist() == [tokenizer.decode(row).encode() for row in rows]
    assert graph.pieces(ids).to_list() == [[tokenizer.pieces[each].encode() for each in row] for row in rows]
    dense = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    assert graph.pieces(dense).shape == dense.shape
    assert graph.pieces(tf.constant(17)).numpy().decode() == tokenizer.pieces[17]
    assert graph.decode(dense[0]).numpy().tolist() == [tokenizer.decode(row).encode() for row in dense[0]]
    assert graph.vocab_size == tokenizer.vocab_size


def test_a_vocabulary_without_a_comma_is_refused_and_byte_fallback_has_no_offsets(small_tokenizer):
    without = XLNetTokenizer(model_proto=io_model(["ba", "ne"], without={","}))
    with pytest.raises(UserError, match="no piece ','.*train-tokenizer"):
        GraphTokenizer(without)
    tokenizer, graph = load(with_bytes(small_tokenizer))
    check_ids(tokenizer, graph, ["ba \u4e2d, 5,"])
    with pytest.raises(UserError, match="byte fallback"):
        graph.encode_with_offsets(["ba"])
