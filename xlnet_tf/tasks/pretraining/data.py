"""The records of a pretraining, laid onto the rows of batches."""

import tensorflow as tf
from absl import logging

from xlnet_tf.checkpoints.model_card import BEST
from xlnet_tf.differences import settings_difference
from xlnet_tf.errors import UserError
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.reader import num_eval_steps, pretraining_dataset, records_of_step
from xlnet_tf.tasks.pretraining.config import PretrainingConfig
from xlnet_tf.training.data import Batching, TaskData
from xlnet_tf.training.early_stopping import read_metrics

# Next to the metrics of the best weights: the general text of the first weights that were kept.
GENERAL_SET = "general_set"


class RecordBatching(Batching):
    """The records of training, or those of validation and then of general text; rows are whole."""

    def __init__(self, config: PretrainingConfig, manifests: list[Manifest], training: bool):
        self._config, self._manifests, self._training = config, manifests, training
        data = config.train_data if training else config.validation_data
        self._batch_size = data.global_batch_size

    def dataset(self, input_context=None, start_step=0):
        context = input_context or tf.distribute.InputContext()

        def read(manifest: Manifest) -> tf.data.Dataset:
            return pretraining_dataset(
                manifest,
                self._batch_size,
                num_hosts=context.num_input_pipelines,
                host=context.input_pipeline_id,
                rows_per_batch=context.get_per_replica_batch_size(self._batch_size),
                start_step=start_step,
                seed=self._config.seed,
                repeat=self._training,
                permutation=self._config.permutation if self._training else "precomputed",
            )

        if len(self._manifests) == 1:
            return read(self._manifests[0])
        domain, general = (
            read(manifest).map(lambda features, mark=mark: {**features, "is_general": tf.constant([mark])})
            for mark, manifest in enumerate(self._manifests)
        )
        return domain.concatenate(general)

    @property
    def steps(self):
        return sum(num_eval_steps(manifest, self._batch_size) for manifest in self._manifests)

    def tokens_of_step(self, length=None):
        return self._batch_size * self._manifests[0].seq_len

    def describe_rows(self, step, rows):
        records = records_of_step(self._manifests[0], self._batch_size, step, self._config.seed)
        return [f"row {row}: {records[row][0]}, record {records[row][1]}" for row in rows]


class RecordData(TaskData):
    """The sets of a pretraining, which one model must be able to read."""

    def __init__(self, config: PretrainingConfig, train: Manifest):
        self._config, self._train = config, train
        self.validation = _load_like(config.validation_data.input_path, train)
        self.general = _load_like(config.general_data.input_path, train)
        sets = {"train": train, "dev": self.validation, "general text": self.general}
        self.sets = {name: manifest for name, manifest in sets.items() if manifest}

    def batching(self, training, replicas=1, accumulation_steps=1):
        manifests = [self._train] if training else [*filter(None, (self.validation, self.general))]
        return RecordBatching(self._config, manifests, training)

    def use_tf_reader(self, train_steps):
        """Does nothing: TensorFlow alone reads records in any case."""

    def dev_set(self):
        return self.validation.digest

    def first_general_set(self, model_dir: str) -> str:
        """Returns a digest of the general text of the first kept weights; of the present one if none are."""
        return read_metrics(f"{model_dir}/{BEST}").get(GENERAL_SET) or self.general.digest

    def difference(self, model_dir):
        before, now = Manifest.load(model_dir), self._train
        difference = settings_difference(before.settings(), now.settings())
        if not difference and [s.sha256 for s in before.shards] != [s.sha256 for s in now.shards]:
            difference = ["shards: other checksums"]
        if self._config.max_general_rise and self.first_general_set(model_dir) != self.general.digest:
            logging.warning(
                "task.general_data has changed since the run in %s began: max_general_rise compares losses "
                "on two different texts",
                model_dir,
            )
        return [f"records' {line}" for line in difference]


def _load_like(path: str, train: Manifest) -> Manifest | None:
    """Loads records to evaluate on, None without a path; UserError unless one model can read both sets."""
    if not path:
        return None
    validation = Manifest.load(path)
    validation.check_tokenizer(train.tokenizer["sha256"])
    for name in ("seq_len", "reuse_len"):
        value, expected = getattr(validation, name), getattr(train, name)
        if value != expected:
            raise UserError(
                f"{name} is {value} in {validation.folder}, but {expected} in {train.folder}: build the "
                "validation records with the training records' settings"
            )
    return validation
