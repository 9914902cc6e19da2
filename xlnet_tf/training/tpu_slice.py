"""The TPUs that one can rent, by name; without TensorFlow, for commands that only plan."""

import dataclasses

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
    """A TPU that one can rent, by the cloud's name, such as v3-32; each of its hosts reads its own rows."""

    name: str
    generation: str
    chips: int
    replicas: int
    hosts: int

    @classmethod
    def named(cls, name: str) -> "TpuSlice":
        """Parses the name of a slice: generation, dash, size."""
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
