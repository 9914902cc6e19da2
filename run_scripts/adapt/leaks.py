"""Finds texts of an evaluation in a corpus by their letters and digits, whatever else differs."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.shards import read_shard
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID, UNK_ID

WINDOW = 50  # letters and digits; different texts hardly ever share so long a run
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that it has an inverse modulo 2**64
_INVERSE = np.uint64(pow(0x9E3779B97F4A7C15, -1, 2**64))
_UNKNOWN = "\ufffd"


def letters(text: str) -> str:
    """Returns what counts of a text: its letters and digits, in small letters, without marks."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKD", text).casefold())


class HeldOut:
    """Texts that must not be trained on.

    A document holds such a text if it has its first WINDOW letters and digits anywhere, or, where the text
    has fewer, if it is nothing else. So a text that was cut at a maximal length is found, too.

    Args:
        texts: each with U+FFFD where it could not be read back from its pieces.
    """

    def __init__(self, texts: Iterable[str]):
        self._windows: set[str] = set()
        self._short: set[str] = set()
        for text in texts:
            runs = [letters(run) for run in text.split(_UNKNOWN)]
            window = next((run[:WINDOW] for run in runs if len(run) >= WINDOW), "")
            if window:
                self._windows.add(window)
            elif len(runs) == 1 and runs[0]:
                self._short.add(runs[0])
        self._hashes = np.sort(np.array([_hashes(window)[0] for window in self._windows], np.uint64))

    def __len__(self) -> int:
        return len(self._windows) + len(self._short)

    def is_in(self, content: str) -> bool:
        """Returns whether a document holds one of the texts, given what `letters` gave for it."""
        if content in self._short:
            return True
        if len(content) < WINDOW or not len(self._hashes):
            return False
        hashes = _hashes(content)
        found = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        begins = np.flatnonzero(self._hashes[found] == hashes)
        return any(content[begin : begin + WINDOW] in self._windows for begin in begins)


def _hashes(content: str) -> np.ndarray:
    """Returns a hash of each WINDOW of characters: uint64 [characters - WINDOW + 1]."""
    codes = np.frombuffer(content.encode("utf-32-le"), np.uint32).astype(np.uint64)
    # The window at i is the sum of codes times powers, divided by power i: all modulo 2**64.
    powers = np.cumprod(np.full(len(codes), _FACTOR))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(codes * powers)])
    inverses = np.cumprod(np.full(len(codes) - WINDOW + 1, _INVERSE))
    return (sums[WINDOW:] - sums[:-WINDOW]) * inverses


def whole_texts_of(examples: ExampleSet) -> list[str]:
    """Returns the texts of a set as they were before any was cut; where it does not keep them, `texts_of`."""
    found = [text for line in examples.sidecar() for text in _texts_in(line)]
    return found or [*texts_of(examples)]


def _texts_in(line: Mapping[str, Any]) -> Iterator[str]:
    """Yields the texts that a line of examples.jsonl has; a question's passage is not in it."""
    if "query" in line:
        yield line["query"]
    for part in (line, *line.get("parts", ()), *line.get("passages", ())):
        yield from (part[name] for name in ("text", "text_pair") if part.get(name))


def texts_of(examples: ExampleSet) -> Iterator[str]:
    """Yields the texts of a set of examples, read back from the pieces between special tokens."""
    tokenizer = examples.load_tokenizer()
    pieces = np.array([piece.replace("▁", " ") for piece in tokenizer.pieces], object)
    pieces[UNK_ID] = _UNKNOWN
    borders = np.isin(np.arange(len(pieces)), (CLS_ID, SEP_ID, PAD_ID))  # not <eop>, which texts may spell
    for shard in examples.shards:
        for row in read_shard(examples.folder / shard["file"], examples.layout)["input_ids"].astype(np.int64):
            for run in np.split(row, np.flatnonzero(borders[row])):
                if text := "".join(pieces[run[borders[run].sum() :]]).strip():
                    yield text
