"""Fetches a model's files into the hub's cache: resumes interrupted downloads, and checks digests.

The cache's layout is huggingface_hub's, which other programs share: blobs/DIGEST, snapshots/COMMIT/FILE and
refs/BRANCH. That library restarts interrupted files from the beginning (since about 1.1), and waits as long
as a server asks, so we use only its session, headers and errors.
"""

import contextlib
import datetime
import email.utils
import hashlib
import http
import math
import os
import pathlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from absl import logging

from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.progress_bar import ProgressBar

_PART = ".incomplete"
_DIGEST = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")  # git's digest, or that of a large file's content
_SHA256_DIGITS = 64
# Errors of the library about answers from something other than a hub.
MISREADINGS = (ValueError, TypeError, LookupError, AttributeError, AssertionError)
_BUSY = (http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.SERVICE_UNAVAILABLE)
_MOST_TRIES, _MOST_SECONDS_BETWEEN = 5, 60  # if a busy server asks to wait
_Answer = TypeVar("_Answer")
_SHORT_BYTES = 10 << 20  # smaller files show no progress


def fetch(library: Any, name: str, revision: str | None, info: Any, wanted: Sequence[str]) -> str:
    """Fetches files of a model into the cache; returns the commit's folder.

    `info` is the hub's description of the model. A file with a wrong digest is a UserError; it is removed, so
    that the next call fetches it again.
    """
    model = pathlib.Path(library.constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}")
    folder = model / "snapshots" / info.sha
    for file in info.siblings:
        digest, size = digest_and_size(file)
        path, blob = folder / file.rfilename, model / "blobs" / digest
        if file.rfilename not in wanted or (path.exists() and _is_intact(path, digest)):
            continue
        with _locked(library, blob):
            if not (blob.exists() and _is_intact(blob, digest)):
                address = library.hf_hub_url(name, file.rfilename, revision=info.sha)
                _download(library, address, blob, size)
            _link(blob, path)
    _remove_abandoned(library, model)
    branch = model / "refs" / (revision or "main")
    if revision != info.sha and not (branch.exists() and branch.read_text() == info.sha):
        files.make_folder(branch.parent)
        files.write(branch, info.sha)
    return str(folder)


def digest_and_size(file: Any) -> tuple[str, int]:
    """Returns a file's digest and bytes by the hub's description; the cache names content by the digest."""
    digest, size = (file.lfs.sha256, file.lfs.size) if file.lfs else (file.blob_id, file.size)
    if not _DIGEST.fullmatch(digest) or size < 0:
        raise ValueError(f"{file.rfilename} has the digest {digest} and the size {size}")
    return digest, size


def is_intact(path: str) -> bool:
    """Returns, without the network, whether a cached file is unchanged since it was checked."""
    try:
        checked = files.read_text(_note(path)).partition(" ")[0]
    except FileNotFoundError:
        return True  # another program has fetched it
    return _is_intact(pathlib.Path(path), checked)


def _note(path: str | os.PathLike) -> pathlib.Path:
    return pathlib.Path(f"{os.path.realpath(path)}.sha256")


def _seen(path: pathlib.Path, checked: str) -> str:
    """Returns the note about a file whose digest is known."""
    status = path.stat()
    return f"{checked} {status.st_size} {status.st_mtime_ns}"


def _is_intact(path: pathlib.Path, expected: str) -> bool:
    """Returns whether a file has this digest, computing it only if the file's size or time changed."""
    note, seen = _note(path), _seen(path, expected)
    if note.exists() and files.read_text(note) == seen:
        return True
    if _digest(path, expected) != expected:
        return False
    files.write(note, seen)
    return True


def _digest(path: pathlib.Path, like: str) -> str:
    """Returns a file's sha256, or git's name of its content, whichever kind `like` is."""
    if len(like) == _SHA256_DIGITS:
        return files.sha256(path)
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@contextlib.contextmanager
def _locked(library: Any, blob: pathlib.Path, **options: Any) -> Iterator[None]:
    """Holds the library's lock on a file, which keeps two processes from fetching it."""
    lock = blob.parents[2] / ".locks" / blob.parents[1].name / f"{blob.name}.lock"
    for folder in (lock.parent, blob.parent):
        files.make_folder(folder)
    with library.utils.WeakFileLock(lock, **options):
        yield


