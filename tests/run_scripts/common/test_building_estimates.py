"""The plan's arithmetic agrees with what is built, and its limits are where they should be."""

import dataclasses
import pathlib

import pytest

from run_scripts.common.estimates import building, records
from run_scripts.common.estimates.building import BuildPlan
from run_scripts.common.estimates.training import PretrainingRun, size
from tests.helpers.command_flags import fresh_flags
from tests.helpers.commands import run_in_fork
from tfrecord_builders.pretraining import build as builder
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, given_of

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def manifest(corpus_file, tokenizer_file, tmp_path_factory):
    return builder.build_pretraining_records(
        builder.PretrainingOptions(
            input=[str(corpus_file)],
            tokenizer=str(tokenizer_file),
            output_dir=str(tmp_path_factory.mktemp("records")),
            num_workers=1,
            seq_len=32,
            slice_mb=0.04,
            num_passes=2,
        )
    )


def test_a_plan_from_a_set_gives_that_set(manifest):
    text_gb = manifest.statistics["bytes"] / 1e9
    values = building.from_manifest(manifest, text_gb)
    found = building.plan(dataclasses.replace(BuildPlan(), **values, slice_mb=text_gb * 1e3))
    counts, stored = found["records"], sum(shard.bytes for shard in manifest.shards)
    assert counts["records of a pass, million"] * 2e6 == pytest.approx(manifest.records, rel=0.01)
    assert counts["all passes, TB"] * 1e12 == pytest.approx(stored, rel=0.01)
    assert counts["shards"] == pytest.approx(2)
    assert values["compression"] == pytest.approx(1, rel=0.01)
    size = (manifest.folder / "manifest.json").stat().length
    assert values["shard_json"] * len(manifest.shards) == pytest.approx(
        size, abs=6000
    )  # but for the settings
    ten = building.from_manifest(manifest, 10 * text_gb)
    assert ten["pieces"] == pytest.approx(10 * manifest.statistics["tokens"])


@pytest.mark.parametrize("reuse_len", [3, 11])
def test_segments_of_other_parts_than_halves(corpus_file, tokenizer_file, tmp_path, reuse_len):
    """The next segment begins reuse_len tokens on, whatever seq_len is; sizing counts the same."""
    manifest = builder.build_pretraining_records(
        builder.PretrainingOptions(
            input=[str(corpus_file)],
            tokenizer=str(tokenizer_file),
            output_dir=str(tmp_path),
            num_workers=1,
            seq_len=16,
            reuse_len=reuse_len,
            perm_size=1,
        )
    )
    values = building.from_manifest(manifest, manifest.statistics["bytes"] / 1e9)
    planned = building.plan(dataclasses.replace(BuildPlan(), **values))["records"]
    pass_records = pytest.approx(manifest.records / manifest.num_passes, rel=0.01)
    assert planned["records of a pass, million"] * 1e6 == pass_records
    shared = {field.name for field in dataclasses.fields(records.Records)}
    run = PretrainingRun(preset="micro", **{name: v for name, v in values.items() if name in shared})
    assert size(run)["records"]["one pass, million records"] * 1e6 == pass_records


def test_a_plan_from_a_part_of_the_documents(manifest):
    """Of a held-out set, its documents' share of the files counts; text of unknown size is an error."""
    half = manifest.statistics | {"documents_in": 2 * manifest.statistics["documents"]}
    found = building.from_manifest(dataclasses.replace(manifest, statistics=half), 1)
    assert found["compression"] == pytest.approx(2 * building.from_manifest(manifest, 1)["compression"])
    unknown = dataclasses.replace(manifest, statistics=manifest.statistics | {"bytes": 0})
    with pytest.raises(UserError, match="does not say how much text"):
        building.from_manifest(unknown, 1)


def test_files_that_the_coordinator_unpacks_are_named(manifest):
    """Parquet is compressed, too, but cut without being unpacked."""
    sizes = {"a.jsonl.gz": 1, "b.ZST": 2, "c.parquet": 5}
    corpus = [{"file": name, "bytes": size} for name, size in sizes.items()]
    found = building.from_manifest(dataclasses.replace(manifest, corpus=corpus), 1)
    assert found["packed_share"] == 3 / 8
    assert building.from_manifest(manifest, 1)["packed_share"] == 0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], (158, 32.9e9, 200e6)),
        (["--text_gb=15.8"], (15.8, 3.29e9, 20e6)),
        (["--pieces=3.29e9"], (15.8, 3.29e9, 20e6)),
        (["--text_gb=15.8", "--pieces=5e9"], (15.8, 5e9, 20e6)),
        (["--text_gb=15.8", "--documents=7"], (15.8, 3.29e9, 7)),
    ],
)
def test_what_is_not_given_of_a_corpus_is_in_proportion_to_the_papers(given, expected):
    with fresh_flags() as values:
        define_flags(BuildPlan)
        values(["sizing", *given])
        corpus = records.in_proportion(
            BuildPlan(), given_of(BuildPlan, values), "text_gb", "pieces", "documents"
        )
        found = from_flags(BuildPlan, values, **corpus)
    assert (found.text_gb, found.pieces, found.documents) == pytest.approx(expected)


def test_a_small_corpus_is_one_job():
    assert BuildPlan(text_gb=0.001).shards == BuildPlan().num_passes


def test_the_slowest_part_decides():
    plan = BuildPlan(storage_mb=1e9, network_mb=1e9)
    once = building.plan(plan)
    assert once["time"]["all, by the slowest of them, hours"] == once["time"]["their work, hours"]
    twice = building.plan(dataclasses.replace(plan, machines=2 * plan.machines))
    assert twice["time"]["their work, hours"] == pytest.approx(once["time"]["their work, hours"] / 2)
    assert twice["a machine"]["writes, MB/s"] == pytest.approx(once["a machine"]["writes, MB/s"])
    small = dataclasses.replace(plan, compression=2.8, workers=512)  # such as parquet, which workers unpack
    assert building.plan(small)["coordinator"]["text that waits for workers, GB"] == 0
    packed = building.plan(dataclasses.replace(small, packed_share=1, unpack_mb=50))
    hours = packed["time"]["all, by the slowest of them, hours"]
    assert hours == packed["time"]["planning by the coordinator, hours"] == pytest.approx(158e3 / 50 / 3600)
    assert packed["coordinator"]["workers that it keeps busy"] < packed["time"]["workers"]
    slow = building.plan(dataclasses.replace(plan, storage_mb=100))
    assert slow["storage"]["writes, MB/s"] == pytest.approx(100)


def test_more_passes_cost_less_than_the_first():
    hours = [building.plan(BuildPlan(num_passes=passes))["time"]["one core, hours"] for passes in (1, 2, 3)]
    assert (
        hours[1] - hours[0]
        == pytest.approx(hours[2] - hours[1])
        == pytest.approx((1 - BuildPlan().once_share) * hours[0])
    )


def test_the_script(manifest):
    given = ("--text_gb=1", "--num_passes=7")  # counts more than the set
    shown = run_in_fork("run_scripts.sizing", "--build", f"--records={manifest.folder}", *given).stdout
    assert f"{7 * 32}" in shown.split("  shards")[1].split("\n")[0]
    pieces = manifest.statistics["tokens"] / manifest.statistics["bytes"] * 1e9
    million = 2 * pieces / manifest.reuse_len / 1e6
    assert f"{million:,.1f}" in shown.split("records of a pass, million")[1].split("\n")[0]
