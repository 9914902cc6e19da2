import pytest

from xlnet_tf.tpu.compilation import Compiled, NotCompiled, Planned
from xlnet_tf.tpu.search import largest_batch

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


@pytest.mark.parametrize("largest", [1, 2, 3, 7, 8, 29, 64, 129, 1000])
@pytest.mark.parametrize("first", [1, 4])
def test_even_growth_is_found_at_once(largest, first):
    bytes_of = lambda rows: 500 + 10 * rows  # noqa: E731
    compile_batch, asked = memory(bytes_of(largest) + 9, bytes_of)
    rows, tried = largest_batch(compile_batch, bytes_of(largest) + 9, first)
    assert rows == largest
    assert sorted(tried) == sorted(asked) and len(set(asked)) == len(asked)  # none twice
    assert len(asked) <= 8
    assert tried[rows].hbm and tried[rows + 1] is TOO_LARGE


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
    gigabyte = 2**30
    arguments, row = 2 * gigabyte, gigabyte // 2
    limit = arguments + largest * row + row // 2

    def compile_batch(rows: int):
        if arguments + rows * row <= limit:
            return Compiled(arguments, arguments, arguments, rows * row, 0, 1.0, 1.0, None, 1.0)
        words = (
            f"RESOURCE_EXHAUSTED: memory required for HLO temporaries ({rows * row / gigabyte:.2f}G) exceeds"
        )
        return NotCompiled(words, arguments)

    rows, tried = largest_batch(compile_batch, limit, first=256)
    assert rows == largest
    assert sum(isinstance(outcome, Compiled) for outcome in tried.values()) == 1
    assert len(tried) <= 5


def test_plans_of_the_memory_are_enough():
    compile_batch = lambda rows: Planned(10 * rows) if rows <= 29 else TOO_LARGE  # noqa: E731
    assert largest_batch(compile_batch, 299, first=8)[0] == 29


def test_a_batch_near_the_limit_is_not_doubled():
    """To trace twice the rows may take more memory than this machine has."""
    bytes_of = lambda rows: 1000 + 10 * rows  # noqa: E731
    asked = []

    def compile_batch(rows: int):
        asked.append(rows)
        return Planned(bytes_of(rows)) if bytes_of(rows) <= 7450 else TOO_LARGE

    assert largest_batch(compile_batch, 7450, first=600, multiple=4)[0] == 644
    assert max(asked) <= 652


def test_only_multiples_are_tried():
    compile_batch, asked = memory(1000, lambda rows: 10 * rows)
    assert largest_batch(compile_batch, 1000, first=4, multiple=3)[0] == 99
    assert not [rows for rows in asked if rows % 3]


def test_not_even_one_row_fits():
    rows, tried = largest_batch(memory(5, lambda rows: 10 * rows)[0], 5, first=4)
    assert rows == 0
    assert set(tried) == {4, 2, 1}


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
