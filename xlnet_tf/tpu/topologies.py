"""The TPUs that programs can be compiled for."""

import dataclasses
from collections.abc import Mapping

from xlnet_tf.errors import UserError

_GIB = 1 << 30


@dataclasses.dataclass(frozen=True)
class Topology:
    """A kind of TPU: one host's slice of it. Programs are compiled for one of its cores.

    Args:
        name: as people call it.
        slice_name: as the compiler calls the slice.
        hbm_bytes: memory of a core that the compiler lets a program use; it keeps a part for itself.
        options: what else the compiler must know of the slice.
    """

    name: str
    slice_name: str
    hbm_bytes: int
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)


# The bytes are those of the compiler's own "exceeds available HBM" (libtpu 0.0.42.1). The two cores of a
# chip work as one in v4 and v5p.
TOPOLOGIES: Mapping[str, Topology] = {
    topology.name: topology
    for topology in (
        Topology("v2", "v2:2x2", int(7.48 * _GIB)),
        Topology("v3", "v3:2x2", int(15.48 * _GIB)),
        Topology("v4", "v4:2x2x1", int(30.75 * _GIB), {"chip_config_name": "megacore"}),
        Topology("v5e", "v5e:2x2", int(15.75 * _GIB)),
        Topology("v5p", "v5p:2x2x1", int(95.74 * _GIB)),
        Topology("v6e", "v6e:2x2", int(31.25 * _GIB)),
    )
}


def find(name: str) -> Topology:
    """Returns the topology of this name.

    Raises:
        UserError: there is none.
    """
    if name not in TOPOLOGIES:
        raise UserError(f"topology is {name!r}: expected one of {', '.join(TOPOLOGIES)}")
    return TOPOLOGIES[name]
