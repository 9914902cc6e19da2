"""The sizing page's arithmetic agrees with what is built, read and trained."""

import contextlib
import dataclasses
import math
import re

import pytest
from absl import flags

from benchmarks import batches
from benchmarks.harness import our_model
from run_scripts.common.estimates import building, records, training
from tests.conftest import REPOSITORY
from tests.helpers import command_flags
from tfrecord_builders.pretraining import build as builder
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags


@pytest.mark.parametrize("untie_r", [True, False])
def test_parameters_are_the_models(untie_r):
    config = XLNetConfig.preset("micro", untie_r=untie_r)
    assert training.parameters(config) == our_model(config).count_params()


def test_records_are_the_builders(corpus_file, tokenizer_file, tmp_path):
    manifest = builder.build_pretraining_records(
        builder.PretrainingOptions(
            input=[str(corpus_file)],
            tokenizer=str(tokenizer_file),
            output_dir=str(tmp_path),
            num_workers=1,
            seq_len=32,
            slice_mb=32,
        )
    )
    pieces = sum(shard.statistics["text"]["tokens"] for shard in manifest.shards)
    run = training.PretrainingRun(
        preset="micro",
        pieces=pieces,
        num_passes=1,
        seq_len=32,
        reuse_len=16,
        num_predict=manifest.num_predict,
    )
    found = training.size(run)["records"]
    assert found["one pass, million records"] * 1e6 == pytest.approx(manifest.records, rel=0.01)
    stored = sum(path.stat().st_size for path in tmp_path.glob("*.tfrecord"))
    assert found["one pass, GB"] * 1e9 == pytest.approx(stored, rel=0.01)


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


def test_limits_scale_as_they_should():
    run = training.PretrainingRun()
    once, twice = training.size(run), training.size(dataclasses.replace(run, cores=2 * run.cores))
    name = "waiting for storage limits steps to, s"
    assert twice["input of a host"][name] == pytest.approx(once["input of a host"][name] / 2)
    assert twice["training"]["all steps, days"] == once["training"]["all steps, days"]
    assert once["training"]["rows of a core"] == 16
    assert "hosts" in records.table(once)


def test_a_stream_is_read_by_as_many_requests_as_it_fills_buffers():
    run = training.PretrainingRun(batch_size=8192, cores=512, stream_segments=64, step_seconds=1.0)
    # 128 rows a host, streams of 190 kB
    for request_mb, requests in ((67.1, 2), (0.262, 2), (0.0655, 6)):
        found = training.size(dataclasses.replace(run, request_mb=request_mb))["input of a host"]
        assert found["requests to storage, 1/s"] == pytest.approx(requests)
        assert found["read from storage, at most, MB/s"] == pytest.approx(requests * request_mb)
    assert found["of use from storage, MB/s"] == pytest.approx(0.381, abs=1e-3)


def test_both_pages_count_the_same_records():
    sized, planned = (
        training.size(training.PretrainingRun())["records"],
        building.plan(building.BuildPlan())["records"],
    )
    for name in ("shards", "a shard, MB", "one pass, GB", "all passes, TB"):
        assert sized[name] == planned[name]
    assert sized["shards"] == math.ceil(158e9 / 32e6) * 16


@pytest.mark.parametrize(
    ("page", "found"),
    [("sizing", training.size(training.PretrainingRun())), ("corpus", building.plan(building.BuildPlan()))],
)
def test_a_page_shows_what_its_script_prints(page, found):
    text = (REPOSITORY / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    assert f"```text\n{records.table(found)}\n```" in text


def test_a_part_of_a_host_is_a_host():
    found = training.size(training.PretrainingRun(cores=4, batch_size=64))
    assert found["training"]["hosts"] == 1
    assert found["input of a host"]["needed, examples/s"] == pytest.approx(
        64 / training.PretrainingRun().step_seconds
    )


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


def test_more_than_the_whole_is_refused():
    with pytest.raises(flags.IllegalFlagValueError, match=r"packed_share=1.5: .* range \[0, 1\]"):
        command_flags.parsed(lambda: define_flags(building.BuildPlan), "--packed_share=1.5")
