"""What a set of examples should be warned of: text that the tokenizer cannot write, and repeated inputs."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from xlnet_tf.records import shards as shards_lib
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID, UNK_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

if TYPE_CHECKING:
    from xlnet_tf.records.examples import ExampleSet

MAX_UNKNOWN_SHARE = 0.01
PIECES, UNKNOWN_PIECES = "pieces of text", "pieces unknown (<unk>)"
TEXTS, UNKNOWN_TEXTS = "texts", "texts of <unk> alone"
REPEATED = "inputs equal to an earlier one"
_DIGEST_BYTES = 8


def is_unknown(ids: Sequence[int], tokenizer: XLNetTokenizer) -> bool:
    """Tells whether a word's pieces say nothing of it: <unk> alone, but for the mark of a space before it."""
    return UNK_ID in ids and not set(ids) - {UNK_ID, tokenizer.space_id}


class InputCounts:
    """Counts, as examples are written, what their inputs are made of.

    A text is what stands between two special tokens: of a pair each one, of a question a window of its
    passage, the question, and each option.

    Args:
        tokenizer: of the examples.
        seq_len: tokens of a sequence; an example may have several.
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
        of_text = number.ravel() if number.ndim > 1 else number
        has = {
            name: np.bincount(of_text[inside & mask.ravel()], minlength=texts) > 0
            for name, mask in (("unknown", unknown), ("known", ~unknown & (ids != self._space)))
        }
        found = {
            PIECES: int(inside.sum()),
            UNKNOWN_PIECES: int((unknown & ~special).sum()),
            TEXTS: texts,
            UNKNOWN_TEXTS: int((has["unknown"] & ~has["known"]).sum()),
            REPEATED: 0,
        }
        for value in _fingerprints(ids, self._seq_len):
            found[REPEATED] += value in self._seen
            self._seen.add(value)
        for name, value in found.items():
            self.statistics[name] += value


def _fingerprints(ids: np.ndarray, seq_len: int) -> Iterator[int]:
    """Yields a number for each sequence of examples [n, S * T] that is not padding alone."""
    sequences = np.ascontiguousarray(ids.reshape(-1, seq_len), np.int32)
    for sequence in sequences[(sequences != PAD_ID).any(axis=1)]:
        yield int.from_bytes(
            hashlib.blake2b(sequence.tobytes(), digest_size=_DIGEST_BYTES).digest(), "little"
        )


def warnings(examples: "ExampleSet") -> list[str]:
    """Returns what should be mended in a set before a model is trained on it.

    Args:
        examples: a set; those of earlier versions have no counts, and so no warnings.
    """
    pieces, unknown = (examples.statistics.get(name, 0) for name in (PIECES, UNKNOWN_PIECES))
    if not pieces or unknown < MAX_UNKNOWN_SHARE * pieces:
        return []
    alone, texts = (examples.statistics.get(name, 0) for name in (UNKNOWN_TEXTS, TEXTS))
    only = f", and {alone:,} of {texts:,} texts have no other" if alone else ""
    return [
        f"{unknown / pieces:.1%} of the pieces of {examples.split} are <unk>{only}: the tokenizer cannot "
        "write this text, and the model cannot tell such words from each other. Take a tokenizer and weights "
        "of the text's language, script and case (--lower), or train them (run_scripts.train_tokenizer)"
    ]


def summary(sets: Mapping[str, "ExampleSet"]) -> str:
    """Returns what a person wants to know of the sets that a builder has made: split -> set."""
    shared = [f"WARNING: {warning}" for warning in shared_with_train(sets)]
    return "\n".join([*(examples.table() for examples in sets.values()), *shared])


def shared_with_train(sets: Mapping[str, "ExampleSet"]) -> list[str]:
    """Returns what dev and test sets have in common with the training set, a line for each that has anything.

    Args:
        sets: split -> set; without "train" there is nothing to compare.
    """
    if "train" not in sets:
        return []
    trained_on = {value for ids, seq_len in _all_ids(sets["train"]) for value in _fingerprints(ids, seq_len)}
    lines = []
    for split, examples in sets.items():
        if split == "train":
            continue
        values = [value for ids, seq_len in _all_ids(examples) for value in _fingerprints(ids, seq_len)]
        if shared := sum(value in trained_on for value in values):
            lines.append(
                f"{shared:,} of {len(values):,} inputs of {split} are in train, too: its scores will be too "
                f"good. Remove them from one of both ({sets['train'].folder}, {examples.folder})"
            )
    return lines


def _all_ids(examples: "ExampleSet") -> Iterator[tuple[np.ndarray, int]]:
    """Yields the token ids of a set [n, S * T], shard by shard, and T."""
    for shard in examples.shards:
        columns = shards_lib.read_shard(
            examples.folder / shard["file"], examples.layout, count=shard["records"]
        )
        yield columns["input_ids"], examples.seq_len
