"""The checkpoints of a run: always complete, with a fallback to an earlier one if the newest is damaged."""

import collections
import concurrent.futures
import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf
from absl import logging

from xlnet_tf.checkpoints.of_runs import NAME, newest_first
from xlnet_tf.errors import Interrupted, UserError, reason

# Copies of what is saved, in the hosts' memory: a host's CPU -> (variable, slice, value) of its tensors.
Copies = Mapping[str, Sequence[tuple[str, str, tf.Tensor]]]

_CPU = tf.DeviceSpec.from_string("/device:CPU:0")
_PART_SECONDS = 600.0  # the first host's wait for the others' parts, after its own
_POLL_SECONDS = 0.2


class Checkpoints(tf.train.CheckpointManager):
    """Writes a run's checkpoints while it trains, and finds the one to resume from.

    `save` copies the values to the memory of the hosts, and a thread writes the copies. There is one copy at
    a time: `save` waits until the previous one is written.

    If each host has its own rows of a variable, each writes and reads only these. TensorFlow's format knows
    such slices: the checkpoint is the same for any number of hosts. Hosts share model_dir. The first host
    merges what all have written; only then there is a checkpoint.

    Args:
        hold: while it is not 0, only explicitly requested checkpoints are saved: weights after which every
            step fails must not displace good ones.
    """

    def __init__(
        self,
        checkpoint: tf.train.Checkpoint,
        model_dir: str,
        step: tf.Variable,
        hold: tf.Variable,
        interval: int,
        max_to_keep: int,
        initialize: Callable[[], None],
        background: bool = True,
        host: int = 0,
        hosts: int = 1,
        on_any_host: Callable[[bool], bool] = bool,
    ):
        directory = tempfile.mkdtemp() if host else model_dir
        _remove_damaged_note(directory)
        super().__init__(
            checkpoint,
            directory=directory,
            max_to_keep=max_to_keep,
            checkpoint_name=NAME,
            step_counter=step,
            checkpoint_interval=interval,
            init_fn=initialize,
        )
        if not host:
            for leftover in tf.io.gfile.glob(f"{model_dir}/{NAME}-*temp*"):  # left by an interrupted save
                _remove(leftover)
        self._model_dir = model_dir
        self._hold = hold
        self._background = background
        self._host, self._hosts = host, hosts
        self._on_any_host = on_any_host
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        self._writing: tuple[concurrent.futures.Future, concurrent.futures.Future] | None = None
        self._ended = threading.Event()
        # The files, not TensorFlow's note, show what a killed or full machine left: which checkpoints
        # exist, oldest first (their times do not matter), and which of them to resume from.
        self._maybe_delete = collections.OrderedDict.fromkeys(reversed(newest_first(directory)), 0.0)
        slices = collections.defaultdict(list)
        for name, rows, _ in _saved(checkpoint):
            slices[name].append(rows)
        self._latest_checkpoint = newest_intact(model_dir, slices, on_any_host)
        # Intervals count from step 0, wherever a run stopped: equal ones let checkpoints fall on evaluations.
        self._last_checkpoint_step = 0

    def restore_or_initialize(self) -> str | None:
        """Restores the newest intact checkpoint, if there is one; returns its path.

        Raises UserError if it is of another run, or lacks something that this one has.
        """
        path = self._latest_checkpoint
        if path is None:
            return super().restore_or_initialize()
        try:
            self._checkpoint.restore(path).assert_existing_objects_matched()
        except UserError:
            raise
        except (AssertionError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise UserError(
                f"{path} does not fit this run ({reason(error)}). Put the checkpoint back that the run has "
                "written, or start anew in another --model_dir"
            ) from error
        self._last_checkpoint_step = int(self._step_counter.numpy())
        return path

    def save(self, checkpoint_number=None, check_interval=True, options=None) -> str | None:
        """Begins to save a checkpoint if one is due; returns its path. Call it after each loop of steps.

        Raises:
            UserError: this checkpoint or the one before cannot be written. The earlier ones are intact.
            Interrupted: the storage or another host does not answer.
        """
        self._check()
        step = int(self._step_counter.numpy())
        early = step // self._checkpoint_interval == self._last_checkpoint_step // self._checkpoint_interval
        held = int(self._hold.numpy()) > 0
        if step == self._last_checkpoint_step or check_interval and (early or held):
            return None
        self.wait()  # there is room for one copy
        self._last_checkpoint_step = step
        self._checkpoint.save_counter.assign_add(1)
        prefix = f"{self._model_dir}/{NAME}-{step if checkpoint_number is None else int(checkpoint_number)}"
        copies = _copies(self._checkpoint, only_slices=self._host > 0)
        sliced = any(rows for values in copies.values() for _, rows, _ in values)
        count = self._hosts if sliced and self._hosts > 1 else len(copies)
        parts = [f"{prefix}_temp/part-{number:05d}-of-{count:05d}" for number in range(count)]
        written = self._thread.submit(self._write, prefix, parts, copies)
        del copies
        self._writing = written, self._thread.submit(self._publish, prefix, parts, written)
        if not self._background:
            self.wait()
        return prefix

    def wait(self):
        """Returns when the checkpoint that `save` began is complete."""
        if self._writing:
            written, published = self._writing
            written.exception()
            self._check()
            published.result()
            self._writing = None

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind, error, traceback):
        """Completes the unfinished checkpoint, even after an error, unless that needs a lost host."""
        try:
            if kind is None:
                self.wait()
        finally:
            self._ended.set()
            self._thread.shutdown()
            if self._writing and (failure := self._writing[1].exception()):
                logging.warning("%s", failure)

    def _check(self):
        if not self._writing:
            return
        failed = [future.exception() for future in self._writing if future.done() and future.exception()]
        if self._on_any_host(bool(failed)):
            self._writing = None
            other = UserError("another host cannot write its part of the checkpoint, as its message says")
            raise failed[0] if failed else other

    def _write(self, prefix: str, parts: Sequence[str], copies: Copies):
        """Writes this process's parts of a checkpoint, in the thread."""
        with self._named_failure(prefix), concurrent.futures.ThreadPoolExecutor(len(copies) or 1) as hosts:
            tf.io.gfile.makedirs(self._model_dir)
            for _ in hosts.map(_write_part, parts[self._host :], copies, copies.values()):
                pass

    def _publish(self, prefix: str, parts: Sequence[str], written: concurrent.futures.Future):
        """Merges the parts of all hosts, in the first host's thread, and removes an old checkpoint."""
        written.result()
        if self._host:
            return
        deadline = time.monotonic() + _PART_SECONDS
        with self._named_failure(prefix):
            while missing := [part for part in parts if not tf.io.gfile.exists(f"{part}.index")]:
                if self._ended.wait(_POLL_SECONDS) or time.monotonic() > deadline:
                    text = f"{len(missing)} of {len(parts)} hosts have not written their part"
                    raise tf.errors.UnavailableError(None, None, text)
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=parts, destination_prefix=prefix, delete_old_dirs=True
            )
            self._maybe_delete.pop(prefix, None)
            self._maybe_delete[prefix] = time.time()
            self._latest_checkpoint = prefix
            self._record_state()  # before and after old ones are removed: it never names one that is gone
            self._sweep()
            self._record_state()

    @contextlib.contextmanager
    def _named_failure(self, prefix: str) -> Iterator[None]:
        step, before = prefix.rpartition("-")[2], self._latest_checkpoint
        after = f"resumes from {before}, the last good one" if before else "begins anew, as there is none"
        try:
            yield
        except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
            raise Interrupted(
                f"the checkpoint of step {step} cannot be written, as the storage or another host does not "
                f"answer ({reason(error)}). Start the same command again, on all hosts: the run {after}"
            ) from error
        except (tf.errors.OpError, OSError) as error:
            for part in tf.io.gfile.glob(f"{prefix}[._]*") if not self._host else ():
                _remove(part)
            why = reason(error).rpartition("; ")[2]  # TensorFlow puts the path before it
            raise UserError(
                f"cannot write the checkpoint of step {step}: {why}. Make room in {self._model_dir} and "
                f"start the same command again: the run {after}"
            ) from error


