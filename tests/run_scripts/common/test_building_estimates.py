"""The plan's arithmetic agrees with what is built, and its limits are where they should be."""

import contextlib
import dataclasses
import re

import pytest
from absl import flags

from benchmarks import batches
from benchmarks.harness import our_model
from run_scripts.common.estimates import building, records, training
from run_scripts.common.estimates.building import BuildPlan
from run_scripts.common.estimates.training import PretrainingRun, size
from tests.conftest import REPOSITORY
from tests.helpers import command_flags
from tests.helpers.command_flags import fresh_flags
from tests.helpers.commands import run_in_fork
from tfrecord_builders.pretraining import build as builder
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, given_of


def built(corpus_file, tokenizer_file, folder, **options):
    given = {"input": [str(corpus_file)], "tokenizer": str(tokenizer_file), "output_dir": str(folder)}
    return builder.build_pretraining_records(builder.PretrainingOptions(**given, num_workers=1, **options))


@pytest.fixture(scope="module")
def manifest(corpus_file, tokenizer_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    return built(corpus_file, tokenizer_file, folder, seq_len=32, slice_mb=0.04, num_passes=2)


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


@pytest.mark.parametrize("reuse_len", [3, 8, 11])
def test_segments_of_any_parts(corpus_file, tokenizer_file, tmp_path, reuse_len):
    """The next segment begins reuse_len tokens on, whatever seq_len is; sizing counts the same."""
    options = {"seq_len": 16, "reuse_len": reuse_len, "perm_size": 1}
    manifest = built(corpus_file, tokenizer_file, tmp_path, **options)
    values = building.from_manifest(manifest, manifest.statistics["bytes"] / 1e9)
    planned = building.plan(dataclasses.replace(BuildPlan(), **values))["records"]
    pass_records = pytest.approx(manifest.records / manifest.num_passes, rel=0.01)
    assert planned["records of a pass, million"] * 1e6 == pass_records
    shared = {field.name for field in dataclasses.fields(records.Records)}
    run = PretrainingRun(preset="micro", **{name: v for name, v in values.items() if name in shared})
    found = size(run)["records"]
    assert found["one pass, million records"] * 1e6 == pass_records
    stored = sum(shard.bytes for shard in manifest.shards) / manifest.num_passes
    assert found["one pass, GB"] * 1e9 == pytest.approx(stored, rel=0.01)


def test_a_plan_from_a_part_of_the_documents(manifest):
    """Of a held-out set, its documents' share of the files counts; text of unknown size is an error."""
    half = manifest.statistics | {"documents_in": 2 * manifest.statistics["documents"]}
    found = building.from_manifest(dataclasses.replace(manifest, statistics=half), 1)
    whole = building.from_manifest(manifest, 1)
    assert found["compression"] == pytest.approx(2 * whole["compression"]) and whole["packed_share"] == 0
    unknown = dataclasses.replace(manifest, statistics=manifest.statistics | {"bytes": 0})
    with pytest.raises(UserError, match="does not say how much text"):
        building.from_manifest(unknown, 1)
    # Of files that the coordinator unpacks; parquet is compressed, too, but cut without being unpacked.
    corpus = [{"file": name, "bytes": n} for name, n in {"a.jsonl.gz": 1, "b.ZST": 2, "c.parquet": 5}.items()]
    assert building.from_manifest(dataclasses.replace(manifest, corpus=corpus), 1)["packed_share"] == 3 / 8


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], (158, 32.9e9, 200e6)),
        (["--text_gb=15.8"], (15.8, 3.29e9, 20e6)),
        (["--pieces=3.29e9"], (15.8, 3.29e9, 20e6)),
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


def test_the_script(manifest):
    given = ("--text_gb=1", "--num_passes=7")  # counts more than the set
    shown = run_in_fork("run_scripts.sizing", "--build", f"--records={manifest.folder}", *given).stdout
    assert f"{7 * 32}" in shown.split("  shards")[1].split("\n")[0]
    pieces = manifest.statistics["tokens"] / manifest.statistics["bytes"] * 1e9
    million = 2 * pieces / manifest.reuse_len / 1e6
    assert f"{million:,.1f}" in shown.split("records of a pass, million")[1].split("\n")[0]


@pytest.mark.parametrize("untie_r", [True, False])
def test_parameters_are_the_models(untie_r):
    config = XLNetConfig.preset("micro", untie_r=untie_r)
    assert training.parameters(config) == our_model(config).count_params()


def test_bytes_to_the_devices_are_the_batchs():
    sizes = {"seq_len": 32, "reuse_len": 16, "num_predict": 4, "batch_size": 64, "cores": 64}
    run = training.PretrainingRun(preset="micro", step_seconds=1.0, **sizes)
    config = XLNetConfig.preset("micro")
    batch = batches.make_batch(config, 8, 32, 4)
    # next_sentence, stream_start and document_offset are not in a made-up batch.
    row = sum(values.nbytes for values in batch.values()) / 8 + 1 + 1 + 4
    found = training.size(run)["input of a host"]
    # make_batch leaves segment ids and ranks in wider types than records have.
    wider = 32 * (batch["input_type_ids"].itemsize - 1 + batch["permutation_rank"].itemsize - 2)
    assert found["to the devices, MB/s"] * 1e6 == pytest.approx(8 * (row - wider))


@pytest.mark.parametrize(
    ("page", "found"),
    [("sizing", training.size(training.PretrainingRun())), ("corpus", building.plan(building.BuildPlan()))],
)
def test_a_page_shows_what_its_script_prints(page, found):
    text = (REPOSITORY / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    assert f"```text\n{records.table(found)}\n```" in text


@pytest.mark.parametrize(
    ("cls", "estimate"), [(training.PretrainingRun, training.size), (building.BuildPlan, building.plan)]
)
def test_every_allowed_setting_is_estimated(cls, estimate):
    """A 0 is refused where nothing could be divided by it; numbers are in their limits."""
    refused = set()
    for field in dataclasses.fields(cls):
        if "help" not in field.metadata or field.metadata["limits"].choices:
            continue
        for number in ("-1", "0", "1"):
            with command_flags.fresh_flags() as values:
                define_flags(cls)
                try:
                    values(["script", f"--{field.name}={number}"])
                except flags.IllegalFlagValueError as error:
                    assert number != "1"
                    if number == "0":
                        assert re.search("not a positive|range .1,", str(error))
                        refused.add(field.name)
                    continue
                with contextlib.suppress(UserError):  # of a record's shape: names the setting
                    estimate(from_flags(cls))
    assert {"num_passes", "seq_len", "slice_mb"} < refused
    assert not refused & {"memory_len", "packed_share", "request_seconds"}
