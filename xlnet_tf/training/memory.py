"""The memory of earlier segments, kept on the devices between steps: one row for each row of the batch."""

from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.training.saving.saveable_object import SaveableObject, SaveSpec

from xlnet_tf.errors import UserError


class Memory(tf.__internal__.tracking.Trackable):
    """Variables that hold, per replica, the memory of its `rows`. Create it under the strategy's scope.

    A checkpoint holds the rows in the order of the global batch, so that another number of replicas can
    resume from it. Each process writes and reads only the rows of its own replicas.
    """

    def __init__(self, n_layer: int, rows: int, memory_len: int, d_model: int, dtype: tf.DType = tf.float32):
        self.saved = True
        self.restored = False
        self._strategy = tf.distribute.get_strategy()
        self._rows = rows
        self._content = _per_replica_variable([n_layer, rows, memory_len, d_model], dtype, "memory")
        self._mask = _per_replica_variable([rows, memory_len], tf.bool, "memory_mask")

    def read(self, stream_start: tf.Tensor, document_offset: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Returns the model's inputs memory [L, B, M, D] and memory_mask bool [B, M]; in replica context.

        Args:
            stream_start: [B] bool, rows that begin something new: all their memory is hidden.
            document_offset: [B] integers, tokens of the current document before this segment; older memory is
                hidden. None: memory reaches back over the ends of documents.
        """
        mask = self._mask & ~stream_start[:, None]
        if document_offset is not None:
            memory_len = mask.shape[1]
            age = tf.range(memory_len, 0, -1)  # [M]: the oldest slot lies M tokens back, the newest 1
            mask &= age[None, :] <= tf.cast(document_offset, tf.int32)[:, None]
        return {"memory": self._content.read_value(), "memory_mask": mask}

    def write(self, content: tf.Tensor, mask: tf.Tensor):
        """Stores the model's next memory ([L, B, M, D] and [B, M]); in replica context."""
        self._content.assign(tf.cast(content, self._content.dtype))
        self._mask.assign(mask)

    def reset(self):
        """Forgets everything; in cross-replica context."""
        for variable in (self._content, self._mask):
            for part in self._strategy.experimental_local_results(variable):
                part.assign(tf.zeros(part.shape, part.dtype))

    def _gather_saveables_for_checkpoint(self) -> dict[str, Callable[[str], SaveableObject]]:
        """Returns what a checkpoint holds: each replica's rows as slices of the batch's rows."""
        if not self.saved:
            return {}
        return {
            "content": lambda name: self._rows_of(self._content, 1, name),
            "mask": lambda name: self._rows_of(self._mask, 0, name),
        }

    def _rows_of(self, variable: tf.Variable, axis: int, name: str) -> "Rows":
        replicas = self._strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(context.replica_id_in_sync_group)
        )
        first_row = self._rows * int(self._strategy.experimental_local_results(replicas)[0])
        parts = self._strategy.experimental_local_results(variable)
        return Rows(self, parts, axis, first_row, self._strategy.num_replicas_in_sync, name)


class Rows(SaveableObject):
    """A variable of which each replica has its own rows; `first_row` is the first part's row in the batch."""

    def __init__(self, memory: Memory, parts, axis: int, first_row: int, replicas: int, name: str):
        self._memory = memory
        self._parts = parts
        rows = parts[0].shape[axis]
        self._shape = [
            size * replicas if index == axis else size for index, size in enumerate(parts[0].shape)
        ]
        specs = []
        for number, part in enumerate(parts):
            cut = ["-"] * len(self._shape)  # TensorFlow writes a slice as "8 4 0,2:-": of 8 rows two, from 0
            cut[axis] = f"{first_row + number * rows},{rows}"
            rows_of_part = f"{' '.join(map(str, self._shape))} {':'.join(cut)}" if replicas > 1 else ""
            specs.append(SaveSpec(part.read_value, rows_of_part, name, part.dtype, part.device))
        super().__init__(parts[0], specs, name)

    def restore(self, restored_tensors, restored_shapes=None):
        for part, rows in zip(self._parts, restored_tensors):
            if not part.shape.is_compatible_with(rows.shape):  # in a graph, assigning checks it
                raise UserError(
                    f"the checkpoint's memory has shape {rows.shape.as_list()} (layers, rows of the batch, "
                    f"memory_len, d_model), this run expects {self._shape}: resume with the batch size and "
                    "the memory_len of the run, or start a new model_dir"
                )
            part.assign(rows)
        self._memory.restored = True


def _per_replica_variable(shape, dtype, name) -> tf.Variable:
    return tf.Variable(
        tf.zeros(shape, dtype),
        trainable=False,
        name=name,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.NONE,
    )
