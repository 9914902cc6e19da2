"""Permutation language modelling on pretraining records: the task and its experiment."""

import dataclasses
import hashlib
from collections.abc import Sequence

import tensorflow as tf
import tf_keras
from absl import logging
from official.core import config_definitions as cfg
from official.core import exp_factory, task_factory
from official.modeling.hyperparams import base_config

from xlnet_tf import files
from xlnet_tf.checkpoints import load_into
from xlnet_tf.checkpoints.checkpoint import CONFIG_FILE
from xlnet_tf.checkpoints.model_card import BEST
from xlnet_tf.errors import UserError
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer, target_losses
from xlnet_tf.records.manifest import FILE_NAME, Manifest, settings_difference
from xlnet_tf.records.reader import num_eval_steps, online_sampler, pretraining_dataset, records_of_step
from xlnet_tf.tasks.model_config import EncoderModelConfig, architecture_difference
from xlnet_tf.tasks.settings import complete_evaluation
from xlnet_tf.training import runtime
from xlnet_tf.training.config import RuntimeConfig, TrainerConfig
from xlnet_tf.training.early_stopping import first_evaluation, keep_best, read_metrics
from xlnet_tf.training.memory import Memory
from xlnet_tf.training.run import check_memory, run_training
from xlnet_tf.training.task import ExponentialRatio, Ratio, Sums, Task, weighted

EXPERIMENT = "xlnet/pretraining"
# Next to the metrics of the best weights: the general text of the first weights that were kept.
_GENERAL_SET = "general_set"


@dataclasses.dataclass
class RecordsConfig(base_config.Config):
    """Which records to read.

    Attributes:
        input_path: folder of records, or its manifest.json.
        global_batch_size: rows of a step over all devices; 0 for validation: of a part of a training
            step (see trainer.accumulation_steps).
    """

    input_path: str = ""
    global_batch_size: int = 0


@dataclasses.dataclass
class ModelConfig(EncoderModelConfig):
    """The network and how it is trained.

    Attributes (besides those of EncoderModelConfig):
        memory_len: tokens of memory; 0 for none; not given: three quarters of a segment (denoising: 0).
        memory_within_document: hide memory of earlier documents of a stream.
        endless_memory: never hide memory, as in the original: what is still empty (zeros) is attended to, and
            so is the stream before.
        uniform_when_blind: a target that sees nothing gets the mean of all, as in the original.
        next_sentence_weight: weight of the next-sentence loss (the paper's ablation); 0 for none.
    """

    memory_len: int | None = None
    memory_within_document: bool = False
    endless_memory: bool = False
    uniform_when_blind: bool = False
    next_sentence_weight: float = 0.0


@dataclasses.dataclass
class PretrainingConfig(cfg.TaskConfig):
    """Settings of pretraining.

    Attributes:
        model: the network.
        train_data: records to train on.
        validation_data: records to evaluate on; no path, no evaluation.
        general_data: records of other text to evaluate on, too, as general_loss: what a run that adapts a
            model to a domain must not forget. No path: none.
        max_general_rise: rise of general_loss over its first value, in nats, after which the run ends;
            0: none is too much.
        keep_best: keep the weights with the lowest loss on validation_data, of those evaluations where
            general_loss had not risen too far.
        permutation: "precomputed" trains on the records' own targets and orders; "online" draws both anew in
            every epoch, by the records' rules. Evaluation always takes the records' own.
        seed: of initial weights, dropout, the order of the records and what is drawn online.
    """

    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    train_data: RecordsConfig = dataclasses.field(default_factory=lambda: RecordsConfig(global_batch_size=16))
    validation_data: RecordsConfig = dataclasses.field(default_factory=RecordsConfig)
    general_data: RecordsConfig = dataclasses.field(default_factory=RecordsConfig)
    max_general_rise: float = 0.0
    keep_best: bool = False
    permutation: str = "precomputed"
    seed: int = 0


@exp_factory.register_config_factory(EXPERIMENT)
def pretraining_experiment() -> cfg.ExperimentConfig:
    """Returns the defaults: a small model on one device."""
    return cfg.ExperimentConfig(
        task=PretrainingConfig(),
        trainer=TrainerConfig(),
        runtime=RuntimeConfig(),
        restrictions=["task.train_data.input_path != None"],
    )


