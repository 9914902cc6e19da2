"""What the benchmark measures of data: building pretraining records, and reading them."""

import collections
import contextlib
import functools
import pathlib
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import sentencepiece

from run_scripts.benchmark.timing import cpu_seconds_of_children, interleave
from tfrecord_builders import corpus
from tfrecord_builders.pretraining import build as builder
from tfrecord_builders.pretraining import worker
from xlnet_tf.records import ranks, segments, spans
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.shards import ShardWriter
from xlnet_tf.text import tokenizer as tokenizer_lib

# TensorFlow is imported where it is needed: the builder is measured without it.

READER_ROWS = 16
READER_BATCHES = 256  # of a repetition

# Of the original's builder: one core of the machine that the project's goals are for.
ORIGINAL_BYTES_PER_SECOND = 0.46e6

# Where the builder takes the functions of each stage from.
STAGES = (
    (worker, "read_lines", "read and clean"),
    (tokenizer_lib, "clean_texts", "read and clean"),
    (tokenizer_lib.XLNetTokenizer, "encode_batch", "encode"),
    (segments, "cut_segments", "sample"),
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
    """Builds pretraining records, by one worker in this process, in a new folder inside of `folder`."""
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

    Yields:
        stage -> seconds, complete after the block. A stage inside of another counts for itself only; "other"
        is what no stage took.
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
    """Measures the builder next to SentencePiece's encode of the same lines.

    Returns:
        text_bytes; for builder and sentencepiece, bytes_per_second by the clock and bytes_per_cpu_second;
        ratio: the builder's time over SentencePiece's, by the clock; stage_shares: stage -> its share of the
        builder's time.
    """
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
    return {
        "text_bytes": size,
        **{
            name: {"bytes_per_second": size / timing.wall, "bytes_per_cpu_second": size / timing.cpu}
            for name, timing in timings.items()
        },
        "ratio": timings["builder"].wall / timings["sentencepiece"].wall,
        "stage_shares": {stage: value / sum(seconds.values()) for stage, value in seconds.items()},
    }


def measure_workers(
    text: pathlib.Path, tokenizer: str, megabytes: float, workers: Sequence[int], **options
) -> dict[str, Any]:
    """Measures builds of a large text by several numbers of workers, once each.

    Args:
        text: a corpus file; repeated up to the size.
        workers: processes; the last number above 1.

    Returns:
        text_bytes; bytes_per_second: number of workers -> by the clock, the start of the workers included;
        coordinator_share: CPU time of the process that hands out the work, over that of its workers;
        worker_peak_bytes: the most memory that one of several workers has taken.
    """
    with tempfile.TemporaryDirectory() as folder:
        large = pathlib.Path(folder) / "large.txt"
        size = text.stat().st_size
        with large.open("wb") as file:
            for _ in range(max(1, round(megabytes * 1e6 / size))):
                file.write(text.read_bytes() + b"\n\n")
        size = large.stat().st_size
        rates = {}
        for number in workers:
            before = time.process_time(), cpu_seconds_of_children()
            wall = time.perf_counter()
            build_records(large, tokenizer, pathlib.Path(folder), num_workers=number, **options)
            rates[number] = size / (time.perf_counter() - wall)
    own = time.process_time() - before[0]
    workers = cpu_seconds_of_children() - before[1]
    return {
        "text_bytes": size,
        "bytes_per_second": rates,
        "coordinator_share": own / workers,
        "worker_peak_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    }


def measure_reader(
    text: pathlib.Path,
    tokenizer: str,
    repeats: int,
    rows: int = READER_ROWS,
    batches: int = READER_BATCHES,
    **options,
) -> dict[str, Any]:
    """Measures the reader, on records that are built first.

    Returns:
        seq_len, num_predict, rows; examples_per_second; bytes_per_example on their way to the device;
        record_bytes on disk.
    """
    from xlnet_tf.records.reader import pretraining_dataset

    with tempfile.TemporaryDirectory() as folder:
        manifest = build_records(text, tokenizer, pathlib.Path(folder), **options)
        iterator = iter(pretraining_dataset(manifest, rows))
        batch_bytes = sum(column.numpy().nbytes for column in next(iterator).values())

        def read():
            for _ in range(batches):
                next(iterator)

        timing = interleave({"reader": read}, repeats, "reader")["reader"]
    return {
        "seq_len": manifest.seq_len,
        "num_predict": manifest.num_predict,
        "rows": rows,
        "examples_per_second": rows * batches / timing.wall,
        "bytes_per_example": batch_bytes / rows,
        "record_bytes": manifest.record_bytes,
    }
