"""Spans of pieces in raw texts: in order, complete, and each spelling its piece."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import invent_texts
from xlnet_tf.errors import UserError
from xlnet_tf.text.cleaning import CleaningConfig, clean_text
from xlnet_tf.text.offsets import clean_with_offsets, encode_with_offsets
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.training import train_tokenizer
from xlnet_tf.text.vocabulary import UNDERLINE

CLEANINGS = st.builds(CleaningConfig, *[st.booleans()] * 4)
AWKWARD = list(
    "ab,5 \t`'\u00e9\u0301\u0130\u03a3\ufb01\u00bd\u00a8\u3000\u2581\uac00\u1100\u1161\u4e2d\u00b2"
)
TEXTS = st.one_of(
    st.text(st.sampled_from(AWKWARD), max_size=30),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)


@pytest.fixture(scope="module")
def model_proto():
    """A tokenizer that knows some of the awkward characters."""
    texts = invent_texts(600) + ["\u00e9\u0301 \ufb01 a5, 12,5 \u4e2d\u4e2d\u56fd \u03c3"] * 20
    return train_tokenizer(texts, 100).model_proto


def visible(tokenizer, text):
    """The characters that SentencePiece splits into pieces, spaces left out."""
    return tokenizer.normalize(clean_text(text, tokenizer.cleaning))[0].replace(UNDERLINE, "")


@given(TEXTS, CLEANINGS)
@settings(max_examples=400, deadline=None)
def test_spans_of_any_text(model_proto, text, cleaning):
    tokenizer = XLNetTokenizer(model_proto=model_proto, cleaning=cleaning)
    ids, begins, ends = encode_with_offsets(tokenizer, text)
    assert ids == tokenizer.encode(text)
    assert len(begins) == len(ends) == len(ids)
    assert (begins <= ends).all()
    assert (np.diff(begins) >= 0).all() and (np.diff(ends) >= 0).all()
    if not len(ids):
        return
    assert begins[0] >= 0 and ends[-1] <= len(text)
    pieces = [piece.replace(UNDERLINE, "") for piece in tokenizer.encode_pieces(text)]
    assert [bool(piece) for piece in pieces] == (begins < ends).tolist()
    # Neighbours share no character, unless it became several; then they lie within it.
    for piece, begin, end, following in zip(pieces, begins, ends, [*begins[1:], len(text)]):
        if piece:
            spelled = visible(tokenizer, text[begin:end]).lower().replace("\u03c2", "\u03c3")
            assert piece.lower().replace("\u03c2", "\u03c3") in spelled
            if following < end:
                assert len(visible(tokenizer, text[following:end])) > 1
    # What lies in no span leaves nothing visible: the spans cover the text.
    covered = np.zeros(len(text), bool)
    for begin, end in zip(begins, ends):
        covered[begin:end] = True
    left = "".join(character for character, known in zip(text, covered) if not known)
    assert not "".join(c for c in visible(tokenizer, left) if not unicodedata.combining(c))


@given(TEXTS, CLEANINGS)
@settings(max_examples=400, deadline=None)
def test_cleaning_with_offsets_is_cleaning(text, cleaning):
    cleaned, begins = clean_with_offsets(text, cleaning)
    assert cleaned == clean_text(text, cleaning)
    assert begins.shape == (len(cleaned) + 1,)
    assert (np.diff(begins) >= 0).all() and (begins >= 0).all() and (begins <= len(text)).all()


def test_pieces_that_do_not_spell_the_text(small_tokenizer, monkeypatch):
    monkeypatch.setattr(small_tokenizer, "encode_pieces", lambda text: ["<0x61>"], raising=False)
    with pytest.raises(UserError, match="byte fallback"):
        encode_with_offsets(small_tokenizer, "a")
