"""Borders of words by the kinds of characters."""

from xlnet_tf.text.words import word_borders


def test_borders_tell_unspaced_scripts_apart():
    """Characters unknown to this Unicode are signs; a voicing mark belongs to the character before."""
    assert word_borders("ab c東(a") == {0: False, 3: False, 4: True, 5: True, 6: False}
    assert list(word_borders("a \U0001fa77 b\ue000c\uffff\x00\U0001fa77")) == [0, 2, 4, 5, 6, 7, 9]
    assert word_borders("東\uff9e京 \uff76\uff9e") == {0: True, 2: True, 4: False}
