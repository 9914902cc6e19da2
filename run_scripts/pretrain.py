r"""Pretrains an XLNet on the records of tfrecord_builders/pretraining.py.

    python -m run_scripts.pretrain --train_data=runs/demo/records/train --dev_data=runs/demo/records/dev \
        --model_dir=runs/demo/model

Settings come, each over the one before, from the defaults, --config_file (yaml; there are some in
run_scripts/recipes/), the flags, and --params_override. The same command, started again, goes on where the
run stopped.
"""

import os
from collections.abc import Sequence

from absl import flags

from run_scripts import experiment
from run_scripts.experiment import Setting
from xlnet_tf import errors

SETTINGS = (
    Setting("train_data", "task.train_data.input_path", "string", "Folder of training records."),
    Setting("dev_data", "task.validation_data.input_path", "string", "Folder of records to evaluate on."),
    Setting("batch_size", "task.train_data.global_batch_size", "integer", "Segments per step, all devices.",
            1),
    Setting("dev_batch_size", "task.validation_data.global_batch_size", "integer",
            "Segments per evaluation step, all devices; 0: batch_size.", 0),
    Setting("preset", "task.model.preset", ("tiny", "base", "large"), "Size of the model."),
    Setting("model_config", "task.model.config_file", "string", "An xlnet_config.json in place of --preset."),
    Setting("init_checkpoint", "task.init_checkpoint", "string",
            "Weights that a new run begins with: a run's folder, the original's or Hugging Face's."),
    Setting("memory_len", "task.model.memory_len", "integer",
            "Tokens of memory; 0: none. Default: three quarters of a segment.", 0),
    Setting("memory_within_document", "task.model.memory_within_document", "boolean",
            "Hide memory of earlier documents."),
    Setting("clamp_len", "task.model.clamp_len", "integer", "Largest distance told apart; -1: no limit.", -1),
    Setting("dropout", "task.model.dropout", "float", "Rate of dropout.", 0, 1),
    Setting("attention_dropout", "task.model.attention_dropout", "float",
            "Rate of dropout on attention probabilities.", 0, 1),
    Setting("next_sentence_weight", "task.model.next_sentence_weight", "float",
            "Weight of the next-sentence loss; 0: none.", 0),
    Setting("seed", "task.seed", "integer", "Of initial weights, dropout and the order of records.", 0),
    Setting("train_steps", "trainer.train_steps", "integer", "Steps in all.", 1),
    Setting("accumulation_steps", "trainer.accumulation_steps", "integer",
            "Parts into which each device splits its segments of a step, to fit its memory.", 1),
    Setting("learning_rate", "trainer.optimizer_config.learning_rate", "float", "Peak learning rate.", 0),
    Setting("warmup_steps", "trainer.optimizer_config.warmup_steps", "integer",
            "Steps until the peak learning rate.", 0),
    Setting("decay", "trainer.optimizer_config.decay", ("linear", "cosine"), "Decay after the peak."),
    Setting("min_lr_ratio", "trainer.optimizer_config.min_lr_ratio", "float",
            "Last learning rate as a fraction of the peak.", 0),
    Setting("weight_decay", "trainer.optimizer_config.weight_decay", "float", "Decoupled weight decay.", 0),
    Setting("adam_epsilon", "trainer.optimizer_config.epsilon", "float", "Adam's epsilon.", 0),
    Setting("clip_norm", "trainer.optimizer_config.clip_norm", "float",
            "Largest norm of the gradient; 0: no clipping.", 0),
    Setting("layer_decay", "trainer.optimizer_config.layer_decay", "float",
            "Factor of the learning rate from each layer to the one below.", 0),
    Setting("steps_per_loop", "trainer.steps_per_loop", "integer",
            "Steps between two reports; they run on the device as one loop.", 1),
    Setting("checkpoint_interval", "trainer.checkpoint_interval", "integer", "Steps between checkpoints.", 1),
    Setting("eval_interval", "trainer.validation_interval", "integer", "Steps between evaluations.", 1),
    Setting("max_to_keep", "trainer.max_to_keep", "integer", "Newest checkpoints to keep.", 1),
    Setting("strategy", "runtime.distribution_strategy",
            ("off", "one_device", "mirrored", "multi_worker_mirrored", "tpu"),
            "How to use the devices; multi_worker_mirrored reads the environment's TF_CONFIG."),
    Setting("tpu", "runtime.tpu", "string", "Name of the TPU, or `local` on a TPU VM."),
    Setting("num_gpus", "runtime.num_gpus", "integer", "GPUs to use; -1: all.", -1),
    Setting("virtual_devices", "runtime.virtual_devices", "integer",
            "Logical devices to split the CPU into, to try --strategy=mirrored; 0: do not.", 0),
    Setting("deterministic", "runtime.deterministic", "boolean",
            "Only operations that repeat bit for bit; on CPUs they do without, on GPUs it costs time."),
    Setting("dtype", "runtime.mixed_precision_dtype", ("float32", "bfloat16"),
            "Type of activations; weights are float32."),
    Setting("jit_compile", "runtime.enable_xla", "boolean",
            "Compile forward and backward pass with XLA (on a TPU they always are)."),
)  # fmt: skip


def main(argv: Sequence[str]):
    del argv
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from xlnet_tf.tasks import pretraining

    experiment.quiet()
    params = experiment.load(pretraining.EXPERIMENT, SETTINGS, flags.FLAGS)
    for name, value in pretraining.pretrain(params, flags.FLAGS.model_dir).items():
        print(f"{name:>24}  {value:.4f}")


if __name__ == "__main__":
    experiment.define_flags(SETTINGS)
    flags.adopt_module_key_flags(experiment)
    errors.run(main)
