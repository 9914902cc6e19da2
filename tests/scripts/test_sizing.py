"""The sizing page's arithmetic agrees with what is built, read and trained."""

import dataclasses

import pytest

from run_scripts import benchmark_batches, reckoning, sizing
from run_scripts.benchmark_common import our_model
from tfrecord_builders import pretraining as builder
from xlnet_tf.config import XLNetConfig


@pytest.mark.parametrize("untie_r", [True, False])
def test_parameters_are_the_models(untie_r):
    config = XLNetConfig.preset("micro", untie_r=untie_r)
    assert sizing.parameters(config) == our_model(config).count_params()


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
    run = sizing.Run(
        preset="micro",
        pieces=pieces,
        num_passes=1,
        seq_len=32,
        reuse_len=16,
        num_predict=manifest.num_predict,
    )
    found = sizing.size(run)["records"]
    assert found["one pass, both directions, million records"] * 1e6 == pytest.approx(
        manifest.records, rel=0.01
    )
    stored = sum(path.stat().st_size for path in tmp_path.glob("*.tfrecord"))
    assert found["one pass, GB"] * 1e9 == pytest.approx(stored, rel=0.01)


def test_bytes_to_the_devices_are_the_batchs():
    run = sizing.Run(preset="micro", seq_len=32, reuse_len=16, num_predict=4, batch_size=64, cores=64)
    config = XLNetConfig.preset("micro")
    batch = benchmark_batches.make_batch(config, 8, 32, 4)
    # next_sentence, stream_start and document_offset are not in a made-up batch.
    row = sum(values.nbytes for values in batch.values()) / 8 + 1 + 1 + 4
    found = sizing.size(run)["input of a host"]
    # make_batch leaves segment ids and ranks in wider types than records have.
    wider = 32 * (batch["input_type_ids"].itemsize - 1 + batch["permutation_rank"].itemsize - 2)
    assert found["to the devices, MB/s"] * 1e6 == pytest.approx(8 * (row - wider))


def test_limits_scale_as_they_should():
    run = sizing.Run()
    once, twice = sizing.size(run), sizing.size(dataclasses.replace(run, cores=2 * run.cores))
    name = "waiting for storage limits steps to, s"
    assert twice["input of a host"][name] == pytest.approx(once["input of a host"][name] / 2)
    assert twice["training"]["all steps, days"] == once["training"]["all steps, days"]
    assert once["training"]["rows of a core"] == 16
    assert "hosts" in reckoning.table(once)


def test_a_stream_is_read_by_as_many_requests_as_it_fills_buffers():
    run = sizing.Run(batch_size=8192, cores=512, stream_segments=64)  # 128 rows a host, streams of 190 kB
    for request_mb, requests in ((67.1, 2), (0.262, 2), (0.0655, 6)):
        found = sizing.size(dataclasses.replace(run, request_mb=request_mb))["input of a host"]
        assert found["requests to storage, 1/s"] == pytest.approx(requests)
        assert found["read from storage, at most, MB/s"] == pytest.approx(requests * request_mb)
    assert found["of use from storage, MB/s"] == pytest.approx(0.381, abs=1e-3)
