"""Windows over long texts: every word once, in the window that shows most of the text around it."""

from hypothesis import given
from hypothesis import strategies as st

from xlnet_tf.text.word_windows import windows


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