@task_factory.register_task_cls(PretrainingConfig)
class PretrainingTask(Task):
    """Predicts the targets of pretraining records, and if asked, whether B follows A.

    Args:
        params: the settings.
        logging_dir, name: as Model Garden's task factory gives them.

    Raises:
        UserError: records, model and settings do not fit together.
        FileNotFoundError: there are no records.
    """

    early_evaluations = True  # where the loss falls fastest

    def __init__(self, params: PretrainingConfig, logging_dir: str | None = None, name: str | None = None):
        super().__init__(params, logging_dir, name)
        model = params.model
        if not params.train_data.input_path:
            raise UserError("no training records: give --train_data, a folder of pretraining records")
        self.train_manifest = Manifest.load(params.train_data.input_path)
        online_sampler(self.train_manifest, params.permutation, params.seed)  # refused before training begins
        self.validation_manifest = _load_alike(params.validation_data.input_path, self.train_manifest)
        self.general_manifest = _load_alike(params.general_data.input_path, self.train_manifest)
        self.xlnet_config = model.architecture(self.train_manifest.tokenizer["vocab_size"])
        self.train_manifest.check_model(vocab_size=self.xlnet_config.n_token)
        self.memory_len = self._memory_len(model.memory_len)
        self.n_layer = self.xlnet_config.n_layer
        self.loss_weights = {"loss": 1.0}
        if model.next_sentence_weight:
            self.loss_weights["next_sentence_loss"] = model.next_sentence_weight

    def _memory_len(self, asked: int | None) -> int:
        """Returns the tokens of memory; by default three quarters of a segment, where memory is sound."""
        if self.train_manifest.objective != "denoising":
            return self.train_manifest.seq_len * 3 // 4 if asked is None else asked
        if asked:
            raise UserError(
                f"memory_len is {asked}, but {self.train_manifest.folder} is for denoising: reused tokens "
                "see the whole segment, so memory would reveal the next one's targets. Set memory_len to 0."
            )
        return 0

    @property
    def next_sentence(self) -> bool:
        """Whether the model has a next-sentence head."""
        return "next_sentence_loss" in self.loss_weights

    def build_model(self) -> XLNetPretrainer:
        model = self.task_config.model
        encoder = XLNetEncoder(
            self.xlnet_config,
            **model.encoder_options(),
            memory_len=self.memory_len,
            reuse_len=self.train_manifest.reuse_len,
            uniform_when_blind=model.uniform_when_blind,
        )
        pretrainer = XLNetPretrainer(encoder, next_sentence=self.next_sentence)
        pretrainer.build()
        return pretrainer

    def initialize(self, model: tf_keras.Model):
        """Loads `init_checkpoint`, of a run, the original or Hugging Face, into a new run's model.

        Raises:
            UserError: there is no checkpoint, or it is of another model.
        """
        path = self.task_config.init_checkpoint
        if not path:
            return
        try:
            coverage = load_into(model, path, new=["next_sentence"])
        except (UserError, FileNotFoundError) as error:
            raise UserError(f"init_checkpoint: {error}") from error
        logging.info("init_checkpoint %s:\n%s", path, coverage.table())

    def build_inputs(self, params: RecordsConfig, input_context=None, start_step: int = 0) -> tf.data.Dataset:
        training = params is self.task_config.train_data
        context = input_context or tf.distribute.InputContext()

        def read(manifest: Manifest) -> tf.data.Dataset:
            return pretraining_dataset(
                manifest,
                params.global_batch_size,
                num_hosts=context.num_input_pipelines,
                host=context.input_pipeline_id,
                rows_per_batch=context.get_per_replica_batch_size(params.global_batch_size),
                start_step=start_step,
                seed=self.task_config.seed,
                repeat=training,
                permutation=self.task_config.permutation if training else "precomputed",
            )

        if training:
            return read(self.train_manifest)
        if not self.general_manifest:
            return read(self.validation_manifest)
        domain, general = (
            read(manifest).map(lambda features, mark=mark: {**features, "is_general": tf.constant([mark])})
            for mark, manifest in enumerate((self.validation_manifest, self.general_manifest))
        )
        return domain.concatenate(general)

    def validation_steps(self) -> int:
        """Returns the steps that evaluate every record once."""
        batch_size = self.task_config.validation_data.global_batch_size
        manifests = filter(None, (self.validation_manifest, self.general_manifest))
        return sum(num_eval_steps(manifest, batch_size) for manifest in manifests)

    def tokens_per_step(self, length=None):
        return self.task_config.train_data.global_batch_size * self.train_manifest.seq_len

    def build_memory(self, rows: int) -> Memory | None:
        if not self.memory_len:
            return None
        return Memory(
            self.xlnet_config.n_layer,
            rows,
            self.memory_len,
            self.xlnet_config.d_model,
            tf.as_dtype(tf_keras.mixed_precision.global_policy().compute_dtype),
        )

    def read_memory(self, memory: Memory, features) -> dict[str, tf.Tensor]:
        model = self.task_config.model
        within_document = features["document_offset"] if model.memory_within_document else None
        inputs = memory.read(features["stream_start"], within_document)
        if model.endless_memory:
            inputs["memory_mask"] = tf.ones_like(inputs["memory_mask"])
        return inputs

    def build_metrics(self, training: bool = True) -> list[Ratio]:
        names = ["loss", "accuracy", "loss_forward", "loss_backward"]
        if self.next_sentence:
            names += ["next_sentence_loss", "next_sentence_accuracy"]
        if self.general_manifest and not training:
            names.append("general_loss")
        return [Ratio(name) for name in names] + [ExponentialRatio("perplexity")]

    def counts(self, features) -> dict[str, tf.Tensor]:
        counts = {"loss": _sum(features["target_positions"] >= 0)}
        if self.next_sentence:
            counts["next_sentence_loss"] = _sum(features["next_sentence"] >= 0)
        return counts

    def sums(self, features, outputs) -> Sums:
        losses, weights = target_losses(outputs), outputs["target_weights"]  # [B, P]
        loss, count = tf.reduce_sum(losses), tf.reduce_sum(weights)
        predictions = tf.argmax(outputs["logits"], axis=-1, output_type=tf.int32)
        hits = weights * tf.cast(predictions == outputs["target_ids"], tf.float32)
        forward = tf.cast(features["direction"] > 0, tf.float32)[:, None]
        sums = {
            "loss": (loss, count),
            "perplexity": (loss, count),
            "accuracy": (tf.reduce_sum(hits), count),
            "loss_forward": (tf.reduce_sum(losses * forward), tf.reduce_sum(weights * forward)),
            "loss_backward": (tf.reduce_sum(losses * (1 - forward)), tf.reduce_sum(weights * (1 - forward))),
        }
        if self.next_sentence:
            sums |= _next_sentence_sums(features["next_sentence"], outputs["next_sentence_logits"])
        return sums

    def validation_sums(self, features, outputs):
        if not self.general_manifest:
            return self.sums(features, outputs)
        is_general = tf.cast(features["is_general"], tf.bool)  # [B]

        def sums_of(rows):
            weights = outputs["target_weights"] * tf.cast(rows, tf.float32)[:, None]
            labels = {}
            if self.next_sentence:
                labels["next_sentence"] = tf.where(rows, features["next_sentence"], -1)
            return self.sums({**features, **labels}, {**outputs, "target_weights": weights})

        return sums_of(~is_general) | {"general_loss": sums_of(is_general)["loss"]}

    def dev_set(self):
        return _digest(self.validation_manifest)

    def out_of_bounds(self, metrics, model_dir):
        most = self.task_config.max_general_rise
        if not most:
            return ""
        rise = metrics["general_loss"] - first_evaluation(model_dir)["general_loss"]
        if rise <= most:
            return ""
        return f"ended: general_loss has risen by {rise:.3f}, more than max_general_rise, {most:g}"

    def after_evaluation(self, model, metrics, step, model_dir):
        if self.task_config.keep_best and not (step and self.out_of_bounds(metrics, model_dir)):
            if self.general_manifest:
                metrics = {**metrics, _GENERAL_SET: self._first_general_set(model_dir)}
            keep_best(self, model, metrics, step, model_dir)

    def _first_general_set(self, model_dir: str) -> str:
        """Returns a digest of the general text of the first kept weights; of the present one if none are."""
        return read_metrics(f"{model_dir}/{BEST}").get(_GENERAL_SET) or _digest(self.general_manifest)

    def save_assets(self, model_dir: str):
        """Writes next to the checkpoints what later tools need: architecture, tokenizer, manifest."""
        files.write(f"{model_dir}/{CONFIG_FILE}", self.xlnet_config.to_json())
        for source in (self.train_manifest.tokenizer_path, self.train_manifest.folder / FILE_NAME):
            files.copy(str(source), f"{model_dir}/{source.name}")

    def data_bytes(self) -> int:
        return sum(shard.bytes for manifest in self._manifests() for shard in manifest.shards)

    def check_data(self):
        for manifest in self._manifests():
            manifest.check_files(checksums=True)

    def _manifests(self) -> list[Manifest]:
        known = (self.train_manifest, self.validation_manifest, self.general_manifest)
        return [manifest for manifest in known if manifest]

    def name_rows(self, step: int, rows: Sequence[int]) -> list[str]:
        data = self.task_config.train_data
        records = records_of_step(self.train_manifest, data.global_batch_size, step, self.task_config.seed)
        return [f"row {row}: {records[row][0]}, record {records[row][1]}" for row in rows]

    def data_difference(self, model_dir: str) -> list[str]:
        before, now = Manifest.load(model_dir), self.train_manifest
        difference = settings_difference(before.settings(), now.settings())
        if not difference and [s.sha256 for s in before.shards] != [s.sha256 for s in now.shards]:
            difference = ["shards: other checksums"]
        if self.task_config.max_general_rise and self._first_general_set(model_dir) != _digest(
            self.general_manifest
        ):
            logging.warning(
                "task.general_data has changed since the run in %s began: max_general_rise compares losses "
                "on two different texts",
                model_dir,
            )
        architecture = architecture_difference(self.xlnet_config, model_dir)
        return architecture + [f"records' {line}" for line in difference]


