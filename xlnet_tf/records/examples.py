"""Sets of fine-tuning examples: the format, the writer for builders, and the reader for everyone else.

A set is a folder, one for each split of the data:

    shard-00000.tfrecord, ...   examples of fixed size
    examples.jsonl              line i: what predictions of example i need besides its tensors, such as its id
    lengths.npz                 tokens of each example; made when the set is first trained on
    spiece.model                the tokenizer
    manifest.json               describes the set; written last: a set without one is unfinished

Padding is not stored separately: it is where the piece id is that of `<pad>`, which no text can produce.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from etils import epath
from typing_extensions import Self

from xlnet_tf import files, folders, schema
from xlnet_tf.errors import UserError
from xlnet_tf.ownership import folder_lease
from xlnet_tf.records import shards as shards_lib
from xlnet_tf.records.batching import LENGTHS_FILE, read_lengths, row_lengths, write_lengths
from xlnet_tf.records.input_counts import InputCounts
from xlnet_tf.records.layout import Column, Layout, ids_dtype
from xlnet_tf.records.record_set import FILE_NAME, SCHEMA_VERSION, RecordSet
from xlnet_tf.records.spec import MAX_VOCAB_SIZE
from xlnet_tf.schema import limited
from xlnet_tf.text import ties
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.vocabulary import TOKENIZER_FILE

SIDECAR_FILE = "examples.jsonl"
KIND = "examples"
MAX_SEQ_LEN = 1 << 20

_SHARD_PREFIX, _SHARD_RECORDS = "shard-", 50_000
_CHUNK_RECORDS = 256  # examples encoded at once
_DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "float32"]
_LOCATIONS_KEPT = 20  # locations kept per reason for skipping


@dataclasses.dataclass(frozen=True)
class ExampleLayout(Layout):
    columns: tuple[Column, ...]


def option_letters(count: int) -> list[str]:
    """Returns the names of a question's options: A to Z, then AA, AB, ..., as spreadsheets name columns."""
    words = (itertools.product(string.ascii_uppercase, repeat=length) for length in itertools.count(1))
    return ["".join(word) for word in itertools.islice(itertools.chain.from_iterable(words), count)]


def sequence_columns(length: int, vocab_size: int) -> tuple[Column, ...]:
    """Returns the columns that all examples of `length` tokens (T or sequences * T) have."""
    return (
        Column("input_ids", ids_dtype(vocab_size), length),
        Column("segment_ids", "uint8", length),
        Column("index", "int64", None),  # number of the example in its set
    )


@dataclasses.dataclass(frozen=True)
class _Tokenizer:
    sha256: str
    vocab_size: int = limited(least=1, most=MAX_VOCAB_SIZE)


@dataclasses.dataclass(frozen=True)
class _Skipped:
    count: int
    places: Sequence[str]


