"""A set of records: a folder of shards, the tokenizer, and a manifest, which is written last.

The manifest is the only interface between builders and readers. It is checked when it is loaded.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from concurrent import futures
from typing import Any, ClassVar

import numpy as np
from etils import epath
from typing_extensions import Self

from xlnet_tf import files, manifest_checksum, schema
from xlnet_tf.errors import UserError
from xlnet_tf.records import shards as shards_lib
from xlnet_tf.records.layout import Layout
from xlnet_tf.text.cleaning import MANIFEST_FILE, CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.vocabulary import TOKENIZER_FILE

FILE_NAME = MANIFEST_FILE
SCHEMA_VERSION = 1
# Kind of manifest -> contents of the folder, and the command that trains on it.
_KINDS = {
    "pretraining": ("pretraining records", "pretrain"),
    "examples": ("fine-tuning examples", "finetune"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordSet:
    """What a folder of records holds and how it was made: a subclass has its manifest's fields, in order."""

    KIND: ClassVar[str]
    SHARD: ClassVar[type]  # type of the items of `shards`
    PARTS: ClassVar[Mapping[str, Any]] = {}  # types of fields that are objects, see schema.problem
    EARLIER: ClassVar[Mapping[str, Any]] = {}  # values of fields that manifests of earlier versions lack
    BUILD: ClassVar[str]  # how to make a set
    FIX: ClassVar[str]  # what to do about a damaged manifest
    FIX_SHARD: ClassVar[str]
    ABOVE: ClassVar[str]  # what to give instead of a folder in a set
    ASCII: ClassVar[bool] = True  # whether the manifest escapes other characters

    folder: epath.Path | None = dataclasses.field(default=None, compare=False)

    @functools.cached_property
    def layout(self) -> Layout:
        raise NotImplementedError

    def identity(self, shard: Any) -> dict[str, np.ndarray]:
        """Returns the columns [records] that identify each record of a shard in the set."""
        raise NotImplementedError

    def _problems(self) -> Iterator[str]:
        """Yields problems in and between the fields; later checks rely on earlier ones."""
        raise NotImplementedError

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    @property
    def tokenizer_path(self) -> epath.Path:
        """The SentencePiece model next to the records."""
        return self.folder / self.tokenizer.get("file", TOKENIZER_FILE)

    @property
    def digest(self) -> str:
        """Digest of the records' content, independent of their folder."""
        return hashlib.sha256("\n".join(shard.sha256 for shard in self.shards).encode()).hexdigest()

    def path(self, shard: Any) -> epath.Path:
        return self.folder / shard.file

    def read(self, shard: Any) -> dict[str, np.ndarray]:
        """Returns the columns of a shard, name -> [records, length] or, for scalars, [records]."""
        return shards_lib.read_shard(self.path(shard), self.layout, count=shard.records)

    def load_tokenizer(self) -> XLNetTokenizer:
        """Returns the tokenizer that the records were made with; raises UserError if it was replaced."""
        proto = shards_lib.read_tokenizer(self.tokenizer_path, self.tokenizer["sha256"])
        return XLNetTokenizer(model_proto=proto, cleaning=CleaningConfig.from_dict(self.cleaning))

    def check_files(self, checksums: bool = False) -> None:
        """Raises FileNotFoundError or UserError for the first file that is missing or has another size.

        With `checksums` it also reads every file, the tokenizer included, and compares its sha256.
        """

        def check(shard: Any) -> None:
            shards_lib.check_shard(
                self.path(shard),
                self.layout,
                shard.bytes,
                shard.sha256 if checksums else None,
                lambda: self.identity(shard),
                self.FIX_SHARD,
            )

        with futures.ThreadPoolExecutor() as pool:
            for _ in pool.map(check, self.shards):
                pass
        if checksums:
            shards_lib.read_tokenizer(self.tokenizer_path, self.tokenizer["sha256"])
        object.__setattr__(self, "_checked", True)  # not a field: it is not part of what a manifest says

    def check_files_once(self) -> None:
        """Runs `check_files` unless it has run: remote storage is slow for many shards."""
        if not vars(self).get("_checked"):
            self.check_files()

    def fields(self) -> dict[str, Any]:
        """Returns the manifest's fields as JSON values."""
        values = dataclasses.asdict(dataclasses.replace(self, folder=None))
        del values["folder"]
        return values

    def save(self, name: str = FILE_NAME) -> None:
        """Writes the manifest into `folder`, atomically; an unfinished set's has another name."""
        text = to_json(manifest_checksum.with_checksum(self.fields()), self.ASCII)
        files.write(self.folder / name, text)

    @classmethod
    def load(cls, path: epath.PathLike) -> Self:
        """Reads and validates the manifest of a set, given its folder, a run trained on it, or the file.

        Raises FileNotFoundError without a manifest (the build is unfinished), and UserError for a wrong one.
        """
        given = epath.Path(path)
        path = given if given.name == FILE_NAME else given / FILE_NAME
        if not path.exists():
            if file := next((each for each in (given, given.parent) if each.is_file()), None):
                name = _KINDS[cls.KIND][0]
                raise UserError(f"{file} is a file; expected a folder of finished {name}. {cls.BUILD}")
            raise cls._missing(path)
        values = files.read_json(path, fix=cls.FIX)
        cls._refuse_other_kind(values, path.parent)
        found = {name: values.get(name) for name in ("kind", "schema_version")}
        if found != {"kind": cls.KIND, "schema_version": SCHEMA_VERSION}:
            raise UserError(
                f"{path}: kind is {found['kind']} and schema_version is {found['schema_version']}, expected "
                f"{cls.KIND} and {SCHEMA_VERSION}: {cls.FIX} with this version"
            )
        intact = manifest_checksum.pop_checksum(values)
        loaded = cls._from_fields({**cls.EARLIER, **values}, path)
        if not intact:  # last, as the message about a wrong field says more
            raise manifest_checksum.broken(path)
        return loaded

    @classmethod
    def _from_fields(cls, values: Mapping[str, Any], path: epath.Path) -> Self:
        """Returns the set that a manifest's fields describe; raises UserError if one is wrong."""

        def check(problem: str) -> None:
            if problem:
                raise UserError(f"{path}: {problem}: {cls.FIX}")

        fields = {field.name: field for field in dataclasses.fields(cls) if field.compare}
        wrong = {"missing": fields.keys() - values.keys(), "unknown": values.keys() - fields.keys()}
        text = "; ".join(f"{word} {', '.join(sorted(names))}" for word, names in wrong.items() if names)
        check(text and f"fields {text}")
        for name, field in fields.items():
            hint = cls.PARTS.get(name, field.type)
            check(schema.problem(name, values[name], hint, schema.limits_of(field)))
        shards = tuple(cls.SHARD(**shard) for shard in values["shards"])
        loaded = cls(**{**values, "shards": shards}, folder=path.parent)
        check(next(loaded._problems(), ""))
        return loaded

    @classmethod
    def _missing(cls, path: epath.Path) -> FileNotFoundError:
        """Returns the error for a missing manifest, which names the sets nearby."""
        above = path.parent.parent
        inside, nearby = ", ".join(_sets_in(path.parent)), ", ".join(_sets_in(above))
        hint = f"; it has sets in {inside}" if inside else f"; sets next to it: {nearby}" if nearby else ""
        if (above / FILE_NAME).exists():
            cls._refuse_other_kind(files.read_json(above / FILE_NAME, fix=cls.FIX), above)
            hint = f"; {above} is one itself: give {cls.ABOVE}"
        return FileNotFoundError(
            f"{path} does not exist: expected a folder of finished {_KINDS[cls.KIND][0]}{hint}. {cls.BUILD}"
        )

    @classmethod
    def _refuse_other_kind(cls, values: Mapping[str, Any], folder: epath.Path) -> None:
        """Raises UserError if a folder's manifest is that of another kind of set."""
        kind = str(values.get("kind"))
        if kind != cls.KIND and kind in _KINDS:
            (found, command), (expected, _) = _KINDS[kind], _KINDS[cls.KIND]
            raise UserError(
                f"{folder} has {found}, or is a run on them; expected {expected}, or a run on those. "
                f"{cls.BUILD}; `xlnet-tf {command}` trains on {found.split()[-1]}"
            )


def _sets_in(folder: epath.Path) -> list[str]:
    """Returns the names of the sets in a folder; runs and models have a manifest, too, but no shards."""
    inside = [each for each in files.entries(folder) if (each / FILE_NAME).exists()]
    return [each.name for each in inside if files.files_in(each, ".tfrecord")]


def to_json(values: Mapping[str, Any], ensure_ascii: bool = True) -> bytes:
    """Returns readable JSON with one shard or setting per line."""
    return (json.dumps(values, indent=1, ensure_ascii=ensure_ascii) + "\n").encode()
