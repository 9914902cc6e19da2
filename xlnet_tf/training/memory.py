"""The memory of earlier segments, kept on the devices between steps: one row for each row of the batch."""

import tensorflow as tf

from xlnet_tf.errors import UserError


class Memory(tf.__internal__.tracking.Trackable):
    """Variables that hold, per replica, what its rows remember.

    A checkpoint holds the rows in the order of the global batch, so that another number of replicas can go
    on from it. Create it under the strategy's scope.

    Args:
        n_layer: L.
        rows: B, rows of one replica.
        memory_len: M, tokens remembered.
        d_model: D.

    Attributes:
        saved: whether it is written into checkpoints, and restored from those that have it.
        restored: whether one has given it.
    """

    def __init__(self, n_layer: int, rows: int, memory_len: int, d_model: int, dtype: tf.DType = tf.float32):
        self.saved = True
        self.restored = False
        self._strategy = tf.distribute.get_strategy()
        self._rows = rows
        self._content = _per_replica_variable([n_layer, rows, memory_len, d_model], dtype, "memory")
        self._mask = _per_replica_variable([rows, memory_len], tf.bool, "memory_mask")
        # Once: each would be traced anew at every checkpoint, and every trace is kept.
        run = self._strategy.run
        self._assign = tf.function(lambda *values: run(self.write, args=values))
        self._read = tf.function(lambda: run(lambda: (self._content.read_value(), self._mask.read_value())))

    def read(self, stream_start: tf.Tensor, document_offset: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Returns the model's memory inputs; in replica context.

        Args:
            stream_start: [B] bool, rows that begin something new: all their memory is hidden.
            document_offset: [B] integers, tokens of the current document before this segment; memory from
                before them is hidden. None: memory reaches back over the ends of documents.

        Returns:
            memory [L, B, M, D] and memory_mask [B, M] bool.
        """
        mask = self._mask & ~stream_start[:, None]
        if document_offset is not None:
            memory_len = mask.shape[1]
            age = tf.range(memory_len, 0, -1)  # [M]: the oldest slot lies M tokens back, the newest 1
            mask &= age[None, :] <= tf.cast(document_offset, tf.int32)[:, None]
        return {"memory": self._content.read_value(), "memory_mask": mask}

    def write(self, content: tf.Tensor, mask: tf.Tensor):
        """Stores what the model returned as next memory ([L, B, M, D] and [B, M]); in replica context."""
        self._content.assign(tf.cast(content, self._content.dtype))
        self._mask.assign(mask)

    def reset(self):
        """Forgets everything; in cross-replica context."""
        self._assign(*(tf.zeros(variable.shape, variable.dtype) for variable in (self._content, self._mask)))

    def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
        """Gathers the rows of all replicas, for a checkpoint."""
        if not self.saved:
            return {}
        content, mask = self._read()
        return {"content": self._all_rows(content, 1), "mask": self._all_rows(mask, 0)}

    def _all_rows(self, values, axis: int) -> tf.Tensor:
        """Joins what the replicas hold, on the host."""
        local = self._strategy.experimental_local_results(values)
        with tf.device("CPU:0"):
            if len(local) == self._strategy.num_replicas_in_sync:
                return tf.concat(local, axis)
            # Other hosts hold the rest; collectives gather neither bfloat16 nor bool.
            floats = self._strategy.run(tf.function(tf.cast), args=(values, tf.float32))
            return tf.cast(self._strategy.gather(floats, axis), local[0].dtype)

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]):
        """Gives each replica its rows of a checkpoint."""
        content, mask = restored_tensors["content"], restored_tensors["mask"]
        layers, _, memory_len, d_model = self._content.shape
        expected = [layers, self._rows * self._strategy.num_replicas_in_sync, memory_len, d_model]
        if content.shape != expected:
            raise UserError(
                f"the checkpoint's memory has shape {content.shape.as_list()} (layers, rows of the batch, "
                f"memory_len, d_model), this run expects {expected}: resume with the batch size and the "
                "memory_len of the run, or start a new model_dir"
            )

        def rows_of(tensor, axis):
            return self._strategy.experimental_distribute_values_from_function(
                lambda context: tf.split(tensor, self._strategy.num_replicas_in_sync, axis)[
                    context.replica_id_in_sync_group
                ]
            )

        self._assign(rows_of(content, 1), rows_of(mask, 0))
        self.restored = True


def _per_replica_variable(shape, dtype, name) -> tf.Variable:
    return tf.Variable(
        tf.zeros(shape, dtype),
        trainable=False,
        name=name,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.NONE,
    )
