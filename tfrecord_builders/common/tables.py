"""Reads labelled texts row by row: from tables of text and from all other sources of rows.

Tables of text are csv, tsv, jsonl, a list in json, `text@label` and fastText's lines, and folders of text
files. `columnar.py` reads Parquet and Arrow, `named_sets.py` what TensorFlow Datasets and the Hugging Face
hub have, `labelling_tools.py` knows what labelling tools write.
"""

import codecs
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from etils import epath

from tfrecord_builders.common import columnar, delimited, named_sets
from tfrecord_builders.common.labelling_tools import FASTTEXT_LABEL, fasttext_row, label_studio_rows
from tfrecord_builders.common.rows import (
    BadRow,
    LabelledRow,
    half_character,
    name_as_text,
    other_delimiter,
    parse_row,
    row_values,
)
from tfrecord_builders.common.streams import Stream, unpacked_name, unpacking
from xlnet_tf import files
from xlnet_tf.errors import UserError

Skip = Callable[[str, str], None]  # hears of a row that is left out: reason and location
KINDS = ("csv", "tsv", "jsonl", "json", "at", "fasttext", "folders", *columnar.KINDS)
NAMED = "named"
SOURCES = (
    "csv, tsv, jsonl or json, plain, .gz or .zst; Parquet, Arrow, or a folder of these two; "
    "hf://datasets/OWNER/NAME/SPLIT or tfds://NAME/SPLIT"
)
MAX_TEXT_BYTES = 1 << 26  # of a line, or of a file that is one text
_MAX_JSON_BYTES = 1 << 30  # of a file that is one list
_BEGIN_BYTES = 1 << 10  # which show what an unnamed format is
_LISTED = 5  # folders in a message


def default_model_dir(train: str) -> str:
    """Returns the folder of a run on a table: runs/NAME."""
    name = re.split(r"[.\[]", train.rstrip("/").rpartition("/")[2])[0]
    if train.startswith("hf://"):
        name = train.split("/")[-2].partition(":")[0].partition("@")[0]
    return f"runs/{name or 'model'}"


@dataclasses.dataclass(frozen=True)
class TableFormat:
    """The format of a table."""

    # csv; tsv; jsonl (an object a line); json (a list of objects, such as Label Studio's exports); at
    # (`text@label` lines, the last @ counts: columns text and label); fasttext (lines that begin with
    # `__label__NAME`, the same columns); folders (one folder of .txt files for each label: columns id, text
    # and label); parquet; arrow; named (a data set by its name)
    kind: str
    # csv and tsv: whether the first line names the columns; if not, their names are "0", "1", ...
    header: bool = True
    delimiter: str = ""  # csv and tsv: between columns; "": a tab in tsv, in csv detected from the header
    # csv and tsv: whether double quotes around a field enclose delimiters and line breaks
    quoting: bool = False
    encoding: str = "utf-8"
    # csv and tsv: (written, meant) replacements in fields, one after another
    replaced: tuple[tuple[str, str], ...] = ()
    folders: tuple[str, ...] = ()  # which folders to read; empty: all


def check_exists(source: str) -> None:
    """Raises FileNotFoundError or UserError unless a file, a folder or a named data set exists."""
    if named_sets.is_name(source):
        named_sets.check(source)
    else:
        existing(source)


def is_columnar(source: epath.PathLike) -> bool:
    """Returns whether rows come from Parquet, Arrow or a named data set instead of text."""
    return named_sets.is_name(source) or bool(columnar.kind_of(epath.Path(source)))


def existing(path: epath.PathLike) -> epath.Path:
    """Returns the path of an existing file or folder; raises FileNotFoundError, or UserError for a pipe."""
    path = epath.Path(path)
    if not path.exists():
        tip = "; only one path is expected, and the comma is a part of it" if "," in str(path) else ""
        raise FileNotFoundError(f"{path} does not exist: check its name{tip}")
    files.check_rereadable(path)
    return path


