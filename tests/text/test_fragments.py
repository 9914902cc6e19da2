"""Batches encoded by fragments equal SentencePiece's own encoding of each text."""

import concurrent.futures
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from tests.conftest import invent_texts
from xlnet_tf.text import batch_encoder, fragments
from xlnet_tf.text.cleaning import CleaningConfig, clean_texts
from xlnet_tf.text.fragments import FragmentEncoder, has_fragments
from xlnet_tf.text.special_tokens import UNK_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

# What fragments could get wrong: spaces, marks that melt, characters that vanish, unknown ones, commas.
PARTS = ["ba", "ne", "tor", "mi", "5,", "12,", ",", ".", "<eop>", " ", "  ", "e\u0301", "\u0301", "\u200b",
         "é", "\x07", "▁", "–", "“", "”", "文", "😀", "{", "½", "\ufeff", "\n", "\t", "¨", "ﬁ", "B", "bababa",
         "ooo"]  # fmt: skip


def one_by_one(texts, encoder):
    """Each text's pieces, as the encoder's texts tell them; None for those to be encoded as a whole."""
    ids, lengths, done = encoder.encode(texts)
    rows = np.split(ids, np.cumsum(lengths)[:-1])
    return [row.tolist() if is_done else None for row, is_done in zip(rows, done)]


def plain(ids, lengths):
    return ids, lengths


def encoder_of(tokenizer):
    return FragmentEncoder(tokenizer.piece_table, tokenizer._processor, plain)


@pytest.fixture(scope="module")
def encoder(small_tokenizer):
    return encoder_of(small_tokenizer)


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.lists(st.sampled_from(PARTS), max_size=12).map("".join), min_size=1, max_size=8),
    st.builds(CleaningConfig, *[st.booleans()] * 4),
)
def test_batches_of_any_text_equal_its_texts(small_tokenizer, texts, cleaning):
    copy = XLNetTokenizer(model_proto=small_tokenizer.model_proto, cleaning=cleaning)
    encoder = copy._batch_encoder
    vars(encoder)["_fragments"] = small_tokenizer._batch_encoder._fragments
    ids, lengths = encoder._encode_block(clean_texts(texts, cleaning))
    rows = np.split(ids, np.cumsum(lengths)[:-1])
    assert [row.tolist() for row in rows] == [copy.encode(text) for text in texts]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.lists(st.sampled_from("abeno5,. "), max_size=30).map("".join), min_size=1, max_size=8))
def test_finished_texts_equal_sentencepiece(encoder, small_tokenizer, texts):
    for text, row in zip(texts, one_by_one(texts, encoder)):
        assert row in (None, small_tokenizer._processor.encode(text))


def test_ties_are_left_to_sentencepiece(shared):
    """Repeated letters split in ways of the same score: rounding of the sum so far decides."""
    cased = XLNetTokenizer(shared("data/xlnet_cased/spiece.model"))
    encoder, processor = encoder_of(cased), cased._processor
    words = ["sooooo", "story", "!!!!!", "1-800-555-5756", "f***", "the", "ulyulyu"]
    texts = [" ".join(["lovely"] * before + [word]) for word, before in itertools.product(words, range(40))]
    expected = processor.encode(texts)
    word_by_word = [[i for word in text.split() for i in processor.encode(word)] for text in texts]
    assert word_by_word != expected
    rows = one_by_one(texts, encoder)
    assert all(row in (None, whole) for row, whole in zip(rows, expected))
    assert sum(row is None for row in rows) in range(40, 6 * 40)


def test_a_long_text_needs_a_larger_margin(shared):
    """The longer the text, the coarser is its sum of scores."""
    encoder = encoder_of(XLNetTokenizer(shared("data/xlnet_cased/spiece.model")))
    word = "captivating"  # its margin is 0.03
    short, long = f"{word} film", f"{word} film " + "so good " * 200
    assert [row is not None for row in one_by_one([short, long.strip()], encoder)] == [True, False]


def test_unspaced_scripts_are_left_to_sentencepiece(shared):
    encoder = encoder_of(XLNetTokenizer(shared("data/xlnet_chinese/spiece.model")))
    lines = shared("data/chnsenticorp/dev.tsv").read_text(encoding="utf-8").splitlines()[1:50]
    assert one_by_one(lines, encoder) == [None] * 49
    assert len(encoder._rows) == 1


