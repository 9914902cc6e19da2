"""Rows of a corpus, each for one prediction. A row that cannot be read has an error."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from typing_extensions import Self

from tfrecord_builders.common.rows import BadRow, parse_row
from tfrecord_builders.common.streams import line_number

MAX_NUL_SHARE = 0.01  # of a text's bytes; UTF-16 has one at least for each space and line's end


@dataclasses.dataclass(frozen=True)
class CorpusRow:
    """An object of jsonl, a row of a table or of parquet, or a line or document of text."""

    source: str
    start: int  # byte of the uncompressed file where it begins or, `numbered`, its number from 0
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    error: str = ""  # why it cannot be read
    numbered: bool = False

    @classmethod
    def of_json(cls, source: str, start: int, line: bytes) -> Self:
        try:
            return cls(source, start, parse_row(line.decode()))
        except UnicodeDecodeError as error:
            return cls(source, start, error=not_utf8(error))
        except BadRow as error:
            return cls(source, start, error=str(error))

    @classmethod
    def of_text(cls, source: str, start: int, text: bytes, field: str) -> Self:
        if text.count(0) > MAX_NUL_SHARE * len(text):
            reason = "NUL bytes: this is UTF-16 or no text at all, expected UTF-8"
            return cls(source, start, error=reason)
        try:
            return cls(source, start, {field: text.decode().strip()})
        except UnicodeDecodeError as error:
            return cls(source, start, error=not_utf8(error))

    @property
    def location(self) -> dict[str, Any]:
        """The source and the row's line or number from 1, for people; may read the file up to it."""
        if self.numbered:
            return {"source": self.source, "row": self.start + 1}
        line = line_number(self.source, self.start)
        return {"source": self.source, "line": line, "byte": self.start}

    @property
    def where(self) -> str:
        kind = "row" if self.numbered else "line"
        return f"{self.source}, {kind} {self.location[kind]}"


def plain_value(value: Any) -> Any:
    """Converts a value to json; types without a json form (dates, decimals, bytes) become texts."""
    if isinstance(value, dict):
        return {str(name): plain_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return NotUtf8(value.decode(errors="backslashreplace"))
    return str(value)


class NotUtf8(str):
    """Bytes that are not UTF-8, in readable form; not an input for a model."""


def is_text(value: Any) -> bool:
    """Returns whether a value of a row is a text that a model can read."""
    return isinstance(value, str) and not isinstance(value, NotUtf8)


def not_utf8(error: UnicodeDecodeError) -> str:
    return f"byte {error.start + 1} of the row (0x{error.object[error.start]:02x}) is not UTF-8"
