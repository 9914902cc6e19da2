"""Encodes many texts by their fragments: what lies between borders that no piece of the vocabulary crosses.

A text's pieces are those of its fragments, one after another, and fragments repeat: words do, with the space
before them, and what punctuation cuts off. So each is encoded once, and texts are put together from them.

SentencePiece adds up the scores of a text's pieces in float32, so that two ways to split a fragment whose
scores are nearly or exactly equal ("soo|oo", "so|ooo") win or lose by what stands before them. A fragment is
therefore used only where its best way is better than its second best by more than rounding can be; the texts
that hold another one are to be encoded as a whole.
"""

import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from xlnet_tf.text.special_tokens import UNK_ID

# What SentencePiece does to a text before it splits it: these leave printable ASCII as it is, and no ASCII
# character melts into what stands before it.
_NORMALIZATIONS = ("nmt_nfkc", "nfkc", "identity")
_SPACE = "\u2581"
_UNKNOWN_PENALTY = 10  # below the least score: SentencePiece's score of an unknown character

# Flags of two adjacent bytes.
_BORDER = 1  # a fragment ends between them
_WHOLE = 2  # SentencePiece changes such a text before it splits it

_MAX_FRAGMENT_BYTES = 64
_MAX_MEAN_BYTES = 16  # of fragments, above which a batch has too few of them to repeat
_MAX_KNOWN = 1 << 18

# The entropy of a fragment's ways to be split, their scores multiplied by _SHARPNESS, is above _MAX_ENTROPY
# (nats) wherever the second best way's score is within _MARGIN of the best one's.
_SHARPNESS, _MAX_ENTROPY, _MARGIN = 16.0, 0.05, 0.2

Split = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class _Fragments:
    """Fragments as pieces.

    Args:
        ids: int32 [N], the pieces of all, one after another.
        lengths: int32 [F], pieces of each.
        reach: float32 [F], the longest text, in pieces, that surely splits the fragment like this.
    """

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


def has_fragments(model_proto: bytes) -> bool:
    """Returns whether texts of a SentencePiece model are their fragments, one after another."""
    model = sentencepiece_model_pb2.ModelProto.FromString(model_proto)
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    return (
        trainer.model_type == trainer.UNIGRAM
        and not trainer.treat_whitespace_as_suffix
        and normalizer.name in _NORMALIZATIONS
        and not normalizer.normalization_rule_tsv
        and normalizer.add_dummy_prefix
        and normalizer.remove_extra_whitespaces
        and normalizer.escape_whitespaces
        and not _has_symbol_inside(model)
    )


