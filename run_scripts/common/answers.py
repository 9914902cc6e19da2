"""Rows for a model from flags and files, and its answers for people and files: for run_scripts.predict."""

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfrecord_builders.common import tables
from tfrecord_builders.common.rows import BadRow, NotAnObject, other_delimiter, parse_row
from tfrecord_builders.common.streams import unpacked_name
from tfrecord_builders.corpus import is_text
from xlnet_tf import files
from xlnet_tf.errors import UserError, short_repr
from xlnet_tf.serving.answers.signatures import TensorInfo, check_size, printable

LINES_FILE = "predictions.jsonl"
_SHOWN = 8  # values of a list
_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}  # those that JSON leaves as they are


def rows_of_flags(pairs: Sequence[str], columns: Mapping[str, TensorInfo]) -> list[dict[str, Any]]:
    """Reads rows from --input flags NAME=VALUE; the second VALUE of a NAME is for the second row.

    Single strings are given as they are, other values as JSON.
    """
    values: dict[str, list[Any]] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in columns:
            texts = [each for each, info in columns.items() if info.is_text]
            text = json.dumps(value if equals and name.isidentifier() else pair, ensure_ascii=False)
            known = ", ".join(sorted(columns))
            raise UserError(
                (
                    f"the model has no input {name!r}: expected {known}"
                    if equals and name.isidentifier()
                    else f"--input={pair}: expected NAME=VALUE with the names {known}"
                )
                + "".join(f", such as --input={each}={text}" for each in texts[:1])
            )
        if not columns[name].is_text:
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                raise UserError(f'--input={pair}: expected JSON, such as {name}=["a", "b"]') from None
        values.setdefault(name, []).append(value)
    if missing := [f"--input={name}=..." for name in columns if values and name not in values]:
        raise UserError(f"--input is given for {', '.join(values)} only: give {', '.join(missing)} as well")
    if len({len(column) for column in values.values()}) > 1:
        counts = ", ".join(f"{len(column)} of {name}" for name, column in values.items())
        raise UserError(f"--input is given for {counts}: expected as many of each, one a row")
    return [dict(zip(values, row)) for row in zip(*values.values())]


def rows_of_file(path: str) -> Iterator[dict[str, Any]]:
    """Yields the rows, at least one, of a .csv or .tsv file with a header, or of a file of JSON objects."""
    rows = _read_rows(path)
    if (first := next(rows, None)) is None:
        raise UserError(f"{path} has no rows: expected some with the model's inputs by name")
    yield first
    yield from rows


def _read_rows(path: str) -> Iterator[dict[str, Any]]:
    file = tables.existing(path)
    if file.is_dir():
        raise UserError(
            f"--data={path} is a folder; with --server expected a file (csv, tsv or JSON lines) with the "
            "model's inputs by name. A set of examples is for --model_dir, without --server"
        )
    name = unpacked_name(file)
    if name.endswith((".csv", ".tsv")):
        yield from (dict(row.values) for row in tables.read_table(file, tables.infer_format(file)))
        return
    for number, line in tables.decoded_lines(file):
        if not line.strip():
            continue
        try:
            yield parse_row(line)
        except NotAnObject as error:
            tip = "" if name.endswith((".jsonl", ".json")) else ". The names of tables end in .csv or .tsv"
            raise UserError(
                f"{path}, line {number}: {error} with the model's inputs by name, such as "
                f'{{"text": "A fine film."}}; found {short_repr(line.rstrip())}{tip}'
            ) from None
        except BadRow as error:
            raise UserError(f"{path}, line {number}: {error}") from None


def answered_lines(
    path: str,
    answer: Callable[[Iterator[dict[str, Any]]], Iterable[Mapping[str, Any]]],
    inputs: Collection[str],
    first: int = 0,
) -> Iterator[str]:
    """Yields the rows of a file, from number `first` on, with their answers, as JSON lines.

    A row's column with the name of an answer, unless it is one of the model's inputs, becomes "given_" and
    that name, which is noted once on stderr.
    """
    noted = set()
    rows, copies = itertools.tee(itertools.islice(rows_of_file(path), first, None))
    for number, (row, answered) in enumerate(zip(rows, answer(copies), strict=True), first + 1):
        try:
            given = renamed(row, set(answered) - set(inputs))
        except UserError as error:
            raise UserError(f"{path}, row {number} has {error}") from None
        for name in sorted(set(row) - set(given) - noted):
            print(f"note: {name} of {path} is given_{name} in the answers", file=sys.stderr)
            noted.add(name)
        yield json_line(given | dict(sorted(answered.items())))


