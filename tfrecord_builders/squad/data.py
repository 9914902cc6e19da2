"""Reads SQuAD's json, 1.1 and 2.0, and tables of questions; finds answers in their passages."""

import dataclasses
import json
import re
from typing import Any, NamedTuple

from etils import epath

from tfrecord_builders.common.rows import LabelledRow, half_character, whole_number, zero_or_one
from tfrecord_builders.common.streams import Stream, unpacked_name
from tfrecord_builders.common.tables import existing_file, infer_format, is_columnar, read_table
from xlnet_tf import files
from xlnet_tf.errors import UserError

_MAX_BYTES = 1 << 30  # memory holds a file's questions
_WHITE_SPACE = r"\s*"
_ANSWER = "answer"  # what tables of one answer a question call its column


class SquadAnswer(NamedTuple):
    """An answer as it was given."""

    text: str
    begin: int | None  # character of the passage where it begins; may be wrong. None: not given


class SquadQuestion(NamedTuple):
    """A question about a passage."""

    id: str
    text: str
    answers: list[SquadAnswer] | None  # None if they are not known (a test set)
    impossible: bool | None  # what the data says about it; None if it says nothing, as in 1.1
    location: str  # file and number of the question, for messages


class SquadPassage(NamedTuple):
    """A passage and the questions about it."""

    text: str
    questions: list[SquadQuestion]


class SquadFile(NamedTuple):
    """One file of questions."""

    passages: list[SquadPassage]
    unanswerable: bool  # whether some have no answer: version 2.0, or a question marked is_impossible
    columns: tuple[str, ...] = ()  # of a table

    @property
    def answered(self) -> bool:
        return any(question.answers for passage in self.passages for question in passage.questions)


@dataclasses.dataclass(frozen=True)
class SquadColumns:
    """The column names of a table.

    Attributes:
        answers: {text: [...], answer_start: [...]} or a list of {text, answer_start}; empty lists for a
            question without an answer. Or texts alone, a list or one, which are found in the passage: near
            answer_start, where a table has such a column. In a table without the column, `answer` is read
            instead; if it has neither, the answers are not known. A column is_impossible marks questions
            without an answer.
        id: if it is missing, questions are named by file and row.
    """

    context: str = "context"
    question: str = "question"
    answers: str = "answers"
    id: str = "id"


def read_squad(path: epath.PathLike, columns: SquadColumns | None = None) -> SquadFile:
    """Reads questions from SQuAD's json (1.1, 2.0) or a table (`tables.read_table`), plain or compressed."""
    if is_columnar(path) or unpacked_name(epath.Path(path)).endswith((".jsonl", ".csv", ".tsv")):
        return _read_rows(path, columns or SquadColumns())
    return _read_json(existing_file(path))


def _read_json(path: epath.Path) -> SquadFile:
    try:
        with Stream(path) as stream:
            content = stream.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise UserError(f"{path} has more than {_MAX_BYTES:,} bytes of json: split it into several files")
        data = json.loads(content, object_pairs_hook=files.unique_keys)
    except UserError:
        raise
    except files.SecondKey as error:
        raise UserError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
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
    names: tuple[str, ...] = ()
    for row in read_table(path, infer_format(path)):
        names = names or tuple(row.values)
        context = row.text(columns.context)
        if not passages or passages[-1].text != context:
            passages.append(SquadPassage(context, []))
        answers = _row_answers(row, columns.answers if columns.answers in row else _ANSWER)
        marked = zero_or_one(row.text_or("is_impossible", ""))
        if answers is None and marked:
            answers = []
        passages[-1].questions.append(
            SquadQuestion(
                id=row.text_or(columns.id, row.location),
                text=row.text(columns.question),
                answers=answers,
                impossible=None if answers is None else bool(marked or not answers),
                location=row.location,
            )
        )
    _check_ids(passages, path)
    unanswerable = any(question.impossible for passage in passages for question in passage.questions)
    return SquadFile(passages, unanswerable, names)


