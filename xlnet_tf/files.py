"""Local and remote files (gs:// and the like): read with clear errors, written whole or not at all.

Paths are strings or `epath.Path`s. Local files need no TensorFlow, so that builder processes start fast and
stay small.
"""

import collections
import contextlib
import errno
import functools
import hashlib
import io
import json
import math
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import yaml
from etils import epath

from xlnet_tf.errors import UserError, reason

_BLOCK_BYTES = 1 << 16
FieldsReader = Callable[[str], dict[str, Any] | None]
_REFUSALS = [os.strerror(number) for number in (errno.EACCES, errno.EPERM, errno.EROFS)]
_UNFINISHED = re.compile(r"\.tmp\d+-[0-9a-f]+$")
_TRANSIENT = ("UnavailableError", "AbortedError", "CancelledError")


def make_folder(path: epath.PathLike) -> epath.Path:
    """Creates a folder and its parents if missing; returns it."""
    path = epath.Path(path)
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def check_writable(folder: epath.PathLike) -> None:
    """Raises UserError if this process may not write into a local folder; call it before long work."""
    if "://" not in os.fspath(folder) and not os.access(folder, os.W_OK | os.X_OK):
        with writing(folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(folder))


def write(path: epath.PathLike, content: str | bytes) -> None:
    """Writes a file, or replaces the one that is there; see `replacing`."""
    with replacing(path, "w" if isinstance(content, str) else "wb") as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: epath.PathLike, mode: str = "w") -> Iterator[IO]:
    """Opens a file ("w" or "wb") that replaces the existing one when the block ends without an error."""
    encoding = None if "b" in mode else "utf-8"
    with temporary(path) as unfinished, unfinished.open(mode, encoding=encoding) as file:
        yield file
        _sync(file)


@contextlib.contextmanager
def temporary(path: epath.PathLike) -> Iterator[epath.Path]:
    """Yields a temporary path that replaces `path` after the block, for libraries that take no open file."""
    path = epath.Path(path)
    unfinished = path.parent / f"{path.name}.tmp{os.getpid()}-{secrets.token_hex(4)}"
    with writing(path):
        try:
            yield unfinished
            unfinished.replace(path)
        except BaseException:
            with contextlib.suppress(Exception):  # the error that caused it says more
                unfinished.unlink(missing_ok=True)
            raise


def remove_unfinished(folder: epath.PathLike, kept: str = "") -> None:
    """Removes temporary files of killed processes, except those of `kept`; nobody else may write there."""
    for path in epath.Path(folder).iterdir():
        if (found := _UNFINISHED.search(path.name)) and path.name[: found.start()] != kept:
            path.unlink(missing_ok=True)


def is_unfinished(name: str) -> bool:
    """Returns whether a name is that of a temporary file of `replacing`."""
    return bool(_UNFINISHED.search(name))


@contextlib.contextmanager
def writing(path: epath.PathLike) -> Iterator[None]:
    """Turns errors of writing a file or folder (TensorFlow's or the system's) into one for the user.

    Errors about other files, and of machines that may answer later, pass unchanged.
    """
    try:
        yield
    except (ConnectionError, TimeoutError, *_of_tensorflow(*_TRANSIENT)):
        raise
    except (OSError, *_of_tensorflow("OpError")) as error:
        named = getattr(error, "filename", None)
        if named is not None and not str(named).startswith(os.fspath(path)):
            raise
        why = reason(error).rpartition("; ")[2]  # TensorFlow puts the path before it
        remedy = "Check your rights to it" if why in _REFUSALS else "Make room"
        raise UserError(
            f"cannot write {path}: {why}. {remedy} or choose another folder, and start again"
        ) from error


def copy(source: epath.PathLike, path: epath.PathLike) -> None:
    """Copies a file, or replaces the one that is there."""
    with replacing(path, "wb") as file, epath.Path(source).open("rb") as original:
        shutil.copyfileobj(original, file)


def check_rereadable(path: epath.PathLike) -> None:
    """Raises UserError for a local pipe or device, which can be read only once."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UserError(f"{path} is a pipe or a device, which cannot be read twice: save its text as a file")


def read_text(path: epath.PathLike, content: bytes | None = None) -> str:
    """Reads a text file in UTF-8; `content` is the file's content if it was read already."""
    try:
        return epath.Path(path).read_text(encoding="utf-8") if content is None else content.decode()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{path} does not exist") from None
    except (UnicodeDecodeError, IsADirectoryError, *_of_tensorflow("FailedPreconditionError")) as error:
        raise UserError(f"{path} is not a text file ({reason(error)})") from None


class SecondKey(yaml.YAMLError, ValueError):
    """A mapping has a key twice."""


