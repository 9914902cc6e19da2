"""Which devices a run uses, or will use."""

import contextlib

import tensorflow as tf


def has_remote_hosts(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether hosts that run no Python of ours read data: those of a TPU that is reached by name."""
    return isinstance(strategy, tf.distribute.TPUStrategy) and bool(strategy.cluster_resolver.master())


def devices(strategy: tf.distribute.Strategy) -> list[str]:
    """Returns the names of a strategy's devices."""
    with contextlib.suppress(RuntimeError):  # the default strategy does not say which device it uses
        return [*strategy.extended.worker_devices]
    return [(tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU"))[0].name]


def describe(strategy: tf.distribute.Strategy) -> str:
    """Returns a line that says how many replicas a run has, and on what."""
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
    *chips, cores = topology.mesh_shape  # of chips x, y and z; of cores in each
    hosts, of_host = topology.num_tasks, topology.num_tpus_per_task
    rows = {
        "chips": (" x ".join(map(str, chips)), "x, y and z"),
        "devices": (hosts * of_host, f"{cores} in each chip"),
        "hosts": (hosts, f"{of_host} devices each; each reads its own rows"),
    }
    lines = [f"TPU {name}"]
    lines += [f"{row:>10}  {value!s:>9}  {text}" for row, (value, text) in rows.items()]
    return "\n".join(lines)
