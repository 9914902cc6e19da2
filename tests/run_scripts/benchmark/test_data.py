"""Builder and reader are measured at tiny sizes; nothing is asserted about time."""

import pytest

from run_scripts.benchmark import data as benchmark_data

SIZES = {"seq_len": 32, "num_predict": 4}


def test_builder(corpus_file, tokenizer_file):
    before = [getattr(owner, name) for owner, name, _ in benchmark_data.STAGES]
    result = benchmark_data.measure_builder(corpus_file, str(tokenizer_file), 1, **SIZES)
    assert result["text_bytes"] == corpus_file.stat().st_size
    for name in ("builder", "sentencepiece"):
        assert result[name]["bytes_per_second"] > 0
        assert result[name]["bytes_per_cpu_second"] > 0
    shares = result["stage_shares"]
    assert set(shares) == {"other", "read and clean", "encode", "sample", "statistics", "write"}
    assert all(share > 0 for share in shares.values())
    assert sum(shares.values()) == pytest.approx(1)
    assert [getattr(owner, name) for owner, name, _ in benchmark_data.STAGES] == before


def test_the_time_of_an_inner_stage_is_not_the_outer_stages(monkeypatch):
    clock = [0.0]

    class Library:
        @staticmethod
        def inner():
            clock[0] += 1

        @staticmethod
        def outer():
            clock[0] += 10
            Library.inner()
            clock[0] += 100

    monkeypatch.setattr(benchmark_data, "STAGES", ((Library, "inner", "in"), (Library, "outer", "out")))
    monkeypatch.setattr(benchmark_data.time, "perf_counter", lambda: clock[0])
    with benchmark_data.timed_stages() as seconds:
        clock[0] += 1000
        Library.outer()
    assert seconds == {"in": 1, "out": 110, "other": 1000}


@pytest.mark.integration
def test_workers(corpus_file, tokenizer_file):
    result = benchmark_data.measure_workers(
        corpus_file, str(tokenizer_file), 0.2, (1, 2), slice_mb=0.1, **SIZES
    )
    assert 0.15e6 < result["text_bytes"] < 0.25e6
    assert set(result["bytes_per_second"]) == {1, 2} and min(result["bytes_per_second"].values()) > 0
    assert result["coordinator_share"] > 0 and result["worker_peak_bytes"] > 10e6


@pytest.mark.integration
def test_reader(corpus_file, tokenizer_file):
    result = benchmark_data.measure_reader(corpus_file, str(tokenizer_file), 1, rows=4, batches=3, **SIZES)
    assert (result["seq_len"], result["num_predict"], result["rows"]) == (32, 4, 4)
    assert result["examples_per_second"] > 0
    # int32 ids, uint8 segments and int16 ranks of 32 tokens; int16 targets; direction, next sentence and
    # stream start of a byte each, and the int32 document offset.
    assert result["bytes_per_example"] == 32 * (4 + 1 + 2) + 4 * 2 + 3 + 4
