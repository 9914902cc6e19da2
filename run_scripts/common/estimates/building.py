"""Estimates building a corpus' records on many machines; docs/how-to/corpus.md explains the rates."""

import dataclasses

from run_scripts.common.estimates.records import Records
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.record_set import to_json

JOBS_IN_FLIGHT = 2  # of each worker; the text of compressed files waits in the coordinator's memory
FINGERPRINT_BYTES = 20  # of a document, while documents are compared


@dataclasses.dataclass(frozen=True)
class BuildPlan(Records):
    """A corpus, how it is to be built, the machines and the rates; each field is a flag."""

    documents: float = option(
        "documents of the corpus. Default: in proportion to text_gb or pieces", 200e6, positive=True
    )
    compression: float = option("bytes of text in a byte of the files; 1: plain text", 1.0, positive=True)
    packed_share: float = option(
        "part of the files that is .gz and .zst: the coordinator unpacks it", 0.0, least=0, most=1
    )
    vocab_size: int = option("pieces of the tokenizer", 32_000, positive=True)
    machines: int = option("machines that build the records", 8, positive=True)
    workers: int = option("workers of a machine that builds the records, one a core", 16, positive=True)
    builder_mb: float = option(
        "MB of text of which a core builds one pass, both directions, in a second", 5.0, positive=True
    )
    once_share: float = option(
        "part of the building time that later passes over the same text save", 0.64, least=0, most=1
    )
    scaling: float = option(
        "rate of a core if all cores of a machine work, relative to one that works alone", 0.9, positive=True
    )
    planner_slices: float = option(
        "cuts of plain files that the coordinator plans in a second", 2_000.0, positive=True
    )
    unpack_mb: float = option(
        "MB of text of compressed files that the coordinator unpacks in a second", 150.0, positive=True
    )
    worker_gb: float = option("GB of memory of a worker, without that of its job", 0.16, least=0)
    unit_bytes: float = option("bytes of memory of a worker for each byte of a job's text", 25.5, least=0)
    network_mb: float = option("MB that a machine sends in a second", 1_250.0, positive=True)
    storage_mb: float = option(
        "MB that the storage takes in a second, from all machines", 5_000.0, positive=True
    )
    shard_json: float = option("bytes in the manifest for each shard", 1_600.0, least=0)
    check_records: float = option("records that a core checks in a second", 18_000.0, positive=True)


def from_manifest(manifest: Manifest, text_gb: float) -> dict[str, float]:
    """Returns the fields of BuildPlan that a built set determines, scaled to a corpus of `text_gb`."""
    statistics = manifest.statistics
    if not statistics.get("bytes"):
        raise UserError(
            f"{manifest.folder} does not say how much text it was made of, as converted records do not: take "
            "a set that `xlnet-tf build pretraining` has built"
        )
    taken = statistics["documents"] / statistics.get("documents_in", statistics["documents"])
    scale = text_gb * 1e9 / statistics["bytes"]
    size = sum(file["bytes"] for file in manifest.corpus)
    packed = sum(file["bytes"] for file in manifest.corpus if file["file"].lower().endswith((".gz", ".zst")))
    shards = to_json({"shards": [dataclasses.asdict(shard) for shard in manifest.shards]})
    return {
        "text_gb": text_gb,
        "pieces": statistics["tokens"] * scale,
        "documents": statistics["documents"] * scale,
        "compression": statistics["bytes"] / (taken * size),
        "packed_share": packed / size,
        **{name: getattr(manifest, name) for name in ("num_passes", "seq_len", "reuse_len", "num_predict")},
        "directions": len(manifest.directions),
        "vocab_size": manifest.tokenizer["vocab_size"],
        "shard_json": len(shards) / len(manifest.shards),
    }


def plan(build: BuildPlan) -> dict[str, dict[str, float]]:
    """Estimates a build: part -> resource -> amount; the unit is the last word of the name."""
    text, workers = build.text_gb * 1e9, build.machines * build.workers
    time = _time(build)
    hours = time["all, by the slowest of them, hours"]
    stored = build.num_passes * build.records_of_pass * build.record_bytes(build.vocab_size)
    read, written, seconds = text / build.compression / 1e6, stored / 1e6, hours * 3600
    job = build.slice_mb * 1e6
    waiting = JOBS_IN_FLIGHT * workers * job if build.packed_share else 0
    busy = time["one core, hours"] / build.scaling / time["planning by the coordinator, hours"]
    return {
        "text": {
            "text, GB": build.text_gb,
            "files, GB": build.text_gb / build.compression,
            "jobs": build.jobs,
        },
        "records": _records(build),
        "time": time,
        "coordinator": {
            "workers that it keeps busy": busy,
            "text that waits for workers, GB": waiting / 1e9,
            "fingerprints of documents, GB": FINGERPRINT_BYTES * build.documents / 1e9,
        },
        "a machine": {
            "memory of its workers, GB": build.workers * (build.worker_gb + build.unit_bytes * job / 1e9),
            "reads, MB/s": read / seconds / build.machines,
            "writes, MB/s": written / seconds / build.machines,
        },
        "storage": {
            "reads, MB/s": read / seconds,
            "writes, MB/s": written / seconds,
            "new files, 1/s": build.shards / seconds,
        },
    }


def _records(build: BuildPlan) -> dict[str, float]:
    record, records = build.record_bytes(build.vocab_size), build.records_of_pass
    stored = build.num_passes * records * record
    return {
        "records of a pass, million": records / 1e6,
        "a record with its frame, bytes": record,
        "one pass, GB": records * record / 1e9,
        "all passes, TB": stored / 1e12,
        "bytes of records for a byte of text, a pass": records * record / (build.text_gb * 1e9),
        "shards": build.shards,
        "a shard, MB": stored / build.shards / 1e6,
        "manifest, MB": build.shards * build.shard_json / 1e6,
    }


def _time(build: BuildPlan) -> dict[str, float]:
    text, workers = build.text_gb * 1e9, build.machines * build.workers
    records = build.num_passes * build.records_of_pass
    stored = records * build.record_bytes(build.vocab_size)
    one_pass = text / (build.builder_mb * 1e6) * build.directions / 2
    all_passes = one_pass * (build.once_share + build.num_passes * (1 - build.once_share))
    building = all_passes / (workers * build.scaling)
    unpacking = build.packed_share * text / (build.unpack_mb * 1e6)
    planning = unpacking + (1 - build.packed_share) * build.jobs / build.planner_slices
    writing = stored / 1e6 / min(build.storage_mb, build.machines * build.network_mb)
    return {
        "one core, hours": all_passes / 3600,
        "workers": workers,
        "their work, hours": building / 3600,
        "planning by the coordinator, hours": planning / 3600,
        "writing to the storage, hours": writing / 3600,
        "all, by the slowest of them, hours": max(building, planning, writing) / 3600,
        "a job, all passes, on a worker, s": all_passes / build.jobs / build.scaling,
        "checking it afterwards, hours": records / build.check_records / workers / 3600,
    }
