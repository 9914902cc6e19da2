"""One line of jsonl: a document."""

import json


class BadDocument(Exception):
    """A line that is not a document.

    Args:
        message: what was found, and what was expected.
        offset: byte of the line where it was found.
    """

    def __init__(self, message: str, offset: int = 0):
        super().__init__(message)
        self.offset = offset


def document_text(line: bytes, field: str) -> str:
    """Returns the text of a document.

    Args:
        line: a json object.
        field: its field that holds the text.

    Raises:
        BadDocument: it is not a json object, or has no such field of text.
    """
    try:
        document = json.loads(line)
    except UnicodeDecodeError as error:
        raise BadDocument(f" is not UTF-8 (byte 0x{line[error.start]:02x})", error.start) from None
    except (ValueError, RecursionError) as error:
        raise BadDocument(
            f" is not json ({error}): found {_shown(line.decode(errors='replace'))}, expected an object "
            f"with a document's text, such as {json.dumps({field: 'A sentence.'})}"
        ) from None
    if not isinstance(document, dict):
        raise BadDocument(f": found a {type(document).__name__}, expected an object with a field {field!r}")
    if field not in document:
        raise BadDocument(
            f": found an object with the fields {_shown(', '.join(document))}, expected a field {field!r}: "
            "name the field with the text by --text_field"
        )
    if not isinstance(document[field], str):
        raise BadDocument(f": {field!r} is {_shown(json.dumps(document[field]))}, expected a string")
    return document[field]


def _shown(text: str) -> str:
    """Returns the begin of a text for a message."""
    return text if len(text) <= 80 else text[:80] + "..."
