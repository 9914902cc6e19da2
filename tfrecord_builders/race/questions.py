"""Reads multiple-choice questions: RACE as distributed, RACE as jsonl, and a user's own tables."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from etils import epath

from tfrecord_builders.common.rows import HIDDEN_LABELS, LabelledRow, NestedJson, whole_number
from tfrecord_builders.common.streams import unpacked_name
from tfrecord_builders.common.tables import TableFormat, existing, infer_format, is_columnar, read_table
from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import option_letters

UNKNOWN = -1
LEVELS = ("middle", "high")
_OBJECTS = TableFormat("jsonl")
_ARC_ANSWER = "answerKey"


@dataclasses.dataclass(frozen=True)
class RaceColumns:
    """The column names of a table."""

    context: str = "context"  # "" if the data lack it
    question: str = "question"  # "" if the data lack them
    options: Sequence[str] = ("options",)  # one with a list, or one for each option
    answer: str = "answer"  # a letter or a number
    id: str = "id"  # if any


class RaceQuestion(NamedTuple):
    """One question about a context."""

    id: str
    context: str
    question: str  # or the beginning of a sentence, or a sentence with a blank `_`; may be empty
    options: list[str]
    answer: int  # index of the right option; -1 if it is not known
    level: str  # the kind of question, such as RACE's middle or high; may be empty
    location: str  # file and line


def read_questions(
    path: epath.PathLike, skip: Callable[[str, str], None], columns: RaceColumns | None = None
) -> Iterator[RaceQuestion]:
    """Reads the questions of a file or folder, or of a named data set.

    Args:
        path: a folder of RACE's .txt files, or of folders of them (RACE/dev); or a table, as
            `tables.read_table` reads them, with RACE's objects {id, article, questions, options, answers}, or
            one question a row: {context, question, options, answer} and optionally id and level. An answer
            is a letter (A is the first option) or a number (0 is the first option), or missing if unknown.
            Rows of ARC, on the hub or as distributed, and of sets like it (an answerKey) are known, too.
        skip: called with reason and location of each skipped question.
        columns: those of rows with one question; None: the names above.
    """
    columns = columns or RaceColumns()
    for file, table in _tables(path):
        for row in read_table(file, table):
            is_race = "article" in row and "questions" in row
            of_row = columns if is_race else _columns_of_row(row, columns)
            for question in _race_questions(row) if is_race else [_own_question(row, of_row)]:
                reason = _reason_to_skip(question, bool(of_row.context))
                if reason:
                    skip(reason, question.location)
                else:
                    yield question


def _tables(path: epath.PathLike) -> list[tuple[epath.PathLike, TableFormat]]:
    """Returns the files to read, and their formats."""
    if is_columnar(path):
        return [(path, infer_format(path))]
    folder = existing(path)
    if not folder.is_dir():
        known = unpacked_name(folder).endswith((".csv", ".tsv"))
        return [(folder, infer_format(folder) if known else _OBJECTS)]
    texts = sorted(file for at in (folder, *files.entries(folder)) for file in files.files_in(at, ".txt"))
    if not texts:
        raise UserError(
            f"{path} has no .txt files, expected RACE's middle/*.txt and high/*.txt, or Parquet or Arrow "
            "files"
        )
    return [(file, _OBJECTS) for file in texts]


def _race_questions(row: LabelledRow) -> Iterator[RaceQuestion]:
    name = row.text("id").removesuffix(".txt")
    level = next((level for level in LEVELS if name.startswith(level)), "")
    lists = [row.texts(column) for column in ("questions", "options")]
    lists.append(row.texts("answers") if "answers" in row else [""] * len(lists[0]))
    if len({len(values) for values in lists}) > 1:
        raise UserError(
            f"{row.location}: {len(lists[0])} questions, {len(lists[1])} lists of options and "
            f"{len(lists[2])} answers, expected as many of each"
        )
    for number, (question, options, answer) in enumerate(zip(*lists)):
        location = f"{row.location} question {number + 1}"
        options = _nested_list(options, location)
        yield RaceQuestion(
            f"{name}-{number}",
            row.text("article"),
            question,
            options,
            _answer_index(answer, len(options), location),
            level,
            location,
        )


def _columns_of_row(row: LabelledRow, columns: RaceColumns) -> RaceColumns:
    """Returns the columns of a row: as given, or ARC's if only those are there."""
    if _ARC_ANSWER not in row or columns.answer in row:
        return columns
    options = next((name for name in ("question.choices", "choices.text") if name in row), "choices")
    question = "question.stem" if "question.stem" in row else columns.question
    context = columns.context if columns.context in row else ""
    return RaceColumns(context, question, (options,), _ARC_ANSWER, columns.id)


