import dataclasses

import pytest

from xlnet_tf.tpu import report
from xlnet_tf.tpu.compilation import Compiled, NotCompiled, Planned
from xlnet_tf.tpu.report import CompiledBatch
from xlnet_tf.tpu.search import largest_batch
from xlnet_tf.tpu.topologies import TOPOLOGIES

TOO_LARGE = NotCompiled("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm")


def compiled(hbm: int) -> Compiled:
    return Compiled(hbm, 0, 0, 0, 0, 1.0, 1.0, None, 1.0)


def memory(limit: int, bytes_of):
    """Returns a compiler for a core with so much memory, and the rows that it was asked for."""
    asked = []

    def compile_batch(rows: int):
        asked.append(rows)
        size = bytes_of(rows)
        return compiled(size) if size <= limit else TOO_LARGE

    return compile_batch, asked


@pytest.mark.parametrize("largest", [0, 1, 2, 3, 7, 8, 29, 64, 129, 1000])
@pytest.mark.parametrize("first", [1, 4])
def test_even_growth_is_found_at_once(largest, first):
    bytes_of = lambda rows: 500 + 10 * rows  # noqa: E731
    compile_batch, asked = memory(bytes_of(largest) + 9, bytes_of)
    rows, tried = largest_batch(compile_batch, bytes_of(largest) + 9, first)
    assert rows == largest
    assert sorted(tried) == sorted(asked) and len(set(asked)) == len(asked)  # none twice
    assert len(asked) <= 8 and tried[rows + 1] is TOO_LARGE
    assert not rows or tried[rows].hbm


@pytest.mark.parametrize("largest", [5, 31, 200])
def test_uneven_growth_is_found_too(largest):
    bytes_of = lambda rows: 100 + 10 * rows + 97 * (rows % 3) + rows * rows // 8 - 40 * (rows == 2)  # noqa: E731
    limit = bytes_of(largest)
    rows, tried = largest_batch(memory(limit, bytes_of)[0], limit)
    assert bytes_of(rows) <= limit < bytes_of(rows + 1)
    assert len(tried) < 20


@pytest.mark.parametrize("largest", [1, 3, 29, 64, 129])
def test_a_batch_that_does_not_fit_bounds_the_search(largest):
    """That is what is quick: codes are made only of what fits."""
    arguments, row = 2 << 30, 1 << 29
    limit = arguments + largest * row + row // 2

    def compile_batch(rows: int):
        if arguments + rows * row <= limit:
            return Compiled(arguments, arguments, arguments, rows * row, 0, 1.0, 1.0, None, 1.0)
        words = f"memory required for HLO temporaries ({rows * row / 2**30:.2f}G) exceeds"
        return NotCompiled(f"RESOURCE_EXHAUSTED: {words}", arguments)

    rows, tried = largest_batch(compile_batch, limit, first=256)
    assert rows == largest and len(tried) <= 5
    assert sum(isinstance(outcome, Compiled) for outcome in tried.values()) == 1


def test_a_batch_near_the_limit_is_not_doubled_and_plans_of_the_memory_are_enough():
    """To trace twice the rows may take more memory than this machine has."""
    asked = []

    def compile_batch(rows: int):
        asked.append(rows)
        return Planned(1000 + 10 * rows) if 1000 + 10 * rows <= 7450 else TOO_LARGE

    assert largest_batch(compile_batch, 7450, first=600, multiple=4)[0] == 644
    assert max(asked) <= 652 and not [rows for rows in asked if rows % 4]


@pytest.mark.parametrize(
    "words", ["INVALID_ARGUMENT: no such operation", "the compiler ended with code -9:\n"]
)
def test_an_unrelated_failure_ends_the_search_without_a_result(words):
    wrong = NotCompiled(words)
    assert largest_batch(lambda rows: wrong, 100) == (None, {1: wrong})
    outcomes = lambda rows: compiled(10 * rows) if rows < 8 else wrong  # noqa: E731
    largest, tried = largest_batch(outcomes, 1000, first=4)
    assert largest is None
    assert list(tried.values())[-1] is wrong and tried[4] == compiled(40)


