"""Finds texts of an evaluation in a corpus by their letters and digits, whatever else differs."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID, UNK_ID

WINDOW = 50  # letters and digits; different texts hardly ever share so long a run
_UNKNOWN = "\ufffd"


def letters(text: str) -> str:
    """Returns the letters and digits of a text, in lower case and without marks, for comparing."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKD", text).casefold())


class HeldOut:
    """Texts that must not be trained on.

    A document contains such a text if it has its first WINDOW letters and digits anywhere, or, if the text is
    shorter, if it equals it. So texts that were cut at a maximal length are found, too. Each text has U+FFFD
    where it could not be restored from its pieces.
    """

    def __init__(self, texts: Iterable[str]):
        self._begins: set[str] = set()
        for text in texts:
            runs = [letters(run) for run in text.split(_UNKNOWN)]
            begin = next((run[:WINDOW] for run in runs if len(run) >= WINDOW), "")
            self._begins.add(begin or (runs[0] if len(runs) == 1 else ""))
        self._begins.discard("")

    def __len__(self) -> int:
        return len(self._begins)

    def is_in(self, content: str) -> bool:
        """Returns whether a document, passed through `letters`, contains one of the texts."""
        starts = range(max(1, len(content) - WINDOW + 1)) if self._begins else ()
        return any(content[start : start + WINDOW] in self._begins for start in starts)


def whole_texts_of(examples: ExampleSet) -> list[str]:
    """Returns the uncut texts of a set; if it does not keep them, `texts_of`."""
    found = [text for line in examples.sidecar() for text in _texts_in(line)]
    return found or [*texts_of(examples)]


def _texts_in(line: Mapping[str, Any]) -> Iterator[str]:
    """Yields the texts in a line of examples.jsonl; a question's passage is not among them."""
    if "query" in line:
        yield line["query"]
    for part in (line, *line.get("parts", ()), *line.get("passages", ())):
        yield from (part[name] for name in ("text", "text_pair") if part.get(name))


def texts_of(examples: ExampleSet) -> Iterator[str]:
    """Yields the texts of a set of examples, restored from the pieces between special tokens."""
    tokenizer = examples.load_tokenizer()
    pieces = np.array([piece.replace("▁", " ") for piece in tokenizer.pieces], object)
    pieces[UNK_ID] = _UNKNOWN
    borders = np.isin(np.arange(len(pieces)), (CLS_ID, SEP_ID, PAD_ID))  # not <eop>, which texts may spell
    for columns in examples.read_shards():
        for row in columns["input_ids"].astype(np.int64):
            for run in np.split(row, np.flatnonzero(borders[row])):
                if text := "".join(pieces[run[borders[run].sum() :]]).strip():
                    yield text
