"""Measures data on this machine: building pretraining records, spreading jobs over workers, reading.

    python -m benchmarks.data --text=TEXT --tokenizer=spiece.model --output=runs/data.json

  builder  pretraining records from text, one process, next to SentencePiece's encode alone on the same text.
  workers  the builder and the embeddings as commands, on each of --engines with each number of --workers.
  reader   examples per second, and the bytes of one that travel from the host to the device.

What is compared runs in turn, once per repetition, so that a disturbance hits all alike; figures are medians.
--parts=builder,reader measures some of them. The text is the demo's, or --text with --tokenizer.
"""

import collections
import contextlib
import dataclasses
import functools
import pathlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import sentencepiece

from benchmarks import engines, harness
from benchmarks.harness import DEMO_TEXT, DEMO_TOKENIZER, existing, interleave
from tfrecord_builders import corpus
from tfrecord_builders.pretraining import build as builder
from tfrecord_builders.pretraining import worker
from xlnet_tf import errors
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.records import ranks, segments, spans
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.shards import ShardWriter
from xlnet_tf.text import batch_encoder
from xlnet_tf.text.tokenizer import XLNetTokenizer

# TensorFlow is imported where it is needed: the builder is measured without it.

PARTS = ("builder", "workers", "reader")
READER_ROWS = 16
READER_BATCHES = 256  # of a repetition

# Where the builder takes the functions of each stage from.
STAGES = (
    (worker, "read_lines", "read and clean"),
    (batch_encoder, "clean_texts", "read and clean"),
    (XLNetTokenizer, "encode_batch", "encode"),
    (segments, "sample_segments", "sample"),
    (spans, "sample_segment_targets", "sample"),
    (ranks, "sample_ranks", "sample"),
    (worker, "target_positions", "sample"),
    (worker, "run_histogram", "statistics"),
    (worker, "_account", "statistics"),
    (worker, "_document_statistics", "statistics"),
    (ShardWriter, "write", "write"),
    (ShardWriter, "__exit__", "write"),
)


def cut_text(path: str, megabytes: float, folder: pathlib.Path) -> pathlib.Path:
    """Copies a corpus file's first documents, about this many MB, into a folder; unpacks .gz."""
    first = next(_slices(path, int(megabytes * 1e6)))
    text = folder / "text.txt"
    text.write_text("\n".join(corpus.read_lines(first).lines))
    return text


def _slices(path: str, num_bytes: int) -> Iterator[corpus.CorpusShard]:
    return corpus.plan_shards(corpus.find_sources(corpus.CorpusOptions(input=[path])), num_bytes)


def build_records(
    text: pathlib.Path, tokenizer: str, folder: pathlib.Path, num_workers: int = 1, **options
) -> Manifest:
    """Builds pretraining records in this process, in a new folder inside of `folder`."""
    return builder.build_pretraining_records(
        builder.PretrainingOptions(
            input=[str(text)],
            tokenizer=tokenizer,
            output_dir=tempfile.mkdtemp(dir=folder),
            num_workers=num_workers,
            **options,
        )
    )


@contextlib.contextmanager
def timed_stages() -> Iterator[dict[str, float]]:
    """Times the builder's stages by wrapping their functions while the block runs.

    Yields stage -> seconds, complete after the block. A nested stage's time counts only for itself; "other"
    is the time outside of all stages.
    """
    seconds = collections.defaultdict(float)
    running = ["other"]
    since = time.perf_counter()

    def book():
        nonlocal since
        now = time.perf_counter()
        seconds[running[-1]] += now - since
        since = now

    def timed(function, stage):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            book()
            running.append(stage)
            try:
                return function(*args, **kwargs)
            finally:
                book()
                running.pop()

        return wrapper

    with contextlib.ExitStack() as restore:
        for owner, name, stage in STAGES:
            function = getattr(owner, name)
            restore.callback(setattr, owner, name, function)
            setattr(owner, name, timed(function, stage))
        yield seconds
        book()


