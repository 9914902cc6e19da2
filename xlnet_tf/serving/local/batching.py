"""Answers concurrent requests together: their rows are batched and padded to one length.

If no other request waits, a request runs unchanged: its answer equals the SavedModel's to the last bit, and
only the model tokenizes its texts. When requests wait for a worker, their rows are sorted by the length that
the model pads them to (its buckets): short texts never pay for long ones, not even in their own request.
"""

import concurrent.futures
import contextlib
import dataclasses
import enum
import itertools
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from xlnet_tf.serving.local.served_model import RequestError, ServedModel, sizes_of

MAX_BATCH = 32  # rows
_MAX_TOKENS = 8192  # of a batch: more long rows in one would only let others wait
_WORKERS = 2  # one prepares while the other computes
_END_SECONDS = 1.0  # to wait for an operation that cannot be dropped, when a version is closed
_COUNTS = "num_entities"  # the output with the number of a row's values; what follows them is padding

Columns = Mapping[str, np.ndarray]


class Closed(Exception):
    """The version has been unloaded."""


class Rule(enum.Enum):
    """Which requests of a signature may share a batch, so that each answer keeps its shape."""

    ROWS = enum.auto()  # each row on its own
    REQUESTS = enum.auto()  # all rows of a request together: its answers are as wide as the widest
    ALONE = enum.auto()  # nothing: the answers' shape depends on the batch

    @classmethod
    def of(cls, definition) -> "Rule":
        """Returns the rule of a SignatureDef proto."""
        inputs, outputs = (
            list(map(sizes_of, side.values())) for side in (definition.inputs, definition.outputs)
        )
        if not inputs or not all(sizes and sizes[0] == -1 for sizes in inputs + outputs):
            return cls.ALONE
        if not any(-1 in sizes[1:] for sizes in outputs) or any(-1 in sizes[1:] for sizes in inputs):
            return cls.ROWS
        return cls.REQUESTS if _COUNTS in definition.outputs else cls.ALONE


@dataclasses.dataclass(eq=False)
class _Request:
    signature: str
    columns: Columns
    rows: int
    deadline: float | None  # of time.monotonic
    future: concurrent.futures.Future = dataclasses.field(default_factory=concurrent.futures.Future)
    answers: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    begun: bool = False
    answered: int = 0  # rows


@dataclasses.dataclass(eq=False)
class _Part:
    """Rows of a request that go into the same batch."""

    number: int  # in the order of arrival
    request: _Request
    rows: np.ndarray


