"""What ends a run from outside: its machine is taken away, or another host has gone."""

import contextlib
import signal
from collections.abc import Callable, Iterator

import tensorflow as tf

from xlnet_tf.checkpoints.of_runs import newest
from xlnet_tf.errors import Interrupted

# What TensorFlow raises where it meant to talk to another machine.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
)


class Preemption:
    """Notices, inside of a `with` block, that the process was told to end (SIGTERM).

    So end machines that are taken away: preemptible and maintained ones, and pods of Kubernetes.

    Args:
        strategy: of the run. Of several processes each may be told at another time, or one alone; all end
            at the same step.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self._told = False
        self._strategy = strategy
        self._sum_over_processes = tf.function(self._sum)

    def __enter__(self) -> "Preemption":
        # Only here: what TensorFlow does at a SIGTERM is set up with the strategy, and must not come after.
        self._before = signal.signal(signal.SIGTERM, self._notice)
        return self

    def __exit__(self, *error):
        signal.signal(signal.SIGTERM, self._before)

    def _notice(self, number, frame):
        self._told = True

    def happened(self) -> bool:
        """Tells whether a process of the run was told to end; all must ask at the same place."""
        if not has_peers(self._strategy):
            return self._told
        return bool(self._sum_over_processes(tf.constant(int(self._told))))

    def _sum(self, number: tf.Tensor) -> tf.Tensor:
        def replica_sum():
            here = tf.identity(number)  # on the replica's device, as the reduction needs it
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, here)

        return self._strategy.experimental_local_results(self._strategy.run(replica_sum))[0]

    def end_run(self, save: Callable[[], None], step: int, model_dir: str):
        """Saves, if there is something to save, and raises Interrupted, if the run was told to end.

        Args:
            save: saves a checkpoint.
            step: the steps that have been taken.
            model_dir: folder of the run.
        """
        if not self.happened():
            return
        if not step:
            raise Interrupted(
                "told to end (SIGTERM) before the first step: start the same command again, on all hosts"
            )
        save()
        raise Interrupted(
            f"told to end (SIGTERM) at step {step}. A checkpoint of it is in {model_dir}: start the same "
            "command again, on all hosts, and the run goes on"
        )


def has_peers(strategy: tf.distribute.Strategy) -> bool:
    """Tells whether other processes run the same training."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return False
    return len(strategy.cluster_resolver.cluster_spec().as_dict().get("worker", [])) > 1


@contextlib.contextmanager
def lost_hosts(strategy: tf.distribute.Strategy, model_dir: str) -> Iterator[None]:
    """Turns TensorFlow's errors about other machines into an Interrupted that says how to go on.

    Args:
        strategy: of the run.
        model_dir: its folder.
    """
    remote = has_peers(strategy) or isinstance(strategy, tf.distribute.TPUStrategy)
    try:
        yield
    except _LOST as error:
        # What a TPU's compiler does not take, it will not take after a restart either.
        if not remote or "Compilation failure" in error.message:
            raise
        saved = newest(model_dir) or "its beginning, as nothing was saved yet"
        raise Interrupted(
            f"another host or its devices cannot be reached ({reason(error)}). Start the same command again "
            f"on all hosts: the run goes on from {saved}"
        ) from error


def reason(error: tf.errors.OpError) -> str:
    """Returns the line of TensorFlow's message that says what happened; a trace of the graph is before it."""
    noise = (" ", "Detected", "Graph", "<stack traces")
    lines = [line for line in error.message.splitlines() if not line.startswith(noise)]
    return next(filter(None, lines), type(error).__name__)
