"""The benchmark's figures as a table for a person."""

from collections.abc import Iterator, Mapping
from typing import Any

from run_scripts.benchmark import data, engines, timing
from run_scripts.benchmark.step import GOALS

LEAST_SHARE = 0.01  # of a step's operations, for a line of its own

Section = tuple[str, Mapping[str, str]]  # its title, and name -> figures


def table(report: Mapping[str, Any]) -> str:
    """Returns a report for a person."""
    lines = [timing.heading(report["machine"])]
    for name, sections in _SECTIONS.items():
        for title, values in sections(report[name]) if name in report else ():
            lines.extend(["", title, *(f"  {what:<30} {value}" for what, value in values.items())])
    return "\n".join(lines)


def _builder(part: Mapping[str, Any]) -> Iterator[Section]:
    speeds = {
        name: f"{part[name]['bytes_per_second'] / 1e6:8.2f} MB/s of text, "
        f"{part[name]['bytes_per_cpu_second'] / 1e6:.2f} MB per CPU second"
        for name in ("builder", "sentencepiece")
    }
    yield (
        f"Builder, one process, {part['text_bytes'] / 1e6:.1f} MB",
        {
            **speeds,
            "time / sentencepiece": f"{part['ratio']:8.2f}",
            "stages": ", ".join(f"{stage} {share:.0%}" for stage, share in part["stage_shares"].items()),
            "original, one core": f"{data.ORIGINAL_BYTES_PER_SECOND / 1e6:8.2f} MB/s of text "
            "on the machine of the project's goals",
        },
    )


def _workers(part: Mapping[str, Any]) -> Iterator[Section]:
    rates = {
        f"{number} worker{'s' * (number > 1)}": f"{rate / 1e6:8.2f} MB/s of text"
        for number, rate in part["bytes_per_second"].items()
    }
    yield (
        f"Builder, {part['text_bytes'] / 1e6:.0f} MB",
        {
            **rates,
            "a worker's peak memory": f"{part['worker_peak_bytes'] / 1e6:8.0f} MB",
            "CPU next to the workers'": f"{part['coordinator_share']:8.1%}",
        },
    )


def _engines(part: Mapping[str, Any]) -> Iterator[Section]:
    texts = f"{part['rows']:,} texts of {part['row_bytes']:.0f} bytes"
    for what, title, unit, scale, more in (
        ("builder", f"Builder, {part['text_bytes'] / 1e6:.1f} MB", "MB", 1e6, "--text_mb"),
        ("embed", f"Embeddings, {texts}", "texts", 1, "--rows"),
    ):
        yield (
            f"{title}, and {engines.LARGER} times as much",
            {
                f"{one['engine']}, {one['workers']} workers": "; ".join(_rates(one, unit, scale, more))
                for one in part[what]
            },
        )


def _rates(one: Mapping[str, Any], unit: str, scale: float, more: str) -> Iterator[str]:
    """Yields rate and start of an engine, by the clock and of CPU seconds."""
    for of, second in (("", "s"), ("cpu_", "CPU s")):
        rate, start = one[f"{of}rate"], one[f"{of}start"]
        if rate is None:
            yield f"hidden by the start: give more {more}"
        else:
            yield f"{rate / scale:8.2f} {unit}/{second}, {start:.1f} {second} to start"


def _reader(part: Mapping[str, Any]) -> Iterator[Section]:
    yield (
        f"Reader, {part['rows']} rows of {part['seq_len']} tokens and {part['num_predict']} targets",
        {
            "examples/s": f"{part['examples_per_second']:8,.0f}",
            "bytes per example": f"{part['bytes_per_example']:8,.0f} to the device, "
            f"{part['record_bytes']:,} on disk",
        },
    )


def _gemm(part: Mapping[str, Any]) -> Iterator[Section]:
    for dtype, rates in part.items():
        sizes = {f"{size} x {size}": f"{rate / 1e9:8.1f} GFLOP/s" for size, rate in rates["by_size"].items()}
        yield f"Matrix products, {dtype}", sizes


def _step(part: Mapping[str, Any]) -> Iterator[Section]:
    config = part["config"]
    times = {
        f"{who}, {mode}": f"{seconds:8.3f} s, {part['gemm_fraction'][who][mode]:.0%} of the gemm rate"
        for who, modes in part["seconds"].items()
        for mode, seconds in modes.items()
    }
    planned = {f"temporaries, {mode}": f"{size / 1e9:8.3f} GB" for mode, size in part["temporaries"].items()}
    reached = {
        name: f"{value:8.2f} (goal: at most {GOALS[name]:.2f})" for name, value in part["ratios"].items()
    }
    yield (
        f"Pretraining step, {config['n_layer']} layers of {config['d_model']}, batch {part['batch_size']}, "
        f"{part['seq_len']} tokens, {part['num_predict']} targets: {part['flops'] / 1e9:,.1f} GFLOP",
        times | planned | reached,
    )


def _profile(part: Mapping[str, Any]) -> Iterator[Section]:
    for mode, profile in part.items():
        parts = {
            name: f"{both['forward']:8.1%} forward, {both['backward']:6.1%} backward"
            for name, both in profile["parts"].items()
        }
        kinds = {kind: share for kind, share in profile["operations"].items() if share >= LEAST_SHARE}
        yield f"Profile of a step, {mode}, by part: {profile['busy']:.3f} s of operations", parts
        yield (
            f"Profile of a step, {mode}, by operation: {profile['products']:.0%} are matrix products",
            {name: f"{share:8.1%}" for name, share in (kinds | {"others": 1 - sum(kinds.values())}).items()},
        )


def _checkpoint(part: Mapping[str, Any]) -> Iterator[Section]:
    yield (
        f"Checkpoint of {part['bytes'] / 1e9:.2f} GB and {part['steps']} steps",
        {
            name: f"{part[name]['pause']:8.3f} s to the first step, {part[name]['seconds']:.3f} s in all"
            for name in ("none", "waiting", "background")
        },
    )


_SECTIONS = {
    "builder": _builder,
    "workers": _workers,
    "engines": _engines,
    "reader": _reader,
    "gemm": _gemm,
    "step": _step,
    "profile": _profile,
    "checkpoint": _checkpoint,
}
