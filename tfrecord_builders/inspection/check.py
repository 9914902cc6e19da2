"""Checks a whole set of pretraining records: files, frames, every invariant of every record, statistics."""

import collections
import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfrecord_builders.common import runners
from tfrecord_builders.inspection import invariants, recounts
from tfrecord_builders.inspection.recovered_text import RecoveredText
from tfrecord_builders.pretraining import report as pretraining_report
from xlnet_tf.errors import UserError
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.shards import damaged_frames, framed_bytes
from xlnet_tf.text.tokenizer import XLNetTokenizer

SHOWN = 3  # failures of each kind that are shown


@dataclasses.dataclass(frozen=True)
class Failure:
    """One position where an invariant does not hold."""

    file: str
    record: int | None  # its number in the file; None: the failure is that of the whole file
    byte: int | None  # where it begins
    found: str
    expected: str

    @classmethod
    def of_file(cls, file: str, found: object, expected: object) -> "Failure":
        return cls(file, None, None, str(found), str(expected))

    def __str__(self) -> str:
        where = self.file if self.record is None else f"{self.file}, record {self.record} (byte {self.byte})"
        return f"{where}: found {self.found}; expected {self.expected}"


@dataclasses.dataclass
class CheckReport:
    """The results of a check: by invariant, how many records or files break it, and the first failures."""

    records: int = 0
    shards: int = 0
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failures: dict[str, list[Failure]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(list)
    )

    @property
    def sound(self) -> bool:
        return not self.counts

    def add(self, invariant: str, failures: Iterator[Failure] | Sequence[Failure], count: int = 1) -> None:
        """Counts an invariant as broken `count` times; keeps only as many failures as are shown."""
        self.counts[invariant] += count
        room = SHOWN - len(self.failures[invariant])
        self.failures[invariant] += [failure for failure, _ in zip(failures, range(room))]

    def merge(self, other: "CheckReport") -> None:
        self.records += other.records
        self.shards += other.shards
        for invariant, count in other.counts.items():
            self.add(invariant, other.failures[invariant], count)

    def to_dict(self) -> dict[str, Any]:
        return {
            "sound": self.sound,
            "records": self.records,
            "shards": self.shards,
            "failures": [
                {
                    "invariant": invariant,
                    "count": count,
                    "first": [dataclasses.asdict(failure) for failure in self.failures[invariant]],
                }
                for invariant, count in self.counts.items()
            ],
        }

    def __str__(self) -> str:
        if self.sound:
            return f"all {self.records:,} records of {self.shards} shard{'s' * (self.shards > 1)} are sound"
        lines = [
            f"{len(self.counts)} invariants do not hold in {self.records:,} records of {self.shards} "
            f"shard{'s' * (self.shards > 1)}:"
        ]
        for invariant, count in self.counts.items():
            lines += ["", f"{invariant}: {count:,} failures"]
            lines += [f"  {failure}" for failure in self.failures[invariant]]
            if count > len(self.failures[invariant]):
                lines.append(f"  and {count - len(self.failures[invariant]):,} more")
        return "\n".join(lines)


def check(manifest: Manifest, num_workers: int = 1, progress: bool = False) -> CheckReport:
    """Checks every record and file of a set and the manifest's statements; needs the manifest's tokenizer."""
    tokenizer = XLNetTokenizer(model_file=manifest.tokenizer_path)
    manifest.check_tokenizer(tokenizer.fingerprint)
    report = CheckReport()
    by_index = collections.defaultdict(list)
    for shard in manifest.shards:
        by_index[shard.slice_index].append(shard)
    _check_manifest(manifest, by_index, report)
    bare = dataclasses.replace(manifest, shards=(), statistics={})  # each job takes it to its worker
    check_corpus_shard = functools.partial(_check_corpus_shard, bare, tokenizer.word_starts)
    groups = (sorted(by_index[index], key=lambda shard: shard.pass_index) for index in sorted(by_index))
    with ProgressBar(total=manifest.records, unit="record", unit_scale=True, disable=not progress) as bar:
        for shards, part in runners.run_jobs(check_corpus_shard, groups, num_workers=num_workers):
            report.merge(part)
            bar.set_postfix(failures=f"{report.counts.total():,}", refresh=False)
            bar.update(sum(shard.records for shard in shards))
    return report


