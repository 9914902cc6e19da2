"""Shared by the benchmarks: timing in turn, the machine, our model, flags, and the report."""

import collections
import dataclasses
import datetime
import itertools
import os
import pathlib
import platform
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xlnet_tf import files
from xlnet_tf.config import PRESETS, Recompute, XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.spans import default_num_predict

DEMO_TEXT = "runs/demo/corpus/train.txt"
DEMO_TOKENIZER = "runs/demo/tokenizer/spiece.model"
WARM_UP = 1
# What /proc/cpuinfo calls the instructions that multiply bfloat16 numbers.
BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")


@dataclasses.dataclass(frozen=True)
class Timing:
    """The seconds of the repetitions: medians, of wall time and of all threads' CPU time, and the minimum."""

    wall: float
    cpu: float
    fastest: float


def interleave(candidates: Mapping[str, Callable[[], Any]], repeats: int, title: str) -> dict[str, Timing]:
    """Times candidates in turn: a, b, a, b, ...; the first round is not counted."""
    walls, cpus = collections.defaultdict(list), collections.defaultdict(list)
    with ProgressBar(total=(WARM_UP + repeats) * len(candidates), desc=title) as bar:
        for number in range(-WARM_UP, repeats):
            for name, candidate in candidates.items():
                bar.set_postfix_str(name)
                wall, cpu = time.perf_counter(), time.process_time()
                candidate()
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                if number >= 0:
                    walls[name].append(wall)
                    cpus[name].append(cpu)
                bar.update()
    return {
        name: Timing(statistics.median(walls[name]), statistics.median(cpus[name]), min(walls[name]))
        for name in candidates
    }


def cpu_seconds_of_children() -> float:
    """Returns the CPU seconds of this process's ended children."""
    # Not os.times(), which counts in hundredths: a short build's workers take few of them.
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def machine() -> dict[str, Any]:
    """Returns the labels of the figures: date, processor and its bfloat16 instructions, cores, TensorFlow."""
    from importlib import metadata

    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    features = {word for line in lines if line.startswith(("flags", "Features")) for word in line.split()}
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "bfloat16": [name for name in BFLOAT16_INSTRUCTIONS if name in features],
        "cores": len(os.sched_getaffinity(0)),
        "tensorflow": metadata.version("tensorflow"),
    }


def table(report: Mapping[str, Any]) -> str:
    """Returns the machine, then each title with its rows: column -> value, the first column names the row."""
    where = report["machine"]
    lines = [
        f"{where['date']}, {where['cpu']} ({', '.join(where['bfloat16']) or 'no bfloat16 instructions'}), "
        f"{where['cores']} cores, TensorFlow {where['tensorflow']}"
    ]
    for title, rows in report.items():
        if title != "machine":
            lines += ["", title, *_columns(rows)]
    return "\n".join(lines)


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    cells = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return [
        "  ".join([first.ljust(widths[0]), *(cell.rjust(n) for cell, n in zip(others, widths[1:]))]).rstrip()
        for first, *others in cells
    ]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def our_model(
    config: XLNetConfig,
    dropout: float = 0.1,
    *,
    bfloat16: bool = False,
    recompute: Recompute = False,
    seed: int = 0,
):
    """Creates our pretrainer; equal seeds give equal initial weights."""
    import tf_keras

    from xlnet_tf.models.encoder import XLNetEncoder
    from xlnet_tf.models.pretrainer import XLNetPretrainer
    from xlnet_tf.training.runtime import number_type

    tf_keras.utils.set_random_seed(seed)
    with number_type("bfloat16" if bfloat16 else "float32"):
        body = XLNetEncoder(config, dropout=dropout, attention_dropout=dropout, recompute=recompute)
        model = XLNetPretrainer(body)
        model.build()
    return model


def existing(path: str | None, default: str, flag: str) -> str:
    """Returns a flag's path or its default."""
    if not os.path.exists(path or default):
        raise UserError(
            f"{path or default} does not exist: give --{flag} a file of yours, or run `make demo`, which "
            "makes a text and a tokenizer to measure with"
        )
    return path or default


def check_known(flag: str, words: Sequence[str] | None, known: Sequence[str]) -> None:
    """Refuses other words than the known ones in a flag's list."""
    if unknown := sorted(set(words or ()) - set(known)):
        raise UserError(f"--{flag} has {', '.join(unknown)}: expected some of {', '.join(known)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The size of the model."""

    preset: str = option("size of the model", "base", choices=list(PRESETS))
    layers: int | None = option("layers of the model. Default: the preset's", None, least=1)

    @property
    def config(self) -> XLNetConfig:
        return XLNetConfig.preset(self.preset, **{} if self.layers is None else {"n_layer": self.layers})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeerOptions(ModelOptions):
    """What all benchmarks take that measure peers."""

    peer_python: str | None = option("a Python with torch and transformers. Default: not measured", None)
    output: str | None = option("json file for the figures", None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkOptions(PeerOptions):
    """What those take that measure time."""

    repeats: int = option("repetitions; figures are their medians", 5, least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SegmentOptions:
    """The size of a segment of text."""

    seq_len: int = option("tokens of a segment", 512, least=7)
    num_predict: int | None = option("targets of a segment. Default: seq_len / 6", None, least=1)

    @property
    def targets(self) -> int:
        return self.num_predict or default_num_predict(self.seq_len)


def publish(figures: Mapping[str, Any], output: str | None) -> None:
    """Prints figures with their machine, and writes them as json if there is a path for it."""
    report = {"machine": machine(), **figures}
    print(table(report))
    if output:
        files.make_folder(pathlib.Path(output).parent)
        files.write_json(output, report)
        print(f"\n{output}")
