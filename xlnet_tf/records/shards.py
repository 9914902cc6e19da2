"""Shard files: TFRecord framing of fixed-size records, written atomically, read back with numpy.

This module needs no TensorFlow, so that builder processes start fast and stay small.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence

import google_crc32c
import numpy as np
from etils import epath
from typing_extensions import Self

from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.records.layout import Layout

FRAME_BYTES = 16  # length (8), its checksum (4), record, the record's checksum (4)
_CHECKED_RECORDS = 4096  # read at once
_WRITTEN_RECORDS = 256  # at once: few enough for the processor's cache


def is_plain_name(name: str) -> bool:
    """Returns whether this is a plain file name rather than a path."""
    return re.fullmatch(r"[\w.-]+", name) is not None and name not in (".", "..")


def framed_bytes(layout: Layout) -> int:
    """Bytes that one record takes in a shard file."""
    return layout.record_bytes + FRAME_BYTES


def framed(record: bytes) -> bytes:
    """Returns a record of any length with its TFRecord framing."""
    length = np.uint64(len(record)).tobytes()
    checksums = masked_checksums([length, record])
    return b"".join([length, checksums[:1].tobytes(), record, checksums[1:].tobytes()])


class ShardWriter:
    """Writes one shard, which gets its name, size and sha256 when the block ends without an error."""

    def __init__(self, path: epath.PathLike, layout: Layout):
        self._path = epath.Path(path)
        self._layout = layout
        self._digest = hashlib.sha256()
        self.records = 0

    @property
    def num_bytes(self) -> int:
        return self.records * framed_bytes(self._layout)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def __enter__(self) -> Self:
        self._opened = contextlib.ExitStack()
        self._file = self._opened.enter_context(files.replacing(self._path, "wb"))
        return self

    def write(self, columns) -> None:
        """Appends records: name -> [S, ...] arrays as `Layout.encode` takes them."""
        count = max(len(values) for values in columns.values())
        for begin in range(0, count, _WRITTEN_RECORDS):
            some = slice(begin, begin + _WRITTEN_RECORDS)
            rows = self._layout.encode({name: values[some] for name, values in columns.items()})
            length = np.uint64(rows.shape[1]).tobytes()
            framed = np.empty((len(rows), framed_bytes(self._layout)), np.uint8)
            framed[:, :8] = np.frombuffer(length, np.uint8)
            framed[:, 8:12] = masked_checksums([length]).view(np.uint8)
            framed[:, 12:-4] = rows
            framed[:, -4:] = masked_checksums(rows).view(np.uint8).reshape(-1, 4)
            data = framed.tobytes()  # remote files accept only bytes
            with files.writing(self._path):
                self._file.write(data)
            self._digest.update(data)
            self.records += len(rows)

    def __exit__(self, *error) -> None:
        self._opened.__exit__(*error)


def read_shard(path: epath.PathLike, layout: Layout, first: int = 0, count: int | None = None):
    """Reads records of a shard, starting at number `first`: name -> [S, ...] arrays, as `Layout.decode`.

    Raises UserError, with file and offset, for damaged bytes or a file that ends too early.
    """
    size = framed_bytes(layout)
    with epath.Path(path).open("rb") as file:
        file.seek(first * size)
        data = file.read() if count is None else file.read(count * size)
    if len(data) % size or (count is not None and len(data) != count * size):
        raise UserError(f"{path} ends inside a record, at byte {first * size + len(data)}: build it again")
    framed = np.frombuffer(data, np.uint8).reshape(-1, size)
    return unframe(framed, layout, path, range(first, first + len(framed)))


def unframe(framed: np.ndarray, layout: Layout, path: epath.PathLike, numbers: Sequence[int]):
    """Checks framed records, uint8 [S, framed_bytes(layout)], and parses them as `Layout.decode`.

    `path` and `numbers`, of the records in the shard, are for the message about damaged bytes.
    """
    damaged = damaged_frames(framed, layout)
    if damaged.any():
        record = numbers[int(damaged.argmax())]
        raise UserError(
            f"{path} is damaged in record {record} (byte {record * framed.shape[1]}): build it again"
        )
    return layout.decode(framed[:, 12:-4])


def damaged_frames(framed: np.ndarray, layout: Layout) -> np.ndarray:
    """Returns which of the framed records, uint8 [S, framed_bytes(layout)], are damaged: bool [S]."""
    length = np.uint64(layout.record_bytes).tobytes()
    header = np.frombuffer(length + masked_checksums([length]).tobytes(), np.uint8)
    expected = masked_checksums(framed[:, 12:-4]).view(np.uint8).reshape(-1, 4)
    wrong_frame = (framed[:, :12] != header).any(axis=1) | (framed[:, -4:] != expected).any(axis=1)
    return wrong_frame | ~layout.fits(framed[:, 12:-4])


def check_shard(
    path: epath.PathLike,
    layout: Layout,
    num_bytes: int,
    sha256: str | None,
    identity: Callable[[], Mapping[str, np.ndarray]],
    fix: str,
) -> None:
    """Raises UserError if a shard differs from its manifest, FileNotFoundError if it is missing.

    With a sha256 the file is read; `identity` returns columns that show which record is the first wrong one.
    """
    path = epath.Path(path)
    try:
        found = path.stat()  # one request to a storage
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing: {fix}") from None
    if found.is_directory:
        raise UserError(f"{path} is a folder, expected a file of {num_bytes} bytes: {fix}")
    if found.length != num_bytes:
        problem = f"has {found.length} bytes, expected {num_bytes} by the manifest"
    elif sha256 is not None and (digest := files.sha256(path)) != sha256:
        problem = f"has sha256 {digest}, expected {sha256} by the manifest"
    else:
        return
    raise UserError(f"{path} {problem}; {_first_fault(path, layout, identity())}: {fix}")


def _first_fault(path: epath.Path, layout: Layout, identity: Mapping[str, np.ndarray]) -> str:
    """Returns which record of a shard is the first wrong one, and where it is."""
    size, count = framed_bytes(layout), len(next(iter(identity.values())))
    with path.open("rb") as file:
        for first in range(0, count, _CHECKED_RECORDS):
            data = file.read(min(_CHECKED_RECORDS, count - first) * size)
            framed = np.frombuffer(data, np.uint8, len(data) // size * size).reshape(-1, size)
            damaged = damaged_frames(framed, layout)
            columns = layout.decode(framed[~damaged, 12:-4])
            other = np.zeros(len(framed), bool)
            for name, values in identity.items():
                other[~damaged] |= columns[name] != values[first : first + len(framed)][~damaged]
            if (wrong := damaged | other).any():
                row = int(wrong.argmax())
                what = "is damaged" if damaged[row] else "is not the one that belongs there"
                return f"its record {first + row} (byte {(first + row) * size}) {what}"
            if len(framed) < min(_CHECKED_RECORDS, count - first):
                number = first + len(framed)
                return f"it ends in record {number} of {count} (byte {first * size + len(data)})"
        if file.read(1):
            return f"after its {count} records, from byte {count * size} on, there is something else"
    return "each of its records is whole, but they are those of another set"


def read_tokenizer(path: epath.PathLike, sha256: str) -> bytes:
    """Reads the tokenizer next to records; UserError unless it is the one that they were made with."""
    content = epath.Path(path).read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise UserError(
            f"{path} has the sha256 {found}, the data were made with {sha256}: put the tokenizer back that "
            "they were made with, or build them again"
        )
    return content


def masked_checksums(rows) -> np.ndarray:
    """CRC32C of each row, rotated and shifted as TFRecord files want it; uint32 [S], little-endian."""
    crc = np.array([google_crc32c.value(row) for row in rows], np.uint32)
    return ((crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)).astype("<u4")
