"""Cleaning rules, one by one and in batches."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet_tf.errors import UserError
from xlnet_tf.text import cleaning
from xlnet_tf.text.cleaning import CleaningConfig, clean_text, clean_texts

CONFIGS = st.builds(CleaningConfig, *[st.booleans()] * 4)


@settings(deadline=None)
@given(st.text(), CONFIGS)
def test_a_text_is_cleaned_as_defined(text, config):
    if config.collapse_whitespace:
        text = " ".join(text.split())
    expected = text
    if config.normalize_quotes:
        expected = expected.replace("``", '"').replace("''", '"')
    if not config.keep_accents:
        decomposed = unicodedata.normalize("NFKD", expected)
        expected = "".join(character for character in decomposed if not unicodedata.combining(character))
    if config.lower:
        expected = expected.lower()
    assert clean_text(text, config) == expected


PARTS = ["a", " ", "  ", "\t", "\n", "\x85", "\u3000", "`", "'", "''"]
PARTS += ["é", "e\u0301", "\u0301", "ﬁ", "½", "İ", "Σ"]


@settings(deadline=None)
@given(st.lists(st.one_of(st.text(max_size=5), st.lists(st.sampled_from(PARTS)).map("".join))), CONFIGS)
def test_texts_are_cleaned_like_one_text(texts, config):
    assert clean_texts(texts, config) == [clean_text(text, config) for text in texts]
    lines = [text.replace("\n", "") for text in texts]
    assert clean_texts(lines, config) == [clean_text(line, config) for line in lines]


def test_few_texts_are_looked_at_by_themselves():
    texts = ["a b.", "“so” – it's £5", "a  b", "c", " d", "e ", "''", "naïve"]
    assert cleaning._changing(texts, CleaningConfig()) == [2, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("settings", "message"), [({"uncased": True}, "'uncased'"), ({"lower": "yes"}, "'lower' is 'yes'")]
)
def test_unknown_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        CleaningConfig.from_dict(settings)