def _check_manifest(manifest: Manifest, by_index: dict[int, list[Shard]], report: CheckReport) -> None:
    def add(invariant, found, expected):
        report.add(invariant, [Failure.of_file("manifest.json", found, expected)])

    if sorted(by_index) != list(range(len(by_index))):
        add("corpus shards", f"numbers up to {max(by_index)}", f"all numbers below {len(by_index)}")
    passes = list(range(manifest.num_passes))
    for index, shards in by_index.items():
        if (numbers := sorted(shard.pass_index for shard in shards)) != passes:
            add("passes", f"passes {numbers} of corpus shard {index}", passes)
        if len({shard.text_sha256 for shard in shards}) > 1:
            add("text_sha256", f"several for corpus shard {index}", "one: all passes are of the same text")
    for name, value in pretraining_report.merge_statistics(manifest.shards).items():
        if (said := manifest.statistics.get(name)) != value:
            add(f"statistics.{name}", said, f"{value}, as the shards' statistics add up")


def _check_corpus_shard(manifest: Manifest, word_starts: np.ndarray, shards: Sequence[Shard]) -> CheckReport:
    """Checks the shards of one slice, all passes."""
    report, text, counted = CheckReport(), None, None
    for shard in shards:
        report.shards += 1
        report.records += shard.records
        columns, usable = _read(manifest, shard, report)
        if columns is None:
            continue
        text = text or RecoveredText(manifest, shard, columns, usable)
        before = report.counts.total()
        for broken in invariants.broken_records(manifest, shard, columns, text):
            records = broken.records[usable[broken.records]]
            if len(records):
                failures = (_failure(manifest, shard, r, *broken.explain(r)) for r in records.tolist())
                report.add(broken.invariant, failures, len(records))
        if usable.all() and report.counts.total() == before:
            for name, said, value in recounts.broken_statistics(manifest, shard, columns, text, word_starts):
                failure = Failure.of_file(shard.file, f"{said} in the manifest", f"{value}, counted again")
                report.add(f"statistics.{name}", [failure])
        counted = counted or shard.statistics["text"]
        if counted != shard.statistics["text"]:
            failure = Failure.of_file(shard.file, "others than another pass", "those of the same text")
            report.add("statistics.text", [failure])
    return report


def _read(manifest: Manifest, shard: Shard, report: CheckReport):
    """Reads a shard; returns (columns, bool [S]: undamaged), or (None, None) if nothing can be checked."""
    path, size = manifest.path(shard), framed_bytes(manifest.spec)
    if not path.exists():
        report.add("files", [Failure.of_file(shard.file, "no such file", "a file of the manifest")])
        return None, None
    data = path.read_bytes()
    if len(data) != shard.bytes:
        report.add("file size", [Failure.of_file(shard.file, f"{len(data)} bytes", shard.bytes)])
    if (sha256 := hashlib.sha256(data).hexdigest()) != shard.sha256:
        report.add("file sha256", [Failure.of_file(shard.file, sha256, shard.sha256)])
    if len(data) < shard.bytes:
        return None, None
    framed = np.frombuffer(data, np.uint8, shard.bytes).reshape(-1, size)
    damaged = damaged_frames(framed, manifest.spec)
    if damaged.any():
        failures = (
            _failure(manifest, shard, record, "bytes that do not fit their checksum", "a TFRecord frame")
            for record in np.flatnonzero(damaged).tolist()
        )
        report.add("frame checksum", failures, int(damaged.sum()))
        if damaged.all():
            return None, None
        # A sound record stands in for each damaged one.
        framed = framed[np.where(damaged, int(np.argmin(damaged)), np.arange(len(framed)))]
    try:
        return manifest.spec.decode(framed[:, 12:-4]), ~damaged
    except UserError as error:
        report.add("layout of the bytes", [Failure.of_file(shard.file, error, manifest.spec)])
        return None, None


def _failure(manifest: Manifest, shard: Shard, record: int, found: str, expected: str) -> Failure:
    return Failure(shard.file, record, record * framed_bytes(manifest.spec), found, expected)
