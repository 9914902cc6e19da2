"""Encodes many texts by their fragments: the text between borders that no piece of the vocabulary crosses.

A text's pieces are those of its fragments, one after another, and fragments repeat: words do, with the space
before them, and what punctuation cuts off. So each is encoded once, and texts are put together from them.

SentencePiece adds up the scores of a text's pieces in float32, so that two ways to split a fragment whose
scores are nearly or exactly equal ("soo|oo", "so|ooo") win or lose by what stands before them. A fragment is
therefore used only where its best way is better than its second best by more than rounding can be; the texts
that hold another one are to be encoded as a whole. `viterbi.py` finds both.
"""

import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence

import numpy as np
import sentencepiece

from xlnet_tf.text.special_tokens import UNK_ID
from xlnet_tf.text.viterbi import Viterbi
from xlnet_tf.text.vocabulary import UNDERLINE, PieceTable

# What SentencePiece does to a text before it splits it: these leave printable ASCII as it is, and no ASCII
# character melts into what stands before it.
_NORMALIZATIONS = ("nmt_nfkc", "nfkc", "identity")

# Flags of two adjacent bytes.
_BORDER = 1  # a fragment ends between them
_WHOLE = 2  # SentencePiece changes such a text before it splits it

_MAX_FRAGMENT_BYTES = 64
_MAX_MEAN_BYTES = 16  # of fragments, above which a batch has too few of them to repeat
_MAX_KNOWN = 1 << 18

Split = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class _Fragments:
    """Fragments' pieces [N], their numbers [F], and the longest text in which each is surely split so."""

    ids: np.ndarray
    lengths: np.ndarray
    reach: np.ndarray

    def __add__(self, other: "_Fragments") -> "_Fragments":
        return _Fragments(
            np.append(self.ids, other.ids),
            np.append(self.lengths, other.lengths),
            np.append(self.reach, other.reach),
        )

    def take(self, rows: np.ndarray) -> "_Fragments":
        """Returns some of the fragments, in the order of `rows`."""
        begins = np.cumsum(self.lengths) - self.lengths
        lengths = self.lengths[rows]
        return _Fragments(self.ids[_ragged(begins[rows], lengths)], lengths, self.reach[rows])


def has_fragments(table: PieceTable) -> bool:
    """Returns whether a SentencePiece model encodes a text by its fragments, one after another."""
    trainer, normalizer = table.trainer, table.normalizer
    return (
        trainer.model_type == trainer.UNIGRAM
        and normalizer.name in _NORMALIZATIONS
        and not normalizer.normalization_rule_tsv
        and normalizer.remove_extra_whitespaces
    )