def existing_file(path: epath.PathLike) -> epath.Path:
    """Returns the path of an existing file; folders, which only columnar readers accept, are an error."""
    path = existing(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder without Parquet or Arrow files: give a file, or such a folder")
    return path


def infer_format(path: epath.PathLike) -> TableFormat:
    """Returns the usual format for a file's name (csv quoted, tsv not) or for another source."""
    if named_sets.is_name(path):
        return TableFormat(NAMED)
    path = existing(path)
    if kind := columnar.kind_of(path):
        return TableFormat(kind)
    if path.is_dir():
        return TableFormat("folders")
    kind = unpacked_name(path).rpartition(".")[2]
    if kind in ("bz2", "xz", "zip"):
        raise UserError(f"{path} is compressed as .{kind}, which tables cannot be: unpack it, or make it .gz")
    if kind in ("xls", "xlsx", "ods"):
        raise UserError(f"{path} is a spreadsheet, expected a table as text: save the sheet as .csv")
    if kind == "json" and not _begins_with(path, "["):
        kind = "jsonl"  # as many call it
    elif kind not in ("csv", "tsv", "jsonl", "json") and _begins_with(path, FASTTEXT_LABEL):
        kind = "fasttext"
    if kind not in ("csv", "tsv", "jsonl", "json", "fasttext"):
        raise UserError(
            f"{path}: the name does not show the format: end it in .csv, .tsv, .jsonl, .parquet or .arrow, "
            f"or, with the classification builder, give --format (one of {', '.join(KINDS)})"
        )
    return TableFormat(kind, quoting=kind == "csv")


def _begins_with(path: epath.Path, mark: str) -> bool:
    """Returns whether a file's first characters that are not white space are these."""
    with Stream(path) as stream:
        return stream.read(_BEGIN_BYTES).decode("utf-8-sig", "replace").lstrip().startswith(mark)


def read_table(path: epath.PathLike, table: TableFormat, skip: Skip | None = None) -> Iterator[LabelledRow]:
    """Reads a table row by row; blank lines are skipped, except in tables of one column.

    `skip` is called with reason and location of rows with too few or too many fields; None: they are errors.
    """
    if table.kind == NAMED:
        return named_sets.read(os.fspath(path))
    path = existing(path)
    if table.kind in columnar.KINDS:
        return columnar.read(path, table.kind)
    if path.is_dir() != (table.kind == "folders"):
        kind = "a folder" if path.is_dir() else "a file"
        raise UserError(f"{path} is {kind}, which cannot be read as {table.kind}")
    if table.kind == "folders":
        return _read_folders(path, table)
    if table.kind == "json":
        return _read_json_list(path)
    numbered = decoded_lines(path, table.encoding)
    if table.kind in delimited.DELIMITERS:
        return _read_fields(path, numbered, table, skip)
    rows = {"jsonl": lambda line: row_values(parse_row(line)), "at": _at_row, "fasttext": fasttext_row}
    return _read_lines(path, ((number, line) for number, line in numbered if line.strip()), rows[table.kind])


def decoded_lines(path: epath.PathLike, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yields (number, line with its end) of a file, plain or compressed."""
    path, encoding = existing_file(path), _known_encoding(encoding)
    if "\n".encode(encoding) != b"\n":
        raise UserError(f"encoding {encoding} cannot be read line by line: convert {path} to utf-8")
    with Stream(path) as stream:
        for number, line in enumerate(delimited.lines(stream, MAX_TEXT_BYTES), 1):
            if len(line) > MAX_TEXT_BYTES:
                raise UserError(
                    f"{path}:{number}: a line of more than {MAX_TEXT_BYTES:,} bytes, expected a row"
                )
            try:
                text = line.decode(encoding)
            except UnicodeDecodeError as error:
                raise _undecodable(error, encoding, f"{path}:{number}") from None
            yield number, text.removeprefix("\ufeff") if number == 1 else text


def _known_encoding(encoding: str) -> str:
    """Returns an encoding; utf-8 for utf-8-sig, as a byte order mark is removed in any case."""
    try:
        "".encode(encoding)
        name = codecs.lookup(encoding).name
    except LookupError:
        raise UserError(f"there is no encoding {encoding!r}: try utf-8, latin-1 or gb18030") from None
    return "utf-8" if name == "utf-8-sig" else encoding


def _undecodable(error: UnicodeDecodeError, encoding: str, location: str) -> UserError:
    if what := unpacking(error.object):
        return UserError(f"{location}: the file is compressed: {what}")
    data = error.object[error.start : error.end].hex(" ")
    return UserError(
        f"{location}: byte {error.start + 1} ({data}) is not {encoding}: save it as UTF-8, or give the "
        "classification builder its encoding, such as --encoding=latin-1 or gb18030"
    )


def _read_fields(
    path: epath.Path, numbered: Iterator[tuple[int, str]], table: TableFormat, skip: Skip | None
) -> Iterator[LabelledRow]:
    ahead = []
    for number, line in numbered:
        ahead.append((number, line))
        if line.strip():
            break
    header = ahead[-1][1] if ahead and table.header else ""
    dialect = delimited.Dialect(table.delimiter or delimited.delimiter_of(header, table.kind), table.quoting)
    names: Sequence[str] = ()
    file = str(path)  # which takes as long as reading a line
    try:
        for number, fields in delimited.split_rows(itertools.chain(ahead, numbered), dialect):
            if fields == [""] and len(names) != 1:
                continue
            if not names:
                names = fields if table.header else [str(index) for index in range(len(fields))]
                delimited.check_names(names, f"{path}:{number}")
                if table.header:
                    continue
            if reason := delimited.ragged(fields, names):
                if skip is None:
                    raise _ragged_row(f"{path}:{number}: {reason}", names, dialect)
                skip(reason, f"{path}:{number}")
                continue
            for written, meant in table.replaced:
                fields = [field.replace(written, meant) for field in fields]
            yield LabelledRow(dict(zip(names, fields)), file, number)
    except delimited.BadQuotes as error:
        raise UserError(
            f"{path}:{error.first}: {error}; the delimiter is {dialect.delimiter!r}: repair it. "
            "The classification builder can take quotes as text (--noquoting), or another --delimiter"
        ) from None


def _ragged_row(what: str, names: Sequence[str], dialect: delimited.Dialect) -> UserError:
    quotes, flag = ("enclose fields", "noquoting") if dialect.quoted else ("are text", "quoting")
    return UserError(
        f"{what} ({', '.join(names)}); the delimiter is {dialect.delimiter!r} and double quotes {quotes}. "
        f"Repair the row; the classification builder can read quotes otherwise (--{flag}), take another "
        f"--delimiter, or leave such rows out (--skip_ragged){other_delimiter(names)}"
    )


def _read_lines(
    path: epath.Path, numbered: Iterable[tuple[int, str]], parse: Callable[[str], dict[str, Any]]
) -> Iterator[LabelledRow]:
    file = str(path)
    for number, line in numbered:
        try:
            values = parse(line)
        except BadRow as error:
            raise UserError(f"{path}:{number}: {error}") from None
        yield LabelledRow(values, file, number)


def _at_row(line: str) -> dict[str, Any]:
    text, at, label = line.rpartition("@")
    if not at:
        raise BadRow("no @ in the line, expected text@label")
    return {"text": text, "label": label.strip()}


def _read_json_list(path: epath.Path) -> Iterator[LabelledRow]:
    with Stream(existing_file(path)) as stream:
        content = stream.read(_MAX_JSON_BYTES + 1)
    if len(content) > _MAX_JSON_BYTES:
        raise UserError(f"{path} has more than {_MAX_JSON_BYTES:,} bytes of json: make it a .jsonl")
    try:
        tasks = files.parse_json(content.decode("utf-8-sig"))
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise BadRow("expected a list of objects, such as an export of Label Studio")
        rows = label_studio_rows(tasks)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: {error}") from None
    for number, row in enumerate(rows, 1):
        if half := half_character(row):
            raise UserError(f"{path}, row {number}: {half} is half a character (a lone surrogate): repair it")
        yield LabelledRow(row_values(row), str(path), number, numbered=True)


def _read_folders(path: epath.Path, table: TableFormat) -> Iterator[LabelledRow]:
    names = table.folders or [folder.name for folder in files.entries(path) if folder.is_dir()]
    if not names:
        raise UserError(f"{path} has no folders: expected a folder of .txt files for each label")
    encoding = _known_encoding(table.encoding)
    texts = {name: files.files_in(path / name, ".txt") for name in names}
    if empty := [name for name in names if not texts[name]]:
        more = f" and {len(empty) - _LISTED} more" * (len(empty) > _LISTED)
        raise UserError(
            f"{path} has no .txt files in {', '.join(empty[:_LISTED])}{more}, expected a folder of them for "
            "each label: put the label's texts there, or take the folder away"
        )
    for name in names:
        for file in texts[name]:
            if (size := file.stat().length) > MAX_TEXT_BYTES:
                raise UserError(f"{file}: a text of {size:,} bytes, expected at most {MAX_TEXT_BYTES:,}")
            try:
                text = file.read_bytes().decode(encoding).removeprefix("\ufeff")
            except UnicodeDecodeError as error:
                raise _undecodable(error, encoding, str(file)) from None
            known = name_as_text(name)
            example_id = f"{known}/{name_as_text(file.stem)}"
            yield LabelledRow({"id": example_id, "text": text, "label": known}, str(file), 0)
