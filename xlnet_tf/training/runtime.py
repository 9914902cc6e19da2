"""The machine a run uses: its devices, their names, and the number type."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator

import tensorflow as tf
import tf_keras
from official.common import distribute_utils

from xlnet_tf.errors import UserError
from xlnet_tf.layers.base import policy_restored
from xlnet_tf.training.config import RuntimeConfig

STRATEGIES = ("off", "one_device", "mirrored", "multi_worker_mirrored", "tpu")
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def prepare(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    """Sets up devices and number type. Call it once, before TensorFlow has done anything."""
    _set_policy(runtime.mixed_precision_dtype)
    handler = signal.getsignal(signal.SIGTERM)
    strategy = _strategy(runtime)
    if runtime.distribution_strategy == "multi_worker_mirrored" and handler is not None:
        signal.signal(signal.SIGTERM, handler)  # replaces TensorFlow's handler, which only records the signal
    if all("CPU" in device for device in devices(strategy)):
        # Rewriting the graph of a step takes seconds, and makes no step on a CPU faster.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    if runtime.deterministic:
        tf.config.experimental.enable_op_determinism()
    return strategy


@contextlib.contextmanager
def number_type(dtype: str) -> Iterator[None]:
    """Sets the type in which layers created inside the block compute, and restores the former one."""
    with policy_restored():
        _set_policy(dtype)
        yield


@contextlib.contextmanager
def weights_in_compute_type() -> Iterator[None]:
    """Has layers created inside the block hold their weights as they compute with them: for predictions.

    The answers are the same to the bit, and no step casts the weights again.
    """
    with policy_restored():
        tf_keras.mixed_precision.set_global_policy(tf_keras.mixed_precision.global_policy().compute_dtype)
        yield


def _set_policy(dtype: str):
    if dtype not in POLICIES:
        raise UserError(f"dtype is {dtype!r}: expected one of {', '.join(POLICIES)}")
    tf_keras.mixed_precision.set_global_policy(POLICIES[dtype])


def _strategy(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    name = runtime.distribution_strategy
    if name not in STRATEGIES:
        raise UserError(f"strategy is {name!r}: expected one of {', '.join(STRATEGIES)}")
    if name == "tpu" and not runtime.tpu:
        raise UserError("strategy is tpu, but no TPU is named: add --tpu=NAME, or --tpu=local on a TPU VM")
    if runtime.virtual_devices:
        return _virtual_devices(name, runtime.virtual_devices)
    if name == "tpu":
        return _tpu(runtime.tpu)
    if name == "multi_worker_mirrored":
        hosts = check_tf_config(os.environ.get("TF_CONFIG", ""))
        # TensorFlow waits for all of them, without a limit.
        print(f"waiting for {len(hosts)} hosts: {', '.join(hosts)}", file=sys.stderr)
    visible = len(tf.config.list_physical_devices("GPU"))
    num_gpus = visible if runtime.num_gpus < 0 else runtime.num_gpus
    if num_gpus > visible:
        raise UserError(f"num_gpus is {num_gpus}, but {visible} GPUs are visible")
    if name in ("off", "one_device"):
        num_gpus = min(num_gpus, 1)
        if not visible:
            # OneDeviceStrategy reads ahead with iterators of its own, which tf.data tunes; the end of one
            # waits up to a minute for the tuning thread (see records/reader.py).
            name = "off"
        elif not num_gpus:
            name = "one_device"  # the default strategy would take a GPU
    return distribute_utils.get_distribution_strategy(
        distribution_strategy=name,
        num_gpus=num_gpus,
        all_reduce_alg=runtime.all_reduce_alg,
        num_packs=runtime.num_packs,
    )


def _tpu(address: str) -> tf.distribute.TPUStrategy:
    """Connects to a TPU ("local", a name, or grpc://HOST:8470), starts it, and prints its parts."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
        if address != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        reason = str(getattr(error, "message", error)).strip().splitlines()[0]
        raise UserError(
            f"no TPU at --tpu={address} ({reason}). --tpu=local needs a TPU VM with tensorflow-tpu and "
            "libtpu, a name needs a TPU of this project and zone (see BUILD.md); --dry_run checks a run "
            "without one"
        ) from error
    print(tpu_table(address, topology), file=sys.stderr)
    return tf.distribute.TPUStrategy(resolver, experimental_device_assignment=_assignment(resolver, topology))


def _assignment(resolver, topology) -> tf.tpu.experimental.DeviceAssignment | None:
    """Returns which replica gets which device, for newer TPUs (second embedding hardware); else None."""
    feature = tf.tpu.experimental.HardwareFeature
    if feature(resolver.tpu_hardware_feature).embedding_feature != feature.EmbeddingFeature.V2:
        return None
    replicas = resolver.get_tpu_system_metadata().num_cores
    return tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=replicas)


