"""Results on disk as they are made, some in each file: an interrupted job resumes after the last."""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from etils import epath

from xlnet_tf import files
from xlnet_tf.checkpoints import open_checkpoint

_STATE = "state.json"


class Pieces:
    """A folder of results that are not complete yet.

    Args:
        folder: where; results of another fingerprint are removed from it.
        fingerprint: what the results depend on, as JSON can hold it.
        suffix: of the files' names.
    """

    def __init__(self, folder: epath.PathLike, fingerprint: Mapping[str, Any], suffix: str = ".npz"):
        self.folder, self._suffix = files.make_folder(folder), suffix
        state = self.folder / _STATE
        text = json.dumps(fingerprint, sort_keys=True)
        if not state.exists() or state.read_text() != text:
            remove_pieces(folder)
            files.write(files.make_folder(folder) / _STATE, text)

    def path(self, first: int) -> epath.Path:
        """Returns the file of the results from number `first` on."""
        return self.folder / f"rows-{first:08d}{self._suffix}"

    def read_steps(self) -> list[dict[str, np.ndarray]]:
        """Returns the arrays of each step that `write_steps` has kept, from the first on."""
        steps: list[dict[str, np.ndarray]] = []
        while (path := self.path(len(steps))).exists():
            try:
                with path.open("rb") as file, np.load(file) as arrays:
                    columns = {name: arrays[name] for name in arrays.files}
            except (ValueError, EOFError, zipfile.BadZipFile):
                logging.warning("%s is damaged: what it had is predicted again", path)
                return steps
            count = len(next(iter(columns.values())))
            steps += [{name: values[step] for name, values in columns.items()} for step in range(count)]
        return steps

    def write_steps(self, steps: Sequence[Mapping[str, np.ndarray]], first: int):
        """Keeps the arrays of consecutive steps."""
        buffer = io.BytesIO()
        np.savez(buffer, **{name: np.stack([step[name] for step in steps]) for name in steps[0]})
        files.write(self.path(first), buffer.getvalue())

    def read_lines(self) -> Iterator[bytes]:
        """Yields the lines that `files.write(pieces.path(first), lines)` has kept, from the first on."""
        count = 0
        while (path := self.path(count)).exists():
            with path.open("rb") as file:
                for line in file:
                    count += 1
                    yield line


def remove_pieces(folder: epath.PathLike):
    """Removes results, once they are written elsewhere."""
    epath.Path(folder).rmtree(missing_ok=True)


def weights_fingerprint(checkpoint: str) -> dict[str, Any]:
    """Returns what identifies weights: a run that trains on may replace them."""
    weights = open_checkpoint(checkpoint).path
    parts = [weights] if tf.io.gfile.exists(weights) else files.beginning_with(f"{weights}.")
    return {
        "checkpoint": checkpoint,
        "written": max(tf.io.gfile.stat(file).mtime_nsec for file in parts),
    }
