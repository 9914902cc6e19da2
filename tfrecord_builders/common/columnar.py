"""Rows of columnar files: Parquet, Arrow and Feather, and folders of them, including those of `datasets`.

Class numbers are replaced by the class names that `datasets` stores in its files.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from etils import epath

from tfrecord_builders.common.delimited import check_names
from tfrecord_builders.common.rows import DecodedValues, LabelledRow, as_text
from xlnet_tf import files
from xlnet_tf.errors import UserError

KINDS = ("parquet", "arrow")
STATE_FILE, DICT_FILE = "state.json", "dataset_dict.json"  # what save_to_disk writes
_SUFFIXES = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow"}
_BATCH_ROWS = 256
_METADATA = b"huggingface"  # of a schema: the features of `datasets`, as json
# Files of the hub have a hash after the number, those in the cache of `datasets` its name before the split.
_PART_OF = re.compile(r"(?P<split>.+?)-\d+-of-\d+(-[0-9a-f]+)?")
_NAMED_SPLIT = re.compile(r"(.*[-_.])?(?P<split>train|test|dev|validation|valid|val)")


def kind_of(path: epath.Path) -> str:
    """Returns "parquet" or "arrow" for such a file or a folder of such files; "" for anything else."""
    if not path.is_dir():
        return _SUFFIXES.get(path.suffix.lower(), "")
    if (path / DICT_FILE).exists():
        splits = files.read_json(path / DICT_FILE).get("splits", [])
        raise UserError(f"{path} has the splits {', '.join(splits)}: name one, as {path}/{splits[0]}")
    if (path / STATE_FILE).exists():
        return "arrow"
    by_kind = {kind: file[0] for suffix, kind in _SUFFIXES.items() if (file := files.files_in(path, suffix))}
    if len(by_kind) > 1:
        raise UserError(
            f"{path} has both Parquet and Arrow files ({', '.join(file.name for file in by_kind.values())}), "
            "expected one kind: put those to read into a folder of their own, and give that"
        )
    return next(iter(by_kind), "")


def read(path: epath.Path, kind: str) -> Iterator[LabelledRow]:
    """Yields the rows of a file, or of all files of a folder, of one of KINDS."""
    number = 1
    for file in _files(path, kind):
        batches = _parquet_batches(file) if kind == "parquet" else _arrow_batches(file)
        with reading(file, kind):
            for batch, features in batches:
                yield from rows_of_batch(batch, features, str(path), number)
                number += batch.num_rows


def rows_of_batch(batch: Any, features: Any, source: str, first: int) -> Iterator[LabelledRow]:
    """Yields the rows of an Arrow batch or table; a column is decoded when it is first accessed.

    For `features` see `with_names`; `first` is the number of the first row.
    """
    paths = dict(_paths(batch.schema))
    decoded: dict[str, list[str | list[str]]] = {}
    for index in range(batch.num_rows):

        def decode(name: str, index: int = index) -> str | list[str]:
            if name not in decoded:
                decoded[name] = _decoded(batch, name, paths[name], features, source, first)
            return decoded[name][index]

        yield LabelledRow(DecodedValues(paths, decode), source, first + index, numbered=True)


def _paths(fields: Iterable[Any], above: str = "") -> Iterator[tuple[str, list[int]]]:
    """Yields names of columns and of the parts of objects, with their field indices."""
    import pyarrow

    for number, field in enumerate(fields):
        name = f"{above}{field.name}"
        yield name, [number]
        if pyarrow.types.is_struct(field.type):
            for part, path in _paths(field.type.fields, f"{name}."):
                yield part, [number, *path]


def _decoded(
    batch: Any, name: str, path: list[int], features: Any, source: str, first: int
) -> list[str | list[str]]:
    """Returns the texts of a column, or of a part of one; raises UserError if a value cannot be decoded."""
    import pyarrow.compute

    values, features = batch.column(path[0]), part_features(features, batch.schema.names[path[0]])
    for number in path[1:]:
        features = part_features(features, values.type.field(number).name)
        values = pyarrow.compute.struct_field(values, [number])
    try:
        return [as_text(with_names(value, features)) for value in values.to_pylist()]
    except Exception:  # of the types of Python and pandas
        for number, value in enumerate(values, first):
            try:
                as_text(with_names(value.as_py(), features))
            except Exception as error:
                raise UserError(f"{source}, row {number}: {name!r} {undecodable(error)}") from None
        raise


def undecodable(error: Exception) -> str:
    """Says why a value of a column cannot be decoded."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 (byte 0x{error.object[error.start]:02x}): repair the file"
    return f"cannot be read ({type(error).__name__}: {' '.join(str(error).split())}): write it as text"