def pretrain(
    params: cfg.ExperimentConfig, model_dir: str, strategy: tf.distribute.Strategy | None = None
) -> dict[str, float]:
    """Pretrains, or resumes the run in model_dir.

    Args:
        params: the settings; what depends on the records is filled in.
        model_dir: folder of the run.
        strategy: from `training.runtime.prepare`, if the process trains something else, too; None: it is
            prepared here.

    Returns:
        The metrics of the last evaluation; empty without validation records.

    Raises:
        UserError: settings, records, devices or model_dir do not fit together.
        FileNotFoundError: there are no records.
    """
    if strategy is None:
        strategy = runtime.prepare(params.runtime)
    task = build_task(params)
    check_memory(params, task, strategy)
    return run_training(params, task, strategy, model_dir)


def build_task(params: cfg.ExperimentConfig) -> PretrainingTask:
    """Returns the task, and fills in what of the settings depends on its records.

    Raises:
        UserError: settings and records do not fit together.
        FileNotFoundError: there are no records.
    """
    complete_evaluation(params)
    _check_evaluation(params.task)
    task = PretrainingTask(params.task)
    params.task.model.memory_len = task.memory_len
    return task


def _check_evaluation(config: PretrainingConfig):
    """Raises UserError if a setting needs evaluations on records that are not given."""
    if config.general_data.input_path and not config.validation_data.input_path:
        raise UserError("task.general_data is evaluated along with task.validation_data: give both")
    if config.max_general_rise and not config.general_data.input_path:
        raise UserError(
            f"task.max_general_rise is {config.max_general_rise:g}, and there is no task.general_data to "
            "measure it on: give both, or --params_override=task.max_general_rise=0"
        )
    if config.keep_best and not config.validation_data.input_path:
        raise UserError(
            "task.keep_best keeps the weights with the lowest loss on dev records, and there are none: give "
            "--dev_data, too, or --params_override=task.keep_best=false"
        )