def _saved(checkpoint: tf.train.Checkpoint) -> Iterator[tuple[str, str, Any]]:
    """Yields what a checkpoint holds: name, slice ("": all of it), and a tensor or a reader of one."""
    objects, *_ = checkpoint._saver._gather_serialized_tensors()
    for tensors in objects.values():
        for name, slices in tensors.items():
            for rows, value in (slices if isinstance(slices, dict) else {"": slices}).items():
                yield name, rows, value


def _copies(checkpoint: tf.train.Checkpoint, only_slices: bool) -> Copies:
    """Copies the saved values to their devices' hosts, unless they are there, or only this host's slices."""
    copies = collections.defaultdict(list)
    for name, rows, value in _saved(checkpoint):
        if only_slices and not rows:
            continue
        with tf.device(value.device):
            tensor = value if isinstance(value, tf.Tensor) else value.tensor
        host = tf.DeviceSpec.from_string(value.device).make_merged_spec(_CPU).to_string()
        with tf.device(host):
            copies[host].append((name, rows, tf.identity(tensor)))
    return copies


def _write_part(prefix: str, host: str, copies: Sequence[tuple[str, str, tf.Tensor]]):
    names, slices, tensors = zip(*copies)
    with tf.device(host):
        tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=slices, tensors=tensors)


