"""Cleaning rules, one by one and in batches."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet_tf.errors import UserError
from xlnet_tf.text.cleaning import CleaningConfig, clean_text

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


def test_settings_survive_a_dict():
    config = CleaningConfig(lower=True, collapse_whitespace=False)
    assert CleaningConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("settings", "message"), [({"uncased": True}, "'uncased'"), ({"lower": "yes"}, "'lower' is 'yes'")]
)
def test_unknown_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        CleaningConfig.from_dict(settings)