def _digest(manifest: Manifest) -> str:
    """Returns a digest of what a set of records holds, wherever it lies."""
    return hashlib.sha256("\n".join(shard.sha256 for shard in manifest.shards).encode()).hexdigest()


def _next_sentence_sums(labels: tf.Tensor, logits: tf.Tensor) -> Sums:
    """Sums loss and hits over the rows that have a label (-1: none)."""
    labels = tf.cast(labels, tf.int32)
    weights = tf.cast(labels >= 0, tf.float32)  # [B]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
    hits = tf.cast(tf.argmax(logits, axis=-1, output_type=tf.int32) == labels, tf.float32)
    return weighted(weights, next_sentence_loss=losses, next_sentence_accuracy=hits)


def _sum(flags: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(flags, tf.float32))


def _load_alike(path: str, train: Manifest) -> Manifest | None:
    """Loads records to evaluate on, None without a path; UserError unless one model can read both sets."""
    if not path:
        return None
    validation = Manifest.load(path)
    validation.check_tokenizer(train.tokenizer["sha256"])
    for name in ("seq_len", "reuse_len"):
        found, expected = getattr(validation, name), getattr(train, name)
        if found != expected:
            raise UserError(
                f"{name} is {found} in {validation.folder}, but {expected} in {train.folder}: build the "
                "validation records with the training records' settings"
            )
    return validation
