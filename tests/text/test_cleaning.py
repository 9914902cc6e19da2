"""Cleaning rules, one by one and in batches, and what cleaning takes from text, by script."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet_tf.text import cleaning
from xlnet_tf.text.cleaning import CleaningConfig, clean_text, clean_texts
from xlnet_tf.text.marks import SCRIPTS_WITH_MARKS, count_dropped_marks, warn_of_dropped_marks

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


def test_marks_are_counted_by_script():
    for text, script, count in (
        ("Caf\u00e9 na\u00efve", "LATIN", 2),
        ("e\u0301", "OTHER", 1),
        ("\u041c\u043e\u0439 \u0451\u0436", "CYRILLIC", 2),
        ("\u0928\u092e\u0938\u094d\u0924\u0947", "DEVANAGARI", 1),
        ("\u304c\u3093\u3070\u3063\u3066", "HIRAGANA", 2),
        ("\u30d6\u30ed\u30b0", "KATAKANA", 2),
        ("\uff76\uff9e\uff8a\uff9f", "HALFWIDTH", 2),  # katakana
        ("\U0001e922\U0001e944\U0001f600", "ADLAM", 1),
    ):
        assert count_dropped_marks(["plain", text, ""]) == {script: count}
        assert len(unicodedata.normalize("NFKD", text)) - len(clean_text(text)) == count
        assert (script in SCRIPTS_WITH_MARKS) == (script != "OTHER")


@pytest.fixture
def warned(caplog):
    """Returns a function that gives the warnings of texts before they are cleaned, with some settings."""

    def warned(texts, **cleaning):
        caplog.clear()
        warn_of_dropped_marks(texts, CleaningConfig(**cleaning))
        return [record.getMessage() for record in caplog.records]

    return warned


@pytest.mark.parametrize("lower", [False, True])
def test_letters_that_lose_a_mark_are_warned_of(warned, lower):
    for text, script, examples in (
        ("\u00dcber die Br\u00fccke.", "2 LATIN", "\u00dcber -> Uber, Br\u00fccke -> Brucke"),
        ("u\u0308ber", "1 LATIN", "\u00fcber -> uber"),  # a letter and its mark
        ("\u0441\u0432\u043e\u0439", "1 CYRILLIC", "\u0441\u0432\u043e\u0439 -> \u0441\u0432\u043e\u0438"),
        ("\u03ae", "1 GREEK", "\u03ae -> \u03b7"),
    ):
        [warning] = warned(["plain text, " * 3, text, "more"], lower=lower)
        assert f"({script})" in warning and "--keep_accents" in warning
        assert (examples.lower() if lower else examples) in (warning.lower() if lower else warning)
        assert not warned([text], keep_accents=True, lower=lower)


def test_a_name_of_another_script_and_marks_without_a_letter_give_no_warning(warned):
    assert not warned(["a plain text of a thousand characters " * 40, "Caf\u00e9"])
    assert not warned(["\ufdfa", "\u05e9\u05c1\u05dc\u05d5\u05dd"]) and not warned([])
    texts = ["plain", "\ud55c\uad6d\uc5b4", "\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002", "\U0001f600"]
    assert count_dropped_marks(texts) == {} == count_dropped_marks([])


def test_every_block_of_a_long_text_counts(warned):
    texts = ["a" * 1000 + "\u4e2d"] * 100 + ["\u00e4" * 1000]
    [warning] = warned(texts)
    assert f"1,000 of {sum(map(len, texts)):,} characters (1,000 LATIN)" in warning
