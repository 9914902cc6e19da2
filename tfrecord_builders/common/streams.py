"""Reads files forward, compressed or not; damage is an error that names the file."""

import collections
import contextlib
import gzip
import zlib
from typing import IO

import zstandard
from etils import epath

from xlnet_tf.errors import UserError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
BLOCK_BYTES = 1 << 20
# A block of zstd has at least 4 bytes and becomes up to 128 KiB: this many become up to 32 MiB at once.
_COMPRESSED_BLOCK_BYTES = 1 << 10
_LONGEST_WINDOW = 1 << 31  # as of `zstd --long=31`
_FRAME_HEADER_BYTES = 18  # at most
_USUAL_WINDOW = 1 << 27  # what zstd itself unpacks without such a flag
# How compressed files begin, and what to do with one whose name does not say so.
_PACKED = {
    b"\x1f\x8b": "let its name end in .gz",
    b"\x28\xb5\x2f\xfd": "let its name end in .zst",
    b"PK\x03\x04": "save a spreadsheet as .csv, and unpack an archive",
    b"\xfd7zXZ": "unpack it (xz -d)",
    **{b"BZh%d1AY&SY" % level: "unpack it (bzip2 -d)" for level in range(1, 10)},
}
_MOST_UNPACKED = 1000  # bytes for a byte of a file that keeps a larger window in memory


def compression_of(path: epath.Path) -> str:
    """Returns "gzip", "zstd" or "", by a file's name."""
    return COMPRESSIONS.get(path.suffix.lower(), "")


def unpacked_name(path: epath.Path) -> str:
    """Returns a file's name in lower case, without .gz or .zst."""
    name = path.name.lower()
    return name.removesuffix(path.suffix.lower()) if compression_of(path) else name


def unpacking(data: bytes) -> str:
    """Returns advice about compressed data from its first bytes; "" if it is not compressed."""
    return next((what for mark, what in _PACKED.items() if data.startswith(mark)), "")


class Stream(contextlib.AbstractContextManager):
    """A file that is read forward; positions count uncompressed bytes."""

    def __init__(self, path: epath.Path):
        self.path = path
        self.compression = compression_of(path)
        self._num_bytes = path.stat().length
        self._opened = contextlib.ExitStack()  # a remote file is none before its context begins
        self._raw = self._opened.enter_context(path.open("rb"))
        readers = {"": lambda raw: raw, "gzip": lambda raw: gzip.GzipFile(fileobj=raw), "zstd": _ZstdReader}
        reader = readers[self.compression](self._raw)
        # GzipFile.read loses what it has read before an error.
        self._read = reader.read1 if self.compression == "gzip" else reader.read
        self.position = 0

    def __exit__(self, *_) -> None:
        self._opened.close()

    @property
    def source_position(self) -> int:
        """Bytes of the stored file that have been read."""
        return self._raw.tell()

    def read(self, count: int) -> bytes:
        """Reads up to `count` bytes: fewer only at the end of the file. A damaged file is a UserError."""
        blocks, left = [], count
        try:
            while left and (block := self._read(left)):
                blocks.append(block)
                left -= len(block)
        except (EOFError, OSError, zlib.error, zstandard.ZstdError) as error:
            end = self.position + count - left
            raise UserError(
                f"{self.path} cannot be read to its end: {error}, after byte {end:,} of its text. "
                "Is it damaged? Get it again."
            ) from None
        self.position += count - left
        return b"".join(blocks)

    def seek(self, position: int) -> None:
        """Moves forward to a position; a compressed file is read up to there."""
        if not self.compression:
            self._raw.seek(min(position, self._num_bytes))  # remote files have no position after their end
            self.position = position
            return
        while self.position < position and self.read(min(position - self.position, BLOCK_BYTES)):
            pass


def line_number(path: str, offset: int) -> int:
    """Returns the number of the line, from 1, that contains a byte; reads the file up to there."""
    ends, left = collections.Counter[bytes](), offset
    with Stream(epath.Path(path)) as stream:
        while left > 0 and (block := stream.read(min(left, BLOCK_BYTES))):
            ends.update({end: block.count(end) for end in (b"\n", b"\r")})
            left -= len(block)
    return 1 + (ends[b"\n"] or ends[b"\r"])  # some tables have carriage returns alone


class StreamCache(contextlib.AbstractContextManager):
    """Keeps the last file open, so that reading its parts in order reads a compressed file once."""

    def __init__(self):
        self._stream: Stream | None = None

    def __exit__(self, *_) -> None:
        if self._stream is not None:
            self._stream.__exit__()

    def read(self, path: str, start: int, count: int) -> bytes:
        """Reads up to `count` bytes of a file from byte `start` (uncompressed) on."""
        stream = self._stream
        if stream is None or str(stream.path) != path or stream.position > start:
            self.__exit__()
            stream = self._stream = Stream(epath.Path(path))
        stream.seek(start)
        return stream.read(count)


class _ZstdReader:
    """Reads consecutive zstd frames; the package's own reader accepts truncated files as whole.

    Memory holds a window, which grows with the data: up to 128 MiB or, in a file made with `zstd --long`, up
    to 1,000 times the bytes read so far, and never more than 2 GiB.
    """

    def __init__(self, raw: IO[bytes]):
        self._raw = raw
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_LONGEST_WINDOW)
        self._frame = None  # what reads the frame that has begun
        self._window = self._frame_bytes = 0  # of that frame: its window, and what has been unpacked
        self._unpacked = memoryview(b"")
        self._packed = b""

    def read(self, count: int) -> bytes:
        while not self._unpacked:
            packed = self._packed or self._raw.read(_COMPRESSED_BLOCK_BYTES)
            self._packed = b""
            if not packed:
                if self._frame is not None:
                    raise EOFError("the file ends before its last frame does")
                return b""
            if self._frame is None:
                packed += self._raw.read(_FRAME_HEADER_BYTES)
                self._window = zstandard.get_frame_parameters(packed).window_size
                self._frame, self._frame_bytes = self._decompressor.decompressobj(), 0
            self._unpacked = memoryview(self._frame.decompress(packed))
            self._frame_bytes += len(self._unpacked)
            held = min(self._window, self._frame_bytes)
            if held > max(_USUAL_WINDOW, _MOST_UNPACKED * self._raw.tell()):
                raise zstandard.ZstdError(
                    f"it unpacks to over {_MOST_UNPACKED:,} times its size with a window of {self._window:,} "
                    f"bytes, expected at most {_USUAL_WINDOW:,}: pack it without --long"
                )
            if self._frame.eof:
                self._packed = self._frame.unused_data
                self._frame = None
        block, self._unpacked = bytes(self._unpacked[:count]), self._unpacked[count:]
        return block
