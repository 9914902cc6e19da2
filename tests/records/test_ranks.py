"""Permutation ranks say exactly who may see whom."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.profiles import examples
from xlnet_tf.errors import UserError
from xlnet_tf.layers import masks
from xlnet_tf.records import ranks


def draw_segment(seed, seq_len, target_rate=0.3):
    """Returns (rng, is_target, special) of 3 random segments, [3, T]."""
    rng = np.random.default_rng(seed)
    special = rng.random((3, seq_len)) < 0.1
    special[:, -2:] = True
    return rng, (rng.random((3, seq_len)) < target_rate) & ~special, special


@given(
    blocks=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    perm_size=st.integers(1, 9),
    policy=st.sampled_from(ranks.FUNCTIONAL_TOKENS),
    seed=st.integers(0, 1000),
)
@examples(60, 3000)
def test_permutation_ranks_mean_the_factorization_order(blocks, perm_size, policy, seed):
    lengths = [count * perm_size for count in blocks]
    reuse_len, seq_len = lengths[0], sum(lengths)
    rng, is_target, special = draw_segment(seed, seq_len)
    order = np.concatenate([ranks.sample_order(rng, 3, length, perm_size) for length in lengths], axis=1)
    rank = ranks.permutation_ranks(is_target, special, order, reuse_len, policy)
    content, query = ranks.expand(rank, is_target)
    for s, i, j in np.ndindex(3, seq_len, seq_len):
        part_i, part_j = i >= reuse_len, j >= reuse_len
        ordered_j = is_target[s, j] or (special[s, j] and policy == "ordered")
        ordered_i = is_target[s, i] or (special[s, i] and policy == "ordered")
        if part_i != part_j:
            expected = bool(part_i)  # the second part sees the first, never the other way round
        elif not ordered_j:
            expected = True
        elif not ordered_i:
            expected = False
        elif i == j:
            expected = not is_target[s, i]
        else:
            expected = order[s, j] < order[s, i]
        assert query[s, i, j] == expected
        assert content[s, i, j] == (expected or i == j)
    np.testing.assert_array_equal(masks.permutation_visible(rank, is_target), query)  # on the device


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 1000))
@examples(40, 3000)
def test_positions_are_one_permutation_repeated_in_every_block(perm_size, num_blocks, seed):
    order = ranks.sample_order(np.random.default_rng(seed), 5, perm_size * num_blocks, perm_size)
    blocks = order.reshape(5, num_blocks, perm_size)
    np.testing.assert_array_equal(np.sort(blocks[:, 0], axis=1), np.tile(np.arange(perm_size), (5, 1)))
    shifts = np.arange(num_blocks)[None, :, None] * perm_size
    np.testing.assert_array_equal(blocks, np.broadcast_to(blocks[:, :1] + shifts, blocks.shape))


def test_positions_are_uniform_and_repeatable():
    order = ranks.sample_order(np.random.default_rng(1), 60_000, 3, 3)
    _, counts = np.unique(order @ [9, 3, 1], return_counts=True)
    assert len(counts) == 6
    np.testing.assert_allclose(counts, 10_000, rtol=0.05)
    np.testing.assert_array_equal(order, ranks.sample_order(np.random.default_rng(1), 60_000, 3, 3))


def test_wrong_settings_are_refused():
    for perm_size in (0, 5, 16):
        with pytest.raises(UserError, match="reuse_len 24.*The largest that does is 8"):
            ranks.check_perm_size(perm_size, 56, 24)
    good = {"objective": "denoising", "reuse_len": 4, "perm_size": 4}
    for name, value in {"objective": "bert", "functional_tokens": "hidden"}.items():
        with pytest.raises(UserError, match=f"{name} is '{value}'"):
            ranks.sample_ranks(*draw_segment(0, 8), **good | {name: value})


def test_autoregressive_ranks_are_a_causal_mask():
    rng, _, special = draw_segment(0, 12)
    is_target = ~special
    rank = ranks.sample_ranks(rng, is_target, special, objective="autoregressive", reuse_len=4, perm_size=4)
    content, query = ranks.expand(rank, is_target)
    causal = np.tril(np.ones((12, 12), bool))
    np.testing.assert_array_equal(content, np.broadcast_to(causal, content.shape))
    for s in range(3):
        np.testing.assert_array_equal(query[s][is_target[s]], np.tril(causal, -1)[is_target[s]])


@pytest.mark.parametrize("policy", ranks.FUNCTIONAL_TOKENS)
def test_denoising_targets_see_all_context_and_no_target(policy):
    rng, is_target, special = draw_segment(3, 20)
    rank = ranks.sample_ranks(
        rng, is_target, special, objective="denoising", reuse_len=10, perm_size=10, functional_tokens=policy
    )
    assert len(np.unique(rank[is_target])) == 1
    content, query = ranks.expand(rank, is_target)
    visible = ~is_target if policy == "context" else ~is_target & ~special
    for s in range(3):
        for i in np.flatnonzero(visible[s] | is_target[s]):
            np.testing.assert_array_equal(query[s, i], visible[s])
            np.testing.assert_array_equal(content[s, i], visible[s] | (np.arange(20) == i))


def test_sampled_ranks_of_a_seed_are_pinned_and_fit_int16():
    """A contract: a set built again with the same seed has the same bytes."""
    rank = ranks.sample_ranks(*draw_segment(9, 512), objective="permutation", reuse_len=256, perm_size=256)
    assert rank.dtype == np.int16 and rank.max() <= 513
    assert zlib.crc32(rank.tobytes()) == 101727731
    assert (rank[:, :256].max(axis=1) < rank[:, 256:].min(axis=1)).all()
