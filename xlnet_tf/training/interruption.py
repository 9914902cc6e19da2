"""What ends a run early: a signal, a lost host, damaged data, too little memory."""

import contextlib
import re
import signal
import sys
from collections.abc import Callable, Iterator

import tensorflow as tf
from absl import logging

from xlnet_tf.checkpoints.of_runs import newest
from xlnet_tf.cli.signals import unignored_signals
from xlnet_tf.errors import Cancelled, Interrupted, UserError, reason
from xlnet_tf.training.data import TaskData

# TensorFlow's errors when another machine does not answer.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
)
SMALLER_STEP = (
    "Raise --accumulation_steps, add --recompute (--recompute=cheap takes less time, and saves less), or "
    "take a smaller batch_size; for TPUs xlnet-tf tpu-compile --find_max_batch shows what fits"
)
_DATA_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
    tf.errors.UnknownError,
)
# Texts of TensorFlow, XLA and the TPU's runtime. A full disk raises the same class, with any path in it.
_LACK_OF_MEMORY = re.compile(
    ".*(out of memory|OOM when allocating|failed to allocate memory|attempting to (allocate|reserve)).*", re.I
)


class OnAnyHost:
    """Returns whether a condition holds in any process of a run; all must ask at the same point."""

    def __init__(self, strategy: tf.distribute.Strategy):
        self._strategy = strategy
        self._sum_over_processes = tf.function(self._sum)

    def __call__(self, here: bool) -> bool:
        if not has_peers(self._strategy):
            return here
        return bool(self._sum_over_processes(tf.constant(int(here))))

    def _sum(self, number: tf.Tensor) -> tf.Tensor:
        def replica_sum():
            here = tf.identity(number)  # on the replica's device, as the reduction needs it
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, here)

        return self._strategy.experimental_local_results(self._strategy.run(replica_sum))[0]


class Preemption:
    """Notices, inside of a `with` block, that the process was asked to end: by SIGTERM or Ctrl-C.

    SIGTERM announces that a machine is taken away: a preemptible one, one in maintenance, or a Kubernetes
    pod. A second Ctrl-C is handled at once, as outside of the block. A signal that comes too late to end the
    run is raised again after the block. If only some processes are asked, all end at the same step.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self._signal: int | None = None
        self._hosts = ", on all hosts" if has_peers(strategy) else ""
        self._on_any_host = OnAnyHost(strategy)

    def __enter__(self) -> "Preemption":
        # Only here, after the strategy was created: it installs TensorFlow's own handler of SIGTERM.
        self._before = {number: signal.signal(number, self._notice) for number in unignored_signals()}
        self._wakeup = signal.set_wakeup_fd(-1)  # see Signals: steps may take long
        return self

    def __exit__(self, *error):
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._signal and error == (None, None, None):
            signal.raise_signal(self._signal)

    def _notice(self, number, frame):
        if number == self._signal == signal.SIGINT and callable(self._before[number]):
            self._before[number](number, frame)
        self._signal = number
        if number == signal.SIGINT and sys.stderr and sys.stderr.isatty():
            print("\nCtrl-C: the run ends after the current steps; again: at once", file=sys.stderr)

    def end_run(self, save: Callable[[], None], step: int, model_dir: str):
        """Saves and raises Interrupted if any process was asked to end; all call it at the same point."""
        if not self._on_any_host(self._signal is not None):
            return
        kind, why = Interrupted, "SIGTERM"
        if self._signal == signal.SIGINT:
            kind, why = Cancelled, "Ctrl-C"
        if not step:
            raise kind(f"{why} before the first step: start the same command again{self._hosts}")
        save()
        raise kind(
            f"{why} at step {step}. A checkpoint of it is in {model_dir}: start the same command "
            f"again{self._hosts}, and the run resumes"
        )


def has_peers(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether other processes run the same training."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return False
    return len(strategy.cluster_resolver.cluster_spec().as_dict().get("worker", [])) > 1


@contextlib.contextmanager
def lost_hosts(strategy: tf.distribute.Strategy, model_dir: str) -> Iterator[None]:
    """Turns TensorFlow's errors about other machines into an Interrupted that says how to resume."""
    remote = has_peers(strategy) or isinstance(strategy, tf.distribute.TPUStrategy)
    try:
        yield
    except _LOST as error:
        # A program that a TPU's compiler refuses would fail again after a restart.
        if not remote or "Compilation failure" in error.message:
            raise
        saved = newest(model_dir) or "its beginning, as nothing was saved yet"
        hosts = " on all hosts" if has_peers(strategy) else ""
        raise Interrupted(
            f"another host or its devices cannot be reached ({reason(error)}). Start the same command again"
            f"{hosts}: the run resumes from {saved}"
        ) from error


@contextlib.contextmanager
def named_damage(data: TaskData, most_gb: float) -> Iterator[None]:
    """Turns TensorFlow's errors about data, inside of a `with` block, into those of our readers.

    TensorFlow names at most a record's offset or the line of code that found it; `data.check` compares all
    files with their checksums, and names file and record. Other errors are raised unchanged, and so are all
    if the data has more than `most_gb` gigabytes.
    """
    try:
        yield
    except _DATA_ERRORS:
        size = data.bytes / 1e9
        if size > most_gb:
            logging.warning(
                "to see whether data are damaged, raise trainer.check_data_gb and start again, and the "
                "file is named. %.0f GB are not compared now, as it is %g",
                size,
                most_gb,
            )
            raise
        logging.warning("to see whether data are damaged, %.1f GB are compared", size)
        data.check()
        raise


@contextlib.contextmanager
def named_lack_of_memory(what: str, advice: str) -> Iterator[None]:
    """Turns TensorFlow's error about a device's memory, inside of a `with` block, into one with advice."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        match = _LACK_OF_MEMORY.search(error.message)
        if not match:
            raise
        raise UserError(
            f"a step of {what} does not fit into the memory of a device ({match[0].strip()}). {advice}"
        ) from error
