"""The checksums of a model's files: SHA256SUMS in their folder, as `sha256sum` writes and checks it.

Our tools write one with the weights. Files from elsewhere have one if their publisher or their user made it
(`sha256sum * > SHA256SUMS`).
"""

import hashlib
import re
from collections.abc import Iterable

from etils import epath

from xlnet_tf import files
from xlnet_tf.errors import UserError

FILE_NAME = "SHA256SUMS"

_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](?:\./)?(.+)")


def write(folder: epath.PathLike, names: Iterable[str]) -> None:
    """Writes the checksums of a folder's files, replacing the existing list."""
    folder = epath.Path(folder)
    text = "".join(f"{files.sha256(folder / name)}  {name}\n" for name in names)
    files.write(folder / FILE_NAME, text)


def update(folder: epath.PathLike, names: Iterable[str]) -> None:
    """Updates the checksums of files that were written to a folder or removed from it, if it has a list."""
    folder = epath.Path(folder)
    if (folder / FILE_NAME).exists():
        listed = _read(folder / FILE_NAME)
        for name in names:
            listed.pop(name, None)
            if (folder / name).exists():
                listed[name] = files.sha256(folder / name)
        files.write(folder / FILE_NAME, "".join(f"{digest}  {name}\n" for name, digest in listed.items()))


def remove(folder: epath.PathLike) -> None:
    """Removes the checksums of a folder before its files are overwritten: outdated ones would be wrong."""
    (epath.Path(folder) / FILE_NAME).unlink(missing_ok=True)


def check(path: epath.PathLike, content: bytes | None = None) -> None:
    """Raises UserError if a file differs from its checksum, if it has one, or the list is damaged."""
    path = epath.Path(path)
    listed = path.parent / FILE_NAME
    if not listed.exists() or (expected := _read(listed).get(path.name)) is None:
        return
    found = files.sha256(path) if content is None else hashlib.sha256(content).hexdigest()
    if found != expected:
        raise UserError(
            f"{path} has the sha256 {found}, {FILE_NAME} next to it says {expected}: it is damaged or "
            f"another file. Get it again; if you have changed it on purpose, remove its line from {FILE_NAME}"
        )


def _read(path: epath.Path) -> dict[str, str]:
    """Returns name -> sha256."""
    lines = path.read_bytes().decode(errors="replace").rstrip().split("\n")
    matches = [_LINE.fullmatch(line.rstrip("\r")) for line in lines]
    if None in matches:
        raise UserError(
            f"{path}, line {matches.index(None) + 1}: expected a sha256, two spaces and a file's name. Get "
            "it again, or remove it to do without"
        )
    return {match[2]: match[1].lower() for match in matches}
