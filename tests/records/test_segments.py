"""Segments hold the right text in the right place, forward and reversed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.profiles import examples
from xlnet_tf.errors import UserError
from xlnet_tf.records import segments as lib
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID


def draw_stream(rng, num_tokens, longest_sentence):
    """Returns (tokens, sentence_ends, word_start) of a random text; token k is 100 + k."""
    ends = np.cumsum(rng.integers(1, longest_sentence + 1, num_tokens))
    ends = np.append(ends[ends < num_tokens], num_tokens)
    return np.arange(num_tokens, dtype=np.int32) + 100, ends, rng.random(num_tokens) < 0.6


@given(
    num_tokens=st.integers(1, 600),
    longest_sentence=st.integers(1, 80),
    reuse_len=st.integers(1, 40),
    text_len=st.integers(2, 60),
    seed=st.integers(0, 10_000),
)
@examples(120, 3000)
def test_every_segment_is_laid_out_as_defined(num_tokens, longest_sentence, reuse_len, text_len, seed):
    rng = np.random.default_rng(seed)
    tokens, ends, word_start = draw_stream(rng, num_tokens, longest_sentence)
    seq_len = reuse_len + text_len + 3
    found = lib.sample_segments(rng, tokens, ends, seq_len, reuse_len, word_start)
    expected_count = len(range(0, num_tokens - reuse_len - text_len + 1, reuse_len))
    assert len(found) == expected_count == lib.num_segments(num_tokens, seq_len, reuse_len)
    starts = np.append(0, ends[:-1])
    for s in range(len(found)):
        begin = s * reuse_len
        ids, positions = found.ids[s], found.source_positions[s]
        separator, last = np.flatnonzero(ids == SEP_ID)
        assert last == seq_len - 2 and ids[-1] == CLS_ID
        special = np.isin(np.arange(seq_len), (separator, last, seq_len - 1))
        assert (found.special[s] == special).all() and ((positions == -1) == special).all()
        assert (ids[~special] == tokens[positions[~special]]).all()
        assert (positions[:separator] == begin + np.arange(separator)).all()
        b = positions[separator + 1 : last]
        assert separator > reuse_len and len(b) > 0 and (b == b[0] + np.arange(len(b))).all()
        a_end = begin + separator
        inside = ends[(ends > begin + reuse_len) & (ends < begin + reuse_len + text_len)]
        assert a_end in inside if len(inside) else a_end == begin + reuse_len + text_len // 2
        if found.next_sentence[s]:
            assert b[0] == a_end
        else:
            assert b[0] in starts and (b[-1] < begin or b[0] >= begin + seq_len)
        segment_ids = [0] * (separator + 1) + [1] * (last - separator) + [2]
        assert found.segment_ids[s].tolist() == segment_ids
        word_starts = word_start[positions] | special
        word_starts[[0, reuse_len, separator + 1]] = True
        assert (found.word_start[s] == word_starts).all()


def test_half_of_the_segments_get_another_text_and_cuts_are_uniform():
    rng = np.random.default_rng(0)
    tokens, _, word_start = draw_stream(rng, 200_000, 10)
    ends = np.arange(10, 200_001, 10)
    found = lib.sample_segments(rng, tokens, ends, 64, 20, word_start)
    assert abs(found.next_sentence.mean() - 0.5) < 0.02
    a_len = (found.segment_ids == 0).sum(axis=1) - 21
    lengths, counts = np.unique(a_len, return_counts=True)
    np.testing.assert_array_equal(lengths, [10, 20, 30, 40])
    np.testing.assert_allclose(counts / counts.sum(), 0.25, atol=0.02)
    b_begin = found.source_positions[np.arange(len(found)), 20 + a_len + 1]
    elsewhere = b_begin[found.next_sentence == 0]
    counts, _ = np.histogram(elsewhere, bins=5, range=(0, 200_000))
    np.testing.assert_allclose(counts / counts.sum(), 0.2, atol=0.03)


def test_the_only_other_text_is_taken():
    """One sentence alone begins outside of the segment's window, at either side of it."""
    for ends, num_tokens, segment, expected in (([10, 22, 40], 40, 0, 22), ([16, 24, 40], 40, 4, 0)):
        begins = set()
        for seed in range(30):
            rng, word_start = np.random.default_rng(seed), np.ones(num_tokens, bool)
            found = lib.sample_segments(rng, np.arange(num_tokens) + 9, np.array(ends), 20, 5, word_start)
            if not found.next_sentence[segment]:
                begins.add(int(found.source_positions[segment][found.segment_ids[segment] == 1][0]))
        assert begins == {expected}


def test_the_reversed_stream_mirrors_sentences_documents_and_words():
    tokens, ends, word_start = draw_stream(np.random.default_rng(4), 50, 8)
    starts = np.append(0, ends[:-1])
    word_start[0] = True
    reversed_ends, reversed_starts = lib.mirror_ends(ends, 50), lib.mirror_starts(starts, 50)
    np.testing.assert_array_equal(reversed_starts, np.append(0, reversed_ends[:-1]))
    found = [tokens[::-1][a:b].tolist() for a, b in zip(reversed_starts, reversed_ends)]
    assert found == [tokens[a:b][::-1].tolist() for a, b in zip(starts, ends)][::-1]
    words = np.split(tokens, np.flatnonzero(word_start)[1:])
    borders = np.flatnonzero(lib.mirror_word_start(word_start))[1:]
    found = [word.tolist() for word in np.split(tokens[::-1], borders)]
    assert found == [word[::-1].tolist() for word in words[::-1]]


@pytest.mark.parametrize(("seq_len", "reuse_len"), [(64, 0), (64, 60), (64, 64), (4, 2), (16_385, 8_192)])
def test_lengths_without_room_are_refused(seq_len, reuse_len):
    lib.check_lengths(16_384, 8_192)  # positions are int16
    what = "at most 16384" if seq_len > 64 else f"seq_len {seq_len} with reuse_len {reuse_len} leaves no room"
    with pytest.raises(UserError, match=what):
        lib.check_lengths(seq_len, reuse_len)
