"""Builder and reader are measured at tiny sizes; nothing is asserted about time."""

import pytest

from benchmarks import data as benchmark_data

SIZES = {"seq_len": 32, "num_predict": 4}


def test_builder(corpus_file, tokenizer_file):
    before = [getattr(owner, name) for owner, name, _ in benchmark_data.STAGES]
    result = benchmark_data.measure_builder(corpus_file, str(tokenizer_file), 1, **SIZES)
    rates, shares = result.values()
    assert [row[""] for row in rates] == ["builder", "sentencepiece"]
    assert all(row["MB/s"] > 0 and row["MB per CPU s"] > 0 for row in rates)
    shares = {row[""]: row["share"] for row in shares}
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
def test_reader(corpus_file, tokenizer_file):
    result = benchmark_data.measure_reader(corpus_file, str(tokenizer_file), 1, rows=4, batches=3, **SIZES)
    [figures] = result["Reader, 4 rows of 32 tokens and 4 targets"]
    assert figures["examples/s"] > 0
    # int32 ids, uint8 segments and int16 ranks of 32 tokens; int16 targets; direction, next sentence and
    # stream start of a byte each, and the int32 document offset.
    assert figures["bytes an example, to the device"] == 32 * (4 + 1 + 2) + 4 * 2 + 3 + 4
