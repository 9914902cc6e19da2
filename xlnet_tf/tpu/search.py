"""Finds the largest batch that a core's memory holds, with few compilations."""

from collections.abc import Callable

from xlnet_tf.tpu.compilation import Compiled, NotCompiled, Outcome


def largest_batch(
    compile_batch: Callable[[int], Outcome], hbm_bytes: int, first: int = 1, multiple: int = 1
) -> tuple[int | None, dict[int, Outcome]]:
    """Searches the largest batch that compiles.

    Memory grows nearly linearly with the rows, so the batches tried show about where the limit is. This only
    saves compilations: the answer and the next larger batch were both compiled. Batches that do not fit are
    refused before the longest part of compiling, so the search approaches from above if it can.

    Returns:
        The rows (0 if not even the fewest fit; None if a batch was refused for another reason than memory,
        which ends the search), and the outcome of each batch tried, in that order.
    """
    tried: dict[int, Outcome] = {}
    fits, too_large = 0, None  # counted in multiples
    units = max(1, first // multiple)
    while too_large is None or too_large - fits > 1:
        outcome = tried[units * multiple] = compile_batch(units * multiple)
        if not isinstance(outcome, NotCompiled):
            fits = units
        elif outcome.out_of_memory:
            too_large = units
        else:
            return None, tried
        limit = _limit(tried, hbm_bytes)
        units = _next(fits, too_large, None if limit is None else int(limit / multiple))
    return fits * multiple, tried


def _next(fits: int, too_large: int | None, limit: int | None) -> int:
    """Returns the batch to try next, between fitting and too large; if possible just beyond the limit."""
    if too_large is None:
        # At most four times as many at once: two batches near each other say little about far ones.
        return 2 * fits if limit is None else max(min(limit + 1, 4 * fits), fits + 1)
    if limit is None or not fits <= limit < too_large:
        return (fits + too_large) // 2
    return max(min(limit + 1, too_large - 1), fits + 1)


def _limit(tried: dict[int, Outcome], hbm_bytes: int) -> float | None:
    """Returns the rows at which the line through the two batches nearest to the memory's limit meets it."""
    known = [(rows, outcome.hbm) for rows, outcome in tried.items() if outcome.hbm]
    # No rows at all need the arguments, which are nearly the same for all batches.
    known += [
        (0, o.arguments) for o in tried.values() if isinstance(o, Compiled | NotCompiled) and o.arguments
    ][:1]
    if len(known) == 1:
        known.append((0, 0))  # too low a limit, as arguments stay; but one far above costs much to trace
    known = sorted(known, key=lambda point: abs(point[1] - hbm_bytes))[:2]
    if len(known) < 2:
        return None
    (batch_a, bytes_a), (batch_b, bytes_b) = sorted(known)
    if bytes_b <= bytes_a:
        return None
    return batch_b + (hbm_bytes - bytes_b) * (batch_b - batch_a) / (bytes_b - bytes_a)
