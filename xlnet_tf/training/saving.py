"""The checkpoints of a run: never half of one, and back to the one before if the newest cannot be read."""

import collections
import tempfile
from collections.abc import Callable

import tensorflow as tf
from absl import logging

from xlnet_tf.checkpoints.of_runs import NAME, newest_first
from xlnet_tf.errors import UserError, reason


class Checkpoints(tf.train.CheckpointManager):
    """Writes a run's checkpoints, and finds the one to resume from.

    Args:
        hold: while it is not 0, no checkpoint is saved but those asked for out of turn: weights after which
            every step fails are not to displace good ones.
        initialize: called where there is none to resume from.
        write: whether this process writes into model_dir; the other hosts of a run save, too, as all must
            take part, but into a folder of their own.

    Raises:
        UserError: there are checkpoints, and none of them can be read.
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
        write: bool = True,
    ):
        directory = model_dir if write else tempfile.mkdtemp()
        _remove_damaged_note(directory)
        super().__init__(
            checkpoint,
            directory=directory,
            max_to_keep=max_to_keep if write else 1,
            checkpoint_name=NAME,
            step_counter=step,
            checkpoint_interval=interval,
            init_fn=initialize,
        )
        if write:
            for leftover in tf.io.gfile.glob(f"{model_dir}/{NAME}-*temp*"):  # of a save that was cut off
                _remove(leftover)
        self._hold = hold
        # What a killed or full machine left, the files show, not TensorFlow's note of them: which
        # there are, oldest first (their times do not matter), and which of them to resume from.
        self._maybe_delete = collections.OrderedDict.fromkeys(reversed(newest_first(directory)), 0.0)
        self._latest_checkpoint = newest_intact(model_dir)
        # Intervals count from step 0, not from a first checkpoint after the first loop: with equal intervals
        # checkpoints fall on evaluations.
        self._last_checkpoint_step = 0

    def restore_or_initialize(self) -> str | None:
        """Restores the newest checkpoint that is intact, if there is one; returns its path.

        Raises:
            UserError: it is that of another run, or lacks something that this one has.
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
        """Saves a checkpoint if one is due; returns its path.

        Raises:
            UserError: it cannot be written. The earlier ones are as they were.
        """
        if check_interval and int(self._hold.numpy()):
            return None
        before = self._latest_checkpoint
        try:
            return super().save(checkpoint_number, check_interval, options)
        except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError):
            raise  # another host was lost while all gathered what is saved; see interruption.lost_hosts
        except (tf.errors.OpError, OSError) as error:
            step = int(self._step_counter.numpy())
            for part in tf.io.gfile.glob(f"{self._prefix}-{step}[._]*"):
                _remove(part)
            why = reason(error).rpartition("; ")[2]  # TensorFlow puts the path before it
            after = f"resumes from {before}, the last good one" if before else "begins anew, as there is none"
            raise UserError(
                f"cannot write the checkpoint of step {step}: {why}. Make room in {self.directory} and start "
                f"the same command again: the run {after}"
            ) from error


def _remove_damaged_note(directory: str):
    """Removes TensorFlow's note of the checkpoints of a folder if it would end the run. None is needed."""
    try:
        tf.train.get_checkpoint_state(directory)
    except ValueError as error:
        note = f"{directory}/checkpoint"
        logging.warning("%s cannot be read (%s) and is removed: the checkpoints are as good", note, error)
        tf.io.gfile.remove(note)


def newest_intact(model_dir: str) -> str | None:
    """Returns the path of the newest checkpoint of which every byte can be read; warns of damaged ones.

    Raises:
        UserError: there are checkpoints, and none of them can be read.
    """
    damaged = []
    for path in newest_first(model_dir):
        if (damage := _damage(path)) is None:
            if damaged:
                logging.warning(
                    "cannot be read: %s. The run resumes from %s, the newest checkpoint that can",
                    "; ".join(damaged), path,
                )  # fmt: skip
            return path
        damaged.append(f"{path} ({damage})")
    if damaged:
        raise UserError(
            f"no checkpoint of {model_dir} can be read: {'; '.join(damaged)}. Restore them from a copy, or "
            "start anew in another --model_dir"
        )
    return None


def _damage(prefix: str) -> str | None:
    """Returns why a checkpoint cannot be read; None if it can. Its checksums are compared on the way."""
    try:
        reader = tf.compat.v1.train.NewCheckpointReader(prefix)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, RuntimeError, ValueError, LookupError) as error:
        return reason(error)
    return None


def _remove(path: str):
    if tf.io.gfile.isdir(path):
        tf.io.gfile.rmtree(path)
    else:
        tf.io.gfile.remove(path)
