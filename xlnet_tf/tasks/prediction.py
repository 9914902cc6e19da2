"""Uses a fine-tuned run: its checkpoints, its predictions for a set of examples.

Predictions are stored in pieces as they are made; an interrupted run resumes after the last piece.
"""

import contextlib
import dataclasses
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging
from etils import epath
from official.core import config_definitions as cfg
from official.core import exp_factory, task_factory

from xlnet_tf import files, hub, task_registry
from xlnet_tf.checkpoints import load_into, open_checkpoint
from xlnet_tf.checkpoints.checkpoint import CONFIG_FILE
from xlnet_tf.checkpoints.model_card import BEST, task_of
from xlnet_tf.checkpoints.of_runs import kept, newest_first, runs_below
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.layers.kernels import device
from xlnet_tf.models.loading import Pretrained
from xlnet_tf.records.batching import FILLER
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks import compatibility
from xlnet_tf.tasks.finetuning import FinetuningTask
from xlnet_tf.tasks.pieces import Pieces, weights_fingerprint
from xlnet_tf.tasks.scoring import in_order, without_numbers
from xlnet_tf.training.config import check_types, override
from xlnet_tf.training.runtime import has_remote_hosts, weights_in_compute_type
from xlnet_tf.training.trainer import all_rows

_STEPS_KEPT = 100  # steps of predictions in a piece


@dataclasses.dataclass(frozen=True)
class Run:
    """A fine-tuned run, converted or not, and a set of examples to use it on: its task's validation_set."""

    model_dir: str
    params: cfg.ExperimentConfig
    task: FinetuningTask

    @classmethod
    def open(cls, model_dir: str, data: str) -> "Run":
        """Opens a run by its folder, by that of its best weights, or by one that either was converted to.

        With data, it also opens fine-tuned weights without a run, as a model's save_pretrained writes them.
        """
        model_dir = hub.locate(model_dir.rstrip("/")).folder  # FOLDER//NAME is another object of a bucket
        params_file = f"{model_dir}/params.yaml"
        if not tf.io.gfile.exists(params_file):
            # A run's own checkpoints need its settings: to guess them would be a quiet fallback.
            if data and tf.io.gfile.exists(model_dir) and not newest_first(model_dir):
                return cls._of_weights(model_dir, data)
            if tf.io.gfile.exists(model_dir) and not tf.io.gfile.isdir(model_dir):
                open_checkpoint(model_dir)  # says what else the file may be
            raise _no_run(params_file)
        trained_on = ExampleSet.load(model_dir)
        experiment = task_registry.entry_for_set(trained_on).experiment
        params = exp_factory.get_exp_config(experiment)
        override(params, files.read_yaml(params_file), params_file)
        check_types(params, exp_factory.get_exp_config(experiment), params_file)
        # The run's own architecture and weights, wherever those it began with may be by now.
        params.task.init_checkpoint = ""
        params.task.model.config_file = ""
        params.task.model.override(_architecture(model_dir).to_dict())
        params.task.validation_data.input_path = data
        params.task.validation_data.lengths = []  # of the run's own dev examples
        task_class = task_factory.get_task_cls(type(params.task))
        return cls(model_dir, params, task_class(params.task, trained_on=trained_on))

    @classmethod
    def _of_weights(cls, model_dir: str, data: str) -> "Run":
        """Opens fine-tuned weights without a run; the model card and the weights stand in for its files."""
        source = Pretrained(model_dir)
        card, examples = source.card, ExampleSet.load(data)
        entry = task_registry.entry_for_set(examples)
        if (task := card.task or task_of(source.checkpoint.arrays)) != entry.name:
            raise UserError(
                f"{model_dir} has weights for {task or 'no single task'}, {data} examples for {entry.name}: "
                "expected a model and examples of one task"
            )
        compatibility.check_texts(source.checkpoint, examples)
        settings = dict(examples.settings)
        if entry.labels:
            settings["labels"] = list(source.find_labeled_head(entry.head_kind, None).labels)
        if "kind" in settings:
            settings["kind"] = "multi_label" if card.multi_label else entry.name
        params = exp_factory.get_exp_config(entry.experiment)
        head = source.find_head(entry.head_kind)
        options = {**card.reading, **source.pooling_options(head), "head_name": head.task}
        model = params.task.model
        model.override({name: value for name, value in options.items() if hasattr(model, name)})
        model.override(source.config.to_dict())
        if options.get("pool_padding"):
            logging.warning(
                "%s pools padding (pool_padding); answers leave it out, as for single texts", model_dir
            )
        serving = card.serving
        changes = {name: serving[name] for name in ("n_best", "max_answer_len") if name in serving}
        if "threshold" in serving:
            changes["no_answer_threshold"] = serving["threshold"]
        if "alert" in serving:
            changes["alert"] = {"label": serving["alert"]["label"]}
        params.task.override(changes)
        params.task.validation_data.input_path = data
        trained_on = dataclasses.replace(examples, settings=settings, folder=epath.Path(model_dir))
        return cls(
            model_dir,
            params,
            task_factory.get_task_cls(type(params.task))(params.task, trained_on=trained_on),
        )

    def checkpoints(self) -> list[str]:
        """Returns what can be loaded: the run's checkpoints, by step, and the folder of its best weights."""
        if paths := kept(self.model_dir):
            return paths
        open_checkpoint(self.model_dir)  # best weights and converted runs are in the folder itself
        return [self.model_dir]

    def checkpoint(self, name: str) -> str:
        """Returns the checkpoint of a name: "best", "last" or as "ckpt-100"; "" is the best, if kept."""
        paths = {path.rpartition("/")[2]: path for path in self.checkpoints()}
        last = [path for key, path in paths.items() if key != BEST][-1:]
        if name == "last" and last:
            return last[0]
        if not name:
            return paths.get(BEST) or last[0]
        if name not in paths:
            raise UserError(f"{self.model_dir} has no checkpoint {name!r}: it has {', '.join(paths)}")
        return paths[name]


