"""Reads SQuAD's json, 1.1 and 2.0, and finds answers in their passages."""

import gzip
import json
import re
import zlib
from typing import Any, NamedTuple

from etils import epath

from tfrecord_builders.common.tables import half_character
from xlnet_tf.errors import UserError

_MAX_BYTES = 1 << 30  # memory holds a file's questions


class Answer(NamedTuple):
    """An answer as it was given.

    Attributes:
        text: its text.
        begin: where that begins in the passage, in characters; may be wrong.
    """

    text: str
    begin: int


class Question(NamedTuple):
    """A question about a passage.

    Attributes:
        id: of the question.
        text: the question.
        answers: all that were given; None if they are not known (a test set).
        impossible: what the data says about it; None if it says nothing, as in 1.1.
        location: file and number of the question, for messages.
    """

    id: str
    text: str
    answers: list[Answer] | None
    impossible: bool | None
    location: str


class Passage(NamedTuple):
    """A passage and the questions about it."""

    text: str
    questions: list[Question]


class SquadFile(NamedTuple):
    """One file of questions.

    Attributes:
        passages: with their questions, in the file's order.
        unanswerable: whether some questions have no answer: version 2.0, or a question marked is_impossible.
    """

    passages: list[Passage]
    unanswerable: bool

    @property
    def answered(self) -> bool:
        """Whether some answers are known."""
        return any(question.answers for passage in self.passages for question in passage.questions)


def read_squad(path: epath.PathLike) -> SquadFile:
    """Reads a file of questions.

    Args:
        path: json as SQuAD 1.1 and 2.0 have it, plain or .gz.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: it is not such json; the message says where, as in data[3].paragraphs[0].qas[2].
    """
    path = epath.Path(path)
    try:
        with path.open("rb") as file:
            content = (gzip.GzipFile(fileobj=file) if path.name.endswith(".gz") else file).read(
                _MAX_BYTES + 1
            )
        if len(content) > _MAX_BYTES:
            raise UserError(f"{path} has more than {_MAX_BYTES:,} bytes of json: split it into several files")
        data = json.loads(content)
    except UserError:
        raise
    except (ValueError, RecursionError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is not json ({error}): expected a file of SQuAD's questions") from None
    passages = []
    ids: dict[str, str] = {}
    for a, article in enumerate(_field(data, "data", list, f"{path}")):
        location = f"{path}: data[{a}]"
        for p, paragraph in enumerate(_field(article, "paragraphs", list, location)):
            passage = _passage(paragraph, f"{location}.paragraphs[{p}]")
            for question in passage.questions:
                if (first := ids.setdefault(question.id, question.location)) != question.location:
                    raise UserError(f"{question.location}: id {question.id!r} is that of {first}, too")
            passages.append(passage)
    if not ids:
        raise UserError(f"{path} has no questions")
    marked = any(question.impossible for passage in passages for question in passage.questions)
    return SquadFile(passages, marked or str(data.get("version", "")).lstrip("v").startswith("2"))


def locate(passage: str, answer: Answer) -> int | None:
    """Finds an answer in its passage.

    Args:
        passage: the text.
        answer: what to find.

    Returns:
        Its offset that is nearest to where it was said to be; None if it is nowhere, or empty.
    """
    if not answer.text:
        return None
    if answer.begin >= 0 and passage.startswith(answer.text, answer.begin):
        return answer.begin
    begins = [match.start() for match in re.finditer(f"(?={re.escape(answer.text)})", passage)]
    return min(begins, key=lambda begin: abs(begin - answer.begin)) if begins else None


def _passage(paragraph: Any, location: str) -> Passage:
    text = _field(paragraph, "context", str, location)
    questions = _field(paragraph, "qas", list, location)
    return Passage(text, [_question(entry, f"{location}.qas[{q}]") for q, entry in enumerate(questions)])


def _question(entry: Any, location: str) -> Question:
    answers = None
    if isinstance(entry, dict) and "answers" in entry:
        answers = [_answer(answer, location) for answer in _field(entry, "answers", list, location)]
    return Question(
        id=_field(entry, "id", str, location),
        text=_field(entry, "question", str, location),
        answers=answers,
        impossible=_field(entry, "is_impossible", bool, location) if "is_impossible" in entry else None,
        location=location,
    )


def _answer(entry: Any, location: str) -> Answer:
    """Reads an answer; whitespace at its ends is left out."""
    text = _field(entry, "text", str, f"{location}.answers")
    begin = _field(entry, "answer_start", int, f"{location}.answers")
    return Answer(text.strip(), begin + len(text) - len(text.lstrip()))


def _field(entry: Any, name: str, kind: type, location: str) -> Any:
    """Returns entry[name]; raises UserError if it is missing or of another kind."""
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, kind):
        found = f"{name} is {value!r}"[:80] if isinstance(entry, dict) else f"found {entry!r}"[:80]
        raise UserError(f"{location}: {found}, expected an object with {name}, a {kind.__name__}")
    if kind is str and (half := half_character(value)):
        raise UserError(f"{location}: {name} has {half}, half a character (a lone surrogate): repair it")
    return value
