"""The output folder of a pretraining build, designed so that a build can be killed at any moment.

build.json is the manifest of an unfinished build; next to it, each finished shard has a note. In the end,
manifest.json replaces them.
"""

import collections
import dataclasses
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from tfrecord_builders.pretraining import worker
from xlnet_tf import manifest_checksum
from xlnet_tf.differences import settings_difference
from xlnet_tf.errors import UserError
from xlnet_tf.records import manifest as manifest_lib
from xlnet_tf.records.manifest import Manifest, Shard

BUILD_NAME = "build.json"
ShardsBySlice = Mapping[int, Mapping[int, Shard]]  # slice index -> pass -> shard
SCRATCH_NAME = "unfinished-scratch"  # what Beam's workers and the process that waits for them exchange
_TEMPORARY = re.compile(r"\.tmp\d+(-[0-9a-f]+)?$")
_SHARD_OR_NOTE = re.compile(r"-pass\d+-slice\d+\.tfrecord(\.done\.json)?$")


def prepare(started: Manifest, overwrite: bool) -> tuple[Manifest | None, ShardsBySlice]:
    """Prepares the folder; resumes an unfinished build, even if its corpus has been corrected.

    Returns the manifest if a finished set with these settings is there (nothing is written then), and the
    shards of an earlier finished set. Another build there is a UserError without `overwrite`.
    """
    folder = started.folder
    names = _names(folder)
    try:
        there = _what_is_there(folder, names)
        continues = there is not None and _is_same_build(there, started, names)
    except UserError as error:
        if not overwrite:
            raise UserError(
                f"{folder} holds another build: choose another --output_dir, or give --overwrite to "
                f"replace it. {error}"
            ) from None
        continues = False
    _remove(folder, filter(_TEMPORARY.search, names))
    (folder / SCRATCH_NAME).rmtree(missing_ok=True)
    if continues and manifest_lib.FILE_NAME in names:
        return there, {}
    if continues:
        if there.corpus != started.corpus:
            dataclasses.replace(started, shards=there.shards).save(BUILD_NAME)
        return None, by_slice(there.shards)
    # In this order, a killed build leaves something that the next one knows.
    if manifest_lib.FILE_NAME in names:
        reopen(folder)
    _remove(folder, filter(_SHARD_OR_NOTE.search, names))
    started.save(BUILD_NAME)
    return None, {}


def reopen(folder: epath.Path) -> None:
    """Turns an incorrect set into an unfinished build, which keeps its good shards."""
    (folder / manifest_lib.FILE_NAME).replace(folder / BUILD_NAME)


def by_slice(shards: Iterable[Shard]) -> ShardsBySlice:
    found: dict[int, dict[int, Shard]] = collections.defaultdict(dict)
    for shard in shards:
        found[shard.slice_index][shard.pass_index] = shard
    return found


def finish(manifest: Manifest) -> None:
    """Writes a set's manifest, last and only if no shard is missing, and removes leftovers."""
    names = _names(manifest.folder)
    for shard in manifest.shards:
        if shard.file not in names:
            raise UserError(
                f"{manifest.path(shard)} was removed during the build: start again with the same flags"
            )
    manifest.save()
    remove_leftovers(manifest)


def remove_leftovers(manifest: Manifest) -> None:
    """Removes all that is not part of a finished set: build.json, scratch, notes and other shards."""
    keep = {shard.file for shard in manifest.shards}
    names = set(filter(_SHARD_OR_NOTE.search, _names(manifest.folder))) - keep
    _remove(manifest.folder, names | {BUILD_NAME})
    (manifest.folder / SCRATCH_NAME).rmtree(missing_ok=True)


def held_out_set(folder: epath.Path) -> Manifest | None:
    """Returns the manifest of the held-out set in a folder, finished or not; None if it holds none."""
    try:
        there = _what_is_there(folder, _names(folder))
    except UserError:  # what cannot be read is not such a set
        return None
    return there if there and there.documents["side"] else None


def _what_is_there(folder: epath.Path, names: set[str]) -> Manifest | None:
    """Returns the manifest of the build in a folder; UserError if there are records without one."""
    if manifest_lib.FILE_NAME in names:
        return Manifest.load(folder)
    if BUILD_NAME in names:
        return _load_build(folder)
    if any(map(_SHARD_OR_NOTE.search, names)):
        raise UserError("It holds records of an unknown build.")
    return None


def _is_same_build(there: Manifest, started: Manifest, names: set[str]) -> bool:
    """Returns whether to resume a build; raises UserError if it is a different one with records."""
    difference = settings_difference(*({**one.settings(), "corpus": None} for one in (there, started)))
    corpora = there.corpus, started.corpus
    if there.corpus != started.corpus and (manifest_lib.FILE_NAME in names or not _is_corrected(*corpora)):
        difference.insert(0, _corpus_difference(*corpora))
    if not difference:
        return True
    suffix = worker.DONE_SUFFIX
    noted = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    notes = (worker.read_note(there.folder, name) for name in noted)
    # A build that ended before its first record, for its corpus was bad, does not stand in the way.
    if any(shard.records for shard in [*there.shards, *filter(None, notes)]):
        raise UserError("Differences:\n  " + "\n  ".join(difference))
    return False


def _is_corrected(there: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> bool:
    """Returns whether only a few files of a corpus changed; another corpus has other sizes."""
    same_names = [file["file"] for file in there] == [file["file"] for file in now]
    changed = sum(a != b for a, b in zip(there, now))
    return same_names and changed <= max(1, len(now) // 2)


def _corpus_difference(there: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> str:
    """Describes in one line how two corpora, perhaps of very many files, differ."""
    sizes = (
        f"{len(files):,} files of {sum(file['bytes'] for file in files):,} bytes" for files in (there, now)
    )
    first = next((a, b) for a, b in itertools.zip_longest(there, now) if a != b)
    shown = (f"{file['file']} ({file['bytes']:,} bytes)" if file else "none" for file in first)
    return f"corpus: {' there, '.join(sizes)} now; the first that differs: {' there, '.join(shown)} now"


def _load_build(folder: epath.Path) -> Manifest:
    """Reads build.json, whose shards and statistics are too incomplete for a manifest's checks."""
    path = folder / BUILD_NAME
    try:
        values = json.loads(path.read_text())
        if not manifest_checksum.pop_checksum(values):
            raise manifest_checksum.broken(path)
        shards = tuple(Shard(**shard) for shard in values.pop("shards", ()))
        return Manifest(**values, shards=shards, folder=folder)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None


def _names(folder: epath.Path) -> set[str]:
    # Object stores have no empty folders.
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def _remove(folder: epath.Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