def computed_at_once(compute: Callable, steps: Iterable[tuple], count: int) -> Iterator[Any]:
    """Yields `compute(*step)` in the steps' order, `count` steps at a time.

    A CPU of two cores takes 0.86 to 0.95 of the time for two at a time (docs/speed.md).
    """
    if count == 1:  # on this thread: hosts must agree on the order of what they exchange
        yield from itertools.starmap(compute, steps)
        return
    pool, begun = ThreadPoolExecutor(count), deque()
    try:
        for step in steps:
            begun.append(pool.submit(compute, *step))
            if len(begun) > count:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _architecture(model_dir: str) -> XLNetConfig:
    """Returns the architecture of a run's weights; Hugging Face's format stores it under another name."""
    path = f"{model_dir}/{CONFIG_FILE}"
    if tf.io.gfile.exists(path):
        return XLNetConfig.from_json_file(path)
    source = open_checkpoint(model_dir)
    if source.config is None or source.path_of("x") != f"{model_dir}/x":  # of the best weights of a run
        raise _no_run(path)
    return source.config


def _no_run(path: str) -> UserError | FileNotFoundError:
    folder = path.rpartition("/")[0]
    if tf.io.gfile.isdir(folder) and (runs := runs_below(folder)):
        return UserError(runs)
    tip = "" if tf.io.gfile.exists(folder) else hub.did_you_mean(folder)
    return FileNotFoundError(f"{path} does not exist: expected the folder of a fine-tuned run{tip}")


