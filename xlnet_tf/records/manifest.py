"""Sets of pretraining records."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from typing_extensions import Self

from xlnet_tf import schema
from xlnet_tf.errors import UserError
from xlnet_tf.records import ranks, spans
from xlnet_tf.records import shards as shards_lib
from xlnet_tf.records.record_set import FILE_NAME, SCHEMA_VERSION, RecordSet
from xlnet_tf.records.spec import MAX_PASSES, MAX_SLICES, MAX_VOCAB_SIZE, RecordSpec, stream_id
from xlnet_tf.schema import limited
from xlnet_tf.text import special_tokens, ties
from xlnet_tf.text.cleaning import DEFAULT_CLEANING, CleaningConfig
from xlnet_tf.text.vocabulary import TOKENIZER_FILE

KIND = "pretraining"
_MOST = (1 << 31) - 1
_REPORTED = {"tokens_in": int, "tokens_written": int, "tokens_dropped": dict}  # required statistics


@dataclasses.dataclass(frozen=True)
class _Tokenizer:
    file: str
    sha256: str
    vocab_size: int = limited(least=1, most=MAX_VOCAB_SIZE)
    special_ids: dict


@dataclasses.dataclass(frozen=True)
class _Documents:
    """How documents are separated and chosen (see the builder's flags); older manifests get the defaults."""

    borders: str = "blank_lines"
    text_field: str = "text"
    mark_paragraphs: bool = True
    dedup: bool = False
    dev_fraction: float = 0.0
    side: str = ""  # "train" or "dev", for a split by documents


@dataclasses.dataclass(frozen=True)
class _Mask:
    alpha: int = limited(least=1, most=_MOST)
    beta: int = limited(least=1, most=_MOST)
    span_mode: str
    max_words: int = limited(least=1, most=_MOST)


DOCUMENTS = dataclasses.asdict(_Documents())


def shard_name(split: str, pass_index: int, slice_index: int) -> str:
    return f"{split}-pass{pass_index:02d}-slice{slice_index:05d}.tfrecord"


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records: `forward_segments` records of forward streams, then the backward ones."""

    file: str  # name in the set's folder
    pass_index: int  # pass over the corpus; each has its own orders and targets
    slice_index: int  # slice of the corpus
    forward_segments: int
    backward_segments: int
    bytes: int
    sha256: str
    text_sha256: str  # digest of the slice's text
    statistics: dict  # counts, see tfrecord_builders/pretraining/worker.py

    @property
    def records(self) -> int:
        return self.forward_segments + self.backward_segments


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest(RecordSet):
    """What a folder of pretraining records holds and how it was made; `create` makes one for new records.

    All fields but `shards` and `statistics` are settings: equal settings give equal bytes.
    """

    KIND = KIND
    SHARD = Shard
    PARTS = {"tokenizer": _Tokenizer, "cleaning": CleaningConfig, "documents": _Documents, "mask": _Mask}
    EARLIER = {"documents": DOCUMENTS, "ties": ties.RULE}
    BUILD = "Build them with `xlnet-tf build pretraining` (the same command resumes an interrupted build)"
    FIX = "build the records again"
    FIX_SHARD = "run the builder again with the same flags (it keeps the good shards)"
    ABOVE = "that"

    schema_version: int = SCHEMA_VERSION
    kind: str = KIND
    split: str = "train"
    corpus: list = dataclasses.field(default_factory=list)
    tokenizer: dict
    cleaning: dict = dataclasses.field(default_factory=DEFAULT_CLEANING.to_dict)
    ties: str = limited(ties.RULE, choices=(ties.RULE,))  # how the tokenizer breaks ties between pieces
    use_eod: bool = True
    sentence_split: str = ""
    seq_len: int
    reuse_len: int
    num_predict: int
    perm_size: int = limited(least=1, most=_MOST)
    objective: str = limited("permutation", choices=ranks.OBJECTIVES)
    functional_tokens: str = limited("ordered", choices=ranks.FUNCTIONAL_TOKENS)
    mask: dict = dataclasses.field(default_factory=lambda: dict(spans.MASK))
    directions: list = limited(choices=(["forward"], ["forward", "backward"]))
    num_passes: int = limited(1, least=1, most=MAX_PASSES)
    stream_segments: int = limited(1, least=1, most=_MOST)
    slice_bytes: int = 0
    seed: int = 0
    compat: bool = False
    record_bytes: int
    dtypes: dict
    documents: dict = dataclasses.field(default_factory=lambda: dict(DOCUMENTS))
    shards: tuple[Shard, ...] = ()
    statistics: dict = dataclasses.field(default_factory=dict)

    @classmethod
    def create(
        cls, spec: RecordSpec, tokenizer_sha256: str = "", *, bidirectional: bool = False, **fields: Any
    ) -> Self:
        """Returns the manifest of a new set; `fields` are those that differ from their defaults.

        perm_size defaults to reuse_len; `bidirectional` adds backward streams.
        """
        tokenizer = {
            "file": TOKENIZER_FILE,
            "sha256": tokenizer_sha256,
            "vocab_size": spec.vocab_size,
            "special_ids": special_tokens.IDS,
        }
        return cls(
            tokenizer=tokenizer,
            seq_len=spec.seq_len,
            reuse_len=spec.reuse_len,
            num_predict=spec.num_predict,
            directions=["forward", "backward"] if bidirectional else ["forward"],
            record_bytes=spec.record_bytes,
            dtypes=spec.dtypes,
            **{"perm_size": spec.reuse_len} | fields,
        )

    def __repr__(self) -> str:
        folder = None if self.folder is None else str(self.folder)
        return (
            f"Manifest(folder={folder!r}, split={self.split!r}, records={self.records}, "
            f"seq_len={self.seq_len}, reuse_len={self.reuse_len}, num_predict={self.num_predict}, "
            f"num_passes={self.num_passes}, objective={self.objective!r}, shards={len(self.shards)})"
        )

    @functools.cached_property
    def spec(self) -> RecordSpec:
        return RecordSpec(self.seq_len, self.reuse_len, self.num_predict, self.tokenizer["vocab_size"])

    @property
    def layout(self) -> RecordSpec:
        return self.spec

    @property
    def num_streams(self) -> int:
        """Streams of one pass: the largest batch that the set can fill."""
        return sum(
            -(-count // self.stream_segments)
            for shard in self.shards
            if shard.pass_index == 0
            for count in (shard.forward_segments, shard.backward_segments)
        )

    @property
    def has_fixed_targets(self) -> bool:
        """Whether all records have num_predict targets, or with `compat` up to three fewer."""
        return all(source.get("num_predict", 0) is not None for source in self.corpus)

    def facts(self) -> list[tuple[str, str]]:
        """Returns what is to be known of the set: names and values, for people."""
        counts = {name: value for name, value in self.statistics.items() if isinstance(value, int)}
        sizes = {"records": self.records, "tokens of a record": self.seq_len}
        numbers = [(name.replace("_", " "), f"{value:,}") for name, value in (sizes | counts).items()]
        return [*numbers, ("objective", self.objective), ("passes", f"{self.num_passes}")]

    def settings(self) -> dict[str, Any]:
        """Returns the fields that determine the bytes of the records: all but shards and statistics."""
        fields = dataclasses.replace(self, shards=(), statistics={}).fields()
        return {name: value for name, value in fields.items() if name not in ("shards", "statistics")}

    def check_model(self, vocab_size: int) -> None:
        """Raises UserError if the model's vocabulary is not that of these records."""
        if vocab_size != self.tokenizer["vocab_size"]:
            raise UserError(
                f"the model's n_token is {vocab_size}, but tokenizer.vocab_size in {self.folder / FILE_NAME} "
                f"is {self.tokenizer['vocab_size']}: set n_token to {self.tokenizer['vocab_size']}, or build "
                "the records with the model's tokenizer"
            )

    def check_tokenizer(self, fingerprint: str) -> None:
        """Raises UserError if `fingerprint` (sha256) is not that of the tokenizer of these records."""
        if fingerprint != self.tokenizer["sha256"]:
            raise UserError(
                f"the tokenizer's sha256 is {fingerprint}, but tokenizer.sha256 in {self.folder / FILE_NAME} "
                f"is {self.tokenizer['sha256']}: use {self.tokenizer_path}, or build the records again"
            )

    def identity(self, shard: Shard) -> dict[str, np.ndarray]:
        """Returns the columns that identify each record of a shard in the set: stream and segment, [S]."""
        streams, segments, first = [], [], 0
        for count in (shard.forward_segments, shard.backward_segments):
            stream, segment = np.divmod(np.arange(count), self.stream_segments)
            streams.append(stream + stream_id(shard.pass_index, shard.slice_index, first))
            segments.append(segment)
            first += -(-count // self.stream_segments)
        return {"stream": np.concatenate(streams), "segment": np.concatenate(segments)}

    def _problems(self) -> Iterator[str]:
        for name, kind in _REPORTED.items():
            if problem := schema.problem(f"statistics.{name}", self.statistics.get(name), kind):
                yield problem
        if not shards_lib.is_plain_name(self.tokenizer["file"]):
            yield f"tokenizer.file is {self.tokenizer['file']!r}, expected a plain name"
        if self.tokenizer["special_ids"] != special_tokens.IDS:
            yield f"tokenizer.special_ids is {self.tokenizer['special_ids']}, expected {special_tokens.IDS}"
        for name, expected in (("record_bytes", self.spec.record_bytes), ("dtypes", self.spec.dtypes)):
            if getattr(self, name) != expected:
                found = getattr(self, name)
                yield f"{name} is {found}, expected {expected} from seq_len, num_predict and vocab_size"
        for number, source in enumerate(self.corpus):
            if not isinstance(source, dict):
                yield f"corpus[{number}] is {source!r}, expected an object with fields"
        yield from self._shard_problems()

    def _shard_problems(self) -> Iterator[str]:
        """Yields shards with a wrong size, or whose name or index is invalid or not unique."""
        seen, indices, size = set(), set(), shards_lib.framed_bytes(self.spec)
        for shard in self.shards:
            expected = shard.records * size
            if not shards_lib.is_plain_name(shard.file) or shard.file in seen:
                yield f"shard {shard.file!r} is listed twice or is not a plain file name"
            if min(shard.forward_segments, shard.backward_segments) < 0 or shard.bytes != expected:
                yield (
                    f"bytes of {shard.file} is {shard.bytes}, expected {expected} for its {shard.records} "
                    "records"
                )
            if not 0 <= shard.pass_index < self.num_passes:
                yield (
                    f"pass_index of {shard.file} is {shard.pass_index}, expected 0 to "
                    f"{self.num_passes - 1} (num_passes)"
                )
            index = shard.pass_index, shard.slice_index
            if not 0 <= shard.slice_index < MAX_SLICES or index in indices:
                yield (
                    f"slice_index of {shard.file} is {shard.slice_index}, expected 0 to {MAX_SLICES - 1}, "
                    "and another for each shard of a pass"
                )
            seen.add(shard.file)
            indices.add(index)
