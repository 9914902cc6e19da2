"""Reads labelled texts row by row: from tables of text and from all other sources of rows.

Tables of text are csv, tsv, jsonl, `text@label` lines and folders of text files. `columnar.py` reads Parquet
and Arrow, `named_sets.py` what TensorFlow Datasets and the Hugging Face hub have.
"""

import codecs
import csv
import dataclasses
import gzip
import itertools
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from etils import epath

from tfrecord_builders.common import columnar, named_sets
from tfrecord_builders.common.rows import Row, half_character, name_as_text, other_delimiter, row_values
from xlnet_tf import files
from xlnet_tf.errors import UserError

Skip = Callable[[str, str], None]  # hears of a row that is left out: reason and location
KINDS = ("csv", "tsv", "jsonl", "at", "folders", *columnar.KINDS)
NAMED = "named"
SOURCES = (
    "csv, tsv or jsonl, plain or .gz; Parquet, Arrow, or a folder of such files; "
    "hf://datasets/OWNER/NAME/SPLIT or tfds://NAME/SPLIT"
)
_DELIMITERS = {"csv": ",;\t|", "tsv": "\t"}  # the usual one first
_QUOTED = re.compile(r'"[^"]*"?')
MAX_TEXT_BYTES = 1 << 26  # of a line, or of a file that is one text
_BLOCK_BYTES = 1 << 20
# How compressed files begin, and what to do.
_PACKED = {
    b"\x1f\x8b": "let its name end in .gz",
    b"\x28\xb5\x2f\xfd": "unpack it (zstd -d)",
    b"\xfd7zXZ": "unpack it (xz -d)",
    b"BZh": "unpack it (bzip2 -d)",
}
DAMAGED_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)
MAX_FIELD = 1 << 24  # characters; the csv module's own limit is less than a long document


@dataclasses.dataclass(frozen=True)
class TableFormat:
    """How a table is written.

    Attributes:
        kind: csv; tsv; jsonl (an object a line); at (`text@label` lines, the last @ counts: columns text and
            label); folders (one folder of .txt files for each label: columns id, text and label); parquet;
            arrow; named (a data set by its name).
        header: csv and tsv: whether the first line names the columns; if not, their names are "0", "1", ...
        delimiter: csv and tsv: between columns; "": a tab in tsv, in csv what the header shows.
        quoting: csv and tsv: whether double quotes around a field hide delimiters and line breaks.
        replaced: csv and tsv: (what is written, what it stands for) in fields, one after another.
        folders: which folders to read; empty: all.
    """

    kind: str
    header: bool = True
    delimiter: str = ""
    quoting: bool = False
    encoding: str = "utf-8"
    replaced: tuple[tuple[str, str], ...] = ()
    folders: tuple[str, ...] = ()


def check_exists(source: str) -> None:
    """Raises an error unless a file, a folder or a data set by name is there.

    Raises:
        FileNotFoundError: there is no such file or folder.
        UserError: there is no such data set, or it has no such split.
    """
    if named_sets.is_name(source):
        named_sets.check(source)
    else:
        existing(source)


def is_columnar(source: epath.PathLike) -> bool:
    """Returns whether rows come from Parquet, Arrow or a data set by name, and not from text."""
    return named_sets.is_name(source) or bool(columnar.kind_of(epath.Path(source)))


def existing(path: epath.PathLike) -> epath.Path:
    """Returns the path of a file or folder.

    Raises:
        FileNotFoundError: it is not there.
        UserError: it is a pipe.
    """
    path = epath.Path(path)
    if not path.exists():
        tip = "; only one path is expected, and the comma is a part of it" if "," in str(path) else ""
        raise FileNotFoundError(f"{path} does not exist: check its name{tip}")
    files.check_rereadable(path)
    return path


def existing_file(path: epath.PathLike) -> epath.Path:
    """Returns the path of a file.

    Raises:
        FileNotFoundError: it is not there.
        UserError: it is a folder; those that can be read are those of columnar files.
    """
    path = existing(path)
    if path.is_dir():
        raise UserError(
            f"{path} is a folder without Parquet or Arrow files: give a file, or a folder of those"
        )
    return path


def is_gzip(path: epath.Path) -> bool:
    """Returns whether a file is compressed, by its name."""
    return path.suffix.lower() == ".gz"


def unpacked_name(path: epath.Path) -> str:
    """Returns a file's name in lower case and without .gz, to compare its ending."""
    return path.name.lower().removesuffix(".gz")