def _row_answers(row: LabelledRow, column: str) -> list[SquadAnswer] | None:
    if column not in row or not (value := row[column]) and isinstance(value, str):
        return None
    location = f"{row.location}: {column}"
    found = [_entry(text) for text in value] if isinstance(value, list) else _entry(value)
    if isinstance(found, dict):
        parts = [found.get(name) for name in ("text", "answer_start")]
        if isinstance(parts[0], list) and parts[1] is None:
            found = parts[0]
        elif all(isinstance(part, list) for part in parts) and len(parts[0]) == len(parts[1]):
            found = [{"text": text, "answer_start": begin} for text, begin in zip(*parts)]
        elif not any(isinstance(part, list) for part in parts):
            found = [found]
    elif isinstance(found, str):
        begin = whole_number(row.text_or("answer_start", ""))
        found = [found if begin is None else {"text": found, "answer_start": begin}]
    if not isinstance(found, list):
        raise UserError(
            f"{location} is {str(value)[:60]!r}, expected {{text: [...], answer_start: [...]}} with as many "
            "of each, a list of {text, answer_start}, or texts"
        )
    return [_row_answer(entry, location) for entry in found]


def _row_answer(entry: Any, location: str) -> SquadAnswer:
    """Reads an answer of a row, which may be a text alone."""
    text = entry
    if isinstance(entry, dict) and entry.get("answer_start") is None:
        text = entry.get("text")
    return SquadAnswer(text.strip(), None) if isinstance(text, str) else _answer(entry, location)


def _entry(text: str) -> Any:
    """Parses an object or a list that a text spells as json; returns other texts unchanged."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, dict | list) else text


def _check_ids(passages: list[SquadPassage], path: epath.PathLike) -> None:
    """Raises UserError unless there are questions and each has an id of its own."""
    ids: dict[str, str] = {}
    for passage in passages:
        for question in passage.questions:
            if (first := ids.setdefault(question.id, question.location)) != question.location:
                raise UserError(f"{question.location}: id {question.id!r} is that of {first}, too")
    if not ids:
        raise UserError(f"{path} has no questions")


def locate(passage: str, answer: SquadAnswer) -> tuple[int, int] | None:
    """Finds the begin and end (exclusive) of an answer in its passage, nearest to its stated begin.

    White space may differ if the exact text is nowhere. None if it is not found, or empty.
    """
    if not answer.text:
        return None
    begin = max(answer.begin or 0, 0)
    if passage.startswith(answer.text, begin):
        return begin, begin + len(answer.text)
    exact = re.compile(f"(?=({re.escape(answer.text)}))")
    loose = re.compile(f"(?=({_WHITE_SPACE.join(map(re.escape, ''.join(answer.text.split())))}))")
    if there := loose.match(passage, begin):
        return there.span(1)
    for pattern in (exact, loose):
        if spans := [match.span(1) for match in pattern.finditer(passage)]:
            return min(spans, key=lambda span: abs(span[0] - begin))
    return None


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
    text = _field(entry, "text", str, f"{location}.answers")
    begin = _field(entry, "answer_start", int, f"{location}.answers")
    return SquadAnswer(text.strip(), begin + len(text) - len(text.lstrip()))


def _field(entry: Any, name: str, kind: type, location: str) -> Any:
    """Returns entry[name]; raises UserError if it is missing or of a kind that cannot be converted."""
    value = entry.get(name) if isinstance(entry, dict) else None
    if kind is str and type(value) is int:  # the ids of many files
        value = str(value)
    if kind is int and (number := whole_number(str(value))) is not None:
        value = number
    if not isinstance(value, kind):
        found = f"{name} is {value!r}"[:80] if isinstance(entry, dict) else f"found {entry!r}"[:80]
        raise UserError(f"{location}: {found}, expected an object with {name}, a {kind.__name__}")
    if kind is str and (half := half_character(value)):
        raise UserError(f"{location}: {name} has {half}, half a character (a lone surrogate): repair it")
    return value
