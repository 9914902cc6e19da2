"""Runs the TPU's compiler on a program, without a TPU, and reads its results."""

import dataclasses
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from xlnet_tf.errors import UserError, install_command
from xlnet_tf.tpu import compiler
from xlnet_tf.tpu.topologies import Topology

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_ERROR_CHARACTERS = 2000


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A program that compiles for a topology; sizes are bytes in HBM, flops the compiler's count."""

    arguments: int
    outputs: int
    aliased: int  # of the outputs, those that reuse a parameter's memory
    temporaries: int
    code: int
    flops: float
    bytes_accessed: float
    estimated_seconds: float  # at peak rates, if is_at_peak
    compile_seconds: float
    is_at_peak: bool = False

    @property
    def hbm(self) -> int:
        return self.arguments + self.outputs - self.aliased + self.temporaries + self.code


@dataclasses.dataclass(frozen=True)
class Planned:
    """A program whose memory plan fits a topology; no code was generated.

    `hbm` is the memory of its arrays; that of the code is known only after generating it (one layer of Base
    for v3: 0.83 GB of arrays, 1.03 in all).
    """

    hbm: int


@dataclasses.dataclass(frozen=True)
class NotCompiled:
    """A program that does not compile for a topology, or was missing, why, and its parameters' bytes."""

    error: str
    arguments: int = 0

    @property
    def out_of_memory(self) -> bool:
        """Whether the program is too large, rather than wrong."""
        return "Ran out of memory" in self.error or "RESOURCE_EXHAUSTED" in self.error

    @property
    def hbm(self) -> int:
        """Approximate bytes of HBM that the program would take; 0 if the compiler does not say."""
        match = re.search(r"HLO temporaries \(([\d.]+)G\)", self.error)
        return self.arguments + int(float(match[1]) * 2**30) if match else 0


Outcome = Compiled | Planned | NotCompiled


def check_installed() -> None:
    """Raises UserError if the compiler is missing, before time is spent on tracing a program."""
    for name in ("libtpu", "jax"):
        if not importlib.util.find_spec(name):
            raise _unavailable(f"No module named {name!r}")


def too_large(memory: int, rows: int, topology: Topology) -> NotCompiled | None:
    """Returns an error if the memory of a step's rows alone exceeds a core's memory; else None.

    Such a step is not even traced, as tracing takes as much memory of this machine.
    """
    if memory <= topology.hbm_bytes:
        return None
    gigabytes, room = (f"{size / 1e9:.2f} GB" for size in (memory, topology.hbm_bytes))
    return NotCompiled(
        f"RESOURCE_EXHAUSTED: the memory of {rows:,} rows alone takes {gigabytes} of the {room} of a core. "
        "Give fewer rows, or a smaller memory_len",
        memory,
    )


def compile_program(hlo: bytes, topology: Topology, memory_only: bool = False) -> Outcome:
    """Compiles a program for one core of a TPU; memory_only skips generating code, the longest part."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "program.hlo"
        path.write_bytes(hlo)
        reports = pathlib.Path(folder) / "reports"
        reports.mkdir()
        arguments = [str(path), topology.slice_name, json.dumps(dict(topology.options))]
        done = subprocess.run(
            [sys.executable, "-m", compiler.__name__, *arguments, *[str(reports)] * memory_only],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            errors="replace",
        )
    if done.returncode or not done.stdout.strip():
        # libtpu ends its process where a program breaks a rule of its own.
        ending = done.stderr[-_ERROR_CHARACTERS:]
        return NotCompiled(f"the compiler ended with code {done.returncode}:\n{ending}")
    return read_result(json.loads(done.stdout.splitlines()[-1]), topology)


def _unavailable(why: str) -> UserError:
    return UserError(
        f"the TPU's compiler is not here, or not in the release expected ({why}): install it with "
        f"`{install_command('tpu-compile')}`"
    )


def read_result(result: dict, topology: Topology) -> Outcome:
    """Parses the output of the compiler's process."""
    if "unavailable" in result:
        raise _unavailable(result["unavailable"])
    if "error" in result:
        return NotCompiled(result["error"].strip()[:_ERROR_CHARACTERS], result.get("arguments", 0))
    if "planned" in result:
        return Planned(result["planned"])
    flops, accessed, seconds = (result["cost"][name] for name in ("flops", "bytes_accessed", "seconds"))
    is_at_peak = seconds <= flops / topology.peak_flops  # no program is as fast
    return Compiled(
        **result["memory"],
        flops=flops,
        bytes_accessed=accessed,
        estimated_seconds=topology.seconds_at_peak(flops, accessed) if is_at_peak else seconds,
        compile_seconds=result["seconds"],
        is_at_peak=is_at_peak,
    )
