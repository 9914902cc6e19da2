"""Cleaning rules, one by one and in batches."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlnet_tf.errors import UserError
from xlnet_tf.text.cleaning import CleaningConfig, clean_text, clean_texts

CONFIGS = st.builds(CleaningConfig, *[st.booleans()] * 4)


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("  a \t b\u3000c\n", {}, "a b c"),
        ("  a  b ", {"collapse_whitespace": False}, "  a  b "),
        ("``so'' it's", {}, '"so" it\'s'),
        ("``so''", {"normalize_quotes": False}, "``so''"),
        ("Café naïve ﬁn", {}, "Cafe naive fin"),
        ("Café ﬁn", {"keep_accents": True}, "Café ﬁn"),
        ("ÀB", {"lower": True}, "ab"),
        ("ÀB", {"lower": True, "keep_accents": True}, "àb"),
        ("ΟΔΟΣ ΟΔΟΣ", {"lower": True}, "οδος οδος"),
        ("", {}, ""),
    ],
)
def test_rules(text, settings, expected):
    assert clean_text(text, CleaningConfig(**settings)) == expected


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


@given(st.lists(st.text()), CONFIGS)
def test_a_batch_is_cleaned_like_its_texts(texts, config):
    assert clean_texts(texts, config) == [clean_text(text, config) for text in texts]


UNTIDY = ["", " ", "a", "a b", "é b", "''a``", "a  b", " a", "a ", "a\nb", "a\tb", "é\u3000b", "a\x1cb", "ΑΣ"]


@given(st.lists(st.sampled_from(UNTIDY), max_size=200), CONFIGS)
def test_blocks_of_lines_are_cleaned_like_their_lines(texts, config):
    assert clean_texts(texts, config) == [clean_text(text, config) for text in texts]


def test_every_space_of_python_is_known():
    for code in range(sys.maxunicode + 1):
        if chr(code).isspace():
            texts = [f"a{chr(code)}{chr(code)}b", "é"]
            assert clean_texts(texts) == [clean_text(text) for text in texts] == ["a b", "e"]


def test_settings_survive_a_dict():
    config = CleaningConfig(lower=True, collapse_whitespace=False)
    assert CleaningConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("settings", "message"), [({"uncased": True}, "'uncased'"), ({"lower": "yes"}, "'lower' is 'yes'")]
)
def test_unknown_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        CleaningConfig.from_dict(settings)