def check_tf_config(text: str) -> list[str]:
    """Checks TF_CONFIG, the environment variable that lists the hosts of a run; returns the hosts."""
    example = (
        '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}, with '
        "another index on each host"
    )
    try:
        config = json.loads(text)
        workers, task = config["cluster"]["worker"], config["task"]
        kind, index = task["type"], task["index"]
    except (ValueError, KeyError, TypeError):
        problem = f"is {text!r}" if text else "is not set"
        raise UserError(
            f"strategy is multi_worker_mirrored, but TF_CONFIG {problem}: expected {example}"
        ) from None
    if kind != "worker" or type(index) is not int or not 0 <= index < len(workers):
        raise UserError(
            f"TF_CONFIG names the task {kind!r} {index!r} of {len(workers)} workers: expected {example}"
        )
    wrong = [host for host in workers if not str(host).rpartition(":")[2].isdecimal()]
    if wrong or len(set(workers)) != len(workers):
        raise UserError(f"TF_CONFIG lists the workers {workers}: expected different ones, each as HOST:PORT")
    return workers


def _virtual_devices(name: str, count: int) -> tf.distribute.Strategy:
    if name != "mirrored":
        raise UserError(f"virtual_devices is {count}, but strategy is {name}: virtual devices need mirrored")
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * count
    )
    return tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(count)])


def has_remote_hosts(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether hosts that do not run our Python read data: those of a TPU that is reached by name."""
    return isinstance(strategy, tf.distribute.TPUStrategy) and bool(strategy.cluster_resolver.master())


def devices(strategy: tf.distribute.Strategy) -> list[str]:
    with contextlib.suppress(RuntimeError):  # the default strategy does not say which device it uses
        return [*strategy.extended.worker_devices]
    return [(tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU"))[0].name]


def describe(strategy: tf.distribute.Strategy) -> str:
    """Returns a line with the number of replicas and the devices of a run."""
    replicas = strategy.num_replicas_in_sync
    if isinstance(strategy, tf.distribute.TPUStrategy):
        where = f"the TPU {strategy.cluster_resolver.master() or 'of this machine'}"
    elif isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        hosts = strategy.cluster_resolver.cluster_spec().as_dict()["worker"]
        where = f"{len(hosts)} hosts: {', '.join(hosts)}"
    else:
        specs = map(tf.DeviceSpec.from_string, devices(strategy))
        where = ", ".join(f"{spec.device_type}:{spec.device_index}" for spec in specs)
    return f"{replicas} {'replica' if replicas == 1 else 'replicas'} on {where}"


def tpu_table(name: str, topology: tf.tpu.experimental.Topology) -> str:
    """Returns a table of a TPU's chips, devices and hosts."""
    *chips, cores = topology.mesh_shape  # chips in x, y and z; cores per chip
    hosts, of_host = topology.num_tasks, topology.num_tpus_per_task
    rows = {
        "chips": (" x ".join(map(str, chips)), "x, y and z"),
        "devices": (hosts * of_host, f"{cores} in each chip"),
        "hosts": (hosts, f"{of_host} devices each; each reads its own rows"),
    }
    lines = [f"TPU {name}"]
    lines += [f"{row:>10}  {value!s:>9}  {text}" for row, (value, text) in rows.items()]
    return "\n".join(lines)
