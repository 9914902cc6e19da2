"""Borders of words by the kinds of characters."""

from xlnet_tf.text.words import word_borders


def test_borders_tell_unspaced_scripts_apart():
    assert word_borders("ab c東(a") == {0: False, 3: False, 4: True, 5: True, 6: False}


def test_characters_that_this_unicode_does_not_know_are_signs():
    """An emoji of Unicode 15, one of private use, and a noncharacter; control characters are spaces."""
    assert list(word_borders("a \U0001fa77 b\ue000c\uffff\x00\U0001fa77")) == [0, 2, 4, 5, 6, 7, 9]


def test_the_voicing_mark_of_narrow_kana_belongs_to_the_character_before():
    """It is no mark by its category, but cleaning drops it as one: a word of its own would have no piece."""
    assert word_borders("東\uff9e京 \uff76\uff9e") == {0: True, 2: True, 4: False}
