"""The TPUs that programs can be compiled for."""

import dataclasses
from collections.abc import Mapping

from xlnet_tf.errors import UserError

_GIB = 1 << 30


@dataclasses.dataclass(frozen=True)
class Topology:
    """A kind of TPU: one host's slice of it. Programs are compiled for one of its cores."""

    name: str
    slice_name: str
    hbm_bytes: int  # memory of a core that the compiler gives to a program, less than all of it
    peak_flops: float  # bfloat16 operations of a core per second
    peak_bytes: float  # bytes that a core moves per second
    # Further settings of the slice for the compiler.
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    note: str = ""

    def seconds_at_peak(self, flops: float, accessed: float) -> float:
        """Estimates the time of a program that computes and moves data in turn, each at the peak rate.

        For a pretraining step of two layers it is 1.23 times the compiler's own estimate for v3, 1.03 times
        for v5p (libtpu 0.0.42.1).
        """
        return flops / self.peak_flops + accessed / self.peak_bytes


# The bytes of memory are those of the compiler's own "exceeds available HBM" (libtpu 0.0.42.1). The rates are
# those of a chip, divided by its devices, from Google's page on each kind (docs.cloud.google.com/tpu/docs/v4
# and the like, read 2026-11-28). The two cores of a chip work as one in v4 and v5p; tpu7x has two devices.
# v2's were not read there: they are a little more than the compiler itself counts for a large product and a
# large sum (22.8e12 and 317e9 of a core), as v3's are (61.4e12 and 429e9).
TOPOLOGIES: Mapping[str, Topology] = {
    topology.name: topology
    for topology in (
        Topology("v2", "v2:2x2", int(7.48 * _GIB), 46e12 / 2, 700e9 / 2),
        Topology("v3", "v3:2x2", int(15.48 * _GIB), 123e12 / 2, 900e9 / 2),
        Topology("v4", "v4:2x2x1", int(30.75 * _GIB), 275e12, 1200e9, {"chip_config_name": "megacore"}),
        Topology("v5e", "v5e:2x2", int(15.75 * _GIB), 197e12, 819e9),
        Topology("v5p", "v5p:2x2x1", int(95.74 * _GIB), 459e12, 2765e9),
        Topology("v6e", "v6e:2x2", int(31.25 * _GIB), 918e12, 1638e9),
        Topology(
            "tpu7x",
            "tpu7x:2x2x1",
            int(94.75 * _GIB),
            2307e12 / 2,
            7380e9 / 2,
            note="tpu7x: Google says that TensorFlow is not supported there, so that these figures are for "
            "comparison only (https://docs.cloud.google.com/tpu/docs/tpu7x).",
        ),
    )
}


def find(name: str) -> Topology:
    if name not in TOPOLOGIES:
        raise UserError(f"topology is {name!r}: expected one of {', '.join(TOPOLOGIES)}")
    return TOPOLOGIES[name]
