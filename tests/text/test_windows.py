"""Windows hold every token, and each token has one window that shows it best."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet_tf.text.graph import passage_windows as graph
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID
from xlnet_tf.text.windows import (
    Window,
    answer_mask,
    best_windows,
    cls_position,
    pack_window,
    split_windows,
    token_position,
    window_room,
)

SIZES = st.tuples(st.integers(0, 300), st.integers(1, 60), st.integers(1, 80))


@given(SIZES)
@settings(deadline=None)  # the machine may be busy
def test_windows_hold_every_token(sizes):
    tokens, room, stride = sizes
    windows = split_windows(tokens, room, stride)
    held = [token for first, length in windows for token in range(first, first + length)]
    assert set(held) == set(range(tokens))
    assert all(length <= room for _, length in windows)
    assert windows[0].first == 0 and windows[-1].first + windows[-1].length == tokens
    steps = np.diff([window.first for window in windows])
    assert (steps == min(stride, room)).all()
    # No window is within another one.
    assert all(window.first + window.length < tokens for window in windows[:-1])


@given(SIZES)
@settings(deadline=None)  # the machine may be busy
def test_each_token_has_one_best_window(sizes):
    tokens, room, stride = sizes
    windows = split_windows(tokens, room, stride)
    best = best_windows(windows, tokens)
    assert best.shape == (tokens,)

    def context(window, token):
        left, right = token - window.first, window.first + window.length - 1 - token
        return -1 if left < 0 or right < 0 else min(left, right) + 0.01 * window.length

    for token, index in enumerate(best):
        contexts = [context(window, token) for window in windows]
        assert contexts[index] == max(contexts) >= 0
        assert contexts.index(max(contexts)) == index


@given(
    window=st.builds(Window, st.integers(0, 5), st.integers(0, 60)),
    question_len=st.integers(0, 6),
    segments=st.integers(2, 5),
    more=st.integers(1, 9),
)
@settings(deadline=None)  # the machine may be busy
def test_segments_have_each_token_once_and_the_question_each(window, question_len, segments, more):
    segment_len = question_len + 3 + more
    seq_len = segments * segment_len
    window = window._replace(length=min(window.length, window_room(question_len, seq_len, segment_len)))
    passage, question = list(range(100, 200)), list(range(50, 50 + question_len))
    ids, segment_ids = pack_window(passage, window, question, seq_len, segment_len)
    mask = answer_mask(window, question_len, seq_len, segment_len)
    *tokens, cls = np.flatnonzero(mask)
    assert cls == cls_position(window, question_len, segment_len) == np.flatnonzero(ids == CLS_ID)[-1]
    assert ids[tokens].tolist() == passage[window.first : window.first + window.length]
    assert tokens == [token_position(token, question_len, segment_len) for token in range(window.length)]
    for row in ids.reshape(segments, segment_len):
        real = row[row != PAD_ID].tolist()
        assert real[-question_len - 3 :] == ([SEP_ID, *question, SEP_ID, CLS_ID] if real else [])
    assert (ids[: cls + 1] != PAD_ID).all() and (ids[cls + 1 :] == PAD_ID).all()
    assert segment_ids[tokens].tolist() == [0] * window.length


def test_segments_in_graph_are_the_same():
    rng, seq_len, segment_len = np.random.default_rng(0), 48, 12
    passages, questions, masks = [], [], []
    expected = {"input_word_ids": [], "input_type_ids": []}
    for question_len in (*range(9), 0, 4):
        room = window_room(question_len, seq_len, segment_len)
        window = Window(0, int(rng.integers(room + 1)) if question_len else room)
        passages.append(list(range(100, 100 + window.length)))
        questions.append(list(range(50, 50 + question_len)))
        packed = pack_window(passages[-1], window, questions[-1], seq_len, segment_len)
        for values, of_row in zip(expected.values(), packed):
            values.append(of_row)
        masks.append(answer_mask(window, question_len, seq_len, segment_len))
    rows = [tf.ragged.constant(ids, tf.int32, ragged_rank=1) for ids in (passages, questions)]
    features = graph.pack_segments(*rows, seq_len, segment_len)
    expected["input_mask"] = np.array(expected["input_word_ids"]) != PAD_ID
    for name, values in expected.items():
        np.testing.assert_array_equal(features[name], values, name)
    positions = np.tile(np.arange(seq_len), [len(masks), 1])
    for mask, found in zip(masks, graph.window_tokens(np.array(masks), positions).numpy()):
        assert found[mask > 0].tolist() == list(range(mask.sum()))  # the last one is CLS
        assert (found[mask == 0] == seq_len).all()
