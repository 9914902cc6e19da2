"""Encodes many texts into one array."""

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import sentencepiece

from xlnet_tf.text.cleaning import CleaningConfig, clean_text, clean_texts
from xlnet_tf.text.commas import CommaRule
from xlnet_tf.text.fragments import FragmentEncoder, has_fragments
from xlnet_tf.text.special_tokens import UNK_ID
from xlnet_tf.text.vocabulary import PieceTable

_FEW_TEXTS = 100  # of a batch that is not worth more than SentencePiece's own way
_BLOCK_CHARACTERS = 1 << 21


class BatchEncoder:
    """Cleans and encodes texts, by their fragments in large batches if the model allows it."""

    def __init__(
        self,
        processor: sentencepiece.SentencePieceProcessor,
        table: PieceTable,
        commas: CommaRule,
        cleaning: CleaningConfig,
    ):
        self._processor, self._table = processor, table
        self._commas, self._cleaning = commas, cleaning

    @functools.cached_property
    def _fragments(self) -> FragmentEncoder | None:
        if not has_fragments(self._table):
            return None
        return FragmentEncoder(self._table, self._processor, self._commas.split)

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns (ids [N], lengths [texts]): see XLNetTokenizer.encode_batch."""
        if len(texts) < _FEW_TEXTS:
            return self._encode_whole([clean_text(text, self._cleaning) for text in texts])
        blocks = [self._encode_block(clean_texts(block, self._cleaning)) for block in _blocks(texts)]
        ids, lengths = map(np.concatenate, zip(*blocks, strict=True))
        return ids, lengths

    def _encode_whole(self, cleaned: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes cleaned texts, each as a whole; returns (ids [N], lengths [texts])."""
        rows = self._processor.encode(cleaned, out_type=int, num_threads=1)
        if self._commas.unknown_may_end_in_comma:
            for index, row in enumerate(rows):
                if UNK_ID in row:
                    rows[index] = [piece_id for _, piece_id in self._commas.encode(cleaned[index])]
        lengths = np.fromiter(map(len, rows), np.int32, len(rows))
        ids = np.fromiter(itertools.chain.from_iterable(rows), np.int32, lengths.sum())
        return self._commas.split(ids, lengths)

    def _encode_block(self, cleaned: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes cleaned texts, by fragments where that is safe; returns (ids [N], lengths [texts])."""
        if self._fragments is None:
            return self._encode_whole(cleaned)
        ids, lengths, done = self._fragments.encode(cleaned)
        if done.all():
            return ids, lengths
        whole_ids, lengths[~done] = self._encode_whole([cleaned[i] for i in np.flatnonzero(~done).tolist()])
        of_fragments = np.repeat(done, lengths)
        merged = np.empty(len(of_fragments), np.int32)
        merged[of_fragments], merged[~of_fragments] = ids, whole_ids
        return merged, lengths


def _blocks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cuts texts into blocks of about _BLOCK_CHARACTERS, which bounds the memory that a batch takes."""
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    borders = np.flatnonzero(np.diff(ends // _BLOCK_CHARACTERS, prepend=-1))
    for begin, end in itertools.pairwise([*borders.tolist(), len(texts)]):
        yield texts[begin:end]
