"""Traces some steps of a run for TensorBoard."""

import contextlib

import tensorflow as tf

from xlnet_tf.errors import UserError


class Profile(contextlib.AbstractContextManager):
    """Writes a trace of the steps "FIRST,LAST" (empty: none) into the run's folder, inside of a `with` block.

    TensorBoard shows it (`tensorboard --logdir=MODEL_DIR`, with the package tensorboard-plugin-profile).
    Steps count from 1. The first two loops of a process include compilation, so choose later steps.
    """

    def __init__(self, steps: str, model_dir: str):
        self._folder = model_dir
        self._running = False
        self._start, self._end = _numbers(steps) if steps else (-1, -1)

    def __exit__(self, *error):
        self._stop()

    def at(self, step: int):
        """Starts or ends the trace if it begins or ends after this step."""
        if step == self._start:
            tf.profiler.experimental.start(self._folder)
            self._running = True
        elif step >= self._end:
            self._stop()

    def stop_before(self, step: int, target: int) -> int:
        """Returns the step, at most `target`, where a loop that begins at `step` must stop for the trace."""
        return min([bound for bound in (self._start, self._end) if step < bound] + [target])

    def _stop(self):
        if self._running:
            tf.profiler.experimental.stop()
            self._running = False


def _numbers(steps: str) -> tuple[int, int]:
    """Returns after how many steps the trace begins and ends."""
    first, comma, last = steps.partition(",")
    if not (
        comma and first.strip().isdecimal() and last.strip().isdecimal() and 1 <= int(first) <= int(last)
    ):
        raise UserError(
            f"profile_steps is {steps!r}: expected the first and the last step to trace, as 10,15"
        )
    return int(first) - 1, int(last)
