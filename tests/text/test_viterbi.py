"""The best way and its lead, next to all ways of a text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet_tf.text.viterbi import Viterbi

SCORES = {
    "a": -1.5,
    "b": -2.0,
    "ab": -3.0,
    "ba": -3.75,
    "aba": -4.5,
    "é": -5.0,
    " a": -2.25,
    "bé": -2.5,
    "xy": -1.0,
}
UNKNOWN = -20.0


def all_ways(text):
    """Yields (score, pieces) of each way to split a text; a character that is not a piece is "?"."""
    if not text:
        yield 0.0, []
    for end in range(1, len(text) + 1):
        piece = text[:end]
        if piece in SCORES or end == 1:
            for score, rest in all_ways(text[end:]):
                yield SCORES.get(piece, UNKNOWN) + score, [piece if piece in SCORES else "?", *rest]


def split(texts):
    pieces = [*SCORES, "?"]
    viterbi = Viterbi([piece.encode() for piece in SCORES], list(SCORES.values()), UNKNOWN)
    found, lengths, leads = viterbi.split([text.encode() for text in texts])
    return [[pieces[i] for i in row] for row in np.split(found, np.cumsum(lengths)[:-1])], leads.tolist()


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text("abé xyz", min_size=1, max_size=9), min_size=1, max_size=6))
def test_best_way_and_its_lead(texts):
    texts.sort(key=lambda text: -len(text.encode()))
    rows, leads = split(texts)
    for text, row, lead in zip(texts, rows, leads, strict=True):
        best, *others = sorted(all_ways(text), reverse=True)
        assert lead == pytest.approx(best[0] - max((way[0] for way in others), default=-np.inf))
        assert lead == 0 or row == best[1]


def test_ties_single_ways_and_unknown_characters():
    """A character that is not a piece counts as one, and may be part of a longer piece."""
    assert split(["aba", "ab", "a"])[1] == [0, 0.5, np.inf]
    assert split(["文a", "xy", "x"])[0] == [["?", "a"], ["xy"], ["?"]]
