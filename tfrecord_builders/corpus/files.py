"""Finds the files of a corpus and their formats by name."""

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Sequence

from etils import epath

from tfrecord_builders.common.streams import compression_of
from xlnet_tf.errors import UserError
from xlnet_tf.files import check_rereadable

# Endings of files that are something else than text, and what to do with them. All others are read as text,
# such as those of languages: .pt and .so, and .ps, may be Portuguese, Somali and Pashto.
UNREADABLE = {
    "unpack it": ".bz2 .xz .lz4 .z .zip .7z .rar .tar .tgz",
    "its rows are not sentences: write its text as jsonl or parquet, a document in each row": ".csv .tsv "
    ".xls .xlsx .ods .arrow .feather .avro .orc .db .sqlite",
    "write its text as plain text": ".pdf .doc .docx .odt .rtf .epub .djvu .ppt .pptx",
    "it holds no text: leave it out": ".png .jpg .jpeg .gif .bmp .webp .tif .tiff .svg .ico .mp3 "
    ".wav .flac .ogg .mp4 .mkv .avi .mov .npy .npz .pkl .pickle .h5 .safetensors .tfrecord .tfrecords .exe "
    ".dll .pyc .woff .ttf",
}
_WHAT_TO_DO = {suffix: what for what, suffixes in UNREADABLE.items() for suffix in suffixes.split()}
FORMATS = {".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
TABLES = {".csv": "csv", ".tsv": "tsv"}  # for those who want rows


@dataclasses.dataclass(frozen=True)
class FileFormat:
    """A file's format by its name: text, jsonl, parquet, csv or tsv; compression gzip, zstd or ""."""

    kind: str
    compression: str


def file_format(path: epath.Path) -> FileFormat:
    """Returns the format of a file by its suffixes; unknown suffixes are text, binary formats an error."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = compression_of(path)
    if compression:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    if suffix in _WHAT_TO_DO and suffix not in TABLES:
        raise not_a_corpus(path, suffix)
    kind = (FORMATS | TABLES).get(suffix, "text")
    if kind == "parquet" and compression:
        raise UserError(
            f"{path} is parquet inside of {compression}, which cannot be read in parts: unpack it"
        )
    return FileFormat(kind, compression)


def not_a_corpus(path: epath.Path, suffix: str) -> UserError:
    """Returns the error for a file whose suffix is not that of a corpus."""
    return UserError(
        f"{path} is a {suffix} file, expected text, jsonl (also .gz, .zst) or parquet: {_WHAT_TO_DO[suffix]}"
    )


def find_files(patterns: Sequence[str]) -> list[epath.Path]:
    """Finds the files of a corpus, local or remote, by paths or globs (* ? []), sorted within each.

    Folders give all files but hidden ones. A file with several paths (relative, absolute, symbolic links) is
    returned once, by the first one.
    """
    files = {}
    for pattern in patterns:
        paths = [file for path in _matches(pattern) for file in (_walk(path) if path.is_dir() else [path])]
        if not paths:
            raise FileNotFoundError(f"no corpus file matches {pattern!r}: check its name")
        for path in paths:
            if os.path.islink(path) and not os.path.exists(path):
                raise FileNotFoundError(
                    f"{path} is a broken symbolic link (to {os.readlink(path)}), expected a file: repair or "
                    "remove it"
                )
            check_rereadable(path)
            files.setdefault(_identity(path), path)
    files = list(files.values())
    if files and not any(path.stat().length for path in files):
        raise UserError(f"the corpus is empty: no text in {', '.join(map(str, files[:5]))}")
    return files


def _matches(pattern: str) -> list[epath.Path]:
    """Returns the files and folders that match a path or glob, sorted."""
    path = epath.Path(pattern)
    if path.exists():
        return [path]
    if "**" in pattern:
        raise UserError(f"{pattern!r} has **: name the folder itself, all files in it are read, or use *")
    anchor = path
    while re.search(r"[*?\[]", str(anchor)):
        anchor = anchor.parent
    if anchor == path:
        return []
    below = str(path.relative_to(anchor))
    hidden = re.compile(r"(^|/)\.")  # as in a shell, a pattern must say the point itself
    return sorted(
        match
        for match in anchor.glob(below)
        if hidden.search(below) or not hidden.search(str(match.relative_to(anchor)))
    )


def is_part(file: epath.PathLike, pattern: str) -> bool:
    """Returns whether `find_files` would find a file, existing or not, by a pattern."""
    file, corpus = epath.Path(file).resolve(), epath.Path(pattern).resolve()
    is_glob = not corpus.exists()
    return any(path == corpus or (is_glob and path.match(str(corpus))) for path in (file, *file.parents))


class Snapshot:
    """The state of a corpus' files, to detect changes while they are read."""

    def __init__(self, files: Iterable[epath.Path]):
        self._states = {file: _state(file) for file in files}

    def check(self) -> None:
        """Raises UserError if a file has changed since."""
        for file, state in self._states.items():
            if not file.exists() or _state(file) != state:
                raise UserError(
                    f"{file} was changed while it was read, so what was written is not of one corpus: start "
                    "again when it no longer changes; shards of unchanged text are kept"
                )


def _state(file: epath.Path) -> tuple[int, int]:
    """Returns a file's bytes and modification time, as precise as its file system."""
    if "://" in str(file):
        remote = file.stat()
        return remote.length, remote.mtime
    local = os.stat(file)
    return local.st_size, local.st_mtime_ns


def _identity(path: epath.Path) -> str:
    """Returns an identity shared by all paths of a file or folder; for a remote one, its path."""
    return str(path) if "://" in str(path) else os.path.realpath(path)


def _walk(folder: epath.Path, above: Sequence[str] = ()) -> Iterator[epath.Path]:
    """Yields the files in folders, sorted by name, except hidden ones and through links to those `above`."""
    identity = _identity(folder)
    if identity in above:
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _walk(path, (*above, identity))
        else:
            yield path