class Predictor:
    """Computes a run's predictions for its set.

    A step has `batch_size` examples over all devices; `on_step` is called after it with their number.
    """

    def __init__(
        self,
        run: Run,
        strategy: tf.distribute.Strategy,
        batch_size: int,
        on_step: Callable[[int], object] = lambda examples: None,
    ):
        if batch_size < 1 or batch_size % strategy.num_replicas_in_sync:
            raise UserError(
                f"batch_size is {batch_size}: expected a multiple of {strategy.num_replicas_in_sync} replicas"
            )
        run.task.validation_set.check_files(checksums=True)
        self._task, self._strategy, self._batch_size, self._on_step = run.task, strategy, batch_size, on_step
        self._policy = tf_keras.mixed_precision.global_policy().name
        with strategy.scope(), weights_in_compute_type():
            self.model: tf_keras.Model = run.task.build_model()
            self._length_multiple = device.length_multiple()
            self._at_once = device.steps_at_once() if strategy.num_replicas_in_sync == 1 else 1

        run.task.task_config.validation_data.global_batch_size = batch_size
        if has_remote_hosts(strategy):
            run.task.data.use_tf_reader_for_dev()
        self._batching = run.task.data.batching(training=False)
        self.steps = self._batching.steps

        @tf.function(autograph=False)
        def step(features, length):
            def replica_step(features):
                rows = self._batching.cut(features, length)
                return run.task.evaluation_rows(rows, self.forward(rows))

            return strategy.run(replica_step, (features,))

        self._step = step
        self._run = run

    def forward(self, features: Mapping[str, tf.Tensor]) -> Any:
        """Returns the model's outputs for rows of the set."""
        return self.model(features, training=False)

    def __repr__(self) -> str:
        records = self._task.validation_set.records
        return (
            f"Predictor(model_dir={self._run.model_dir!r}, examples={records}, "
            f"batch_size={self._batch_size}, steps={self.steps})"
        )

    def predict(
        self, checkpoint: str, pieces: str | None = None, *, warn: bool = True
    ) -> dict[str, np.ndarray]:
        """Returns a checkpoint's predictions, [records, ...] by name; NaN and infinity are a UserError.

        The folder `pieces` stores them as they are made, to resume from. Outputs that are all alike are a
        warning, which `warn` leaves to the caller.
        """
        load_into(self.model, checkpoint)
        notes = Pieces(pieces, self._fingerprint(checkpoint), suffix=".npz") if pieces else None
        rows, fresh = notes.read_steps() if notes else [], []
        if rows:
            self._on_step(min(len(rows) * self._batch_size, self._task.validation_set.records))
        lengths = self._batching.lengths_for_graph(self.steps, self._length_multiple)

        def compute(number: int, features) -> dict[str, np.ndarray]:
            return all_rows(self._strategy, self._step(features, lengths[number]))

        steps = enumerate(self._features(start_step=len(rows)), start=len(rows))
        with contextlib.closing(computed_at_once(compute, steps, self._at_once)) as results:
            for number, result in enumerate(results, start=len(rows)):
                fresh.append(result)
                done = int((fresh[-1]["index"] != FILLER).sum())
                if notes and (len(fresh) == _STEPS_KEPT or number == self.steps - 1):
                    notes.write_steps(fresh, first=len(rows))
                    rows, fresh = rows + fresh, []
                self._on_step(done)
        rows += fresh
        joined = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        predictions = in_order(joined, self._task.validation_set.records)
        if bad := without_numbers(predictions):
            raise UserError(
                f"outputs of {checkpoint} are NaN or infinite for {len(bad)} of {len(predictions['finite'])} "
                f"examples of {self._task.validation_set.folder}, the first is number {bad[0]}. They were "
                f"computed in {self.model.dtype_policy.compute_dtype}; expected a type that they fit in "
                "(--dtype=float32)"
            )
        if warn:
            self._task.warn_if_collapsed(self._task.validation_set, predictions)
        return predictions

    def _features(self, start_step: int):
        return self._strategy.distribute_datasets_from_function(
            lambda context: self._batching.dataset(context, start_step)
        )

    def _fingerprint(self, checkpoint: str) -> dict:
        return {
            **weights_fingerprint(checkpoint),
            "shards": self._task.validation_set.fields()["shards"],
            "batch_size": self._batch_size,
            "multiple": self._length_multiple,
            "dtype": self._policy,
        }