class Batcher:
    """The queue and the workers of one version of a model; batches requests if `together`."""

    def __init__(self, model: ServedModel, *, together: bool = True, max_batch: int = MAX_BATCH):
        self._model, self._max_batch = model, max_batch
        self._rules = {
            name: Rule.of(definition) if together else Rule.ALONE
            for name, definition in model.definitions.items()
        }
        self._queues: dict[tuple, deque[_Part]] = {}  # by what may share a batch; none is empty
        self._waiting: dict[_Request, int] = {}  # its parts in the queues
        self._owed: set[concurrent.futures.Future] = set()  # neither answered nor cancelled
        self._idle = 0  # workers
        self._numbers = itertools.count()
        self._lock = threading.Condition()
        self._closed = False
        # No daemons: Python would end while TensorFlow computes, which crashes.
        self._workers = [threading.Thread(target=self._work) for _ in range(_WORKERS)]
        for worker in self._workers:
            worker.start()

    def submit(
        self, signature: str, columns: Columns, seconds: float | None = None
    ) -> concurrent.futures.Future:
        """Queues a request whose inputs the model has checked; it expires after `seconds`, if given.

        Returns a future of its outputs, or of a RequestError; a cancelled request is not computed. Raises
        Closed if the model is no longer served.
        """
        sizes = {value.shape[0] if value.ndim else -1 for value in columns.values()}
        rows = sizes.pop() if len(sizes) == 1 else -1
        request = _Request(signature, columns, rows, seconds and time.monotonic() + seconds)
        if self._idle and not self._waiting and rows <= self._max_batch:  # to be taken as it is
            parts = [((request, 0), np.arange(max(0, rows)))]
        else:
            parts = list(self._parts(request))
        with self._lock:
            if self._closed:
                raise Closed
            for key, numbers in parts:
                part = _Part(next(self._numbers), request, numbers)
                self._queues.setdefault(key, deque()).append(part)
            self._waiting[request] = len(parts)
            self._owed.add(request.future)
            self._lock.notify()
        request.future.add_done_callback(self._owed.discard)
        return request.future

    def close(self) -> None:
        """Answers what clients wait for, drops the rest, and closes the model."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        concurrent.futures.wait([*self._owed])
        closing = threading.Thread(target=self._model.close)
        closing.start()
        for thread in (closing, *self._workers):
            thread.join(_END_SECONDS)

    def _parts(self, request: _Request) -> Iterator[tuple[tuple, np.ndarray]]:
        """Yields rows that stay together, each with the key that rows of one batch share."""
        rule, everything = self._rules[request.signature], np.arange(max(0, request.rows))
        if rule is Rule.ALONE or request.rows <= 0:
            yield (request, 0), everything
            return
        columns = request.columns.values()
        shapes = tuple(value.shape[1:] for value in columns)
        buckets = np.array(
            [self._model.bucket([value[row : row + 1] for value in columns]) for row in everything]
        )
        if rule is Rule.REQUESTS:
            yield (request.signature, shapes, int(buckets.max())), everything
            return
        for bucket in np.unique(buckets).tolist():
            rows, most = np.flatnonzero(buckets == bucket), self._most_rows(bucket)
            for begin in range(0, len(rows), most):
                yield (request.signature, shapes, bucket), rows[begin : begin + most]

    def _most_rows(self, bucket: int) -> int:
        return max(1, min(self._max_batch, _MAX_TOKENS // max(1, bucket)))

    def _work(self) -> None:
        while parts := self._next():
            self._answer(parts)

    def _next(self) -> list[_Part]:
        """Waits for parts to run together; returns none once the batcher is closed."""
        with self._lock:
            self._idle += 1
            self._lock.wait_for(lambda: self._queues or self._closed)
            self._idle -= 1
            if not self._queues:
                return []
            request = next(iter(self._waiting))
            if len(self._waiting) == 1 and not request.begun and request.rows <= self._max_batch:
                parts = [part for queue in self._queues.values() for part in queue]
                self._queues.clear()
            else:
                parts = self._oldest()
            for part in parts:
                part.request.begun = True
                self._waiting[part.request] -= 1
                if not self._waiting[part.request]:
                    del self._waiting[part.request]
            return parts

    def _oldest(self) -> list[_Part]:
        """Takes the part that waits longest, and later ones that fit into its batch."""
        key, queue = min(self._queues.items(), key=lambda item: item[1][0].number)
        parts, room = [queue.popleft()], self._most_rows(key[-1])
        room -= len(parts[0].rows)
        while queue and len(queue[0].rows) <= room:
            parts.append(queue.popleft())
            room -= len(parts[-1].rows)
        if not queue:
            del self._queues[key]
        return parts

    def _answer(self, parts: Sequence[_Part]) -> None:
        parts = [part for part in parts if not part.request.future.cancelled()]
        requests = {part.request for part in parts}
        try:
            if len(requests) == 1 and sum(len(part.rows) for part in parts) == max(0, parts[0].request.rows):
                _settle(parts[0].request, self._run_model(parts, parts[0].request.columns))
            elif parts:
                self._scatter(parts, self._run(parts))
        except Exception as error:
            if len(requests) > 1:  # what is wrong with one is not to spoil the others
                for part in parts:
                    self._answer([part])
            else:
                _settle(parts[0].request, error)

    def _run(self, parts: Sequence[_Part]) -> dict[str, np.ndarray]:
        first = parts[0].request
        columns = {
            name: np.concatenate([part.request.columns[name][part.rows] for part in parts])
            for name in first.columns
        }
        answers = self._run_model(parts, columns)
        rows = sum(len(part.rows) for part in parts)
        if any(len(values) != rows for values in answers.values()):
            raise RequestError("INTERNAL", f"the model's outputs do not have the {rows} rows of its inputs")
        return answers

    def _run_model(self, parts: Sequence[_Part], columns: Columns) -> dict[str, np.ndarray]:
        """Runs the model until nobody waits for any of the parts."""
        deadlines = [part.request.deadline for part in parts]
        seconds = None if None in deadlines else max(deadlines) - time.monotonic()
        return self._model.run(parts[0].request.signature, columns, seconds)

    def _scatter(self, parts: Sequence[_Part], answers: Columns) -> None:
        begin = 0
        for part in parts:
            request, end = part.request, begin + len(part.rows)
            own = {name: values[begin:end] for name, values in answers.items()}
            if self._rules[request.signature] is Rule.REQUESTS:
                widest = own[_COUNTS].max()
                own = {
                    name: values[:, :widest] if values.ndim > 1 else values for name, values in own.items()
                }
            begin = end
            with self._lock:
                for name, values in own.items():
                    shape = (request.rows, *values.shape[1:])
                    request.answers.setdefault(name, np.empty(shape, values.dtype))[part.rows] = values
                request.answered += len(part.rows)
            if request.answered == request.rows:
                _settle(request, request.answers)


def _settle(request: _Request, outcome: Columns | Exception) -> None:
    with contextlib.suppress(concurrent.futures.InvalidStateError):  # cancelled, or failed in another part
        if isinstance(outcome, Exception):
            request.future.set_exception(outcome)
        else:
            request.future.set_result(outcome)