def infer_format(path: epath.PathLike) -> TableFormat:
    """Returns the usual format for a file's name, csv quoted, tsv not, or for what else holds rows.

    Raises:
        FileNotFoundError: there is no such file or folder.
        UserError: the name does not show the format.
    """
    if named_sets.is_name(path):
        return TableFormat(NAMED)
    path = existing(path)
    if kind := columnar.kind_of(path):
        return TableFormat(kind)
    if path.is_dir():
        return TableFormat("folders")
    kind = unpacked_name(path).rpartition(".")[2]
    if kind in ("zst", "bz2", "xz", "zip"):
        raise UserError(f"{path} is compressed as .{kind}, which tables cannot be: unpack it, or make it .gz")
    if kind not in ("csv", "tsv", "jsonl"):
        raise UserError(
            f"{path}: the name does not show the format: end it in .csv, .tsv, .jsonl, .parquet or .arrow, "
            f"or, with the classification builder, give --format (one of {', '.join(KINDS)})"
        )
    return TableFormat(kind, quoting=kind == "csv")


def read_table(path: epath.PathLike, table: TableFormat, skip: Skip | None = None) -> Iterator[Row]:
    """Reads a table, row by row.

    Args:
        path: a file, plain or .gz, local or remote, a folder, or the name of a data set.
        table: how it is written.
        skip: called with reason and location of each row that has too few or too many fields; None: an error.

    Yields:
        Its rows. Blank lines are none, except in tables of one column.

    Raises:
        FileNotFoundError: the file is missing.
        UserError: it is damaged, badly encoded or badly written; the message has file and line.
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
    lines = decoded_lines(path, table.encoding)
    if table.kind in _DELIMITERS:
        return _read_fields(path, lines, table, skip)
    read = _read_json_lines if table.kind == "jsonl" else _read_at_lines
    return read(path, ((number, line) for number, line in lines if line.strip()))


def decoded_lines(path: epath.Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Yields (number, line) of a file, plain or .gz; the line with its end."""
    path, encoding = existing_file(path), _known_encoding(encoding)
    if "\n".encode(encoding) != b"\n":
        raise UserError(f"encoding {encoding} cannot be read line by line: convert {path} to utf-8")
    number, name = 0, str(path)  # which takes as long as reading a line
    try:
        with path.open("rb") as file:
            plain = gzip.GzipFile(fileobj=file) if is_gzip(path) else file
            for number, line in enumerate(_lines(plain), 1):
                if len(line) > MAX_TEXT_BYTES:
                    raise UserError(
                        f"{path}:{number}: a line of more than {MAX_TEXT_BYTES:,} bytes, expected a row"
                    )
                text = _decode(line, encoding, f"{name}:{number}")
                yield number, text.removeprefix("\ufeff") if number == 1 else text
    except DAMAGED_GZIP as error:
        raise UserError(f"{path}:{number + 1}: damaged gzip file ({error}): get it again") from None


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yields the blocks of a file; of one that is damaged, also what stands before the damage."""
    read, parts = getattr(file, "read1", file.read), [b"-"]  # read loses what it has read before an error
    while parts:
        parts = []
        try:
            while (left := _BLOCK_BYTES - sum(map(len, parts))) and (part := read(left)):
                parts.append(part)
        except DAMAGED_GZIP:
            yield b"".join(parts)
            raise
        yield b"".join(parts)


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yields the lines of a file with their ends, and what has been read of one that is too long."""
    rest, end = b"", b""
    for block in _blocks(file):
        end = end or line_end(block)
        *lines, rest = (rest + block).split(end)
        for line in lines:
            yield line + end
        if len(rest) > MAX_TEXT_BYTES:
            break
    if rest:
        yield rest


def line_end(first: bytes) -> bytes:
    """Returns what ends the lines of a file that begins so: a carriage return or a line feed."""
    outside = _QUOTED.sub("", first.decode("latin-1")) if b"\r" in first else ""
    return b"\r" if "\r" in outside[:-1] and "\n" not in outside else b"\n"


def delimiter_of(header: str, kind: str) -> str:
    """Returns what separates the columns of a table: the usual mark of its kind, or another in the header."""
    marks, names = _DELIMITERS[kind], _QUOTED.sub("", header)
    return next((mark for mark in marks if mark in names), marks[0])


def _known_encoding(encoding: str) -> str:
    """Returns an encoding; utf-8 for that with a byte order mark before it, which is left out in any case."""
    try:
        "".encode(encoding)
        name = codecs.lookup(encoding).name
    except LookupError:
        raise UserError(f"there is no encoding {encoding!r}: try utf-8, latin-1 or gb18030") from None
    return "utf-8" if name == "utf-8-sig" else encoding