class UniqueKeys:
    """Mixin for a yaml loader that refuses duplicate keys; PyYAML itself takes the last one."""

    def construct_mapping(self, node, deep=False):
        seen: dict[tuple[str, str], yaml.ScalarNode] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            first = seen.setdefault((key.tag, key.value), key)
            if first is not key:
                lines = sorted({one.start_mark.line + 1 for one in (first, key)})
                where = f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} and {lines[1]}"
                raise SecondKey(f"{key.value} is given twice, in {where}: keep one of them")
        return super().construct_mapping(node, deep)  # type: ignore[misc]


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook` for json.loads that refuses duplicate keys; json itself takes the last one."""
    values = dict(pairs)
    if len(values) < len(pairs):
        [(second, _)] = collections.Counter(name for name, _ in pairs).most_common(1)
        raise SecondKey(f"{json.dumps(second, ensure_ascii=False)} is given twice: keep one of them")
    return values


# json.loads that refuses duplicate keys. Making the decoder takes longer than reading a line, so we make one.
parse_json = json.JSONDecoder(object_pairs_hook=unique_keys).decode


class _SafeLoader(UniqueKeys, yaml.SafeLoader):
    pass


def read_yaml(path: epath.PathLike) -> dict[str, Any]:
    """Reads a yaml file of settings; a duplicate key is an error."""
    text = read_text(path)
    try:
        values = yaml.load(text, _SafeLoader)
    except SecondKey as error:
        raise UserError(f"{path}: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise UserError(f"{path} is not yaml ({line}{error.problem}).") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{path} is not yaml ({str(error).splitlines()[0]}).") from None
    return _mapping(values, path, "settings")


def read_json(path: epath.PathLike, content: bytes | None = None, fix: str = "") -> dict[str, Any]:
    """Reads a json file that holds an object; a duplicate key is an error.

    `content` is the file's content if it was read already; `fix`, what to do about a damaged file.
    """
    text = read_text(path, content)
    try:
        values = json.loads(text, object_pairs_hook=unique_keys)
    except SecondKey as error:
        raise UserError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}){fix and f': {fix}'}.") from None
    return _mapping(values, path, "an object with fields", fix)


def write_json(path: epath.PathLike, values: Any) -> None:
    """Writes a json file, with null for NaN and infinite numbers, which json lacks."""
    write(path, json.dumps(without_nan(values), indent=1, allow_nan=False) + "\n")


def without_nan(value: Any) -> Any:
    """Returns a value with null instead of NaN and infinite numbers, at any depth."""
    if isinstance(value, Mapping):
        return {name: without_nan(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fields_reader(folder: epath.PathLike, known: Mapping[str, Any] | None = None) -> FieldsReader:
    """Returns a function from the name of a json or yaml file in a folder to its fields; None: no such file.

    It opens each file once, and none of `known`.
    """

    @functools.cache
    def read(name: str) -> dict[str, Any] | None:
        if known and name in known:
            return known[name]
        path = epath.Path(folder) / name
        if not path.exists():
            return None
        return read_yaml(path) if name.endswith(".yaml") else read_json(path)

    return read


def sha256(path: epath.PathLike) -> str:
    """Returns the hex digest of a file, reading it in blocks."""
    digest = hashlib.sha256()
    with epath.Path(path).open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def entries(folder: epath.PathLike) -> list[epath.Path]:
    """Returns the visible files and folders in a folder, sorted; none if the folder is missing."""
    folder = epath.Path(folder)
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if not path.name.startswith("."))


def files_in(folder: epath.PathLike, suffix: str, prefix: str = "") -> list[epath.Path]:
    """Returns the visible files in a folder, sorted, by prefix and suffix (lower case, matches any case)."""
    return [
        path
        for path in entries(folder)
        if path.name.startswith(prefix) and path.name.lower().endswith(suffix)
    ]


def beginning_with(prefix: str) -> list[str]:
    """Returns the paths of all files and folders with this prefix, sorted."""
    # Not by a pattern: folders may have * or [ in their names.
    folder, name = os.path.split(prefix)
    found = epath.Path(folder).iterdir() if epath.Path(folder).is_dir() else ()
    return sorted(os.path.join(folder, path.name) for path in found if path.name.startswith(name))


@contextlib.contextmanager
def local(path: str) -> Iterator[str]:
    """Yields a local path of a file, by a copy if need be, for libraries that read local files only."""
    if "://" not in path:
        yield path
        return
    if not epath.Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist")
    with tempfile.TemporaryDirectory() as folder:
        here = os.path.join(folder, os.path.basename(path))
        copy(path, here)
        yield here


def _mapping(values: Any, path: epath.PathLike, expected: str, fix: str = "") -> dict[str, Any]:
    if not isinstance(values, dict):
        found = "nothing" if values is None else f"a {type(values).__name__}"
        raise UserError(f"{path} holds {found}; expected {expected}{fix and f': {fix}'}.")
    return values


def _sync(file: IO) -> None:
    """Flushes a local file to disk before it gets its name: a power cut must not leave an empty file."""
    file.flush()
    if hasattr(file, "fileno"):
        with contextlib.suppress(io.UnsupportedOperation):
            os.fsync(file.fileno())


def _of_tensorflow(*names: str) -> tuple[type[Exception], ...]:
    """Returns TensorFlow's error classes, which remote files raise; none if TensorFlow is not loaded."""
    errors = getattr(sys.modules.get("tensorflow"), "errors", None)
    return tuple(getattr(errors, name) for name in names) if errors else ()
