"""Rows that kill the process which answers them: found by what was noted before the process died."""

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
    """Notes each batch in a file before a model answers it, and refuses what has killed an earlier process.

    A batch that was being answered when a process died is refused, so that it is halved; a row that was being
    answered alone is refused for good.

    Args:
        note: file that outlives the process.
        deaths: processes that the shard has killed so far.

    Raises:
        UserError: processes die before they answer a batch.
    """

    def __init__(self, note: epath.Path, deaths: int):
        self._note = note
        self._deadly: list[list[str]] = files.read_json(note)["deadly"] if note.exists() else []
        if deaths - len(self._deadly) >= _MOST_WITHOUT_BATCH:
            raise UserError(
                f"a worker process died {_MOST_WITHOUT_BATCH} times before it answered a row (was memory "
                "short, or was it killed?): start again with fewer --num_workers, finished shards are kept"
            )
        self._rows = {row for batch in self._deadly for row in batch}
        self._alone = {row for batch in self._deadly if len(batch) == 1 for row in batch}

    def answer(self, model: Answer, batch: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Answers a batch by the model.

        Raises:
            UserError: it may kill this process, as it has killed others.
        """
        rows = [hashlib.sha256(json.dumps(dict(inputs)).encode()).hexdigest() for inputs in batch]
        if self._alone.intersection(rows) or (len(rows) > 1 and self._rows.intersection(rows)):
            raise UserError("the worker process died while it answered this row alone")
        files.write(self._note, json.dumps({"deadly": [*self._deadly, rows]}))
        answers = model(batch)
        files.write(self._note, json.dumps({"deadly": self._deadly}))
        return answers
