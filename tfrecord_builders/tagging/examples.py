"""Makes examples from the words of a text: one, or one for each window of a long text."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfrecord_builders.tagging.words import Sentence
from xlnet_tf.text.packing import pack
from xlnet_tf.text.word_windows import windows

NUM_SPECIAL = 2  # SEP and CLS
NO_TAG = -1


def text_examples(
    text: Sequence[Sentence], labels: Sequence[str], seq_len: int, stride: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Packs a text, a sentence or the sentences of a document, so that each word is predicted once.

    `labels` are all tags, by their number; `stride` is the pieces between the starts of two windows. Yields
    (columns, sidecar) of each example, as `tagging.build_tagging` describes them.
    """
    room = seq_len - NUM_SPECIAL
    pieces = [word[:room] for sentence in text for word in sentence.pieces]
    starts = np.cumsum([0] + [len(word) for word in pieces])
    first_words = np.cumsum([0] + [len(sentence.pieces) for sentence in text])
    for window in windows(np.diff(starts), room, stride):
        ids = list(itertools.chain.from_iterable(pieces[window.start : window.stop]))
        positions = starts + room - len(ids) - starts[window.start]
        tags = np.full(seq_len, NO_TAG, np.int16)
        parts = []
        for sentence, base in zip(text, first_words):
            begin = max(window.predict_start - base, 0)
            stop = min(window.predict_stop - base, len(sentence.pieces))
            if begin < stop:
                part = _part(sentence, begin, stop, positions[base + begin : base + stop])
                if sentence.tags is not None:
                    tags[part["positions"]] = [labels.index(tag) for tag in part["tags"]]
                parts.append(part)
        yield {**pack(ids, seq_len=seq_len)._asdict(), "tags": tags}, {"parts": parts}


def _part(sentence: Sentence, begin: int, stop: int, positions: np.ndarray) -> dict[str, Any]:
    return {
        "id": sentence.id,
        "first": int(begin),
        "text": "" if begin else sentence.text,
        "offsets": sentence.offsets[begin:stop],
        "positions": positions.tolist(),
        "tags": sentence.tags and sentence.tags[begin:stop],
    }
