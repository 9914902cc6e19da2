"""Reads multiple-choice questions: RACE as it is distributed, RACE as jsonl, and a person's own jsonl."""

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

from etils import epath

from tfrecord_builders.common.tables import Row, TableFormat, read_table
from xlnet_tf import files
from xlnet_tf.errors import UserError

UNKNOWN = -1
LEVELS = ("middle", "high")
_OBJECTS = TableFormat("jsonl")


class Question(NamedTuple):
    """One question about a context.

    Attributes:
        id: of the question.
        context: the text to read.
        question: the question, or the beginning of a sentence, or a sentence with a blank `_`; may be empty.
        options: C texts.
        answer: index of the right option; -1 if it is not known.
        level: a name for the kind of question, RACE's middle or high for instance; may be empty.
        location: file and line.
    """

    id: str
    context: str
    question: str
    options: list[str]
    answer: int
    level: str
    location: str


def read_questions(path: epath.PathLike, skip: Callable[[str, str], None]) -> Iterator[Question]:
    """Reads the questions of a file or folder.

    Args:
        path: a folder of RACE's .txt files, or of folders of them (RACE/dev); or a jsonl file, plain or .gz,
            with RACE's objects {id, article, questions, options, answers}, or one question a line:
            {context, question, options, answer} and, if you like, id and level. An answer is a letter (A is
            the first option) or a number (0 is the first option); it is left out where it is not known.
        skip: called with reason and location of each question that is left out.

    Yields:
        The questions, in the order of the files.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: a file is not as it should be; the message has file and line.
    """
    path = epath.Path(path)
    texts = [path]
    if path.is_dir():
        texts = sorted(file for at in (path, *files.entries(path)) for file in files.files_in(at, ".txt"))
        if not texts:
            raise UserError(f"{path} has no .txt files, expected RACE's middle/*.txt and high/*.txt")
    for file in texts:
        for row in read_table(file, _OBJECTS):
            for question in _race_questions(row) if "article" in row else [_own_question(row)]:
                reason = _reason_to_skip(question)
                if reason:
                    skip(reason, question.location)
                else:
                    yield question


def _race_questions(row: Row) -> Iterator[Question]:
    name = row.text("id").removesuffix(".txt")
    level = next((level for level in LEVELS if name.startswith(level)), "")
    lists = [_list(row, column) for column in ("questions", "options")]
    lists.append(_list(row, "answers") if "answers" in row else [""] * len(lists[0]))
    if len({len(values) for values in lists}) > 1:
        raise UserError(
            f"{row.location}: {len(lists[0])} questions, {len(lists[1])} lists of options and "
            f"{len(lists[2])} answers, expected as many of each"
        )
    for number, (question, options, answer) in enumerate(zip(*lists)):
        location = f"{row.location} question {number + 1}"
        options = _nested_list(options, location)
        yield Question(
            f"{name}-{number}",
            row.text("article"),
            question,
            options,
            _answer_index(answer, len(options), location),
            level,
            location,
        )


def _own_question(row: Row) -> Question:
    options = _list(row, "options")
    answer = row.text("answer") if "answer" in row else ""
    return Question(
        row.text("id") if "id" in row else row.location,
        row.text("context"),
        row.text("question"),
        options,
        _answer_index(answer, len(options), row.location),
        row.text("level") if "level" in row else "",
        row.location,
    )


def _list(row: Row, column: str) -> list[str]:
    values = row[column]
    if not isinstance(values, list):
        raise UserError(f"{row.location}: {column} is {values!r}, expected a list")
    return values


def _nested_list(value: str, location: str) -> list[str]:
    """Returns the texts of a list within a list, which a table gives as json."""
    try:
        values = json.loads(value)
    except ValueError:
        values = value
    if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
        raise UserError(f"{location}: options are {value}, expected a list of texts")
    return values


def _answer_index(answer: str, count: int, location: str) -> int:
    """Returns the index of the option that a letter or a number names; -1 for an empty answer."""
    if not answer:
        return UNKNOWN
    if not count:
        raise UserError(f"{location}: there are no options")
    index = int(answer) if answer.isdecimal() else ord(answer) - ord("A") if len(answer) == 1 else -1
    if not 0 <= index < count:
        last = chr(ord("A") + count - 1)
        raise UserError(f"{location}: the answer is {answer!r}, expected A to {last} or 0 to {count - 1}")
    return index


def _reason_to_skip(question: Question) -> str:
    if not question.context.strip():
        return "empty context"
    return "" if all(option.strip() for option in question.options) else "empty option"
