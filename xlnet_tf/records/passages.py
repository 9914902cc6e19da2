"""The passages of a set of questions: their texts, and where in them each token is.

They lie next to the examples, one a line, so that answers can be read from the raw text.
"""

import json
from collections.abc import Sequence
from typing import IO, NamedTuple

from etils import epath
from typing_extensions import Self

from xlnet_tf.hub import checksums

PASSAGES_FILE = "passages.jsonl"


class Passage(NamedTuple):
    """A passage and the offsets of its tokens in it.

    Attributes:
        text: the raw text.
        begins, ends: [tokens] each, as `text.offsets.Encoded` has them.
    """

    text: str
    begins: Sequence[int]
    ends: Sequence[int]

    def write(self, file: IO[str]) -> None:
        """Adds the passage to an open file."""
        file.write(json.dumps(self._asdict(), ensure_ascii=False) + "\n")

    @classmethod
    def read_all(cls, folder: epath.Path) -> list[Self]:
        """Returns the passages of the set in a folder; UserError if they are not as they were written."""
        checksums.check(folder / PASSAGES_FILE)
        with (folder / PASSAGES_FILE).open("r", encoding="utf-8") as file:
            return [cls(**json.loads(line)) for line in file]
