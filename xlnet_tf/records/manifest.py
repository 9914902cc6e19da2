"""The manifest: the only hand-over from the builder to readers; written last, checked when loaded."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from concurrent import futures
from typing import Any

import numpy as np
from etils import epath
from typing_extensions import Self

from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.records import manifest_checksum, ranks, spans
from xlnet_tf.records import shards as shards_lib
from xlnet_tf.records.spec import MAX_PASSES, MAX_SLICES, RecordSpec, stream_id
from xlnet_tf.text import special_tokens
from xlnet_tf.text.cleaning import DEFAULT_CLEANING, CleaningConfig
from xlnet_tf.text.tokenizer import MODEL_FILE

FILE_NAME = "manifest.json"
SCHEMA_VERSION = 1
KIND = "pretraining"
_EXAMPLES = "examples"  # the kind of records.examples
# How documents are separated and chosen, where a manifest does not say; see the builder's flags. The side is
# that of a split by documents: "train" or "dev".
DOCUMENTS = {
    "borders": "blank_lines",
    "text_field": "text",
    "mark_paragraphs": True,
    "dedup": False,
    "dev_fraction": 0.0,
    "side": "",
}


def shard_name(split: str, pass_index: int, slice_index: int) -> str:
    """Returns the file's name of a shard."""
    return f"{split}-pass{pass_index:02d}-slice{slice_index:05d}.tfrecord"


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records: `forward_segments` records of forward streams, then the backward ones.

    Args:
        file: name in the manifest's folder.
        pass_index: which pass over the corpus (its own orders and targets).
        slice_index: which slice of the corpus.
        forward_segments: records read forward.
        backward_segments: records read backward.
        bytes: size of the file.
        sha256: hex digest of the file.
        text_sha256: hex digest of the slice of text it was made from.
        statistics: counts of this shard, see `tfrecord_builders.pretraining.worker`.
    """

    file: str
    pass_index: int
    slice_index: int
    forward_segments: int
    backward_segments: int
    bytes: int
    sha256: str
    text_sha256: str
    statistics: dict

    @property
    def records(self) -> int:
        return self.forward_segments + self.backward_segments


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a folder of pretraining records holds and how it was made; `create` makes one for new records.

    Everything but `shards` and `statistics` are the settings: equal settings give equal bytes.
    """

    schema_version: int = SCHEMA_VERSION
    kind: str = KIND
    split: str = "train"
    corpus: list = dataclasses.field(default_factory=list)
    tokenizer: dict
    cleaning: dict = dataclasses.field(default_factory=DEFAULT_CLEANING.to_dict)
    use_eod: bool = True
    sentence_split: str = ""
    seq_len: int
    reuse_len: int
    num_predict: int
    perm_size: int
    objective: str = "permutation"
    functional_tokens: str = "ordered"
    mask: dict = dataclasses.field(default_factory=lambda: dict(spans.MASK))
    directions: list
    num_passes: int = 1
    stream_segments: int = 1
    slice_bytes: int = 0
    seed: int = 0
    compat: bool = False
    record_bytes: int
    dtypes: dict
    documents: dict = dataclasses.field(default_factory=lambda: dict(DOCUMENTS))
    shards: tuple[Shard, ...] = ()
    statistics: dict = dataclasses.field(default_factory=dict)
    folder: epath.Path | None = dataclasses.field(default=None, compare=False)

    @classmethod
    def create(
        cls, spec: RecordSpec, tokenizer_sha256: str = "", *, bidirectional: bool = False, **fields: Any
    ) -> Self:
        """Returns the manifest of a new set.

        Args:
            spec: the layout of its records; seq_len and all else that follows from it is filled in.
            tokenizer_sha256: of the tokenizer's model, which is to lie next to the records.
            bidirectional: whether there are backward streams, too.
            **fields: the other fields, where they are not the defaults; perm_size by default is reuse_len.
        """
        tokenizer = {
            "file": MODEL_FILE,
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

    @property
    def spec(self) -> RecordSpec:
        """Layout of the records."""
        return RecordSpec(self.seq_len, self.reuse_len, self.num_predict, self.tokenizer["vocab_size"])

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

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
        """Whether all records have num_predict targets, or with `compat` up to three fewer.

        Records that were converted may have any number: their sources say so with num_predict null.
        """
        return all(source.get("num_predict", 0) is not None for source in self.corpus)

    @property
    def tokenizer_path(self) -> epath.Path:
        """The tokenizer model next to the records."""
        return self.folder / self.tokenizer["file"]

    def path(self, shard: Shard) -> epath.Path:
        return self.folder / shard.file

    def settings(self) -> dict[str, Any]:
        """What determines the bytes of the records: all fields but shards and statistics."""
        values = dataclasses.asdict(dataclasses.replace(self, shards=(), statistics={}, folder=None))
        return {name: value for name, value in values.items() if name not in _RESULTS}

    def save(self, name: str = FILE_NAME) -> None:
        """Writes the manifest into `folder`, atomically; an unfinished one has another name."""
        values = dataclasses.asdict(dataclasses.replace(self, folder=None))
        del values["folder"]
        files.write(self.folder / name, to_json(manifest_checksum.with_checksum(values)))

    @classmethod
    def load(cls, path: epath.PathLike) -> "Manifest":
        """Reads and validates a manifest.

        Args:
            path: manifest.json or the folder that holds it.

        Raises:
            FileNotFoundError: there is none; the build has not ended.
            UserError: it is not a manifest of pretraining records, or a field is wrong.
        """
        path = epath.Path(path)
        if path.name != FILE_NAME:
            path = path / FILE_NAME
        if not path.exists():
            near = [path.parent.parent, *files.entries(path.parent)]
            sets = ", ".join(str(folder) for folder in near if (folder / FILE_NAME).exists())
            raise FileNotFoundError(
                f"{path} does not exist: expected a folder of finished pretraining records"
                f"{f', such as {sets}' if sets else ''}. Build them with `xlnet-tf build pretraining` (the "
                "same command resumes an interrupted build)"
            )
        return cls._from_json(files.read_json(path, fix="build the records again"), path)

    @classmethod
    def _from_json(cls, values: dict[str, Any], path: epath.Path) -> "Manifest":
        version, kind = values.get("schema_version"), values.get("kind")
        if kind == _EXAMPLES:
            raise UserError(f"{path} describes fine-tuning examples; expected pretraining records")
        if version != SCHEMA_VERSION or kind != KIND:
            raise UserError(
                f"{path}: schema_version is {version} and kind is {kind}, expected {SCHEMA_VERSION} and "
                f"{KIND}: build the records again with this version"
            )
        intact = manifest_checksum.pop_checksum(values)
        types = _json_types(cls)
        del types["folder"]
        values.setdefault("documents", dict(DOCUMENTS))
        _check_fields(values, types, str(path))
        for number, shard in enumerate(values["shards"]):
            _check_fields(shard, _json_types(Shard), f"{path}: shards[{number}]")
        shards = tuple(Shard(**shard) for shard in values["shards"])
        manifest = cls(**{**values, "shards": shards}, folder=path.parent)
        manifest._validate(str(path))
        if not intact:  # last, for a wrong field's own message says more
            raise manifest_checksum.broken(path)
        return manifest

    def _validate(self, where: str) -> None:
        """Checks what must hold between the fields, so that a reader can rely on them."""
        for name, types in _PARTS.items():
            _check_fields(getattr(self, name), types, f"{where}: {name}")
        for name, type_ in _REPORTED.items():
            if type(self.statistics.get(name)) is not type_:
                raise UserError(
                    f"{where}: statistics.{name} is {self.statistics.get(name)!r}, expected {type_.__name__}"
                )
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise UserError(
                    f"{where}: {name} is {getattr(self, name)!r}, expected one of "
                    f"{', '.join(map(str, allowed))}"
                )
        if not shards_lib.is_plain_name(self.tokenizer["file"]):
            raise UserError(f"{where}: tokenizer.file is {self.tokenizer['file']!r}, expected a plain name")
        if self.tokenizer["special_ids"] != special_tokens.IDS:
            raise UserError(
                f"{where}: tokenizer.special_ids is {self.tokenizer['special_ids']}, expected "
                f"{special_tokens.IDS}: build the records again with this version"
            )
        for name, expected in (("record_bytes", self.spec.record_bytes), ("dtypes", self.spec.dtypes)):
            if getattr(self, name) != expected:
                raise UserError(
                    f"{where}: {name} is {getattr(self, name)}, expected {expected} from seq_len, "
                    "num_predict and vocab_size: build the records again"
                )
        for name, most in _MOST.items():
            if not 1 <= getattr(self, name) <= most:
                raise UserError(
                    f"{where}: {name} is {getattr(self, name)}, expected at least 1"
                    + f" and at most {most}" * (getattr(self, name) > most)
                )
        for name in ("alpha", "beta", "max_words"):
            if not 1 <= self.mask[name] < 1 << 31:
                raise UserError(f"{where}: mask.{name} is {self.mask[name]}, expected at least 1")
        for number, source in enumerate(self.corpus):
            if not isinstance(source, dict):
                raise UserError(f"{where}: corpus[{number}] is {source!r}, expected an object with fields")
        self._validate_shards(where)

    def _validate_shards(self, where: str) -> None:
        """Checks that each shard has the size of its records, and a name and a place of its own."""
        seen, indices = set(), set()
        for shard in self.shards:
            expected = shard.records * shards_lib.framed_bytes(self.spec)
            if not shards_lib.is_plain_name(shard.file) or shard.file in seen:
                raise UserError(f"{where}: shard {shard.file!r} is listed twice or is not a plain file name")
            if min(shard.forward_segments, shard.backward_segments) < 0 or shard.bytes != expected:
                raise UserError(
                    f"{where}: bytes of {shard.file} is {shard.bytes}, expected {expected} "
                    f"for its {shard.records} records: build the records again"
                )
            if not 0 <= shard.pass_index < self.num_passes:
                raise UserError(
                    f"{where}: pass_index of {shard.file} is {shard.pass_index}, expected 0 to "
                    f"{self.num_passes - 1} (num_passes)"
                )
            index = shard.pass_index, shard.slice_index
            if not 0 <= shard.slice_index < MAX_SLICES or index in indices:
                raise UserError(
                    f"{where}: slice_index of {shard.file} is {shard.slice_index}, expected 0 to "
                    f"{MAX_SLICES - 1}, and another for each shard of a pass"
                )
            seen.add(shard.file)
            indices.add(index)

    def check_model(self, vocab_size: int) -> None:
        """Raises UserError if a model with another vocabulary is to be trained on these records."""
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

    def check_files(self, checksums: bool = False) -> None:
        """Raises an error that names the first file that is not as it was written.

        Args:
            checksums: whether to read every file, the tokenizer included, and compare its sha256, too.

        Raises:
            FileNotFoundError: a file is missing.
            UserError: a shard has another size or, with `checksums`, a file has other content.
        """
        fix = "run the builder again with the same flags (it keeps the good shards)"

        def check(shard: Shard) -> None:
            shards_lib.check_shard(
                self.path(shard),
                self.spec,
                shard.bytes,
                shard.sha256 if checksums else None,
                lambda: self.identity(shard),
                fix,
            )

        with futures.ThreadPoolExecutor() as pool:
            for _ in pool.map(check, self.shards):
                pass
        if checksums:
            shards_lib.read_tokenizer(self.tokenizer_path, self.tokenizer["sha256"])

    def check_files_once(self) -> None:
        """Does `check_files`, and nothing when called again: a storage takes its time for many shards."""
        if not vars(self).get("_checked"):
            self.check_files()
            object.__setattr__(self, "_checked", True)  # not a field: it is not part of what a manifest says

    def identity(self, shard: Shard) -> dict[str, np.ndarray]:
        """Returns what identifies each record of a shard in the set: stream and segment, [S]."""
        streams, segments, first = [], [], 0
        for count in (shard.forward_segments, shard.backward_segments):
            stream, segment = np.divmod(np.arange(count), self.stream_segments)
            streams.append(stream + stream_id(shard.pass_index, shard.slice_index, first))
            segments.append(segment)
            first += -(-count // self.stream_segments)
        return {"stream": np.concatenate(streams), "segment": np.concatenate(segments)}


def to_json(values: Mapping[str, Any]) -> bytes:
    """Returns readable json with one shard or setting a line."""
    return (json.dumps(values, indent=1, sort_keys=False) + "\n").encode()


def nested_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yields (name, first's value, second's value) for what differs, however deep."""
    for name in dict.fromkeys([*first, *second]):
        a, b = first.get(name, "absent"), second.get(name, "absent")
        if isinstance(a, dict) and isinstance(b, dict):
            yield from ((f"{name}.{inner}", *values) for inner, *values in nested_differences(a, b))
        elif a != b:
            yield name, a, b


def settings_difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Returns one line 'name: found, expected' for each field in which two settings differ."""
    return sorted(f"{name}: {a} there, {b} now" for name, a, b in nested_differences(found, expected))


_RESULTS = ("shards", "statistics", "folder")
_PARTS = {
    "tokenizer": {"file": str, "sha256": str, "vocab_size": int, "special_ids": dict},
    "cleaning": {field.name: bool for field in dataclasses.fields(CleaningConfig)},
    "documents": {name: type(value) for name, value in DOCUMENTS.items()},
    "mask": {"alpha": int, "beta": int, "span_mode": str, "max_words": int},
}
_REPORTED = {"tokens_in": int, "tokens_written": int, "tokens_dropped": dict}
_MOST = {"num_passes": MAX_PASSES, "stream_segments": (1 << 31) - 1, "perm_size": (1 << 31) - 1}
_CHOICES = {
    "objective": ranks.OBJECTIVES,
    "functional_tokens": ranks.FUNCTIONAL_TOKENS,
    "directions": (["forward"], ["forward", "backward"]),
}


def _json_types(cls: type) -> dict[str, type]:
    """Returns which type each field of a dataclass has in json."""
    return {
        field.name: list if field.type == tuple[Shard, ...] else field.type
        for field in dataclasses.fields(cls)
    }


def _check_fields(values: Any, types: Mapping[str, type], where: str) -> None:
    """Raises UserError unless `values` has exactly these fields, each of its type."""
    if not isinstance(values, dict):
        raise UserError(f"{where}: expected an object with fields, found {type(values).__name__}")
    if set(values) != set(types):
        raise UserError(
            f"{where}: fields missing {sorted(set(types) - set(values))}, "
            f"unknown {sorted(set(values) - set(types))}: build the records again with this version"
        )
    for name, expected in types.items():
        if type(values[name]) is not expected:
            raise UserError(f"{where}: {name} is {values[name]!r}, expected {expected.__name__}")
