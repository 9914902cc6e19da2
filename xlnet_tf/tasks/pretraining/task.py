"""Permutation language modelling on pretraining records: the task and its experiment."""

import tensorflow as tf
import tf_keras
from absl import logging
from official.core import config_definitions as cfg
from official.core import exp_factory, task_factory

from xlnet_tf import files
from xlnet_tf.checkpoints import load_into
from xlnet_tf.checkpoints.checkpoint import CONFIG_FILE
from xlnet_tf.errors import UserError
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer, target_losses
from xlnet_tf.pages import next_steps, page
from xlnet_tf.records.manifest import FILE_NAME, Manifest
from xlnet_tf.records.reader import online_sampler
from xlnet_tf.tasks.pretraining.config import PretrainingConfig
from xlnet_tf.tasks.pretraining.data import GENERAL_SET, RecordData
from xlnet_tf.tasks.settings import fill_evaluation_defaults
from xlnet_tf.training import runtime
from xlnet_tf.training.checks import check_memory
from xlnet_tf.training.config import RuntimeConfig, TrainerConfig
from xlnet_tf.training.early_stopping import first_evaluation, keep_best
from xlnet_tf.training.memory import Memory
from xlnet_tf.training.run import run_training
from xlnet_tf.training.task import ExponentialRatio, Ratio, Sums, Task, weighted

EXPERIMENT = "xlnet/pretraining"


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
    """Predicts the targets of pretraining records, and if asked, whether B follows A."""

    early_evaluations = True  # where the loss falls fastest

    def __init__(self, params: PretrainingConfig, logging_dir: str | None = None, name: str | None = None):
        super().__init__(params, logging_dir, name)
        model = params.model
        if not params.train_data.input_path:
            raise UserError("no training records: give --train_data, a folder of pretraining records")
        self.train_manifest = Manifest.load(params.train_data.input_path)
        online_sampler(self.train_manifest, params.permutation, params.seed)  # refused before training begins
        self.data = RecordData(params, self.train_manifest)
        self.xlnet_config = model.architecture(self.train_manifest.tokenizer["vocab_size"])
        self.train_manifest.check_model(vocab_size=self.xlnet_config.n_token)
        self.memory_len = self._memory_len(model.memory_len)
        self.n_layer = self.xlnet_config.n_layer
        self.loss_weights = {"loss": 1.0}
        self.next_sentence = bool(model.next_sentence_weight)  # whether the model has such a head
        if self.next_sentence:
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
        """Loads `init_checkpoint`, of a run, the original or Hugging Face, into a new run's model."""
        path = self.task_config.init_checkpoint
        if not path:
            return
        try:
            coverage = load_into(model, path, new=["next_sentence"])
        except (UserError, FileNotFoundError) as error:
            raise UserError(f"init_checkpoint: {error}") from error
        logging.info("init_checkpoint %s:\n%s", path, coverage.table())

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
        if self.data.general and not training:
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
        if not self.data.general:
            return self.sums(features, outputs)
        is_general = tf.cast(features["is_general"], tf.bool)  # [B]

        def sums_of(rows):
            weights = outputs["target_weights"] * tf.cast(rows, tf.float32)[:, None]
            labels = {}
            if self.next_sentence:
                labels["next_sentence"] = tf.where(rows, features["next_sentence"], -1)
            return self.sums({**features, **labels}, {**outputs, "target_weights": weights})

        return sums_of(~is_general) | {"general_loss": sums_of(is_general)["loss"]}

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
            if self.data.general:
                metrics = {**metrics, GENERAL_SET: self.data.first_general_set(model_dir)}
            keep_best(self, model, metrics, step, model_dir)

    def report_parts(self, model_dir):
        for name, manifest in self.data.sets.items():
            yield page.section(f"Data: {name}", str(manifest.folder))
            yield page.table(("Of the set", "Value"), manifest.facts())
        yield page.section("Next")
        yield page.commands(next_steps.after_pretraining(model_dir))

    def save_assets(self, model_dir: str):
        """Writes next to the checkpoints what later tools need: architecture, tokenizer, manifest."""
        files.write(f"{model_dir}/{CONFIG_FILE}", self.xlnet_config.to_json())
        for source in (self.train_manifest.tokenizer_path, self.train_manifest.folder / FILE_NAME):
            files.copy(str(source), f"{model_dir}/{source.name}")


def pretrain(
    params: cfg.ExperimentConfig, model_dir: str, strategy: tf.distribute.Strategy | None = None
) -> dict[str, float]:
    """Pretrains, or resumes the run in model_dir; returns the last evaluation's metrics, empty without one.

    `strategy` is from `training.runtime.prepare`, if the process trains something else, too.
    """
    if strategy is None:
        strategy = runtime.prepare(params.runtime)
    task = build_task(params)
    check_memory(params, task, strategy)
    return run_training(params, task, strategy, model_dir)


def build_task(params: cfg.ExperimentConfig) -> PretrainingTask:
    """Returns the task, and fills in what of the settings depends on its records."""
    fill_evaluation_defaults(params)
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


def _next_sentence_sums(labels: tf.Tensor, logits: tf.Tensor) -> Sums:
    """Sums loss and hits over the rows that have a label (-1: none)."""
    labels = tf.cast(labels, tf.int32)
    weights = tf.cast(labels >= 0, tf.float32)  # [B]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
    hits = tf.cast(tf.argmax(logits, axis=-1, output_type=tf.int32) == labels, tf.float32)
    return weighted(weights, next_sentence_loss=losses, next_sentence_accuracy=hits)


def _sum(flags: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(flags, tf.float32))
