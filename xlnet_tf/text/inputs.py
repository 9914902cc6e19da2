"""Checks of the texts that users give, and what joins them."""

import re
from collections.abc import Iterable, Mapping

from xlnet_tf.errors import UserError, short_repr

_BLANK = re.compile("_+")


def text_list(texts: object, name: str) -> list[str]:
    """Returns texts as a list; checks that they are strings, and in an order."""
    if isinstance(texts, (str, bytes, Mapping, set, frozenset)) or not isinstance(texts, Iterable):
        raise UserError(f"{name} is one {type(texts).__name__}; expected a list of strings.")
    check_no_table(texts, name)
    texts = list(texts)
    for index, text in enumerate(texts):
        check_text(text, f"{name}[{index}]")
    return texts


def check_no_table(texts: object, name: str):
    """Raises UserError, which calls the value `name`, for a table: iterating it gives column names."""
    if hasattr(texts, "columns"):
        raise UserError(
            f"{name} is a {type(texts).__name__}; expected one of its columns, such as table['text']."
        )


def check_text(text: object, name: str):
    """Raises UserError, which calls the value `name`, unless it is a string that UTF-8 can encode."""
    if not isinstance(text, str):
        decode = "; decode it: .decode('utf-8')" if isinstance(text, bytes) else ""
        raise UserError(f"{name} is {short_repr(text)}; expected a string{decode}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{name} is {short_repr(text)}: its character {error.start + 1:,}, {text[error.start]!r}, is a "
            "byte that is not UTF-8, or half of a surrogate pair. Convert the text to UTF-8, or remove it."
        ) from None


def join_option(question: str, option: str) -> str:
    """Puts an option into each blank of a question (a run of underscores), or after it if it has none."""
    if "_" in question:
        return _BLANK.sub(lambda _: option, question)
    return f"{question} {option}"
