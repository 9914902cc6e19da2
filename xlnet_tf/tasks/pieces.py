"""Stores results in files as they are made, so that an interrupted job resumes after the last."""

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from etils import epath

from xlnet_tf import checkpoints, files
from xlnet_tf.records.job_notes import JobNotes


class Pieces(JobNotes):
    """A folder of the results of an unfinished job."""

    def rows(self, first: int) -> epath.Path:
        """Returns the file of the results from number `first` on."""
        return self.path(f"rows-{first:08d}")

    def read_steps(self) -> list[dict[str, np.ndarray]]:
        """Returns the arrays of each step that `write_steps` has stored, from the first on."""
        steps: list[dict[str, np.ndarray]] = []
        while (path := self.rows(len(steps))).exists():
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
        buffer = io.BytesIO()
        np.savez(buffer, **{name: np.stack([step[name] for step in steps]) for name in steps[0]})
        files.write(self.rows(first), buffer.getvalue())

    def read_lines(self) -> Iterator[bytes]:
        """Yields the lines that `files.write(pieces.rows(first), lines)` has stored, from the first on."""
        count = 0
        while (path := self.rows(count)).exists():
            with path.open("rb") as file:
                for line in file:
                    count += 1
                    yield line


def weights_fingerprint(checkpoint: str) -> dict[str, Any]:
    """Returns the identity of weights, which a run that continues training may replace."""
    import tensorflow as tf  # here: texts' answers need no TensorFlow

    weights = checkpoints.open_checkpoint(checkpoint).path
    parts = [weights] if tf.io.gfile.exists(weights) else files.beginning_with(f"{weights}.")
    return {"checkpoint": checkpoint, "written": max(tf.io.gfile.stat(file).mtime_nsec for file in parts)}
