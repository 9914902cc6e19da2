"""Model Garden's Trainer with memory, gradient accumulation, global means and exact resume.

One step, on each replica:
  1. compute the losses' divisors (counts) and sum them over all replicas;
  2. for each micro-batch: add up the gradient of (summed losses / global counts);
  3. sum the gradients over all replicas, clip by their one norm, update, unless the guard skips the step.
So the numbers do not depend on how the batch is split over replicas and micro-batches. Collectives stay out
of the loop over micro-batches, where tf.distribute forbids them.
"""

import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import orbit
import tensorflow as tf
import tf_keras
from official.core import base_trainer

from xlnet_tf.checkpoints import open_checkpoint
from xlnet_tf.checkpoints.of_runs import optimizer_state
from xlnet_tf.errors import UserError
from xlnet_tf.layers.kernels import device
from xlnet_tf.layers.kernels.xla_fusion import expect_uses
from xlnet_tf.training.accumulation import accumulate, rows_axis
from xlnet_tf.training.data import Features
from xlnet_tf.training.guard import Guard
from xlnet_tf.training.task import Ratio, Sums, Task


class Trainer(base_trainer.Trainer):
    """Trains and evaluates a `Task`. Create it under the strategy's scope, with an unbuilt optimizer.

    `batching` and `eval_batching` (None without `evaluate`) make the rows of each step; `on_eval_step` is
    called after each step of an evaluation. `checkpoint_exporter` is Model Garden's, of the best checkpoint.
    """

    def __init__(
        self,
        config,
        task: Task,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer,
        evaluate: bool = True,
        checkpoint_exporter=None,
    ):
        super().__init__(
            config,
            task,
            model,
            optimizer,
            evaluate=evaluate,
            train_dataset=_Lazy(
                lambda: self.distribute_dataset(
                    self.batching.dataset, start_step=int(self.global_step.numpy())
                )
            ),
            validation_dataset=_Lazy(lambda: self.distribute_dataset(self.eval_batching.dataset)),
            checkpoint_exporter=checkpoint_exporter,
        )
        replicas, accumulation_steps = self.strategy.num_replicas_in_sync, config.trainer.accumulation_steps
        self._micro_batches_now = replicas * accumulation_steps
        self.batching = task.data.batching(True, replicas, accumulation_steps)
        self.eval_batching = task.data.batching(training=False) if evaluate else None
        model.encoder.recompute = config.trainer.recompute
        # Create all state before a checkpoint is restored, so that all of it is restored in time.
        optimizer.build(model.trainable_variables)
        rows = config.task.train_data.global_batch_size // replicas
        eval_rows = config.task.validation_data.global_batch_size // replicas
        self._memory = task.build_memory(rows)
        self._eval_memory = task.build_memory(eval_rows) if evaluate else None
        self._gradient_norm = tf_keras.metrics.Mean("gradient_norm", dtype=tf.float32)
        half = tf_keras.mixed_precision.global_policy().compute_dtype == "float16"
        self.guard = Guard(config.trainer.spike_factor, scale_loss=half)
        # Each micro-batch of each replica draws its own dropout masks.
        self._micro_batches = tf.Variable(
            self._micro_batches_now, trainable=False, dtype=tf.int64, name="parts"
        )
        self._length_multiple = None if config.runtime.enable_xla else device.length_multiple()
        # None: steps always count; see compile_all.
        self._counts_steps = None
        if device.is_compiled() and len(self.batching.compiled_lengths) > 1:
            self._counts_steps = tf.Variable(True, trainable=False, name="live")
        state = {}
        if self._memory is not None:
            self._memory.saved = config.trainer.save_memory
            state["memory"] = self._memory
        self._checkpoint = tf.train.Checkpoint(
            global_step=self.global_step,
            model=model,
            optimizer=optimizer,
            guard=self.guard,
            parts=self._micro_batches,
            **state,
        )
        self.on_eval_step: Callable[[], None] = lambda: None

    def initialize(self):
        """Begins a new run: with the weights and, if the settings say so, the moments of init_checkpoint."""
        super().initialize()
        if updates := self.config.trainer.optimizer_config.updates_before:
            state = optimizer_state(open_checkpoint(self.config.task.init_checkpoint))
            if not state or state.updates != updates:
                moments = f"those of {state.updates} updates" if state else "none"
                raise UserError(
                    f"optimizer_config.updates_before is {updates}: expected the moments of as many "
                    f"updates in {self.config.task.init_checkpoint}, found {moments}"
                )
            tf.train.Checkpoint(optimizer=self.optimizer).restore(state.path).expect_partial()

    def resume_notices(self) -> list[str]:
        """Returns messages about a restored run: that it has other micro-batches, or no memory."""
        notices = []
        before, now = int(self._micro_batches.numpy()), self._micro_batches_now
        self._micro_batches.assign(now)
        if before != now:
            notices.append(
                f"so far the batch was split into {before} micro-batches (replicas x accumulation_steps), "
                f"from now on into {now}: the same numbers but for dropout, whose masks differ by micro-batch"
            )
        if self._memory is not None and not self._memory.restored and self.global_step.numpy():
            notices.append("memory was not saved (trainer.save_memory is false, or was): it begins empty")
        return notices

    def train_loop_begin(self):
        self._loop_start = time.perf_counter(), int(self.global_step.numpy()), int(self.guard.skipped.numpy())

    def create_train_loop_fn(self):
        # Elsewhere a step is compiled when its length first comes; on TPUs that would stop the whole slice.
        if self._counts_steps is not None:
            self.compile_all()

        traced = None

        def loop(iterator, num_steps):
            nonlocal traced
            first = int(self.global_step.numpy())
            lengths = self.batching.lengths_of_steps(first, int(num_steps), self._length_multiple)
            if self._length_multiple is not None and self.batching.has_dynamic_length:
                if traced is None:
                    spec = tf.TensorSpec([None], tf.int32)
                    with expect_uses(self._steps_of_a_length()):
                        traced = self.steps_of_dynamic_length.get_concrete_function(iterator, spec)
                traced(iterator, tf.constant(lengths))
                return
            for length, steps in itertools.groupby(lengths):
                self.steps_of_length(length)(iterator, tf.constant(len([*steps]), tf.int32))

        return loop

    def _steps_of_a_length(self) -> float:
        """Returns how many of the run's steps have the same row length, in the mean."""
        steps = self.config.trainer.train_steps
        lengths = self.batching.lengths_of_steps(0, min(self.batching.steps, steps), self._length_multiple)
        return steps / len(set(lengths))

    @functools.cached_property
    def steps_of_length(self) -> Callable[[int | None], Callable]:
        """Maps a row length to its tf.function of an iterator and a number of steps."""

        @functools.cache  # on a method it would keep the trainer for ever
        def steps(length: int | None) -> Callable:
            step = functools.partial(self.train_step, length=length)
            return tf.function(orbit.utils.create_tf_while_loop_fn(step))

        return steps

    @tf.function
    def steps_of_dynamic_length(self, iterator, lengths: tf.Tensor):
        """Takes steps, one for each of the lengths [steps] that rows are cut to."""
        for length in lengths:  # AutoGraph makes it a loop in the graph
            with tf.name_scope(""):  # or names would contain the loop's
                self.train_step(iterator, length)

    def compile_all(self):
        """Compiles the steps of all lengths by running each once in a mode that changes nothing."""
        self._counts_steps.assign(False)
        iterator, updates = iter(self.train_dataset), self.optimizer.iterations.numpy()
        for length in self.batching.compiled_lengths:
            self.steps_of_length(length)(iterator, tf.constant(1, tf.int32))
        self.optimizer.iterations.assign(updates)
        self._counts_steps.assign(True)

    @tf.autograph.experimental.do_not_convert
    def train_step(self, iterator, length: int | tf.Tensor | None = None):
        self.strategy.run(
            functools.partial(self.replica_step, length=length),
            args=(self.next_train_inputs(iterator),),
            options=self._runtime_options,
        )

    def replica_step(self, features: Features, length: int | tf.Tensor | None = None):
        """Takes one replica's part of a training step; in replica context."""
        replica = tf.distribute.get_replica_context()
        gradients, loss, sums, remembered = self.replica_gradients(features, length)
        *gradients, loss = replica.all_reduce(tf.distribute.ReduceOp.SUM, [*gradients, loss])
        gradients = self.guard.unscaled(gradients)
        norm = tf.linalg.global_norm(gradients)
        live = tf.constant(True) if self._counts_steps is None else self._counts_steps.read_value()
        updates = self.config.trainer.optimizer_config.updates_before + self.guard.updates
        keep = self.guard.judge(loss, norm, self.global_step, live)
        self.optimizer.apply_gradients(
            zip(gradients, self.model.trainable_variables),
            skip_gradients_aggregation=True,
            keep=keep,
            updates=updates,
            norm=norm,
        )
        if self._memory is not None:
            content, mask = remembered
            # The memory of a skipped step may be NaN, so its rows begin with empty memory.
            self._memory.write(tf.where(keep, content, tf.zeros_like(content)), mask & keep)
        count = tf.cast(keep, tf.float32)
        self._train_loss.update_state(tf.where(keep, loss, 0), count)
        self._gradient_norm.update_state(tf.where(keep, norm, 0), count)
        _update(self.train_metrics, tf.nest.map_structure(lambda value: tf.where(keep, value, 0), sums))
        self.global_step.assign_add(tf.cast(live, tf.int64))

    def replica_gradients(self, features: Features, length: int | tf.Tensor | None = None):
        """Computes one replica's part of the gradients and changes nothing; in replica context.

        Returns (gradients of the guard's scaled loss, this replica's part of the loss, sums, next memory);
        next memory is () or ([L, B, M, D], [B, M]).
        """
        replica = tf.distribute.get_replica_context()
        features = self.batching.cut(features, length)
        if self._memory is not None:
            features = {**features, **self.task.read_memory(self._memory, features)}
        counts = replica.all_reduce(tf.distribute.ReduceOp.SUM, self.task.counts(features))
        return self._accumulated_gradients(features, counts)

    def _accumulated_gradients(self, features: Features, counts):
        micro_step = self._micro_step
        if self.config.runtime.enable_xla and not device.is_compiled():
            micro_step = tf.function(micro_step, jit_compile=True, autograph=False)
        micro_batches = self.config.trainer.accumulation_steps
        first_seed = tf.distribute.get_replica_context().replica_id_in_sync_group * micro_batches
        if micro_batches == 1:
            return micro_step(features, counts, self._dropout_seed(first_seed))
        zeros = (
            [tf.zeros(v.shape, v.dtype) for v in self.model.trainable_variables],
            tf.zeros([]),
            {metric.name: (tf.zeros([]), tf.zeros([])) for metric in self.train_metrics},
        )

        def step(features: Features, index: tf.Tensor):
            return micro_step(features, counts, self._dropout_seed(first_seed + index))

        return accumulate(step, features, micro_batches, zeros)

    def _micro_step(self, features: Features, counts, dropout_seed):
        """Returns gradients, loss, sums and next memory of part of a replica's rows."""
        with tf.GradientTape() as tape:
            outputs = self.model({**features, "dropout_seed": dropout_seed}, training=True)
            sums = self.task.sums(features, outputs)
            loss = tf.add_n(
                [
                    weight * tf.math.divide_no_nan(sums[name][0], counts[name])
                    for name, weight in self.task.loss_weights.items()
                ]
            )
            scaled = self.guard.scaled(loss)
        variables = self.model.trainable_variables
        gradients = tape.gradient(scaled, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        sums = {metric.name: sums[metric.name] for metric in self.train_metrics}
        return gradients, loss, sums, _next_memory(outputs) if self._memory is not None else ()

    def _dropout_seed(self, micro_batch) -> tf.Tensor:
        """Returns the current step's seed [2] of a micro-batch, which is numbered over all replicas."""
        seed = tf.constant([self.config.task.seed, 0])
        for number in (tf.cast(self.global_step, tf.int32), micro_batch, 0):
            seed = tf.random.experimental.stateless_fold_in(seed, number)
        return seed

    def train_loop_end(self):
        """Returns the means since the last loop's end, without metrics that counted nothing."""
        start_time, start_step, start_skipped = self._loop_start
        steps = int(self.global_step.numpy()) - start_step
        nothing_kept = not self._train_loss.count.numpy()
        uncounted = _uncounted(self.train_metrics)  # before they are reset
        logs = {name: value for name, value in super().train_loop_end().items() if name not in uncounted}
        if nothing_kept:
            logs["training_loss"] = tf.constant(float("nan"))
        else:
            logs["gradient_norm"] = self._gradient_norm.result()
        self._gradient_norm.reset_states()
        # Reading the results waited for the devices, so the time is that of all steps.
        seconds = time.perf_counter() - start_time
        if skipped := int(self.guard.skipped.numpy()) - start_skipped:
            logs["skipped_steps"] = tf.constant(skipped)
        lengths = self.batching.lengths_of_steps(start_step, steps, self._length_multiple)
        logs["tokens_per_second"] = tf.constant(sum(map(self.batching.tokens_of_step, lengths)) / seconds)
        return logs

    def bad_rows(self, step: int) -> list[int]:
        """Returns the rows of a step whose outputs are NaN or infinite when the model recomputes them."""

        @tf.function(autograph=False)
        def finite_rows(features):
            rows = next(iter(features.values())).shape[0]
            if self._memory is not None:
                features = {**features, **self.task.read_memory(self._memory, features)}
            outputs = self.model(features, training=False)
            outputs = outputs if isinstance(outputs, Mapping) else {"outputs": outputs}
            finite = tf.ones([rows], tf.bool)
            for value in tf.nest.flatten({n: v for n, v in outputs.items() if rows_axis(n) == 0}):
                if value.dtype.is_floating:
                    finite &= tf.reduce_all(tf.math.is_finite(tf.reshape(value, [rows, -1])), axis=1)
            return {"finite": finite}

        features = next(iter(self.distribute_dataset(self.batching.dataset, start_step=step)))
        finite = self.strategy.run(finite_rows, args=(features,))
        return np.flatnonzero(~all_rows(self.strategy, finite)["finite"]).tolist()

    def eval_begin(self):
        super().eval_begin()
        if self._eval_memory is not None:
            self._eval_memory.reset()
        self._eval_rows = []

    def create_eval_loop_fn(self, has_state: bool):
        step = tf.function(self.eval_step)  # has a graph for each length that is not a tensor

        def loop(iterator, num_steps, state=None, reduce_fn=None):
            for length in self.eval_batching.lengths_for_graph(int(num_steps), self._length_multiple):
                state = reduce_fn(state, step(iterator, length))
            return state

        return loop

    @tf.autograph.experimental.do_not_convert
    def eval_step(self, iterator, length: int | tf.Tensor | None = None):
        def replica_step(features):
            features = self.eval_batching.cut(features, length)
            if self._eval_memory is not None:
                features = {**features, **self.task.read_memory(self._eval_memory, features)}
            outputs = self.model(features, training=False)
            if self._eval_memory is not None:
                self._eval_memory.write(*_next_memory(outputs))
            _update(self.validation_metrics, self.task.validation_sums(features, outputs))
            return self.task.evaluation_rows(features, outputs)

        inputs, _ = self.next_eval_inputs(iterator)
        return self.strategy.run(replica_step, args=(inputs,))

    def eval_reduce(self, state=None, step_outputs=None):
        self._eval_rows.append(all_rows(self.strategy, step_outputs))
        self.on_eval_step()

    def eval_end(self, aggregated_logs=None):
        """Returns the metrics that something was counted for, and the task's report on all predictions."""
        uncounted, logs = _uncounted(self.validation_metrics), super().eval_end(aggregated_logs)
        logs = {name: value for name, value in logs.items() if name not in uncounted}
        rows, self._eval_rows = self._eval_rows, []
        if rows and rows[0]:
            logs |= self.task.report({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})
        return logs


def all_rows(strategy: tf.distribute.Strategy, outputs) -> dict[str, np.ndarray]:
    """Joins a step's outputs, name -> [B, ...] of each replica, over all replicas and hosts."""

    def join(values) -> np.ndarray:
        local = strategy.experimental_local_results(values)
        if len(local) == strategy.num_replicas_in_sync:
            return np.concatenate([value.numpy() for value in local])
        if local[0].dtype.size > 1:
            return strategy.gather(values, axis=0).numpy()
        wide = strategy.run(lambda rows: tf.cast(rows, tf.int32), (values,))  # hosts exchange no bytes
        return strategy.gather(wide, axis=0).numpy().astype(local[0].dtype.as_numpy_dtype)

    return {name: join(values) for name, values in outputs.items()}


class _Lazy:
    """A dataset that is built when its iterator is requested, which is after a checkpoint was restored."""

    def __init__(self, build: Callable[[], tf.data.Dataset]):
        self._build = build

    def __iter__(self):
        return iter(self._build())


def _uncounted(metrics: Sequence[Ratio]) -> set[str]:
    """Returns the names of metrics that nothing was counted for: their 0 means nothing."""
    return {metric.name for metric in metrics if not metric.denominator.numpy()}


def _next_memory(outputs: Features) -> tuple[tf.Tensor, tf.Tensor]:
    return outputs["next_memory"], outputs["next_memory_mask"]


def _update(metrics: Sequence[Ratio], sums: Sums):
    for metric in metrics:
        metric.update_state(*sums[metric.name])
