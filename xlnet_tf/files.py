"""Files, local and on gs:// and the like: read with clear errors, written whole or not at all.

Paths are strings or `epath.Path`s. No TensorFlow is needed for local files, so that builder processes start
at once and stay small.
"""

import contextlib
import hashlib
import io
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import yaml
from etils import epath

from xlnet_tf.errors import UserError

_BLOCK_BYTES = 1 << 16
_TRANSIENT = ("UnavailableError", "AbortedError", "CancelledError")


def make_folder(path: epath.PathLike) -> epath.Path:
    """Makes a folder and those above it, if they are not there; returns it.

    Raises:
        UserError: it cannot be made.
    """
    path = epath.Path(path)
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def write(path: epath.PathLike, content: str | bytes) -> None:
    """Writes a file, in place of the one that is there; see `replacing`."""
    with replacing(path, "w" if isinstance(content, str) else "wb") as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: epath.PathLike, mode: str = "w") -> Iterator[IO]:
    """Opens a file that takes the place of the one that is there when the `with` block ends without an error.

    A process that is killed leaves the old one or the new one.

    Args:
        path: of the file.
        mode: "w" or "wb".

    Raises:
        UserError: it cannot be written.
    """
    path = epath.Path(path)
    temporary = path.parent / f"{path.name}.tmp{os.getpid()}-{secrets.token_hex(4)}"
    with writing(path):
        try:
            with temporary.open(mode, encoding=None if "b" in mode else "utf-8") as file:
                yield file
                _sync(file)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(Exception):  # the error that left it behind says more
                temporary.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def writing(path: epath.PathLike) -> Iterator[None]:
    """Turns errors of writing (TensorFlow's or the system's) in a `with` block into one for the user.

    Errors about other files, and of machines that may answer later, stay what they are.

    Args:
        path: of the file or folder that is written.
    """
    try:
        yield
    except (ConnectionError, TimeoutError, *_of_tensorflow(*_TRANSIENT)):
        raise
    except (OSError, *_of_tensorflow("OpError")) as error:
        if isinstance(error, OSError):
            if error.filename is not None and not str(error.filename).startswith(os.fspath(path)):
                raise
            reason = error.strerror or error
        else:
            reason = error.message.partition(" [Op:")[0].partition("\n")[0]
        raise UserError(
            f"cannot write {path}: {reason}. Make room or choose another place, and start again"
        ) from error


def copy(source: epath.PathLike, path: epath.PathLike) -> None:
    """Copies a file, in place of the one that is there."""
    with replacing(path, "wb") as file, epath.Path(source).open("rb") as original:
        while block := original.read(_BLOCK_BYTES):
            file.write(block)


def read_text(path: epath.PathLike) -> str:
    """Reads a text file in UTF-8.

    Raises:
        FileNotFoundError: there is none.
        UserError: it is no text file.
    """
    try:
        return epath.Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{path} does not exist") from None
    except (UnicodeDecodeError, IsADirectoryError, *_of_tensorflow("FailedPreconditionError")) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "message", None) or error
        raise UserError(f"{path} is no text file ({reason})") from None


def read_yaml(path: epath.PathLike) -> dict[str, Any]:
    """Reads a yaml file of settings.

    Raises:
        FileNotFoundError: there is none.
        UserError: it is no such file.
    """
    text = read_text(path)
    try:
        values = yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{path} is not yaml ({str(error).splitlines()[0]}).") from None
    return _mapping(values, path, "settings")


def read_json(path: epath.PathLike) -> dict[str, Any]:
    """Reads a json file that holds an object.

    Raises:
        FileNotFoundError: there is none.
        UserError: it is no such file.
    """
    text = read_text(path)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}).") from None
    return _mapping(values, path, "an object with fields")


def sha256(path: epath.PathLike) -> str:
    """Returns the hex digest of a file, reading it in blocks."""
    digest = hashlib.sha256()
    with epath.Path(path).open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def entries(folder: epath.PathLike) -> list[epath.Path]:
    """Returns the files and folders in a folder, sorted, but nothing hidden; none if there is no folder."""
    folder = epath.Path(folder)
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if not path.name.startswith("."))


def files_in(folder: epath.PathLike, suffix: str, prefix: str = "") -> list[epath.Path]:
    """Returns the files in a folder whose names begin and end so, sorted, but nothing hidden.

    Args:
        folder: one that is not there has no files.
        suffix: small letters; the files' may be large.
        prefix: as it is.
    """
    return [
        path
        for path in entries(folder)
        if path.name.startswith(prefix) and path.name.lower().endswith(suffix)
    ]


def beginning_with(prefix: str) -> list[str]:
    """Returns the paths of all files and folders that begin so, in order.

    Args:
        prefix: a folder and the beginning of a name.
    """
    # Not by a pattern: folders may have * or [ in their names.
    folder, name = os.path.split(prefix)
    found = epath.Path(folder).iterdir() if epath.Path(folder).is_dir() else ()
    return sorted(os.path.join(folder, path.name) for path in found if path.name.startswith(name))


@contextlib.contextmanager
def local(path: str) -> Iterator[str]:
    """Gives the path of a file for libraries that read local files only.

    Args:
        path: of the file; one on another file system is copied for the `with` block.

    Raises:
        FileNotFoundError: there is none.
    """
    if "://" not in path:
        yield path
        return
    if not epath.Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist")
    with tempfile.TemporaryDirectory() as folder:
        here = os.path.join(folder, os.path.basename(path))
        copy(path, here)
        yield here


def _mapping(values: Any, path: epath.PathLike, expected: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise UserError(f"{path} holds a {type(values).__name__}; expected {expected}.")
    return values


def _sync(file: IO) -> None:
    """Has a local file's bytes on the disk before it gets its name: a power cut leaves no empty file."""
    file.flush()
    if hasattr(file, "fileno"):
        with contextlib.suppress(io.UnsupportedOperation):
            os.fsync(file.fileno())


def _of_tensorflow(*names: str) -> tuple[type[Exception], ...]:
    """Returns classes of TensorFlow's errors, which are those of remote files; none if it is not loaded."""
    errors = getattr(sys.modules.get("tensorflow"), "errors", None)
    return tuple(getattr(errors, name) for name in names) if errors else ()