def test_known_fragments_are_bounded(small_tokenizer, monkeypatch):
    monkeypatch.setattr(fragments, "_MAX_KNOWN", 20)
    encoder = encoder_of(small_tokenizer)
    for seed in range(5):
        texts = invent_texts(3, seed)
        rows = one_by_one(texts, encoder)
        assert all(row in (None, small_tokenizer._processor.encode(t)) for t, row in zip(texts, rows))
        assert len(encoder._rows) < 100


def test_threads_share_an_encoder_which_is_done_with_most_texts(small_tokenizer):
    encoder = encoder_of(small_tokenizer)
    batches = [invent_texts(40, seed) for seed in range(24)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda batch: one_by_one(batch, encoder), batches))
    for batch, found in zip(batches, rows):
        assert all(row in (None, small_tokenizer._processor.encode(t)) for t, row in zip(batch, found))
    assert sum(row is not None for found in rows for row in found) > 0.85 * 24 * 40
    assert len(encoder._rows) == len(encoder._known.lengths) == len(encoder._known.reach)


def test_blocks_are_batches(small_tokenizer, monkeypatch):
    texts = ["", *invent_texts(400, seed=2), "ba\u200b", ""]
    whole = small_tokenizer.encode_batch(texts)
    monkeypatch.setattr(batch_encoder, "_BLOCK_CHARACTERS", 500)
    for one, other in zip(whole, small_tokenizer.encode_batch(texts), strict=True):
        np.testing.assert_array_equal(one, other)


def changed(tokenizer, change):
    """Returns a tokenizer whose model is changed."""
    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.model_proto)
    change(model)
    return XLNetTokenizer(model_proto=model.SerializeToString())


@pytest.mark.parametrize(
    ("spec", "name", "value"),
    [
        ("trainer_spec", "model_type", 2),  # BPE
        ("normalizer_spec", "name", "user_defined"),
        ("normalizer_spec", "name", "nmt_nfkc_cf"),
        ("normalizer_spec", "remove_extra_whitespaces", False),
    ],
)
def test_other_models_have_no_fragments(small_tokenizer, spec, name, value):
    assert has_fragments(small_tokenizer.piece_table)
    copy = changed(small_tokenizer, lambda model: setattr(getattr(model, spec), name, value))
    assert not has_fragments(copy.piece_table)
    texts = invent_texts(batch_encoder._FEW_TEXTS, seed=1)
    assert sum(map(copy.encode, texts), []) == copy.encode_batch(texts)[0].tolist()


def respelled(tokenizer, score, spellings, end=None):
    """Returns the tokenizer with other spellings of its last pieces, those before `end`, and this score."""

    def change(model):
        for piece, spelling in zip(model.pieces[-3:end], spellings, strict=True):
            piece.piece, piece.score = spelling, score

    return changed(tokenizer, change)


def test_symbols_that_users_defined_may_be_in_pieces(small_tokenizer):
    other = respelled(small_tokenizer, -0.01, ("a–", "–.–"), end=-1)
    texts = ["ba– ba", "ba –.–", "a–a a –.", "mi–.– ne", "– . –"]
    expected = other._processor.encode(texts)
    assert one_by_one(texts, encoder_of(other)) == expected
    assert {"–", "."} <= {other.id_to_piece(i) for row in expected for i in row}


def test_pieces_across_punctuation(small_tokenizer):
    """No border is where a piece of the vocabulary has none, and unknown characters are put together."""
    other = respelled(small_tokenizer, -3, ("a.b", "5,000", "▁mi?"))
    encoder, processor = encoder_of(other), other._processor
    texts = ["ba a.b ba.ba", "5,000 5, 000", "mi? mi ?", "{{~~ ba", "ba ~{~{ ~ {", "ba.<eop>", "~"]
    assert {"a.b", "5,000", "▁mi?"} <= {p for row in processor.encode(texts, out_type=str) for p in row}
    rows = one_by_one(texts, encoder)
    assert all(row in (None, processor.encode(text)) for text, row in zip(texts, rows))
    assert [row is None for row in rows] == [UNK_ID in processor.encode(text) for text in texts]
