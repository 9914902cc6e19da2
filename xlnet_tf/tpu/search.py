"""Finds the largest batch that a core's memory holds, with few compilations."""

from collections.abc import Callable

from xlnet_tf.tpu.compilation import Compiled, Refused

Outcome = Compiled | Refused


def largest_batch(
    compile_batch: Callable[[int], Outcome], hbm_bytes: int, first: int = 1, multiple: int = 1
) -> tuple[int, dict[int, Outcome]]:
    """Searches the largest batch that compiles.

    What a step needs grows nearly evenly with its rows, so that two batches which fit tell about where the
    limit is. That only saves compilations: of the answer and of the next larger batch both were compiled.

    Args:
        compile_batch: of the rows; gives what compiling came to.
        hbm_bytes: memory of the core.
        first: rows to begin with.
        multiple: try no other rows than multiples of this.

    Returns:
        The rows, 0 if not even the fewest fit, and what each batch tried came to.
    """
    tried: dict[int, Outcome] = {}
    fits, too_large = 0, None  # in multiples
    units = max(1, first // multiple)
    while too_large is None or too_large - fits > 1:
        outcome = tried[units * multiple] = compile_batch(units * multiple)
        if isinstance(outcome, Compiled):
            fits = units
        elif outcome.out_of_memory:
            too_large = units
        else:  # wrong in itself: no batch would help
            break
        known = sorted((rows / multiple, o.hbm) for rows, o in tried.items() if isinstance(o, Compiled))
        units = _next(fits, too_large, _limit(known, hbm_bytes))
    return fits * multiple, tried


def _next(fits: int, too_large: int | None, limit: float | None) -> int:
    """Returns what to try, above what fits and below what is too large; near the limit, if it is between."""
    if too_large is None:
        # At most four times as many at once: two batches near each other tell little about far ones.
        return 2 * fits if limit is None else max(min(int(limit), 4 * fits), fits + 1)
    if limit is None or not fits <= limit < too_large:
        return (fits + too_large) // 2
    return max(int(limit), fits + 1)


def _limit(known: list[tuple[float, int]], hbm_bytes: int) -> float | None:
    """Returns where the line through the least and the largest (batch, bytes) that fit meets the memory."""
    if len(known) < 2:
        return None
    (batch_a, bytes_a), (batch_b, bytes_b) = known[0], known[-1]
    if bytes_b <= bytes_a:
        return None
    return batch_b + (hbm_bytes - bytes_b) * (batch_b - batch_a) / (bytes_b - bytes_a)
