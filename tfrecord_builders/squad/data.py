"""Reads SQuAD's json, 1.1 and 2.0, and tables of questions; finds answers in their passages."""

import dataclasses
import gzip
import json
import re
import zlib
from typing import Any, NamedTuple

from etils import epath

from tfrecord_builders.common.rows import Row, half_character
from tfrecord_builders.common.tables import (
    existing_file,
    infer_format,
    is_columnar,
    is_gzip,
    read_table,
    unpacked_name,
)
from xlnet_tf.errors import UserError

_MAX_BYTES = 1 << 30  # memory holds a file's questions


class SquadAnswer(NamedTuple):
    """An answer as it was given.

    Attributes:
        begin: where the text begins in the passage, in characters; may be wrong.
    """

    text: str
    begin: int


class SquadQuestion(NamedTuple):
    """A question about a passage.

    Attributes:
        answers: all that were given; None if they are not known (a test set).
        impossible: what the data says about it; None if it says nothing, as in 1.1.
        location: file and number of the question, for messages.
    """

    id: str
    text: str
    answers: list[SquadAnswer] | None
    impossible: bool | None
    location: str


class SquadPassage(NamedTuple):
    """A passage and the questions about it."""

    text: str
    questions: list[SquadQuestion]


class SquadFile(NamedTuple):
    """One file of questions.

    Attributes:
        passages: with their questions, in the file's order.
        unanswerable: whether some questions have no answer: version 2.0, or a question marked is_impossible.
    """

    passages: list[SquadPassage]
    unanswerable: bool

    @property
    def answered(self) -> bool:
        """Whether some answers are known."""
        return any(question.answers for passage in self.passages for question in passage.questions)


@dataclasses.dataclass(frozen=True)
class SquadColumns:
    """Which columns of a table hold what.

    Attributes:
        context, question: texts.
        answers: {text: [...], answer_start: [...]} or a list of {text, answer_start}; empty lists for a
            question without an answer. A table without the column has questions whose answers are not known.
        id: if any; else questions are named by file and row.
    """

    context: str = "context"
    question: str = "question"
    answers: str = "answers"
    id: str = "id"


def read_squad(path: epath.PathLike, columns: SquadColumns | None = None) -> SquadFile:
    """Reads a file of questions.

    Args:
        path: json as SQuAD 1.1 and 2.0 have it, plain or .gz; or a table, as `tables.read_table` reads them.
        columns: of a table; None: context, question, answers and id.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: it is not such json or such a table; the message says where, as in
            data[3].paragraphs[0].qas[2].
    """
    if is_columnar(path) or unpacked_name(epath.Path(path)).endswith((".jsonl", ".csv", ".tsv")):
        return _read_rows(path, columns or SquadColumns())
    return _read_json(existing_file(path))


