"""Files: read with clear errors; written so that a killed process leaves the old one or the new one."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import tensorflow as tf
import yaml

from xlnet_tf.errors import UserError


def write_text(text: str, path: str) -> None:
    """Writes a text file, in place of the one that is there.

    Args:
        text: its content.
        path: on any of TensorFlow's file systems.
    """
    with replacing(path) as file:
        file.write(text)


@contextlib.contextmanager
def replacing(path: str, mode: str = "w") -> Iterator[IO]:
    """Opens a file that takes the place of the one that is there when the `with` block ends without an error.

    Args:
        path: on any of TensorFlow's file systems.
        mode: "w" or "wb".

    Raises:
        UserError: it cannot be written.
    """
    with writing(path):
        try:
            with tf.io.gfile.GFile(_unfinished(path), mode) as file:
                yield file
            tf.io.gfile.rename(_unfinished(path), path, overwrite=True)
        except BaseException:
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.remove(_unfinished(path))
            raise


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns errors about a file (TensorFlow's or the system's) in a `with` block into one for the user.

    Args:
        path: of the file that is written.
    """
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError):
        raise  # another machine cannot be reached, and may be later
    except (ConnectionError, TimeoutError):
        raise
    except (tf.errors.OpError, OSError) as error:
        message = error.message if isinstance(error, tf.errors.OpError) else str(error.strerror)
        reason = message.partition(" [Op:")[0].partition("\n")[0]
        raise UserError(
            f"cannot write {path} ({reason}). Make room or choose another place, and start again"
        ) from error


def read_text(path: str) -> str:
    """Reads a text file.

    Args:
        path: on any of TensorFlow's file systems.

    Raises:
        FileNotFoundError: there is none.
        UserError: it is no text file.
    """
    try:
        with tf.io.gfile.GFile(path) as file:
            return file.read()
    except tf.errors.NotFoundError:
        raise FileNotFoundError(f"{path} does not exist") from None
    except (UnicodeDecodeError, tf.errors.FailedPreconditionError) as error:
        raise UserError(f"{path} is no text file ({getattr(error, 'message', None) or error})") from None


def read_yaml(path: str) -> dict[str, Any]:
    """Reads a yaml file of settings.

    Args:
        path: on any of TensorFlow's file systems.

    Raises:
        FileNotFoundError: there is none.
        UserError: it is no such file.
    """
    text = read_text(path)
    try:
        values = yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{path} is not yaml ({str(error).splitlines()[0]}).") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} holds a {type(values).__name__}; expected settings.")
    return values


def read_json(path: str) -> dict[str, Any]:
    """Reads a json file that holds an object.

    Args:
        path: on any of TensorFlow's file systems.

    Raises:
        FileNotFoundError: there is none.
        UserError: it is no such file.
    """
    text = read_text(path)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}).") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} holds a {type(values).__name__}; expected an object with fields.")
    return values


def copy(source: str, path: str) -> None:
    """Copies a file, in place of the one that is there; both are on any of TensorFlow's file systems."""
    with writing(path):
        tf.io.gfile.copy(source, _unfinished(path), overwrite=True)
        tf.io.gfile.rename(_unfinished(path), path, overwrite=True)


def beginning_with(prefix: str) -> list[str]:
    """Returns the paths of all files and folders that begin so, in order.

    Args:
        prefix: a folder and the beginning of a name, on any of TensorFlow's file systems.
    """
    # Not by a pattern: folders may have * or [ in their names.
    folder, name = os.path.split(prefix)
    found = tf.io.gfile.listdir(folder or ".") if tf.io.gfile.isdir(folder or ".") else []
    return sorted(os.path.join(folder, entry.rstrip("/")) for entry in found if entry.startswith(name))


@contextlib.contextmanager
def local(path: str) -> Iterator[str]:
    """Gives the path of a file for libraries that read local files only.

    Args:
        path: on any of TensorFlow's file systems; a file of another is copied for the `with` block.

    Raises:
        FileNotFoundError: there is none.
    """
    if "://" not in path:
        yield path
        return
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(f"{path} does not exist")
    with tempfile.TemporaryDirectory() as folder:
        here = os.path.join(folder, os.path.basename(path))
        copy(path, here)
        yield here


def _unfinished(path: str) -> str:
    return f"{path}.unfinished"
