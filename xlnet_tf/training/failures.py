"""TensorFlow's errors about data and memory, in words that help."""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from xlnet_tf.errors import UserError
from xlnet_tf.training.data import TaskData

SMALLER_STEP = (
    "Raise --accumulation_steps, add --recompute, or take a smaller batch_size; for TPUs "
    "xlnet-tf tpu-compile --find_max_batch shows what fits"
)
_DATA_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
    tf.errors.UnknownError,
)
# So say TensorFlow, XLA and the TPU's runtime. A full disk is an error of the same kind, and names any path.
_LACK_OF_MEMORY = re.compile(
    ".*(out of memory|OOM when allocating|failed to allocate memory|attempting to (allocate|reserve)).*", re.I
)


@contextlib.contextmanager
def named_damage(data: TaskData, most_gb: float) -> Iterator[None]:
    """Turns TensorFlow's errors about data, inside of a `with` block, into those of our readers.

    TensorFlow names at most a record's offset or the line of code that found it; `data.check` compares all
    files with their checksums, and names file and record. Other errors are raised as they are.

    Args:
        most_gb: of more gigabytes than these the error is raised as it is.
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