def _read_json(path: epath.Path) -> SquadFile:
    try:
        with path.open("rb") as file:
            content = (gzip.GzipFile(fileobj=file) if is_gzip(path) else file).read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise UserError(f"{path} has more than {_MAX_BYTES:,} bytes of json: split it into several files")
        data = json.loads(content)
    except UserError:
        raise
    except (ValueError, RecursionError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is not json ({error}): expected a file of SQuAD's questions") from None
    passages = []
    for a, article in enumerate(_field(data, "data", list, f"{path}")):
        location = f"{path}: data[{a}]"
        for p, paragraph in enumerate(_field(article, "paragraphs", list, location)):
            passages.append(_passage(paragraph, f"{location}.paragraphs[{p}]"))
    _check_ids(passages, path)
    marked = any(question.impossible for passage in passages for question in passage.questions)
    return SquadFile(passages, marked or str(data.get("version", "")).lstrip("v").startswith("2"))


def _read_rows(path: epath.PathLike, columns: SquadColumns) -> SquadFile:
    passages: list[SquadPassage] = []
    for row in read_table(path, infer_format(path)):
        context = row.text(columns.context)
        if not passages or passages[-1].text != context:
            passages.append(SquadPassage(context, []))
        answers = _row_answers(row, columns.answers)
        passages[-1].questions.append(
            SquadQuestion(
                id=row.text_or(columns.id, row.location),
                text=row.text(columns.question),
                answers=answers,
                impossible=None if answers is None else not answers,
                location=row.location,
            )
        )
    _check_ids(passages, path)
    unanswerable = any(question.impossible for passage in passages for question in passage.questions)
    return SquadFile(passages, unanswerable)


def _row_answers(row: Row, column: str) -> list[SquadAnswer] | None:
    """Returns the answers of a row; None if they are not known."""
    if column not in row or not (value := row[column]) and isinstance(value, str):
        return None
    location = f"{row.location}: {column}"
    try:
        found = [json.loads(text) for text in value] if isinstance(value, list) else json.loads(value)
    except ValueError:
        found = value
    if isinstance(found, dict):
        parts = [found.get(name) for name in ("text", "answer_start")]
        if all(isinstance(part, list) for part in parts) and len(parts[0]) == len(parts[1]):
            found = [{"text": text, "answer_start": begin} for text, begin in zip(*parts)]
        elif not any(isinstance(part, list) for part in parts):
            found = [found]
    if not isinstance(found, list):
        raise UserError(
            f"{location} is {str(value)[:60]!r}, expected {{text: [...], answer_start: [...]}} with as many "
            "of each, or a list of {text, answer_start}"
        )
    return [_answer(entry, location) for entry in found]


def _check_ids(passages: list[SquadPassage], path: epath.PathLike) -> None:
    """Raises UserError unless there are questions and each has an id of its own."""
    ids: dict[str, str] = {}
    for passage in passages:
        for question in passage.questions:
            if (first := ids.setdefault(question.id, question.location)) != question.location:
                raise UserError(f"{question.location}: id {question.id!r} is that of {first}, too")
    if not ids:
        raise UserError(f"{path} has no questions")


def locate(passage: str, answer: SquadAnswer) -> int | None:
    """Finds an answer in its passage.

    Returns:
        Its offset that is nearest to where it was said to be; None if it is nowhere, or empty.
    """
    if not answer.text:
        return None
    if answer.begin >= 0 and passage.startswith(answer.text, answer.begin):
        return answer.begin
    begins = [match.start() for match in re.finditer(f"(?={re.escape(answer.text)})", passage)]
    return min(begins, key=lambda begin: abs(begin - answer.begin)) if begins else None


def _passage(paragraph: Any, location: str) -> SquadPassage:
    text = _field(paragraph, "context", str, location)
    questions = _field(paragraph, "qas", list, location)
    return SquadPassage(text, [_question(entry, f"{location}.qas[{q}]") for q, entry in enumerate(questions)])


def _question(entry: Any, location: str) -> SquadQuestion:
    answers = None
    if isinstance(entry, dict) and "answers" in entry:
        answers = [_answer(answer, location) for answer in _field(entry, "answers", list, location)]
    return SquadQuestion(
        id=_field(entry, "id", str, location),
        text=_field(entry, "question", str, location),
        answers=answers,
        impossible=_field(entry, "is_impossible", bool, location) if "is_impossible" in entry else None,
        location=location,
    )


def _answer(entry: Any, location: str) -> SquadAnswer:
    """Reads an answer; whitespace at its ends is left out."""
    text = _field(entry, "text", str, f"{location}.answers")
    begin = _field(entry, "answer_start", int, f"{location}.answers")
    return SquadAnswer(text.strip(), begin + len(text) - len(text.lstrip()))


def _field(entry: Any, name: str, kind: type, location: str) -> Any:
    """Returns entry[name]; raises UserError if it is missing or of another kind."""
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, kind):
        found = f"{name} is {value!r}"[:80] if isinstance(entry, dict) else f"found {entry!r}"[:80]
        raise UserError(f"{location}: {found}, expected an object with {name}, a {kind.__name__}")
    if kind is str and (half := half_character(value)):
        raise UserError(f"{location}: {name} has {half}, half a character (a lone surrogate): repair it")
    return value
