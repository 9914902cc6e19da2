"""The passages of a set of questions, with the offset of each token in the raw text.

They are stored with the examples, one per line, so that answers can be read from the raw text.
"""

import json
from collections.abc import Sequence
from typing import IO, NamedTuple

from etils import epath
from typing_extensions import Self

from xlnet_tf.hub import checksums

PASSAGES_FILE = "passages.jsonl"


class Passage(NamedTuple):
    """A passage's raw text, and where its tokens begin and end in it, as in `text.offsets.Encoded`."""

    text: str
    begins: Sequence[int]
    ends: Sequence[int]

    def write(self, file: IO[str]) -> None:
        file.write(json.dumps(self._asdict(), ensure_ascii=False) + "\n")

    @classmethod
    def read_all(cls, folder: epath.Path) -> list[Self]:
        """Returns the passages of the set in a folder; raises UserError if the file was changed."""
        checksums.check(folder / PASSAGES_FILE)
        with (folder / PASSAGES_FILE).open("r", encoding="utf-8") as file:
            return [cls(**json.loads(line)) for line in file]
