"""Which devices a run uses, or will use."""

import dataclasses

import tensorflow as tf

from xlnet_tf.errors import UserError

# Generation: (numbers in a slice's name for each chip, replicas of a chip, chips of a host in a larger slice,
# chips of the largest slice on one host). The two cores of a v4 or v5p chip work as one.
_GENERATIONS = {
    "v2": (2, 2, 4, 4),
    "v3": (2, 2, 4, 4),
    "v4": (2, 1, 4, 4),
    "v5p": (2, 1, 4, 4),
    "v5e": (1, 1, 4, 8),
    "v6e": (1, 1, 4, 8),
}


@dataclasses.dataclass(frozen=True)
class TpuSlice:
    """A TPU that one can rent.

    Attributes:
        name: as the cloud calls it, v3-32.
        generation: v2, v3, v4, v5e, v5p or v6e.
        chips: its chips.
        replicas: of a training on it.
        hosts: machines that the chips are attached to; each reads its own rows.
    """

    name: str
    generation: str
    chips: int
    replicas: int
    hosts: int

    @classmethod
    def named(cls, name: str) -> "TpuSlice":
        """Returns the slice of a name: generation, dash, size.

        Raises:
            UserError: there is none of this name.
        """
        generation, _, size = name.replace("v5litepod", "v5e").partition("-")
        per_chip, replicas, host_chips, one_host = _GENERATIONS.get(generation, (1, 1, 1, 1))
        if generation not in _GENERATIONS or not size.isdecimal() or not int(size) or int(size) % per_chip:
            raise UserError(
                f"topology is {name!r}: expected a kind of TPU ({', '.join(_GENERATIONS)}) and its size as "
                "the cloud counts it, cores (v2, v3, v4, v5p) or chips (v5e, v6e): v3-8, v4-32, v5e-16"
            )
        chips = int(size) // per_chip
        hosts = 1 if chips <= one_host else -(-chips // host_chips)
        return cls(name, generation, chips, chips * replicas, hosts)


def has_remote_hosts(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether hosts that run no Python of ours read data: those of a TPU that is reached by name."""
    return isinstance(strategy, tf.distribute.TPUStrategy) and bool(strategy.cluster_resolver.master())


def describe(strategy: tf.distribute.Strategy) -> str:
    """Returns a line that says how many replicas a run has, and on what."""
    replicas = strategy.num_replicas_in_sync
    if isinstance(strategy, tf.distribute.TPUStrategy):
        where = f"the TPU {strategy.cluster_resolver.master() or 'of this machine'}"
    elif isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        hosts = strategy.cluster_resolver.cluster_spec().as_dict()["worker"]
        where = f"{len(hosts)} hosts: {', '.join(hosts)}"
    else:
        # Outside of any strategy TensorFlow chooses, and the default strategy does not say.
        chosen = isinstance(strategy, (tf.distribute.OneDeviceStrategy, tf.distribute.MirroredStrategy))
        gpus = tf.config.list_logical_devices("GPU")
        default = [(gpus or tf.config.list_logical_devices("CPU"))[0].name]
        devices = strategy.extended.worker_devices if chosen else default
        specs = map(tf.DeviceSpec.from_string, devices)
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