def check_output(data: str, output_dir: str) -> None:
    """Raises UserError if the answers would replace the file that is answered."""
    if os.path.realpath(os.path.join(output_dir, LINES_FILE)) == os.path.realpath(data):
        raise UserError(f"answers in --output_dir={output_dir} would replace {data}: choose another folder")


def renamed(row: Mapping[str, Any], taken: Collection[str]) -> dict[str, Any]:
    """Returns a row whose columns with names of answers are prefixed with "given_"."""
    if clash := [name for name in taken if name in row and f"given_{name}" in row]:
        raise UserError(f"{clash[0]} and given_{clash[0]}, and the model answers {clash[0]}")
    return {f"given_{name}" if name in taken else name: value for name, value in row.items()}


def json_line(row: Mapping[str, Any]) -> str:
    """Returns a row as a line of JSON safe for terminals; NaN and infinite numbers are null."""
    try:
        line = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except ValueError:
        line = json.dumps(files.without_nan(row), ensure_ascii=False)
    return line.translate(_CONTROLS) + "\n"


def chosen_columns(pairs: Sequence[str], columns: Collection[str]) -> dict[str, str]:
    """Reads --column flags: the column of each input."""
    chosen = {name: name for name in columns}
    for pair in pairs:
        name, equals, column = pair.partition("=")
        if not equals or name not in columns:
            raise UserError(f"--column={pair}: expected INPUT=COLUMN with the inputs {', '.join(columns)}")
        chosen[name] = column
    return chosen


def check_columns(row: Mapping[str, Any], names: Collection[str], chosen: Mapping[str, str], where: str):
    """Raises UserError, with advice, if a row lacks the column of an input."""
    if missing := [name for name in names if chosen[name] not in row]:
        wanted = " ".join(f"--column={name}=COLUMN" for name in missing)
        raise UserError(
            f"{where}: {', '.join(chosen[name] for name in missing)} missing; there is {', '.join(row)}. "
            f"Name the right column with {wanted}{other_delimiter(row)}"
        )


def inputs_of_row(
    row: Mapping[str, Any], ranks: Mapping[str, int], chosen: Mapping[str, str], where: str = "the row"
) -> dict[str, str | list[str]]:
    """Returns a row's texts by the names of the inputs, of rank 1 (a text) or 2 (a list of texts).

    `chosen` is the column of each input, `where` the row's location for messages.
    """
    check_columns(row, ranks, chosen, where)
    found = {name: row[chosen[name]] for name in ranks}
    for name, value in found.items():
        if ranks[name] == 1:
            if not is_text(value):
                found = short_repr(value, json.dumps)
                raise UserError(f"{where}: {chosen[name]} is {found}; expected a text in UTF-8")
            check_size(value, f"{where}: {chosen[name]}")
            continue
        found[name] = value = parsed(value)
        if not isinstance(value, list) or not all(map(is_text, value)):
            raise UserError(
                f"{where}: {chosen[name]} is {short_repr(str(row[chosen[name]]))}; expected a list, such as "
                '["a", "b"]'
            )
        for text in value:
            check_size(text, f"{where}: a text of {chosen[name]}")
    return found


def parsed(value: Any) -> Any:
    """Parses a value other than a text, which csv and tsv files hold as JSON."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def describe(answer: Mapping[str, Any]) -> str:
    width = max(map(len, answer))
    return "\n".join(f"{printable(name):<{width}}  {_show(value)}" for name, value in sorted(answer.items()))


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    if not isinstance(value, list):
        return printable(value, limit=10_000)
    if any(isinstance(item, list) for item in value):
        return printable(json.dumps(value, ensure_ascii=False), limit=10_000)
    more = f"  ... {len(value)} in all" if len(value) > _SHOWN else ""
    return "  ".join(map(_show, value[:_SHOWN])) + more
