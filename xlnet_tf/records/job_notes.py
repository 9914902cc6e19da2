"""Notes which parts of a job are done, so that the same job resumes after an interruption.

A job names what its results depend on (the fingerprint) and notes each finished part. The notes stay in a
folder until the job has ended.
"""

import json
from collections.abc import Mapping
from typing import Any

from etils import epath

from xlnet_tf import files, manifest_checksum

_STATE = "state.json"  # the fingerprint


class JobNotes:
    """The notes of a job, one file per finished part, in a folder of their own, for one fingerprint."""

    def __init__(
        self, folder: epath.PathLike, fingerprint: Mapping[str, Any] | None = None, suffix: str = ".json"
    ):
        self.folder, self._suffix = epath.Path(folder), suffix
        if fingerprint is not None:
            state, text = self.folder / _STATE, json.dumps(fingerprint, sort_keys=True)
            if not state.exists() or state.read_text() != text:
                self.remove()
                files.write(files.make_folder(self.folder) / _STATE, text)

    def path(self, part: str) -> epath.Path:
        return self.folder / f"{part}{self._suffix}"

    def read(self, part: str) -> dict[str, Any] | None:
        """Returns the note of a part; None if there is none, or it is damaged."""
        try:
            values = json.loads(self.path(part).read_text())
            return values if manifest_checksum.pop_checksum(values) else None
        except (FileNotFoundError, ValueError, TypeError, AttributeError, RecursionError):
            return None

    def write(self, part: str, values: Mapping[str, Any]) -> None:
        text = json.dumps(manifest_checksum.with_checksum(values), indent=1) + "\n"
        files.write(self.path(part), text)

    def remove(self) -> None:
        """Removes the folder of notes, once the job has ended."""
        self.folder.rmtree(missing_ok=True)


def are_intact(folder: epath.Path, digests: Mapping[str, str]) -> bool:
    """Returns whether the files of a finished part (name -> sha256) exist unchanged."""
    paths = {folder / name: sha256 for name, sha256 in digests.items()}
    return all(path.exists() and files.sha256(path) == sha256 for path, sha256 in paths.items())
