"""Reads fine-tuning examples as example_reader does, in a TensorFlow graph that holds them all.

For hosts that make batches where none of our Python runs: those of a TPU that is reached by its name.
"""

import numpy as np
import tensorflow as tf

from xlnet_tf.records.example_reader import FILLER, examples_of_step
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.prefetching import prefetched
from xlnet_tf.text.special_tokens import PAD_ID


class ExampleTable:
    """A set of examples in memory.

    Args:
        examples: the set.

    Raises:
        UserError: a shard is not as it was written.
    """

    def __init__(self, examples: ExampleSet):
        self._examples = examples
        self._columns = examples.arrays()

    def dataset(
        self,
        batch_size: int,
        steps: int,
        *,
        num_hosts: int = 1,
        host: int = 0,
        rows_per_batch: int | None = None,
        start_step: int = 0,
        seed: int = 0,
        repeat: bool = True,
    ) -> tf.data.Dataset:
        """Returns the batches of `example_dataset`, up to a step.

        Args:
            batch_size: rows of a step over all hosts.
            steps: the step to end at, counted from 0 whatever start_step is.
            num_hosts, host, rows_per_batch, start_step, seed, repeat: see `example_dataset`.
        """
        numbers = self._numbers(batch_size, range(start_step, steps), seed, repeat)  # [steps, rows of all]
        rows = batch_size // num_hosts
        numbers = numbers[:, host * rows : (host + 1) * rows].reshape(-1, rows_per_batch or rows)
        # Not constants of the graph, which must be small: tensors in the memory of the host that reads them.
        columns = {name: tf.constant(column) for name, column in self._columns.items()}

        def read(numbers):
            found = {name: tf.gather(column, tf.maximum(numbers, 0)) for name, column in columns.items()}
            ids = tf.cast(found.pop("input_ids"), tf.int32)
            ids = tf.where(numbers[:, None] == FILLER, PAD_ID, ids)
            return {
                "input_word_ids": ids,
                "input_mask": tf.cast(ids != PAD_ID, tf.uint8),
                "input_type_ids": found.pop("segment_ids"),
                **found,
                "index": numbers,
            }

        batches = tf.data.Dataset.from_tensor_slices(numbers)
        return prefetched(batches.map(read, tf.data.AUTOTUNE, deterministic=True))

    def _numbers(self, batch_size: int, steps: range, seed: int, repeat: bool) -> np.ndarray:
        """Returns the numbers of the examples of each step: int64 [steps, batch_size]."""
        if repeat:
            orders = [examples_of_step(self._examples, batch_size, step, seed) for step in steps]
            return np.array(orders, np.int64).reshape(-1, batch_size)
        places = np.arange(steps.start * batch_size, steps.stop * batch_size)
        return np.where(places < self._examples.records, places, FILLER).reshape(-1, batch_size)
