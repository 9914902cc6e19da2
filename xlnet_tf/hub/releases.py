"""The released models: where they are, and the original's archives fetched and unpacked.

for release in xlnet_tf.released():
    print(release.name, release.language, release.size)
"""

import contextlib
import dataclasses
import functools
import http
import os
import pathlib
import shutil
import urllib.error
import urllib.request
import zipfile
import zlib

from xlnet_tf import files
from xlnet_tf.errors import UserError, reason
from xlnet_tf.hub.cache import patiently
from xlnet_tf.progress_bar import ProgressBar

_ORIGINAL = "https://storage.googleapis.com/xlnet/released_models/"
_SHA256 = "#sha256="
_BLOCK_BYTES = 1 << 20
_MOST_BYTES = 8 << 30  # limit of an archive and of its content: several times the largest release
_SECONDS = 60  # timeout
_FILES = ("xlnet_config.json", "spiece.model", "xlnet_model.ckpt.")


@dataclasses.dataclass(frozen=True)
class Release:
    """A published model, by the name that flags take."""

    name: str
    language: str
    size: str  # its preset or shape
    gigabytes: float
    address: str
    licence: str
    sha256: str | None = None  # without it, the first download's is recorded and compared later


def _hub(name: str, *facts) -> Release:
    return Release(f"hf://{name}", *facts[:-1], f"https://huggingface.co/{name}", facts[-1])


def _archive(name: str, *facts) -> Release:
    return Release(f"xlnet_{name}", *facts[:-1], f"{_ORIGINAL}{name}.zip", facts[-1])


RELEASES = (
    _archive("cased_L-12_H-768_A-12", "English", "base", 0.47, "Apache-2.0"),
    _archive("cased_L-24_H-1024_A-16", "English", "large", 1.44, "Apache-2.0"),
    _hub("xlnet/xlnet-base-cased", "English", "base", 0.47, "MIT"),
    _hub("xlnet/xlnet-large-cased", "English", "large", 1.44, "MIT"),
    _hub("hfl/chinese-xlnet-base", "Chinese", "base", 0.47, "Apache-2.0"),
    _hub("hfl/chinese-xlnet-mid", "Chinese", "24 layers of 768", 0.84, "Apache-2.0"),
)


def released() -> tuple[Release, ...]:
    """Returns the released models that this project reads."""
    return RELEASES


def archive_of(path: str) -> Release | None:
    """Returns the release of a name, or of an address and sha256 as `fetch` returns them; else None."""
    address, _, sha256 = path.partition(_SHA256)
    for release in RELEASES:
        if release.address.endswith(".zip") and (path == release.name or address == release.address):
            return dataclasses.replace(release, sha256=sha256) if sha256 else release
    return None


def fetch(release: Release) -> tuple[str, str]:
    """Fetches and unpacks a release's archive, unless the cache has it; resumes a partial download.

    Its sha256 is compared with the release's or that of the first download on this machine. Returns the
    folder, and the address with the sha256, which `archive_of` recognises.
    """
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "xlnet_tf"
    folder, archive = cache / release.name, cache / f"{release.name}.zip"
    recorded = cache / f"{release.name}.sha256"
    if not folder.is_dir():
        files.make_folder(cache)
        if not archive.exists():
            _download(release.address, archive)
        sha256 = _check(archive, release, recorded)
        unfinished = _unpack(archive, folder)
        files.write(recorded, sha256 + "\n")
        unfinished.rename(folder)
        archive.unlink()
    sha256 = files.read_text(recorded).strip()
    if release.sha256 not in (None, sha256):
        raise UserError(
            f"{folder} was unpacked from an archive with the sha256 {sha256}; expected {release.sha256}. "
            "Remove it to fetch it again"
        )
    return str(folder), f"{release.address}{_SHA256}{sha256}"


def _download(address: str, path: pathlib.Path) -> None:
    unfinished = path.with_suffix(".part")
    begin = unfinished.stat().st_size if unfinished.exists() else 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={begin}-"} if begin else {})
    try:
        with contextlib.ExitStack() as stack:
            response = stack.enter_context(
                patiently(lambda: urllib.request.urlopen(request, timeout=_SECONDS))
            )
            stack.enter_context(files.writing(unfinished))
            begin = begin if response.status == 206 else 0
            total = begin + int(response.headers.get("Content-Length") or 0)
            if total > _MOST_BYTES:
                raise UserError(f"{address} has {total:,} bytes; expected at most {_MOST_BYTES:,}")
            file = stack.enter_context(open(unfinished, "ab" if begin else "wb"))
            bar = stack.enter_context(
                ProgressBar(total=total or None, initial=begin, desc=path.name, unit="B", unit_scale=True)
            )
            for block in iter(functools.partial(response.read, _BLOCK_BYTES), b""):
                file.write(block)
                bar.update(len(block))
    except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
        if begin and getattr(error, "code", None) == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            unfinished.unlink()  # nothing is left to fetch, or it is another file now
            _download(address, path)
            return
        cause = error.reason if isinstance(getattr(error, "reason", None), OSError) else error
        raise UserError(
            f"{address} cannot be fetched ({reason(cause)}). Start again to resume the download, or get it "
            f"another way and put it at {path}"
        ) from error
    if total and unfinished.stat().st_size != total:
        raise UserError(
            f"{address} broke off after {unfinished.stat().st_size:,} of {total:,} bytes. Start again"
        )
    unfinished.replace(path)


def _check(archive: pathlib.Path, release: Release, recorded: pathlib.Path) -> str:
    expected = release.sha256 or (files.read_text(recorded).strip() if recorded.exists() else None)
    found = files.sha256(archive)
    if expected not in (None, found):
        archive.unlink()
        raise UserError(
            f"{release.address} has the sha256 {found}; expected {expected}. It was removed: start again. If "
            f"the publisher has changed it, remove {recorded}"
        )
    return found


def _unpack(archive: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Unpacks a release's files, whatever their folder in the archive, into a temporary folder."""
    unfinished = folder.with_suffix(".unpacking")
    try:
        with zipfile.ZipFile(archive) as packed:
            members = [member for member in packed.infolist() if not member.is_dir()]
            names = {pathlib.PurePosixPath(member.filename).name: member for member in members}
            wanted = {name: member for name, member in names.items() if name.startswith(_FILES)}
            lacking = [file for file in _FILES if not any(name.startswith(file) for name in wanted)]
            size = sum(member.file_size for member in wanted.values())
            if lacking or size > _MOST_BYTES:
                raise UserError(
                    f"{archive} is not a released XLNet: it lacks {', '.join(lacking) or 'nothing'} and has "
                    f"{size:,} bytes of what one has. It was left there"
                )
            files.make_folder(unfinished)
            for name, member in wanted.items():
                with packed.open(member) as source, files.replacing(unfinished / name, "wb") as file:
                    shutil.copyfileobj(source, file, _BLOCK_BYTES)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UserError(f"{archive} is damaged ({reason(error)}): remove it and start again") from error
    return unfinished