def _remove_damaged_note(directory: str):
    """Removes TensorFlow's note of a folder's checkpoints if it is unreadable; we do not need it."""
    try:
        tf.train.get_checkpoint_state(directory)
    except ValueError as error:
        note = f"{directory}/checkpoint"
        logging.warning("%s cannot be read (%s) and is removed: the checkpoints are as good", note, error)
        tf.io.gfile.remove(note)


def newest_intact(
    model_dir: str,
    slices: Mapping[str, Sequence[str]] = MappingProxyType({}),
    on_any_host: Callable[[bool], bool] = bool,
) -> str | None:
    """Returns the path of a run's newest intact checkpoint, or None; it reads all bytes to find out.

    `slices` are those that this process reads of some variables, by name; others are read whole.
    """
    damaged = []
    for path in newest_first(model_dir):
        damage = _damage(path, slices)
        if not on_any_host(damage is not None):
            if damaged:
                logging.warning(
                    "cannot be read: %s. The run resumes from %s, the newest checkpoint that can",
                    "; ".join(damaged), path,
                )  # fmt: skip
            return path
        damaged.append(f"{path} ({damage or 'by another host'})")
    if damaged:
        raise UserError(
            f"no checkpoint of {model_dir} can be read: {'; '.join(damaged)}. Restore them from a copy, or "
            "start anew in another --model_dir"
        )
    return None


def _damage(prefix: str, slices: Mapping[str, Sequence[str]]) -> str | None:
    """Returns why a checkpoint cannot be read; None if it can. Reading also compares its checksums."""
    try:
        reader = tf.compat.v1.train.NewCheckpointReader(prefix)
        types = reader.get_variable_to_dtype_map()
        for name, shape in reader.get_variable_to_shape_map().items():
            full = " ".join(map(str, shape))
            for rows in slices.get(name, [""]):
                if not rows:
                    reader.get_tensor(name)
                elif rows.rpartition(" ")[0] == full:  # else it is of another run, which restoring refuses
                    tf.raw_ops.RestoreV2(
                        prefix=prefix, tensor_names=[name], shape_and_slices=[rows], dtypes=[types[name]]
                    )
    except (tf.errors.OpError, RuntimeError, ValueError, LookupError) as error:
        return reason(error)
    return None


def _remove(path: str):
    if tf.io.gfile.isdir(path):
        tf.io.gfile.rmtree(path)
    else:
        tf.io.gfile.remove(path)
