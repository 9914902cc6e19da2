"""The flags that all training scripts share."""

from typing import Any

from xlnet_tf import flags
from xlnet_tf.config import PRESETS, Recompute
from xlnet_tf.flags import Setting

ROWS = (1 << 20) + 1  # of a batch: too many
SEEDS = 1 << 32  # numpy's generator has no more

MODEL = (
    Setting("preset", "task.model.preset", tuple(PRESETS), "Size of the model."),
    Setting("model_config", "task.model.config_file", str,
            "An xlnet_config.json, or the folder or name of a model, instead of --preset."),
    Setting("clamp_len", "task.model.clamp_len", int,
            "Largest distance that is distinguished; -1: no limit. A limit makes TPUs far slower.", -1),
    Setting("dropout", "task.model.dropout", float, "Rate of dropout.", 0, 1),
    Setting("attention_dropout", "task.model.attention_dropout", float,
            "Rate of dropout on attention probabilities.", 0, 1),
)  # fmt: skip

TRAINER = (
    Setting("accumulation_steps", "trainer.accumulation_steps", int,
            "Micro-batches into which each device splits its rows of a step, to fit its memory.", 1),
    Setting("recompute", "trainer.recompute", Recompute,
            "Gradient checkpointing: compute activations again in the backward pass, time for memory; cheap: "
            "all but the products with weights, for less time and less memory than without."),
    Setting("learning_rate", "trainer.optimizer_config.learning_rate", float, "Peak learning rate.", 0),
    Setting("warmup_steps", "trainer.optimizer_config.warmup_steps", int,
            "Steps until the peak learning rate.", 0),
    Setting("decay", "trainer.optimizer_config.decay", ("linear", "cosine"), "Decay after the peak."),
    Setting("min_lr_ratio", "trainer.optimizer_config.min_lr_ratio", float,
            "Last learning rate as a fraction of the peak.", 0),
    Setting("weight_decay", "trainer.optimizer_config.weight_decay", float, "Decoupled weight decay.", 0),
    Setting("adam_epsilon", "trainer.optimizer_config.epsilon", float, "Adam's epsilon.", 0),
    Setting("clip_norm", "trainer.optimizer_config.clip_norm", float,
            "Largest norm of the gradient; 0: no clipping.", 0),
    Setting("layer_decay", "trainer.optimizer_config.layer_decay", float,
            "Factor of the learning rate from each layer to the one below.", 0),
    Setting("patience", "trainer.patience", int,
            "Evaluations on dev without a better one after which the run ends; 0: never.", 0),
    Setting("max_hours", "trainer.max_hours", float,
            "Hours of training, over all starts of the run, after which it saves and ends; 0: no limit.", 0),
    Setting("steps_per_loop", "trainer.steps_per_loop", int,
            "Steps between two reports; they run as one graph, on a TPU's host if there is one.", 1),
    Setting("max_to_keep", "trainer.max_to_keep", int, "Newest checkpoints to keep.", 1),
    Setting("profile_steps", "trainer.profile_steps", str,
            "First and last step to trace for TensorBoard, as 10,15."),
)  # fmt: skip

DEVICES = (
    Setting("strategy", "runtime.distribution_strategy",
            ("off", "one_device", "mirrored", "multi_worker_mirrored", "tpu"),
            "How to use the devices; multi_worker_mirrored reads the environment's TF_CONFIG."),
    Setting("tpu", "runtime.tpu", str, "Name of the TPU, or `local` on a TPU VM."),
    Setting("num_gpus", "runtime.num_gpus", int, "GPUs to use; -1: all.", -1),
    Setting("virtual_devices", "runtime.virtual_devices", int,
            "Logical devices to split the CPU into, to try --strategy=mirrored; 0: do not.", 0),
    Setting("deterministic", "runtime.deterministic", bool,
            "Only operations that repeat bit for bit; on CPUs they do without, on GPUs it costs time."),
    Setting("dtype", "runtime.mixed_precision_dtype", ("float32", "bfloat16", "float16"),
            "Type of activations; weights are float32. float16 scales the loss; bfloat16 need not."),
)  # fmt: skip

RUNTIME = (
    *DEVICES,
    Setting("jit_compile", "runtime.enable_xla", bool,
            "Compile forward and backward pass with XLA (on a TPU they always are)."),
)  # fmt: skip


def define_devices():
    """Defines the flags of DEVICES, for commands that use a trained model."""
    for setting in DEVICES:
        setting.define()


def given_devices() -> dict[str, Any]:
    return flags.given(setting.flag for setting in DEVICES)
