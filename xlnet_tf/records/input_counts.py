"""Counts pieces, unknown pieces, texts and repeated inputs of examples."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID, UNK_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

PIECES, UNKNOWN_PIECES = "pieces of text", "pieces unknown (<unk>)"
TEXTS, UNKNOWN_TEXTS = "texts", "texts of <unk> alone"
REPEATED = "inputs equal to an earlier one"
_DIGEST_BYTES = 8


def is_unknown(ids: Sequence[int], tokenizer: XLNetTokenizer) -> bool:
    """Returns whether a word's pieces are <unk> alone, apart from the mark of a space before it."""
    return UNK_ID in ids and not set(ids) - {UNK_ID, tokenizer.space_id}


class InputCounts:
    """Counts pieces, texts and repeated inputs while examples are written.

    A text is a run of tokens between two special tokens: each text of a pair; a window of a passage, its
    question, and each option.
    """

    def __init__(self, tokenizer: XLNetTokenizer, seq_len: int):
        self._seq_len = seq_len
        self._space = tokenizer.space_id
        self._seen: set[int] = set()
        self.statistics = dict.fromkeys((PIECES, UNKNOWN_PIECES, TEXTS, UNKNOWN_TEXTS, REPEATED), 0)

    def add(self, input_ids: np.ndarray) -> None:
        """Counts the inputs of examples [n, S * T]."""
        ids = np.asarray(input_ids)
        special = np.isin(ids, (SEP_ID, CLS_ID, PAD_ID))
        unknown = ids == UNK_ID
        edge = np.ones((len(ids), 1), bool)
        begins = ~special & np.concatenate([edge, special[:, :-1]], axis=1)
        begins[:, :: self._seq_len] |= ~special[:, :: self._seq_len]
        number = np.cumsum(begins) - 1  # of the text that a piece belongs to
        inside = ~special.ravel()
        texts = int(begins.sum())
        has = {
            name: np.bincount(number[inside & mask.ravel()], minlength=texts) > 0
            for name, mask in (("unknown", unknown), ("known", ~unknown & (ids != self._space)))
        }
        found = {
            PIECES: int(inside.sum()),
            UNKNOWN_PIECES: int((unknown & ~special).sum()),
            TEXTS: texts,
            UNKNOWN_TEXTS: int((has["unknown"] & ~has["known"]).sum()),
            REPEATED: 0,
        }
        for value in fingerprints(ids, self._seq_len):
            found[REPEATED] += value in self._seen
            self._seen.add(value)
        for name, value in found.items():
            self.statistics[name] += value


def fingerprints(ids: np.ndarray, seq_len: int) -> Iterator[int]:
    """Yields a hash of each sequence of examples [n, S * T] that is not padding alone."""
    sequences = np.ascontiguousarray(ids.reshape(-1, seq_len), np.int32)
    for sequence in sequences[(sequences != PAD_ID).any(axis=1)]:
        yield int.from_bytes(
            hashlib.blake2b(sequence.tobytes(), digest_size=_DIGEST_BYTES).digest(), "little"
        )