def _decode(data: bytes, encoding: str, location: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if packed := next(filter(data.startswith, _PACKED), b""):
            raise UserError(f"{location}: the file is compressed: {_PACKED[packed]}") from None
        found = data[error.start : error.end].hex(" ")
        raise UserError(
            f"{location}: byte {error.start + 1} ({found}) is not {encoding}: convert the file to utf-8, or "
            "give its encoding (latin-1, gb18030, ...) to a builder that has the flag --encoding"
        ) from None


def _read_fields(
    path: epath.Path,
    lines: Iterator[tuple[int, str]],
    table: TableFormat,
    skip: Skip | None,
) -> Iterator[Row]:
    ahead = []
    for number, line in lines:
        ahead.append((number, line))
        if line.strip():
            break
    head = ahead[-1][1] if ahead and table.header else ""
    delimiter, lines = table.delimiter or delimiter_of(head, table.kind), itertools.chain(ahead, lines)
    names: Sequence[str] = ()
    if table.quoting:
        rows = _quoted_fields(path, lines, delimiter)
    else:
        rows = ((number, line.rstrip("\r\n").split(delimiter)) for number, line in lines)
    for number, fields in rows:
        if fields == [""] and len(names) != 1:
            continue
        if not names:
            names = fields if table.header else [str(index) for index in range(len(fields))]
            if len(set(names)) < len(names):
                raise UserError(f"{path}:{number}: two columns have the same name in {', '.join(names)}")
            if table.header:
                continue
        if len(fields) != len(names):
            reason = f"{len(fields)} fields where there are {len(names)} columns"
            if skip is None:
                quotes, flag = ("enclose fields", "noquoting") if table.quoting else ("are text", "quoting")
                raise UserError(
                    f"{path}:{number}: {reason} ({', '.join(names)}); the delimiter is {delimiter!r} and "
                    f"double quotes {quotes}. Repair the row; the classification builder can read quotes "
                    f"otherwise (--{flag}), take another --delimiter, or leave such rows out (--skip_ragged)"
                    f"{other_delimiter(names)}"
                )
            skip(reason, f"{path}:{number}")
            continue
        for written, meant in table.replaced:
            fields = [field.replace(written, meant) for field in fields]
        yield Row(dict(zip(names, fields)), str(path), number)


def _quoted_fields(path, lines, delimiter) -> Iterator[tuple[int, list[str]]]:
    """Yields (first line, fields) where a quoted field may hold delimiters and line breaks."""
    csv.field_size_limit(MAX_FIELD)
    reader = csv.reader((line for _, line in lines), delimiter=delimiter, strict=True)
    begin = 1
    try:
        for fields in reader:
            yield begin, fields or [""]
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}:{begin}: bad quoting ({csv_reason(error)}); the delimiter is {delimiter!r}: repair it. "
            "The classification builder can take quotes as text (--noquoting), or another --delimiter"
        ) from None


def csv_reason(error: Exception) -> str:
    """Returns why a row of csv cannot be read."""
    is_return = isinstance(error, csv.Error) and "new-line" in str(error)
    return "a carriage return outside of quotes" if is_return else str(error)


def _read_json_lines(path: epath.Path, lines: Iterator[tuple[int, str]]) -> Iterator[Row]:
    for number, line in lines:
        try:
            values = files.parse_json(line)
        except files.SecondKey as error:
            raise UserError(f"{path}:{number}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}:{number}: not json ({error}): expected one object a line") from None
        if half := half_character(values):
            raise UserError(f"{path}:{number}: {half} is half a character (a lone surrogate): repair it")
        if not isinstance(values, dict):
            raise UserError(f"{path}:{number}: a json {type(values).__name__}, expected an object")
        yield Row(row_values(values), str(path), number)


def _read_at_lines(path: epath.Path, lines: Iterator[tuple[int, str]]) -> Iterator[Row]:
    for number, line in lines:
        text, at, label = line.rpartition("@")
        if not at:
            raise UserError(f"{path}:{number}: no @ in the line, expected text@label")
        yield Row({"text": text, "label": label.strip()}, str(path), number)


def _read_folders(path: epath.Path, table: TableFormat) -> Iterator[Row]:
    names = table.folders or [folder.name for folder in files.entries(path) if folder.is_dir()]
    if not names:
        raise UserError(f"{path} has no folders: expected a folder of .txt files for each label")
    encoding = _known_encoding(table.encoding)
    texts = {name: files.files_in(path / name, ".txt") for name in names}
    if empty := [name for name in names if not texts[name]]:
        raise UserError(
            f"{path} has no .txt files in {', '.join(empty)}, expected a folder of them for each label: put "
            "the label's texts there, or take the folder away"
        )
    for name in names:
        for file in texts[name]:
            if (size := file.stat().length) > MAX_TEXT_BYTES:
                raise UserError(f"{file}: a text of {size:,} bytes, expected at most {MAX_TEXT_BYTES:,}")
            text = _decode(file.read_bytes(), encoding, str(file)).removeprefix("\ufeff")
            known = name_as_text(name)
            example_id = f"{known}/{name_as_text(file.stem)}"
            yield Row({"id": example_id, "text": text, "label": known}, str(file), 0)