def _own_question(row: LabelledRow, columns: RaceColumns) -> RaceQuestion:
    labels: list[str] = []
    if len(columns.options) == 1:
        options = row.texts(columns.options[0])
        if options and all(isinstance(option, NestedJson) for option in options):
            options, labels = _labelled_options(options, row.location)
        elif (name := f"{columns.options[0].removesuffix('text')}label") in row and name != "label":
            labels = row.texts(name)
        if any(isinstance(option, NestedJson) for option in options):
            raise UserError(
                f"{row.location}: options are {', '.join(options)[:80]}, expected a list of texts"
            )
    else:
        options = [row.text(column) for column in columns.options]
    answer = row.text_or(columns.answer, "")
    return RaceQuestion(
        row.text_or(columns.id, row.location),
        row.text(columns.context) if columns.context else "",
        row.text(columns.question) if columns.question else "",
        options,
        _labelled_answer(answer, labels, row.location)
        if labels
        else _answer_index(answer, len(options), row.location),
        row.text_or("level", ""),
        row.location,
    )


def _labelled_options(options: Sequence[str], location: str) -> tuple[list[str], list[str]]:
    """Returns the texts and the labels of ARC's options, {text, label} each."""
    parsed = [json.loads(option) for option in options]
    if not all(isinstance(option, dict) and {"text", "label"} <= option.keys() for option in parsed):
        raise UserError(
            f"{location}: options are {', '.join(options)[:80]}, expected a list of texts, or of ARC's "
            "objects with text and label"
        )
    return [str(option["text"]) for option in parsed], [str(option["label"]) for option in parsed]


def _labelled_answer(answer: str, labels: Sequence[str], location: str) -> int:
    """Returns the index of the option with a label, which for some of ARC's questions is 1 to 4."""
    if answer in HIDDEN_LABELS:
        return UNKNOWN
    if answer not in labels:
        raise UserError(f"{location}: the answer is {answer!r}, expected a label: {', '.join(labels)}")
    return labels.index(answer)


def _nested_list(value: str, location: str) -> list[str]:
    """Returns the texts of a nested list, which a table gives as json."""
    try:
        values = json.loads(value)
    except ValueError:
        values = value
    if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
        raise UserError(f"{location}: options are {value}, expected a list of texts")
    return values


def _answer_index(answer: str, count: int, location: str) -> int:
    """Returns the index of the option that a letter or a number names; -1 for an empty answer, or -1."""
    if answer in HIDDEN_LABELS:
        return UNKNOWN
    if not count:
        raise UserError(f"{location}: there are no options")
    index, letters = whole_number(answer), option_letters(count)
    if index is None:
        index = letters.index(answer) if answer in letters else -1
    if not 0 <= index < count:
        expected = f"A to {letters[-1]} or 0 to {count - 1}"
        raise UserError(f"{location}: the answer is {answer!r}, expected {expected}")
    return index


def _reason_to_skip(question: RaceQuestion, has_context: bool = True) -> str:
    if has_context and not question.context.strip():
        return "empty context"
    if not has_context and not question.question.strip():
        return "empty question"
    if not question.options:
        return "no options"
    return "" if all(option.strip() for option in question.options) else "empty option"