def _download(library: Any, address: str, blob: pathlib.Path, size: int) -> None:
    """Fetches a file, from the end of a partial one; retries as long as more of it comes."""
    part = pathlib.Path(f"{blob}{_PART}")
    name = address.rpartition("/")[2]
    is_short = size < _SHORT_BYTES
    part.touch()
    with ProgressBar(total=size, desc=name, unit="B", unit_scale=True, disable=is_short) as bar:
        while (begin := part.stat().st_size) < size:
            bar.update(begin - bar.n)
            try:
                _read(library, address, part, begin, size, bar)
            except library.errors.HfHubHTTPError as error:
                if error.response.status_code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    raise
            except Exception as error:
                if not is_of_library(error) or part.stat().st_size <= begin:
                    raise
            if part.stat().st_size <= begin:
                break  # the server has no more of it
    found = _digest(part, blob.name)
    if found != blob.name:
        came = part.stat().st_size
        part.unlink()
        raise UserError(
            f"{name} came with {came:,} bytes and the digest {found}; the hub says {size:,} and {blob.name}. "
            "It was removed. Start again to fetch it again; if that does not help, look whether a proxy or a "
            "login page answers for the hub"
        )
    part.replace(blob)
    files.write(_note(blob), _seen(blob, found))


def _read(library: Any, address: str, part: pathlib.Path, begin: int, size: int, bar: ProgressBar) -> None:
    headers = library.utils.build_hf_headers() | {"Accept-Encoding": "identity"}
    headers |= {"Range": f"bytes={begin}-"} if begin else {}
    seconds = library.constants.HF_HUB_DOWNLOAD_TIMEOUT
    with library.get_session().stream("GET", address, headers=headers, timeout=seconds) as response:
        library.utils.hf_raise_for_status(response)
        is_rest = response.status_code == http.HTTPStatus.PARTIAL_CONTENT
        with open(part, "ab" if is_rest else "wb") as file:
            for block in response.iter_bytes():
                file.write(block)
                bar.update(len(block))
                if file.tell() > size:
                    return


def _link(blob: pathlib.Path, path: pathlib.Path) -> None:
    files.make_folder(path.parent)
    path.unlink(missing_ok=True)
    try:
        path.symlink_to(os.path.relpath(blob, path.parent))
    except OSError:  # the file system has no links
        blob.replace(path)


def _remove_abandoned(library: Any, model: pathlib.Path) -> None:
    for part in (model / "blobs").glob(f"*{_PART}"):
        blob = part.with_name(part.name.partition(".")[0])
        with contextlib.suppress(TimeoutError), _locked(library, blob, timeout=0.01):
            part.unlink(missing_ok=True)


def is_of_library(error: Exception) -> bool:
    """Returns whether an error comes from the hub's library or its HTTP client."""
    return type(error).__module__.partition(".")[0] in ("huggingface_hub", "httpx", "httpx2", "httpcore2")


def patiently(ask: Callable[[], _Answer]) -> _Answer:
    """Calls `ask`, retrying after the delay that a busy server asks for, if it is short."""
    for _ in range(_MOST_TRIES - 1):
        try:
            return ask()
        except Exception as error:
            seconds = asked_to_wait(error) or ""
            if not seconds or int(seconds) > _MOST_SECONDS_BETWEEN:
                raise
            logging.warning("The server is busy and asks to wait %s seconds.", seconds)
            time.sleep(int(seconds))
    return ask()


def asked_to_wait(error: Exception) -> str | None:
    """Returns the seconds that a busy server asks to wait, "" if it does not say; None: it is not busy."""
    answer = getattr(error, "response", None) or error  # httpx; urllib
    status = getattr(answer, "status_code", getattr(answer, "code", None))
    if status not in _BUSY:
        return None
    named = answer.headers.get("Retry-After", "").strip()
    if re.fullmatch("[0-9]+", named):
        return named
    try:
        until = email.utils.parsedate_to_datetime(named)
    except ValueError:
        return ""
    if until.tzinfo is None:  # "-0000"
        until = until.replace(tzinfo=datetime.timezone.utc)
    return str(max(0, math.ceil(until.timestamp() - time.time())))


def not_a_hub(error: Exception) -> str:
    """Returns advice about an answer that neither the hub's library nor this project understands."""
    return (
        f"something does not answer as a Hugging Face hub does ({first_line(error)}). Perhaps a proxy or a "
        "login page: open https://huggingface.co (or what HF_ENDPOINT says) in a browser, and start again"
    )


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, without the system's number."""
    return re.sub(r"^\[Errno -?\d+\] ", "", next(iter(str(error).splitlines()), "")) or type(error).__name__