V3, V5E = TOPOLOGIES["v3"], TOPOLOGIES["v5e"]
MADE = Compiled(
    arguments=6_000_000_000,
    outputs=5_500_000_000,
    aliased=5_000_000_000,
    temporaries=1_250_000_000,
    code=60_000_000,
    flops=5.6e12,
    bytes_accessed=93.7e9,
    estimated_seconds=0.262,
    compile_seconds=38.0,
)
REFUSED = NotCompiled("RESOURCE_EXHAUSTED: Ran out of memory\nsecond line\n" + "more\n" * 50)


def test_the_table_has_every_figure():
    assert MADE.hbm == 6_000_000_000 + 500_000_000 + 1_250_000_000 + 60_000_000  # what is not shared
    lines = report.table([CompiledBatch(V3, 4, MADE, largest=True)], loops=0).splitlines()
    cells = [cell.strip() for cell in lines[1].split("  ") if cell.strip()]
    assert cells == [
        "v3", "4 (largest)", "7.81 GB", "47%", "6.00 GB", "1.25 GB", "5.50 GB", "5.00 GB", "5.600",
        "93.70 GB", "0.2620 s",
    ]  # fmt: skip
    assert "estimate, of the computation alone, no measurement" in lines[-1]
    assert "1 loop(s) of the program multiply matrices" in report.table([CompiledBatch(V3, 4, MADE)], loops=1)


def test_the_table_names_plans_peak_rates_and_notes():
    plan = CompiledBatch(V3, 4, Planned(8_400_000_000))
    cells = report.table([plan], loops=0).splitlines()[1].split()
    assert cells == ["v3", "4", "8.40", "GB", "51%", *["-"] * 7]  # the memory alone
    at_peak = dataclasses.replace(MADE, estimated_seconds=0.1, is_at_peak=True)
    text = report.table([CompiledBatch(V3, 4, MADE), CompiledBatch(V5E, 4, at_peak)], loops=0)
    assert text.splitlines()[2].endswith(" ~0.1000 s") and "at the chip's peak rates" in text
    text = report.table([CompiledBatch(TOPOLOGIES["tpu7x"], 4, at_peak)] * 2, loops=0)
    assert text.count("TensorFlow is not supported") == 1


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            CompiledBatch(V5E, 64, REFUSED),
            "v5e, batch 64 is too large:\n    RESOURCE_EXHAUSTED: Ran out",
        ),
        (
            CompiledBatch(V5E, 6, NotCompiled("INVALID_ARGUMENT: x")),
            "does not compile:\n    INVALID_ARGUMENT: x",
        ),
        (
            CompiledBatch(V5E, 16, NotCompiled("code -9"), ends_search=True),
            "compile, which ends the search for the largest batch without an answer:\n    code -9\n",
        ),
    ],
    ids=["too large", "unrelated", "without an answer"],
)
def test_the_compilers_own_words_are_shown_but_not_all_of_them(row, expected):
    text = report.table([CompiledBatch(V3, 4, MADE), row], loops=0)
    assert expected in text and text.count("more") < 12 and "largest)" not in text


def test_json_has_sizes_in_bytes():
    made = CompiledBatch(V3, 4, MADE, largest=True).to_dict()
    assert made["compiles"] and made["largest"] and made["hbm"] == MADE.hbm and "ends_search" not in made
    assert made["hbm_filled"] == MADE.hbm / V3.hbm_bytes
    planned = CompiledBatch(V3, 4, Planned(8_400_000_000)).to_dict()
    assert planned["hbm_filled"] == 8_400_000_000 / V3.hbm_bytes and "compiles" not in planned
    refused = CompiledBatch(V3, 8, REFUSED, ends_search=True).to_dict()
    assert (refused["compiles"], refused["batch_per_core"]) == (False, 8) and refused["ends_search"]
    assert refused["error"] == REFUSED.error and "largest" not in refused
