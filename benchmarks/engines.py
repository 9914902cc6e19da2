"""Measures builder and embeddings on each engine that distributes their jobs to workers."""

import contextlib
import dataclasses
import importlib.util
import itertools
import logging
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.harness import cpu_seconds_of_children, our_model
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.text.tokenizer import XLNetTokenizer

ENGINES = {"local": (), "beam": ("apache_beam",), "dask": ("apache_beam", "dask", "distributed")}
JOBS = 4  # of the smaller run, for each worker of the largest number
LARGER = 3  # times the text of the smaller run, and times its jobs


def measure_engines(
    text: pathlib.Path,
    tokenizer: str,
    config: XLNetConfig,
    *,
    engines: Sequence[str],
    workers: Sequence[int],
    rows: int,
    seq_len: int,
    num_predict: int,
) -> dict[str, Any]:
    """Measures the commands that build records and embed texts, on each engine with each number of workers.

    Each command runs twice, with some text and with `LARGER` times as much. The difference gives the rate of
    running workers; the rest is the start. CPU seconds, of all processes together, are the cost; unlike
    seconds, they change little when the machine has other work.

    Returns:
        A table for the builder and one for the embeddings: rate (MB of text or rows per second) and start in
        seconds, and both in CPU seconds. None if the larger run took no longer: give more text or rows.
    """
    for engine in engines:
        if missing := [name for name in ENGINES[engine] if not importlib.util.find_spec(name)]:
            raise UserError(f"the engine {engine} needs {', '.join(missing)}: install it or change --engines")
    lines = [line for line in text.read_text().splitlines() if line.strip()]
    if len(lines) < rows:
        raise UserError(f"the text has {len(lines):,} lines, expected at least --rows={rows:,}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        few = folder / "rows.txt"
        few.write_text("\n".join(lines[:rows]) + "\n")
        pieces = XLNetTokenizer(tokenizer)
        config = dataclasses.replace(config, n_token=pieces.vocab_size)
        our_model(config).save_pretrained(folder / "model", pieces)

        most = max(workers)
        build = (
            "tfrecord_builders.pretraining", f"--tokenizer={tokenizer}", f"--seq_len={seq_len}",
            f"--num_predict={num_predict}", f"--slice_mb={_job_mb(text, most)}", "--input",
        )  # fmt: skip
        embed = (
            "run_scripts.embed", f"--model_dir={folder / 'model'}", "--batch_size=32",
            f"--shard_mb={_job_mb(few, most)}", "--data",
        )  # fmt: skip
        text_bytes = text.stat().st_size
        works = {
            f"Builder, MB of text ({text_bytes / 1e6:.1f})": (build, text, text_bytes / 1e6),
            f"Embeddings, texts ({rows} of {few.stat().st_size / rows:.0f} bytes)": (embed, few, rows),
        }
        works = {f"{what}, and {LARGER} times as much": work for what, work in works.items()}
        tables: dict[str, list] = {what: [] for what in works}
        todo = list(itertools.product(works, engines, workers))
        with ProgressBar(total=len(todo), desc="engines") as bar:
            for what, engine, number in todo:
                bar.set_postfix_str(f"{what}, {engine}, {number}")
                measured = _measure(*works[what], engine, number, folder)
                tables[what].append({"": f"{engine}, {number} workers", **measured})
                bar.write(f"{what}, {engine}, {number}: {measured}", file=sys.stderr)
                bar.update()
    return tables


def _job_mb(corpus: pathlib.Path, workers: int) -> float:
    return max(0.001, corpus.stat().st_size / (JOBS * workers) / 1e6)


def _measure(
    command: Sequence[str], text: pathlib.Path, amount: float, engine: str, workers: int, folder: pathlib.Path
) -> dict[str, Any]:
    """Returns rate and start of a command on an engine; files go to the folder, as long as needed.

    The command's last word is the flag for the corpus; `amount` is the corpus's size in the unit of the rate.
    """
    corpus, output = folder / "corpus.txt", folder / "output"
    seconds, cpu_seconds = [], []
    for times in (1, LARGER):
        corpus.write_bytes((text.read_bytes() + b"\n") * times)
        cpu_begun = cpu_seconds_of_children()
        with workers_of(engine, workers) as flags:
            begun = time.perf_counter()
            _run(*command, str(corpus), f"--output_dir={output}", *flags)
            seconds.append(time.perf_counter() - begun)
        cpu_seconds.append(cpu_seconds_of_children() - cpu_begun)
        shutil.rmtree(output)
    by_clock = _rate_and_start(amount, "s", *seconds)
    return by_clock | _rate_and_start(amount, "CPU s", *cpu_seconds)


def _rate_and_start(amount: float, second: str, smaller: float, larger: float) -> dict[str, float | None]:
    more = (larger - smaller) / (LARGER - 1)
    rate, start = (amount / more, smaller - more) if more > 0 else (None, None)
    return {f"per {second}": rate, f"{second} to start": start}


@contextlib.contextmanager
def workers_of(engine: str, number: int) -> Iterator[list[str]]:
    """Starts an engine unless commands start it themselves; yields the flags of a command that uses it."""
    if engine == "local":
        yield [f"--num_workers={number}"]
    elif engine == "beam":
        yield _beam("FnApiRunner", f"--direct_num_workers={number}", "--direct_running_mode=multi_processing")
    else:
        from dask.distributed import LocalCluster

        logging.getLogger("distributed").setLevel(logging.ERROR)
        processes = {"n_workers": number, "threads_per_worker": 1, "memory_limit": 0}
        with LocalCluster(**processes, dashboard_address=None) as cluster:
            yield _beam(
                "apache_beam.runners.dask.dask_runner.DaskRunner",
                f"--dask_client_address={cluster.scheduler_address}",
                "--dask_partition_size=1",
            )


def _beam(runner: str, *options: str) -> list[str]:
    return ["--runner=beam", f"--beam_options=--runner={runner} {' '.join(options)}"]


def _run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
