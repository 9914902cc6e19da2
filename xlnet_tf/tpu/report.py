"""Reports the results of compiling, as a table and as json."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from xlnet_tf.tpu.compilation import Compiled, NotCompiled, Outcome, Planned
from xlnet_tf.tpu.topologies import Topology

_HEADER = ("topology", "batch", "HBM", "filled", "arguments", "temporaries", "outputs", "aliased", "TFLOP",
           "accessed", "estimate")  # fmt: skip
_LOOPS = (
    "{} loop(s) of the program multiply matrices. Flops, bytes and estimate count the body of a loop once, "
    "however often it runs."
)
_ESTIMATE = (
    "Sizes are the compiler's plan for one core; accessed bytes and flops its count; the time its estimate, "
    "of the computation alone, no measurement."
)
_AT_PEAK = (
    "~: the compiler gave no time that makes sense; the estimate is that of all operations and then all "
    "bytes at the chip's peak rates. Real steps take longer."
)


@dataclasses.dataclass(frozen=True)
class CompiledBatch:
    """A compiled program."""

    topology: Topology
    batch_per_core: int
    outcome: Outcome
    largest: bool = False  # whether it is the largest batch that fits, as found by a search
    ends_search: bool = False  # whether a search ended with it without finding a largest batch
    length: int | None = None  # the length that its rows are cut to; None: they are whole

    def to_dict(self) -> dict[str, Any]:
        """Returns the row for json; sizes in bytes."""
        values = {
            "topology": self.topology.name,
            "batch_per_core": self.batch_per_core,
            **({"length": self.length} if self.length else {}),
            "hbm_bytes_of_core": self.topology.hbm_bytes,
            # Unknown if only the memory was planned.
            **({} if isinstance(self.outcome, Planned) else {"compiles": isinstance(self.outcome, Compiled)}),
            **dataclasses.asdict(self.outcome),
        }
        if not isinstance(self.outcome, NotCompiled):
            values |= {"hbm": self.outcome.hbm, "hbm_filled": self.outcome.hbm / self.topology.hbm_bytes}
        return values | {name: True for name in ("largest", "ends_search") if getattr(self, name)}


def table(rows: Sequence[CompiledBatch], loops: int) -> str:
    cells = [_HEADER, *(_cells(row) for row in rows if not isinstance(row.outcome, NotCompiled))]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADER))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in cells]
    for row in rows:
        if isinstance(row.outcome, NotCompiled):
            reason = "is too large" if row.outcome.out_of_memory else "does not compile"
            ending = ", which ends the search for the largest batch without an answer" * row.ends_search
            lines += [f"{row.topology.name}, batch {row.batch_per_core} {reason}{ending}:"]
            lines += [f"    {line}" for line in row.outcome.error.splitlines()[:12]]
    at_peak = any(getattr(row.outcome, "is_at_peak", False) for row in rows)
    notes = filter(None, dict.fromkeys(row.topology.note for row in rows))
    lines += [_ESTIMATE, *[_AT_PEAK] * at_peak, *[_LOOPS.format(loops)] * bool(loops), *notes]
    return "\n".join(lines)


def _cells(row: CompiledBatch) -> tuple[str, ...]:
    outcome = row.outcome
    memory = (
        row.topology.name,
        f"{row.batch_per_core}{f' x {row.length}' if row.length else ''}{' (largest)' * row.largest}",
        gigabytes(outcome.hbm),
        f"{outcome.hbm / row.topology.hbm_bytes:.0%}",
    )
    if isinstance(outcome, Planned):
        return (*memory, *["-"] * (len(_HEADER) - len(memory)))
    return (
        *memory,
        gigabytes(outcome.arguments),
        gigabytes(outcome.temporaries),
        gigabytes(outcome.outputs),
        gigabytes(outcome.aliased),
        f"{outcome.flops / 1e12:.3f}",
        gigabytes(outcome.bytes_accessed),
        f"{'~' * outcome.is_at_peak}{outcome.estimated_seconds:.4f} s",
    )


def gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB"
