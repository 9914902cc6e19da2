"""The machine a run uses: devices, number type."""

import tensorflow as tf
import tf_keras
from official.common import distribute_utils

from xlnet_tf.errors import UserError
from xlnet_tf.training.config import RuntimeConfig

STRATEGIES = ("off", "one_device", "mirrored", "multi_worker_mirrored", "tpu")
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


def prepare(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    """Sets up devices and number type. Call it once, before TensorFlow has done anything.

    Args:
        runtime: the settings.

    Returns:
        The strategy to build the model under.

    Raises:
        UserError: the devices asked for are not there.
    """
    if runtime.mixed_precision_dtype not in POLICIES:
        raise UserError(f"dtype is {runtime.mixed_precision_dtype!r}: expected one of {', '.join(POLICIES)}")
    tf_keras.mixed_precision.set_global_policy(POLICIES[runtime.mixed_precision_dtype])
    strategy = _strategy(runtime)
    if runtime.deterministic:
        tf.config.experimental.enable_op_determinism()
    return strategy


def _strategy(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    name = runtime.distribution_strategy
    if name not in STRATEGIES:
        raise UserError(f"strategy is {name!r}: expected one of {', '.join(STRATEGIES)}")
    if name == "tpu" and not runtime.tpu:
        raise UserError("strategy is tpu, but no TPU is named: add --tpu=NAME, or --tpu=local on a TPU VM")
    if runtime.virtual_devices:
        return _virtual_devices(name, runtime.virtual_devices)
    visible = len(tf.config.list_physical_devices("GPU"))
    num_gpus = visible if runtime.num_gpus < 0 else runtime.num_gpus
    if num_gpus > visible:
        raise UserError(f"num_gpus is {num_gpus}, but {visible} GPUs are visible")
    if name in ("off", "one_device"):
        num_gpus = min(num_gpus, 1)
    return distribute_utils.get_distribution_strategy(
        distribution_strategy=name,
        num_gpus=num_gpus,
        all_reduce_alg=runtime.all_reduce_alg,
        num_packs=runtime.num_packs,
        tpu_address=runtime.tpu,
    )


def _virtual_devices(name: str, count: int) -> tf.distribute.Strategy:
    if name != "mirrored":
        raise UserError(f"virtual_devices is {count}, but strategy is {name}: virtual devices need mirrored")
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * count
    )
    return tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(count)])