def measure_builder(text: pathlib.Path, tokenizer: str, repeats: int, **options) -> dict[str, Any]:
    """Measures the builder next to SentencePiece's encode of the same lines, and its stages."""
    size = text.stat().st_size
    (only_slice,) = _slices(str(text), size)
    lines = [line for line in corpus.read_lines(only_slice).lines if line]
    processor = sentencepiece.SentencePieceProcessor(model_file=tokenizer)

    with tempfile.TemporaryDirectory() as folder:
        build = functools.partial(build_records, text, tokenizer, pathlib.Path(folder), **options)
        encode = functools.partial(processor.encode, lines, num_threads=1)
        timings = interleave({"builder": build, "sentencepiece": encode}, repeats, "builder")
        with timed_stages() as seconds:
            build()
    total, reference = sum(seconds.values()), timings["sentencepiece"].wall
    return {
        f"Builder, one process, {size / 1e6:.1f} MB": [
            {
                "": name,
                "MB/s": size / timing.wall / 1e6,
                "MB per CPU s": size / timing.cpu / 1e6,
                "time / sentencepiece": timing.wall / reference,
            }
            for name, timing in timings.items()
        ],
        "Stages of the builder": [{"": stage, "share": value / total} for stage, value in seconds.items()],
    }


def measure_reader(
    text: pathlib.Path,
    tokenizer: str,
    repeats: int,
    rows: int = READER_ROWS,
    batches: int = READER_BATCHES,
    **options,
) -> dict[str, Any]:
    """Measures the reader, on records that are built first."""
    from xlnet_tf.records.reader import pretraining_dataset

    with tempfile.TemporaryDirectory() as folder:
        manifest = build_records(text, tokenizer, pathlib.Path(folder), **options)
        iterator = iter(pretraining_dataset(manifest, rows))
        batch_bytes = sum(column.numpy().nbytes for column in next(iterator).values())

        def read():
            for _ in range(batches):
                next(iterator)

        timing = interleave({"reader": read}, repeats, "reader")["reader"]
    title = f"Reader, {rows} rows of {manifest.seq_len} tokens and {manifest.num_predict} targets"
    figures = {
        "": "reader",
        "examples/s": rows * batches / timing.wall,
        "bytes an example, to the device": batch_bytes / rows,
        "on disk": manifest.record_bytes,
    }
    return {title: [figures]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataOptions(harness.SegmentOptions, harness.BenchmarkOptions):
    """What is measured, on which text."""

    parts: Sequence[str] = option(f"what to measure, of {', '.join(PARTS)}", PARTS, aliases=["what"])
    text: str | None = option(f"a corpus file, plain or .gz. Default: the demo's, {DEMO_TEXT}", None)
    tokenizer: str | None = option(f"its SentencePiece model. Default: the demo's, {DEMO_TOKENIZER}", None)
    text_mb: float = option("MB to take of the text", 4.0, least=0.001)
    engines: Sequence[str] = option(f"what to spread jobs with, of {', '.join(engines.ENGINES)}", ("local",))
    workers: Sequence[str] = option("numbers of processes for the engines", ("1", "2", "4"))
    rows: int = option("texts to embed on the engines", 100, least=1)


def main(_: Sequence[str]) -> None:
    options = from_flags(DataOptions)
    harness.check_known("parts", options.parts, PARTS)
    harness.check_known("engines", options.engines, [*engines.ENGINES])
    if wrong := [number for number in options.workers if not number.isdecimal() or not int(number)]:
        raise UserError(f"--workers has {', '.join(wrong)}: expected numbers of processes, such as 1,2,4")
    sizes = {"seq_len": options.seq_len, "num_predict": options.targets}
    text = existing(options.text, DEMO_TEXT, "text")
    tokenizer = existing(options.tokenizer, DEMO_TOKENIZER, "tokenizer")
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        text = cut_text(text, options.text_mb, pathlib.Path(folder))
        if "builder" in options.parts:
            figures |= measure_builder(text, tokenizer, options.repeats, **sizes)
        if "workers" in options.parts:
            spread = {"engines": options.engines, "workers": [*map(int, options.workers)]}
            spread |= {"rows": options.rows, **sizes}
            figures |= engines.measure_engines(text, tokenizer, options.config, **spread)
        if "reader" in options.parts:
            figures |= measure_reader(text, tokenizer, options.repeats, **sizes)
    harness.publish(figures, options.output)


if __name__ == "__main__":
    define_flags(DataOptions)
    errors.run(main)