class FragmentEncoder:
    """Encodes batches of texts and remembers their fragments; threads may share it.

    `split` is applied to the pieces after SentencePiece; it takes and returns the pieces of all texts, int32
    [N], and how many each has, int32 [texts].
    """

    def __init__(self, table: PieceTable, processor: sentencepiece.SentencePieceProcessor, split: Split):
        self._processor, self._split = processor, split
        self._flags = _flags_of_pairs(table.pieces)
        scores = table.text_scores
        spelled = np.flatnonzero(~np.isnan(scores))
        scores = scores[spelled]
        # A fragment has the space before it, if there is one, as its own.
        pieces = [table.pieces[piece_id].replace(UNDERLINE, " ").encode() for piece_id in spelled]
        self._viterbi = Viterbi(pieces, scores, table.unknown_score)
        self._piece_ids = np.append(spelled, UNK_ID).astype(np.int32)  # the last is that of piece -1
        self._largest_score = max(np.abs(scores).max(), -table.unknown_score)
        self._lock = threading.Lock()
        self._forget()

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Encodes the texts that their fragments determine, unless these are too long to repeat.

        Returns their pieces, int32 [N]; how many each text has, int32 [texts], 0 for the others, which need
        encoding as a whole; and which are done, bool [texts].
        """
        # Each text gets the space that SentencePiece puts before it, and a line end.
        data = (" " + "\n ".join(texts) + "\n").encode()
        text = np.frombuffer(data, np.uint8)
        pairs = text[:-1].astype(np.uint16) << np.uint16(8)
        pairs |= text[1:]
        flags = self._flags.take(pairs)
        ends = np.append(np.flatnonzero((flags & _BORDER).view(bool)) + 1, len(data))
        if len(data) > _MAX_MEAN_BYTES * len(ends) or data.count(b"\n") != len(texts):
            return np.zeros(0, np.int32), np.zeros(len(texts), np.int32), np.zeros(len(texts), bool)

        distinct, number = _distinct(data, ends)
        fragments = self._look_up(distinct)
        lengths = fragments.lengths[number]
        newlines = np.flatnonzero(number == distinct.index(b"\n"))
        starts = np.append(0, newlines[:-1] + 1)  # each text's first fragment
        text_lengths = np.add.reduceat(lengths, starts)
        done = np.minimum.reduceat(fragments.reach[number], starts) > text_lengths
        if len(whole := np.flatnonzero(flags >= _WHOLE)):
            done[np.searchsorted(ends[newlines], whole + 1)] = False
        if not done.all():
            lengths *= np.repeat(done, np.diff(np.append(starts, len(lengths))))
            text_lengths *= done
        begins = np.cumsum(fragments.lengths) - fragments.lengths
        return fragments.ids[_ragged(begins[number], lengths)], text_lengths, done

    def _look_up(self, distinct: list[bytes]) -> _Fragments:
        """Returns fragments, encoding those that are new."""
        with self._lock:
            if len(self._rows) > _MAX_KNOWN:
                self._forget()
            rows = np.fromiter(map(self._rows.get, distinct, itertools.repeat(-1)), np.intp, len(distinct))
            if len(new := np.flatnonzero(rows < 0)):
                new = new[np.argsort([-len(distinct[index]) for index in new.tolist()], kind="stable")]
                fragments = [distinct[index] for index in new.tolist()]
                rows[new] = len(self._rows) + np.arange(len(new))
                self._known += self._encode_fragments(fragments)
                self._rows.update(zip(fragments, rows[new].tolist()))
            return self._known.take(rows)

    def _forget(self) -> None:
        """Forgets all fragments but the line end, which is in no text, has no pieces and blocks no text."""
        self._rows = {b"\n": 0}
        self._known = _Fragments(np.zeros(0, np.int32), np.zeros(1, np.int32), np.full(1, np.inf, np.float32))

    def _encode_fragments(self, fragments: list[bytes]) -> _Fragments:
        """Encodes new fragments; the longest come first."""
        lengths, reach = np.zeros(len(fragments), np.int32), np.zeros(len(fragments), np.float32)
        usable = [
            row
            for row, fragment in enumerate(fragments)
            if len(fragment) <= _MAX_FRAGMENT_BYTES and (fragment.isascii() or self._is_unchanged(fragment))
        ]
        if not usable:
            return _Fragments(np.zeros(0, np.int32), lengths, reach)
        pieces, lengths[usable], leads = self._viterbi.split([fragments[row] for row in usable])
        # Adjacent unknown characters are one piece.
        leads[np.repeat(np.arange(len(usable)), lengths[usable])[pieces < 0]] = 0
        # How long, in pieces, a text may be that surely splits the fragment as it is split alone. A sum of n
        # scores up to s is off by up to n * s * 2^-24 with each score that is added. In a fragment of c bytes
        # either way adds c scores at most, so that a lead above 2 * c * n * s * 2^-24 is sure; here it is
        # twice that.
        sizes = np.array([len(fragments[row]) for row in usable])
        reach[usable] = leads * 2**22 / (sizes * self._largest_score)
        return _Fragments(*self._split(self._piece_ids[pieces], lengths), reach)

    def _is_unchanged(self, fragment: bytes) -> bool:
        """Returns whether SentencePiece's normalization leaves a fragment unchanged."""
        text = "x" + fragment.decode()  # spaces that begin a text would be stripped
        return self._processor.normalize(text).replace(UNDERLINE, " ") == f" {text}"


def _distinct(data: bytes, ends: np.ndarray) -> tuple[list[bytes], np.ndarray]:
    """Numbers fragments that end at `ends`, int [F]; returns (the distinct ones, int32 [F])."""
    import pyarrow  # takes half a second: not for small batches

    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)]
    encoded = pyarrow.BinaryArray.from_buffers(pyarrow.binary(), len(ends), buffers).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _ragged(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the indices begin, begin + 1, ... of each stretch, one stretch after another; int [N]."""
    ends = np.cumsum(lengths)
    return np.repeat(begins - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


def _flags_of_pairs(pieces: Sequence[str]) -> np.ndarray:
    """Returns uint8 [65536], flags by 256 * byte + the byte after it."""
    flags = np.full((256, 256), _BORDER, np.uint8)
    newline, space = ord("\n"), ord(" ")
    spelled = np.frombuffer("\n".join(pieces).replace(UNDERLINE, " ").encode(), np.uint8)
    flags[spelled[:-1], spelled[1:]] = 0
    flags[:, 0x80:] = 0  # what is not ASCII may melt into what stands before it, and has more than one byte
    flags[newline], flags[:, newline] = _BORDER, _BORDER
    changed = [code for code in range(0x80) if not chr(code).isprintable() and code != newline]
    flags[changed] |= _WHOLE
    flags[:, changed] |= _WHOLE
    flags[space, [space, newline]] |= _WHOLE
    return flags.ravel()
