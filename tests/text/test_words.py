"""Borders of words; windows over long texts show most of the text around each word."""

from hypothesis import given
from hypothesis import strategies as st

from xlnet_tf.text.word_windows import windows
from xlnet_tf.text.words import word_borders


def test_borders_tell_unspaced_scripts_apart():
    """Characters unknown to this Unicode are signs; a voicing mark belongs to the character before."""
    assert word_borders("ab c東(a") == {0: False, 3: False, 4: True, 5: True, 6: False}
    assert list(word_borders("a \U0001fa77 b\ue000c\uffff\x00\U0001fa77")) == [0, 2, 4, 5, 6, 7, 9]
    assert word_borders("東\uff9e京 \uff76\uff9e") == {0: True, 2: True, 4: False}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(9, 40), st.data())
def test_each_word_is_predicted_once_with_most_context(lengths, room, data):
    stride = data.draw(st.integers(1, room))
    found = windows(lengths, room, stride)
    predicted = [word for w in found for word in range(w.predict_start, w.predict_stop)]
    assert predicted == list(range(len(lengths)))
    for window in found:
        assert window.start <= window.predict_start < window.predict_stop <= window.stop
        assert sum(lengths[window.start : window.stop]) <= room
        for word in range(window.predict_start, window.predict_stop):
            mine = _context(lengths, window, word)
            others = [_context(lengths, w, word) for w in found if w.start <= word < w.stop]
            assert mine == max(others)


def _context(lengths, window, word):
    return min(sum(lengths[window.start : word]), sum(lengths[word + 1 : window.stop]))