class FragmentEncoder:
    """Encodes batches of texts and remembers their fragments; threads may share it.

    Args:
        model_proto: a serialized SentencePiece model, of which `has_fragments` is true.
        split: what is done to pieces after SentencePiece, to each by itself: takes and returns the pieces of
            all texts and how many each has, int32 [N] and int32 [texts].
    """

    def __init__(self, model_proto: bytes, split: Split):
        self._split = split
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
        # A fragment has the space before it, if there is one, as its own.
        self._processor.override_normalizer_spec(add_dummy_prefix=False, remove_extra_whitespaces=False)
        model = sentencepiece_model_pb2.ModelProto.FromString(model_proto)
        self._flags = _flags_of_pairs([piece.piece for piece in model.pieces])
        self._largest_score = _largest_score(model)
        self._lock = threading.Lock()
        self._forget()

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Encodes the texts that their fragments determine.

        Args:
            texts: at least one string.

        Returns:
            (ids, lengths, done): int32 [N], the pieces of all those texts one after another; int32 [texts],
            how many each has; bool [texts], which texts these are. The others, to be encoded as a whole, have
            no pieces. None are done where fragments are too long to repeat, or texts have line ends.
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
                fragments = [distinct[index] for index in new]
                rows[new] = len(self._rows) + np.arange(len(new))
                self._known += self._encode_fragments(fragments)
                self._rows.update(zip(fragments, rows[new].tolist()))
            return self._known.take(rows)

    def _forget(self) -> None:
        """Starts with no fragments; the line end, which is in no text, has no pieces and stops nothing."""
        self._rows = {b"\n": 0}
        self._known = _Fragments(np.zeros(0, np.int32), np.zeros(1, np.int32), np.full(1, np.inf, np.float32))

    def _encode_fragments(self, fragments: list[bytes]) -> _Fragments:
        """Encodes fragments that are met for the first time."""
        reach = np.zeros(len(fragments), np.float32)
        usable = [
            row
            for row, fragment in enumerate(fragments)
            if len(fragment) <= _MAX_FRAGMENT_BYTES and (fragment.isascii() or self._is_unchanged(fragment))
        ]
        texts = [fragments[row].decode() for row in usable]
        rows = self._processor.encode(texts, num_threads=1)
        lengths = np.zeros(len(fragments), np.int32)
        lengths[usable] = [len(row) for row in rows]
        ids = np.fromiter(itertools.chain.from_iterable(rows), np.int32, lengths.sum())
        # Adjacent unknown characters are one piece, and a piece that stands for many has a larger score.
        known = [UNK_ID not in row for row in rows]
        reach[usable] = known * self._reaches(texts)
        return _Fragments(*self._split(ids, lengths), reach)

    def _is_unchanged(self, fragment: bytes) -> bool:
        """Whether SentencePiece leaves a fragment as it is before it splits it."""
        text = fragment.decode()
        return self._processor.normalize(text).replace(_SPACE, " ") == text

    def _reaches(self, texts: list[str]) -> np.ndarray:
        """Returns how long, in pieces, a text may be that surely splits each fragment as it is split alone.

        A sum of n scores up to s is off by up to n * s * 2^-24 with each score that is added. In a fragment
        of c characters either way adds c scores at most, so that a margin above 2 * c * n * s * 2^-24 is
        sure; half of it is left to the margin's own rounding.
        """
        margins = np.full(len(texts), _MARGIN)
        entropies = np.array(self._processor.calculate_entropy(texts, _SHARPNESS, num_threads=1))
        for row in np.flatnonzero(~(entropies < _MAX_ENTROPY)):
            ways = self._processor.nbest_encode(texts[row], nbest_size=2, out_type="immutable_proto").nbests
            margins[row] = ways[0].score - ways[1].score if len(ways) > 1 else np.inf
        characters = np.fromiter(map(len, texts), np.int64, len(texts))
        return margins * 2**22 / (characters * self._largest_score)


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
    spelled = np.frombuffer("\n".join(pieces).replace(_SPACE, " ").encode(), np.uint8)
    flags[spelled[:-1], spelled[1:]] = 0
    flags[:, 0x80:] = 0  # what is not ASCII may melt into what stands before it, and has more than one byte
    flags[newline], flags[:, newline] = _BORDER, _BORDER
    changed = [code for code in range(0x80) if not chr(code).isprintable() and code != newline]
    flags[changed] |= _WHOLE
    flags[:, changed] |= _WHOLE
    flags[space, [space, newline]] |= _WHOLE
    return flags.ravel()


def _has_symbol_inside(model: sentencepiece_model_pb2.ModelProto) -> bool:
    """Whether a piece holds a user-defined symbol that is not ASCII.

    SentencePiece scores it by its bytes where it encodes, but by its characters where it lists the ways.
    """
    normal = "\n".join(piece.piece for piece in model.pieces if piece.type == piece.NORMAL)
    symbols = [piece.piece for piece in model.pieces if piece.type == piece.USER_DEFINED]
    return any(symbol in normal for symbol in symbols if not symbol.isascii())


def _largest_score(model: sentencepiece_model_pb2.ModelProto) -> float:
    """Returns the largest magnitude of a piece's score, as SentencePiece scores it."""
    scores = np.array([piece.score for piece in model.pieces if piece.type == piece.NORMAL])
    symbols = [len(piece.piece.encode()) for piece in model.pieces if piece.type == piece.USER_DEFINED]
    return max(_UNKNOWN_PENALTY - scores.min(), max(symbols, default=0) * np.abs(scores).max() + 1)
