"""Finds rows that kill the process which answers them, from notes made before it died."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etils import epath

from xlnet_tf import files
from xlnet_tf.errors import UserError

Answer = Callable[[Sequence[Mapping[str, Any]]], Sequence[Mapping[str, Any]]]
_MOST_WITHOUT_BATCH = 3  # deaths that no batch explains


class Deaths:
    """Notes each batch in a file, which outlives the process, and refuses batches that killed processes.

    A process may die for other reasons, and batches decide the last digits of answers. So a batch is refused,
    to be halved, only after it has killed two processes. Its halves, down to the single deadly row, are
    refused after one. `deaths` are those of the shard's processes so far.
    """

    def __init__(self, note: epath.Path, deaths: int):
        self._note = note
        self._deadly: list[list[str]] = files.read_json(note)["deadly"] if note.exists() else []
        if deaths - len(self._deadly) >= _MOST_WITHOUT_BATCH:
            raise UserError(
                f"a worker process died {_MOST_WITHOUT_BATCH} times before it answered a row (was memory "
                "short, or was it killed?): start again with fewer --num_workers, finished shards are kept"
            )
        self._refused = [batch for batch in self._deadly if self._deadly.count(batch) > 1]
        self._refused += [
            batch for batch in self._deadly if any(set(batch) < set(whole) for whole in self._refused)
        ]
        self._alone = {row for batch in self._refused if len(batch) == 1 for row in batch}

    def answer(self, model: Answer, batch: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Answers a batch by the model; refuses one that may kill this process as it killed others."""
        rows = [hashlib.sha256(json.dumps(dict(inputs)).encode()).hexdigest() for inputs in batch]
        if rows in self._refused or self._alone.intersection(rows):
            raise UserError("the worker process died while it answered this row alone")
        files.write(self._note, json.dumps({"deadly": [*self._deadly, rows]}))
        answers = model(batch)
        files.write(self._note, json.dumps({"deadly": self._deadly}))
        return answers
