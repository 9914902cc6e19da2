r"""Plans building records on many machines: of pretraining; the defaults are the paper's corpus.

    python -m run_scripts.corpus_plan --machines=8 --cores=16
    python -m run_scripts.corpus_plan --records=records --text_gb=158 --builder_mb=6.8

--records takes what it can from a set that was built of a part of the corpus: its tokens, sizes and passes.
Plain arithmetic over measured rates, each a flag; docs/how-to/corpus.md says where they come from.
"""

import dataclasses
from collections.abc import Sequence

from absl import flags

from run_scripts.common import estimates
from xlnet_tf import errors
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.record_set import to_json

JOBS_IN_FLIGHT = 2  # of each worker; the text of compressed files waits in the coordinator's memory
FINGERPRINT_BYTES = 20  # of a document, while documents are compared


@dataclasses.dataclass(frozen=True)
class CorpusPlan(estimates.Records):
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
    cores: int = option("workers of a machine, one a core", 16, positive=True)
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
    """Takes the figures of a plan that a built set has.

    Args:
        text_gb: text of the whole corpus, 10**9 bytes.

    Returns:
        Fields of CorpusPlan.

    Raises:
        UserError: the set does not say how much text it was made of.
    """
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


def plan(build: CorpusPlan) -> dict[str, dict[str, float]]:
    """Estimates what a build takes.

    Returns:
        part of the plan -> what it takes -> how much; the unit is the last word of the name.
    """
    text = build.text_gb * 1e9
    record, records = build.record_bytes(build.vocab_size), build.records_of_pass
    stored = build.num_passes * records * record

    one_pass = text / (build.builder_mb * 1e6) * build.directions / 2
    all_passes = one_pass * (build.once_share + build.num_passes * (1 - build.once_share))
    workers = build.machines * build.cores
    building = all_passes / (workers * build.scaling)
    unpacking = build.packed_share * text / (build.unpack_mb * 1e6)
    planning = unpacking + (1 - build.packed_share) * build.jobs / build.planner_slices
    writing = stored / 1e6 / min(build.storage_mb, build.machines * build.network_mb)
    seconds = max(building, planning, writing)
    job = build.slice_mb * 1e6
    worker = build.worker_gb * 1e9 + build.unit_bytes * job
    waiting = JOBS_IN_FLIGHT * workers * job if build.packed_share else 0
    return {
        "text": {
            "text, GB": text / 1e9,
            "files, GB": text / build.compression / 1e9,
            "jobs": build.jobs,
        },
        "records": {
            "records of a pass, million": records / 1e6,
            "a record with its frame, bytes": record,
            "one pass, GB": records * record / 1e9,
            "all passes, TB": stored / 1e12,
            "bytes of records for a byte of text, a pass": records * record / text,
            "shards": build.shards,
            "a shard, MB": stored / build.shards / 1e6,
            "manifest, MB": build.shards * build.shard_json / 1e6,
        },
        "time": {
            "one core, hours": all_passes / 3600,
            "workers": workers,
            "their work, hours": building / 3600,
            "planning by the coordinator, hours": planning / 3600,
            "writing to the storage, hours": writing / 3600,
            "all, by the slowest of them, hours": seconds / 3600,
            "a job, all passes, on a worker, s": all_passes / build.jobs / build.scaling,
            "checking it afterwards, hours": build.num_passes
            * records
            / build.check_records
            / workers
            / 3600,
        },
        "coordinator": {
            "workers that it keeps busy": all_passes / build.scaling / planning,
            "text that waits for workers, GB": waiting / 1e9,
            "fingerprints of documents, GB": FINGERPRINT_BYTES * build.documents / 1e9,
        },
        "a machine": {
            "memory of its workers, GB": build.cores * worker / 1e9,
            "reads, MB/s": text / build.compression / seconds / build.machines / 1e6,
            "writes, MB/s": stored / seconds / build.machines / 1e6,
        },
        "storage": {
            "reads, MB/s": text / build.compression / seconds / 1e6,
            "writes, MB/s": stored / seconds / 1e6,
            "new files, 1/s": build.shards / seconds,
        },
    }


def main(_: Sequence[str]) -> None:
    values = flags.FLAGS
    if values.records:
        measured = from_manifest(Manifest.load(values.records), values.text_gb)
    else:
        measured = estimates.in_proportion(CorpusPlan(), values, "text_gb", "pieces", "documents")
    print(estimates.table(plan(from_flags(CorpusPlan, **measured))))


if __name__ == "__main__":
    define_flags(CorpusPlan)
    flags.DEFINE_string(
        "records", None, "set built from a part of the corpus; flags that you give take precedence"
    )
    errors.run(main)
