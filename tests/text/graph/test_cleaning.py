"""Cleaning in a graph makes the characters, and their places, that Python makes."""

import functools

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.profiles import examples
from tests.text.test_offsets import AWKWARD
from xlnet_tf.text.cleaning import CleaningConfig, clean_text
from xlnet_tf.text.graph import cleaning as graph_cleaning
from xlnet_tf.text.graph.cleaning import GraphCleaner
from xlnet_tf.text.offsets import clean_with_offsets

# With what surrounds a sigma: letters, what has no case, what is ignored, other sigmas.
LETTERS = list("aA\u0391\u03a3\u03c2\u03f9\U0001d6ba.:\u00ad\u02b0\u4e2d \u2028\x1c``''\x00")
TEXTS = st.one_of(
    st.text(st.sampled_from(AWKWARD + LETTERS), max_size=30),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
CONFIGS = [
    CleaningConfig(lower=lower, keep_accents=accents, normalize_quotes=other, collapse_whitespace=other)
    for lower in (False, True)
    for accents in (False, True)
    for other in (False, True)
]


@functools.cache
def cleaner(config):
    def clean(texts):
        return GraphCleaner(config).clean(tf.strings.unicode_decode(texts, "UTF-8"))

    return tf.function(clean, input_signature=[tf.TensorSpec([None], tf.string)])


def check(texts, config):
    codes, places, ends = cleaner(config)(tf.constant(texts, tf.string))
    ends = ends.numpy().tolist()
    for text, *found in zip(texts, codes.to_list(), places.to_list(), ends, strict=True):
        cleaned, begins = clean_with_offsets(text, config)
        assert "".join(map(chr, found[0])) == cleaned, repr(text)
        assert [*found[1], found[2]] == begins.tolist(), repr(text)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@given(texts=st.lists(TEXTS, max_size=4))
@examples(25, 500)
def test_any_texts(config, texts):
    check(texts, config)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_rows_do_not_touch(config):
    check(["a'", "'b ", " c`", "`", "", " ", "`\u03a3", "\u03a3a", "a\u03a3", "a", "", "\u0301", "'"], config)


@pytest.mark.parametrize(
    ("lower", "keep_accents"),
    [
        (True, False),
        pytest.param(True, True, marks=pytest.mark.integration),
        pytest.param(False, True, marks=pytest.mark.integration),
        pytest.param(False, False, marks=pytest.mark.integration),
    ],
)
def test_every_character(lower, keep_accents):
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    config = CleaningConfig(lower=lower, keep_accents=keep_accents)
    # Each of them at the begin of a word, where it may be dropped, and before a sigma.
    texts = [" \u03a3".join(characters[begin::400]) for begin in range(400)]
    cleaned = tf.strings.unicode_encode(cleaner(config)(tf.constant(texts)).codes, "UTF-8")
    assert cleaned.numpy().tolist() == [clean_text(text, config).encode() for text in texts]


def test_tables_ask_only_for_characters_that_may_change(monkeypatch):
    asked = []
    monkeypatch.setattr(
        graph_cleaning, "clean_text", lambda text, rules: asked.append(text) or clean_text(text, rules)
    )
    graph_cleaning._character_table.__wrapped__(True, False)
    apart = [text for text in asked if graph_cleaning._APART in text[1:]]
    assert any("\u00e9" in text for text in apart) and any("\uac00" in text for text in apart)
    assert len(asked) < 5_000  # blocks: to ask each of 1,114,112 characters takes a second
