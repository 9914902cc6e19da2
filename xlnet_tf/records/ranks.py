"""Permutation ranks: a permutation mask as T small integers instead of T x T floats.

With r the rank and t the target flag of a position, the content stream at i sees j iff i = j or
r[j] < r[i] + 1 - t[i], and the query stream at i sees j iff r[j] < r[i] + 1 - t[i].

Shapes: S segments, T tokens of a segment (seq_len), R tokens of its first part (reuse_len). Blocks of
perm_size tokens are permuted by themselves.
"""

import numpy as np

from xlnet_tf.errors import UserError

OBJECTIVES = ("permutation", "autoregressive", "denoising")
FUNCTIONAL_TOKENS = ("ordered", "context")


def check_perm_size(perm_size: int, seq_len: int, reuse_len: int) -> None:
    """Raises UserError unless blocks of perm_size tokens fill both parts of a segment."""
    if perm_size < 1 or reuse_len % perm_size or (seq_len - reuse_len) % perm_size:
        raise UserError(
            f"perm_size {perm_size} must divide both parts of a segment: reuse_len {reuse_len} and "
            f"seq_len - reuse_len {seq_len - reuse_len}. "
            f"The largest that does is {np.gcd(reuse_len, seq_len - reuse_len)}."
        )


def random_bits(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draws uint32 [count] from a generator of 64 bits: three times as fast as 32 bits at a time."""
    return rng.bit_generator.random_raw((count + 1) // 2).view(np.uint32)[:count]


def sample_order(rng: np.random.Generator, num_segments: int, length: int, perm_size: int) -> np.ndarray:
    """Draws factorization orders: each position's index in the order, int16 [S, length].

    Blocks of perm_size positions keep their order from left to right; inside, all blocks of a segment share
    one permutation (the original's `_local_perm`). `length`, the positions of a segment's permuted part, is a
    multiple of perm_size.
    """
    # Sorting random keys that carry their index in the low bits is several times as fast as rng.permuted.
    index_bits = (perm_size - 1).bit_length()
    keys = random_bits(rng, num_segments * perm_size).reshape(num_segments, perm_size)
    keys = keys >> index_bits << index_bits | np.arange(perm_size, dtype=np.uint32)
    keys.sort(axis=1)
    permutation = (keys & np.uint32((1 << index_bits) - 1)).astype(np.int16)
    return tile_permutation(permutation, length)


def tile_permutation(permutation: np.ndarray, length: int) -> np.ndarray:
    """Repeats a block's permutation, int [S, perm_size], over all blocks, which keep their order."""
    num_segments, perm_size = permutation.shape
    blocks = np.arange(0, length, perm_size, dtype=permutation.dtype)
    return (blocks[:, None] + permutation[:, None, :]).reshape(num_segments, length)


def permutation_ranks(
    is_target: np.ndarray,
    special: np.ndarray,
    order: np.ndarray,
    reuse_len: int,
    functional_tokens: str = "ordered",
) -> np.ndarray:
    """Converts factorization orders to ranks: int16 [S, T].

    In each part of a segment context tokens share the smallest rank, and targets get 1 + their index in the
    order. The second part's ranks are above the first's: the first part, the next segment's memory, never
    sees the second.

    Args:
        is_target: bool [S, T].
        special: bool [S, T], SEP and CLS, never targets.
        order: int [S, T], each position's index in the order: permuted 0 .. R - 1, then 0 .. T - R - 1.
        functional_tokens: "ordered" gives SEP and CLS an index in the order like targets, so that context
            never sees them (the original); "context" lets all of the second part see them (Model Garden).

    Source: paper sections 2.2 and 2.3 (partial prediction); `_local_perm` of the original's data_utils.py.
    """
    hidden = _hidden_from_context(is_target, special, functional_tokens)
    ranks = (order + 1).astype(np.int16, copy=False) * hidden
    ranks[:, reuse_len:] += np.int16(reuse_len + 1)
    return ranks


def sample_ranks(
    rng: np.random.Generator,
    is_target: np.ndarray,
    special: np.ndarray,
    *,
    objective: str,
    reuse_len: int,
    perm_size: int,
    functional_tokens: str = "ordered",
) -> np.ndarray:
    """Draws the ranks of segments for an objective: int16 [S, T].

    Args:
        is_target: bool [S, T]; for "autoregressive" usually every token that is not special.
        objective: "permutation" (XLNet), the only one to draw, "autoregressive" (a language model) or
            "denoising" (BERT). Denoising treats a segment as one part: its first tokens see the later ones.
            Memory would leak these to the next segment, which repeats them, so train it without memory.

    For the other arguments see `permutation_ranks` and `check_perm_size`.
    """
    num_segments, seq_len = is_target.shape
    if objective == "autoregressive":  # the natural order: each position sees those before it
        return np.tile(np.arange(seq_len, dtype=np.int16), (num_segments, 1))
    if objective == "denoising":  # all targets share a rank: they see all context, and no target
        return _hidden_from_context(is_target, special, functional_tokens).astype(np.int16)
    if objective != "permutation":
        raise UserError(f"objective is {objective!r}; expected one of {', '.join(OBJECTIVES)}")
    parts = [
        sample_order(rng, num_segments, length, perm_size) for length in (reuse_len, seq_len - reuse_len)
    ]
    return permutation_ranks(is_target, special, np.concatenate(parts, axis=1), reuse_len, functional_tokens)


def expand(rank: np.ndarray, is_target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expands ranks and flags [..., T] to both streams' masks [..., T, T], True where position i sees j."""
    rank = rank.astype(np.int32)
    limit = rank + 1 - is_target
    query_visible = rank[..., None, :] < limit[..., :, None]  # [..., T, T]
    return query_visible | np.eye(rank.shape[-1], dtype=bool), query_visible


def _hidden_from_context(is_target, special, functional_tokens):
    """Returns the positions that context tokens do not see: bool [S, T]."""
    if functional_tokens not in FUNCTIONAL_TOKENS:
        raise UserError(
            f"functional_tokens is {functional_tokens!r}; expected one of {', '.join(FUNCTIONAL_TOKENS)}"
        )
    return is_target | special if functional_tokens == "ordered" else is_target