def part_features(features: Any, name: str) -> Any:
    """Returns the features of a column, or of a part of an object, as `with_names` takes them."""
    if not isinstance(features, Mapping):
        return None
    if not isinstance(features.get("_type"), str):
        return features.get(name)
    # A sequence of objects is stored as an object of sequences.
    return {"feature": (features.get("feature") or {}).get(name)}


def with_names(value: Any, features: Any) -> Any:
    """Replaces class numbers in a value of json's types by class names; -1, as test data have it, is "".

    `features` describes the value as `datasets` does: by columns, or a _type with names or a feature.
    """
    if value is None or not isinstance(features, Mapping):
        return value
    if features.get("_type") == "ClassLabel":
        names = features.get("names")
        if names is None or not isinstance(value, int):
            return value
        if value >= len(names):
            raise UserError(f"class {value} has no name: there are {len(names)} ({', '.join(names)})")
        return names[value] if value >= 0 else ""
    if isinstance(value, list):
        return [with_names(item, features.get("feature")) for item in value]
    if isinstance(value, Mapping):
        return {name: with_names(part, part_features(features, name)) for name, part in value.items()}
    return value


def _files(path: epath.Path, kind: str) -> list[epath.Path]:
    if not path.is_dir():
        return [path]
    if (path / STATE_FILE).exists():
        listed = files.read_json(path / STATE_FILE).get("_data_files", [])
        return [path / entry["filename"] for entry in listed]
    suffixes = [suffix for suffix, of_kind in _SUFFIXES.items() if of_kind == kind]
    parts = sorted(file for suffix in suffixes for file in files.files_in(path, suffix))
    if not parts:
        raise UserError(f"{path} has no files that end in {', '.join(suffixes)}: give a folder with some")
    if len(splits := sorted({_split_of(file) for file in parts} - {""})) > 1:
        raise UserError(
            f"{path} has files of several splits ({', '.join(splits)}): put those of each split into a "
            "folder of their own, and give that"
        )
    return parts


def _split_of(file: epath.Path) -> str:
    """Returns the split in a name such as test.parquet or test-00000-of-00002.parquet; "": none."""
    stem = file.stem.lower()
    match = _PART_OF.fullmatch(stem) or _NAMED_SPLIT.fullmatch(stem)
    return match["split"] if match else ""


def _parquet_batches(path: epath.Path) -> Iterator[tuple[Any, Any]]:
    import pyarrow.parquet

    with path.open("rb") as raw:
        file = pyarrow.parquet.ParquetFile(raw)
        features = _features(path, file.schema_arrow)
        for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
            yield batch, features


def _arrow_batches(path: epath.Path) -> Iterator[tuple[Any, Any]]:
    import pyarrow

    with path.open("rb") as raw:
        is_file = raw.read(6) == b"ARROW1"
        raw.seek(0)
        reader = pyarrow.ipc.open_file(raw) if is_file else pyarrow.ipc.open_stream(raw)
        features = _features(path, reader.schema)
        whole = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
        for batch in whole:
            for first in range(0, batch.num_rows, _BATCH_ROWS):
                yield batch.slice(first, _BATCH_ROWS), features


def _features(path: epath.Path, schema: Any) -> Any:
    """Returns the features that `datasets` stored in a schema; None if it did not write the file."""
    text = (schema.metadata or {}).get(_METADATA)
    check_names(schema.names, str(path))
    return json.loads(text).get("info", {}).get("features") if text else None


@contextlib.contextmanager
def reading(path: epath.Path, kind: str, column: str = "") -> Iterator[None]:
    """Converts errors of Arrow and of the file system to one that names the file."""
    import pyarrow

    try:
        yield
    except UserError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path} cannot be read as {kind} ({column and f'column {column!r}: '}{reason}): is it damaged? "
            "Get it again"
        ) from None