@dataclasses.dataclass(frozen=True)
class ExampleShard:
    """One file of examples."""

    file: str  # name in the set's folder
    records: int
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleSet(RecordSet):
    """A set of examples, as its manifest describes it.

    Attributes:
        task: the task that it is for, by a name that task_registry knows: "classification", ...
        split: "train", "dev", "test", ...
        seq_len: T, tokens of a sequence.
        sequences: sequences of one example: the choices of a question, the candidates of a query.
        columns: name, type and length of each column.
        settings: the builder's settings that the task needs: labels, windows, ...
        tokenizer: sha256 and vocab_size of the SentencePiece model.
        cleaning: the CleaningConfig.
        statistics: counts to show: truncated examples, ...
        skipped: reason -> {"count", "places"}: inputs that are not in the set.
        ties: how the tokenizer breaks ties between pieces (see text.ties).
        sidecar_sha256: of examples.jsonl; "" for sets of earlier builds, which lack it.
    """

    KIND = KIND
    SHARD = ExampleShard
    PARTS = {"tokenizer": _Tokenizer, "cleaning": CleaningConfig}
    EARLIER = {"sidecar_sha256": "", "ties": ties.RULE}
    BUILD = "Build them with `xlnet-tf build TASK`, or give a table as `xlnet-tf finetune --train`"
    FIX = FIX_SHARD = "build the examples again"
    ABOVE = "the folder that it is in"
    ASCII = False

    task: str
    split: str
    seq_len: int = limited(least=5, most=MAX_SEQ_LEN)
    sequences: int = limited(least=1, most=MAX_SEQ_LEN)
    columns: list
    settings: dict
    tokenizer: dict
    cleaning: dict
    shards: tuple[ExampleShard, ...]
    statistics: dict
    skipped: dict
    kind: str = KIND
    schema_version: int = SCHEMA_VERSION
    sidecar_sha256: str = ""
    ties: str = limited(ties.RULE, choices=(ties.RULE,))

    def __repr__(self) -> str:
        folder = None if self.folder is None else str(self.folder)
        return (
            f"ExampleSet(folder={folder!r}, task={self.task!r}, split={self.split!r}, "
            f"records={self.records}, seq_len={self.seq_len})"
        )

    def _problems(self) -> Iterator[str]:
        problems = (
            *(schema.problem(f"statistics.{name}", value, int) for name, value in self.statistics.items()),
            *(schema.problem(f"skipped[{name!r}]", value, _Skipped) for name, value in self.skipped.items()),
        )
        yield from filter(None, problems)
        if not all(map(_is_column, self.columns)):
            yield f"columns is {self.columns}, expected name, type and length of each"
        own = sequence_columns(self.sequences * self.seq_len, self.tokenizer["vocab_size"])
        own = [list(dataclasses.astuple(column)) for column in own]
        names = [column[0] for column in self.columns]
        if self.columns[: len(own)] != own or len(set(names)) < len(names):
            yield f"columns is {self.columns}, which do not fit seq_len, sequences and vocab_size"
        size, seen = shards_lib.framed_bytes(self.layout), set()
        for shard in self.shards:
            if not shards_lib.is_plain_name(shard.file) or shard.file in seen:
                yield f"shard {shard.file!r} is listed twice or is not a plain file name"
            if shard.records < 0 or shard.bytes != shard.records * size:
                yield (
                    f"bytes of {shard.file} is {shard.bytes}, expected {shard.records * size} for its "
                    f"{shard.records} records"
                )
            seen.add(shard.file)

    @functools.cached_property
    def layout(self) -> ExampleLayout:
        return ExampleLayout(tuple(Column(*column) for column in self.columns))

    def identity(self, shard: ExampleShard) -> dict[str, np.ndarray]:
        """Returns the numbers of a shard's examples in the set."""
        before = itertools.takewhile(lambda other: other.file != shard.file, self.shards)
        first = sum(other.records for other in before)
        return {"index": np.arange(first, first + shard.records)}

    def sidecar(self) -> Iterator[dict[str, Any]]:
        """Yields the line of `examples.jsonl` of each example; raises UserError if that file was changed."""
        path = self.folder / SIDECAR_FILE
        if self.sidecar_sha256 and files.sha256(path) != self.sidecar_sha256:
            raise UserError(f"{path} has not the content of the manifest's sidecar_sha256: {self.FIX}")
        with path.open("r", encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns all examples: name -> [records, length] or, for scalars, [records]."""
        layout = self.layout
        parts = [*self.read_shards()] or [layout.decode(np.zeros((0, layout.record_bytes), np.uint8))]
        return {name: np.concatenate([part[name] for part in parts]) for name in layout.dtypes}

    def column(self, name: str) -> np.ndarray:
        """Returns one column of all examples, as `arrays` has it."""
        parts = [columns[name] for columns in self.read_shards()]
        return np.concatenate(parts) if parts else self.arrays()[name]

    def read_shards(self) -> Iterator[dict[str, np.ndarray]]:
        """Yields the examples of each shard, as `arrays` has them."""
        return map(self.read, self.shards)

    def lengths(self) -> np.ndarray:
        """Returns the tokens of each example's longest sequence, int32 [records], and stores new counts."""
        lengths = read_lengths(self.folder, self.digest, self.records, self.seq_len)
        if lengths is None:
            parts = [row_lengths(columns["input_ids"], self.seq_len) for columns in self.read_shards()]
            lengths = np.concatenate([np.zeros(0, np.int32), *parts])
            try:
                write_lengths(self.folder, lengths, self.digest)
            except UserError as error:
                logging.info("the lengths of examples are counted at each start: %s", error)
        return lengths

    def facts(self) -> list[tuple[str, str]]:
        """Returns what is to be known of the set: names and values, for people."""
        tokens = f"{self.sequences} x {self.seq_len}" if self.sequences > 1 else str(self.seq_len)
        rows = [("examples", f"{self.records:,}"), ("tokens of an example", tokens)]
        rows += [(name, f"{value:,}") for name, value in self.statistics.items()]
        for reason, skipped in self.skipped.items():
            first = ", ".join(skipped["places"][:3])
            rows.append((f"skipped: {reason}", f"{skipped['count']:,} ({first})"))
        return rows

    def table(self) -> str:
        """Returns a readable summary of the set, one fact per line."""
        rows = self.facts()
        width = max(len(name) for name, _ in rows)
        lines = [f"{self.split}: {self.folder}", *(f"  {n:<{width}}  {v}" for n, v in rows)]
        return "\n".join(lines)


def discard(folder: epath.Path) -> None:
    """Removes the examples of a folder, the manifest first: what is left after a failure is not a set."""
    for name in (FILE_NAME, LENGTHS_FILE):
        (folder / name).unlink(missing_ok=True)
    for shard in files.files_in(folder, ".tfrecord", _SHARD_PREFIX):
        shard.unlink()


class ExampleWriter:
    """Writes a set; it is complete when the `with` block has ended without an error.

    It replaces that of an earlier build. `columns` come after `sequence_columns`; for others see ExampleSet.

    Example:
        >>> with ExampleWriter("sst2/train", task="classification", split="train", tokenizer=tokenizer,
        ...                    seq_len=128, columns=[Column("label", "int32", None)],
        ...                    settings={"labels": ["0", "1"]}) as writer:
        ...     writer.write({**pack(ids, seq_len=128)._asdict(), "label": 1}, {"id": "0"})
    """

    def __init__(
        self,
        folder: epath.PathLike,
        *,
        task: str,
        split: str,
        tokenizer: XLNetTokenizer,
        seq_len: int,
        columns: Sequence[Column],
        settings: Mapping[str, Any],
        sequences: int = 1,
    ):
        if not 4 < seq_len <= MAX_SEQ_LEN:
            raise UserError(f"seq_len is {seq_len}, expected 5 to {MAX_SEQ_LEN}")
        if sequences * seq_len > MAX_SEQ_LEN:
            raise UserError(
                f"{sequences} candidates of seq_len {seq_len} in each example are {sequences * seq_len:,} "
                f"tokens, expected at most {MAX_SEQ_LEN:,}"
            )
        self._tokenizer = tokenizer
        self._set = ExampleSet(
            task=task,
            split=split,
            seq_len=seq_len,
            sequences=sequences,
            columns=[
                list(dataclasses.astuple(column))
                for column in (*sequence_columns(sequences * seq_len, tokenizer.vocab_size), *columns)
            ],
            settings=json.loads(json.dumps(settings)),
            tokenizer={"sha256": tokenizer.fingerprint, "vocab_size": tokenizer.vocab_size},
            cleaning=tokenizer.cleaning.to_dict(),
            shards=(),
            statistics={},
            skipped={},
            folder=epath.Path(folder),
        )
        self._counts = InputCounts(tokenizer, seq_len)
        self._layout = self._set.layout
        self._chunk: list[Mapping[str, Any]] = []
        self._shard: shards_lib.ShardWriter | None = None
        self._written = 0
        self._shards: list[ExampleShard] = []

    def __enter__(self) -> Self:
        folders.claim(self._set.folder, folders.EXAMPLES, flag="--output_dir")
        folder = files.make_folder(self._set.folder)
        self._owned = contextlib.ExitStack()
        self._owner = self._owned.enter_context(folder_lease(folder, "building examples", "--output_dir"))
        discard(folder)
        files.write(folder / TOKENIZER_FILE, self._tokenizer.model_proto)
        self._opened = contextlib.ExitStack()
        self._opened.push(lambda *error: self._shard and self._shard.__exit__(*error))
        self._sidecar = self._opened.enter_context(files.replacing(folder / SIDECAR_FILE))
        return self

    def write(self, columns: Mapping[str, Any], sidecar: Mapping[str, Any]) -> None:
        """Adds an example: its columns except `index`, and its line of examples.jsonl."""
        self._chunk.append({**columns, "index": self._written})
        self._sidecar.write(json.dumps(sidecar, ensure_ascii=False) + "\n")
        self._written += 1
        if len(self._chunk) == _CHUNK_RECORDS:
            self._flush()

    def skip(self, reason: str, location: str) -> None:
        """Counts an example of the input that is not written, with a short reason and where it is."""
        skipped = self._set.skipped.setdefault(reason, {"count": 0, "places": []})
        skipped["count"] += 1
        if len(skipped["places"]) < _LOCATIONS_KEPT:
            skipped["places"].append(location)

    def count(self, name: str, number: int = 1) -> None:
        self._set.statistics[name] = self._set.statistics.get(name, 0) + number

    def count_lengths(self, name: str, lengths: Sequence[int]) -> None:
        """Adds a median, a 99th percentile and a maximum to the set's statistics."""
        for label, quantile in (("median", 0.5), ("99 %", 0.99), ("longest", 1.0)):
            self.count(f"{name}, {label}", int(np.quantile(lengths, quantile)))

    def check_any(self, source: str) -> None:
        """Raises UserError, with the reasons, if no example of a source (a file) was written."""
        if not self._written:
            skipped = self._set.skipped.items()
            reasons = ", ".join(f"{reason} ({found['count']})" for reason, found in skipped)
            raise UserError(f"{source} gives no examples: {reasons or 'it is empty'}")

    def __exit__(self, kind, value, trace) -> None:
        with self._owned:
            with self._opened:
                if value is not None:
                    raise value
                self._flush()
                self._close_shard()
            digest = files.sha256(self._set.folder / SIDECAR_FILE)
            self._set = dataclasses.replace(self._set, shards=tuple(self._shards), sidecar_sha256=digest)
            self._set.statistics.update(self._counts.statistics)
            self._owner.check()
            self._set.save()

    @property
    def example_set(self) -> ExampleSet:
        """The set, complete after the block."""
        return self._set

    @property
    def _next_shard(self) -> str:
        return f"{_SHARD_PREFIX}{len(self._shards):05d}.tfrecord"

    def _flush(self) -> None:
        if not self._chunk:
            return
        if self._shard is None:
            path = self._set.folder / self._next_shard
            self._shard = shards_lib.ShardWriter(path, self._layout).__enter__()
        columns = {name: np.asarray([c[name] for c in self._chunk]) for name in self._chunk[0]}
        self._counts.add(columns["input_ids"])
        self._shard.write(columns)
        self._chunk = []
        if self._shard.records >= _SHARD_RECORDS:
            self._close_shard()

    def _close_shard(self) -> None:
        if self._shard is None:
            return
        self._shard.__exit__(None, None, None)
        shard = self._shard
        self._shards.append(ExampleShard(self._next_shard, shard.records, shard.num_bytes, shard.sha256))
        self._shard = None


def _is_column(column: Any) -> bool:
    """Returns whether this is a column's name, type and length, as JSON stores them."""
    return (
        isinstance(column, list)
        and len(column) == 3
        and type(column[0]) is str
        and column[0].isascii()
        and column[1] in _DTYPES
        and (column[2] is None or (type(column[2]) is int and 1 <= column[2] <= MAX_SEQ_LEN))
    )
