"""Targets and orders drawn while reading: the builder's rules, whatever reads them."""

import dataclasses
import hashlib

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.records.synthetic import make_set, make_text_set
from xlnet_tf.errors import UserError
from xlnet_tf.records import segments, spans
from xlnet_tf.records.online import OnlineSampler
from xlnet_tf.records.reader import pretraining_dataset
from xlnet_tf.records.spec import RecordSpec

VOCAB = 120


@pytest.fixture(scope="module")
def records(tmp_path_factory, small_tokenizer):
    """A set of both directions and two passes, in streams of 4 segments."""
    counts = [[(41, 37), (18, 20)], [(41, 37), (18, 20)]]
    return make_text_set(tmp_path_factory.mktemp("online"), small_tokenizer, counts)


def settings(tmp_path, seq_len=96, reuse_len=32, num_predict=16, **changes):
    """The manifest of a set without text, to draw for segments of any tokens."""
    manifest = make_set(tmp_path, [[(0, 0)]], spec=RecordSpec(seq_len, reuse_len, num_predict, VOCAB))
    return dataclasses.replace(manifest, **({"perm_size": 16} | changes))


def cut(count, seq_len, reuse_len, direction=1, seed=0):
    """Returns (which pieces start a word, bool [V]; segments of random text read in a direction)."""
    rng = np.random.default_rng(seed)
    word_starts = rng.random(VOCAB) < 0.7
    tokens = rng.integers(9, VOCAB, count * reuse_len + seq_len - 3)
    starts, ends = word_starts[tokens], np.append(np.arange(17, len(tokens), 17), len(tokens))
    if direction < 0:
        tokens, starts = tokens[::-1], segments.mirror_word_start(starts)
        ends = segments.mirror_ends(ends, len(tokens))
    return word_starts, segments.sample_segments(rng, tokens, ends, seq_len, reuse_len, starts)


def draw(sampler, found, direction=1, epoch=0, stream=5):
    """Draws for segments; returns (is_target bool [S, T], target_positions, rank int [S, T])."""
    count = len(found)
    positions, rank = sampler(
        tf.constant(found.ids),
        tf.fill([count], tf.constant(direction, tf.int8)),
        tf.fill([count], tf.constant(epoch, tf.int64)),
        tf.fill([count], tf.constant(stream, tf.int64)),
        tf.range(count, dtype=tf.int64),
    )
    is_target = np.zeros(found.ids.shape, bool)
    np.put_along_axis(is_target, positions.numpy().astype(int), True, axis=1)
    return is_target, positions.numpy().astype(int), rank.numpy().astype(int)


@pytest.mark.parametrize("span_mode", spans.SPAN_MODES)
@pytest.mark.parametrize(
    "alpha,max_words,num_predict,reuse_len,perm_size,direction",
    [(6, 5, 16, 32, 16, -1), (1, 1, 60, 48, 48, 1), (4, 3, 1, 32, 32, 1), (7, 9, 92, 32, 1, -1)],
)
def test_counts_are_exact_and_ranks_are_orders(
    tmp_path, span_mode, alpha, max_words, num_predict, reuse_len, perm_size, direction
):
    mask = {"alpha": alpha, "beta": 1, "span_mode": span_mode, "max_words": max_words}
    manifest = settings(tmp_path, 96, reuse_len, num_predict, perm_size=perm_size, mask=mask)
    word_starts, found = cut(200, 96, reuse_len, direction)
    is_target, positions, rank = draw(OnlineSampler(manifest, word_starts, 3), found, direction)
    assert not (is_target & found.special).any()
    assert (np.diff(positions, axis=1) > 0).all() and positions.min() >= 0
    check_places(found, is_target, rank, reuse_len, perm_size)
    goals = spans.split_num_predict(num_predict, 96, reuse_len)
    for part, goal in zip((np.s_[:, :reuse_len], np.s_[:, reuse_len:]), goals):
        np.testing.assert_array_equal(is_target[part].sum(axis=1), goal)
        if span_mode == "words":  # only the budget cuts a word, and it cuts it behind
            word = np.cumsum(found.word_start[part], axis=1)
            same, before, after = word[:, 1:] == word[:, :-1], is_target[part][:, :-1], is_target[part][:, 1:]
            assert not (same & after & ~before).any()
            assert (same & ~after & before).sum(axis=1).max() <= 1


def test_huge_contexts_draw_from_all_positions(tmp_path):
    mask = {"alpha": 2**31 - 1, "beta": 1, "span_mode": "words", "max_words": 5}
    word_starts, found = cut(300, 96, 32)
    is_target, _, _ = draw(OnlineSampler(settings(tmp_path, mask=mask), word_starts, 3), found)
    share = is_target[:, :32].mean(axis=0)
    assert share.min() > 0.5 * share.mean() and share.max() < 2 * share.mean()


def test_contexts_are_alpha_words_for_beta_words_of_targets(tmp_path):
    word_starts, found = cut(50, 96, 32)
    samples = []
    for number, (alpha, beta) in enumerate([(6, 1), (12, 2), (12, 1)]):
        mask = {"alpha": alpha, "beta": beta, "span_mode": "words", "max_words": 5}
        samples.append(
            draw(OnlineSampler(settings(tmp_path / str(number), mask=mask), word_starts, 3), found)[0]
        )
    same, other = (samples[0] == each for each in samples[1:])
    assert same.all() and not other.all()


def check_places(found, is_target, rank, reuse_len, perm_size):
    """Asserts that ranks are `permutation_ranks` of places that are one permutation in all blocks."""
    hidden = is_target | found.special
    for part, first in ((np.s_[:, :reuse_len], 0), (np.s_[:, reuse_len:], reuse_len + 1)):
        place = rank[part] - first - 1
        assert (place[~hidden[part]] == -1).all()
        block, offset = np.divmod(np.arange(place.shape[1]), perm_size)
        for row in range(len(place)):
            mine = hidden[part][row]
            np.testing.assert_array_equal(place[row][mine] // perm_size, block[mine])
            of_offset = dict(zip(offset[mine], place[row][mine] % perm_size, strict=True))
            np.testing.assert_array_equal(place[row][mine] % perm_size, [of_offset[o] for o in offset[mine]])
            assert len(set(of_offset.values())) == len(of_offset)


def run_lengths(is_target):
    """Shares of runs of adjacent targets by their length, up to 15."""
    edges = np.diff(np.pad(is_target.astype(int), ((0, 0), (1, 1))), axis=1)
    lengths = np.nonzero(edges == -1)[1] - np.nonzero(edges == 1)[1]
    return np.bincount(np.minimum(lengths, 15), minlength=16) / len(lengths)


@pytest.mark.parametrize("span_mode", spans.SPAN_MODES)
@pytest.mark.parametrize("num_predict", [16, 40])
def test_targets_are_distributed_like_the_builders(tmp_path, span_mode, num_predict):
    mask = {"alpha": 6, "beta": 1, "span_mode": span_mode, "max_words": 5}
    manifest = settings(tmp_path, 256, 128, num_predict, perm_size=128, mask=mask)
    word_starts, found = cut(4000, 256, 128)
    online, _, _ = draw(OnlineSampler(manifest, word_starts, 0), found)
    rng = np.random.default_rng(0)
    builders, again = (
        spans.sample_segment_targets(rng, found, 128, num_predict, span_mode=span_mode) for _ in range(2)
    )
    noise = np.abs(run_lengths(builders) - run_lengths(again)).sum()
    assert np.abs(run_lengths(online) - run_lengths(builders)).sum() < 3 * noise + 0.01
    rates = [sample.mean(axis=0)[:253].reshape(11, 23).mean(axis=1) for sample in (online, builders)]
    np.testing.assert_allclose(*rates, rtol=0.06)
    for distance in (1, 2, 5):  # which tokens go together: of two neighbours, of two at a span's distance
        together = [(s[:, :-distance] & s[:, distance:]).mean() for s in (online, builders)]
        np.testing.assert_allclose(*together, rtol=0.06)


def test_orders_are_uniform_and_halves_independent(tmp_path):
    manifest = settings(tmp_path, 12, 4, 2, perm_size=4)
    _, found = cut(20_000, 12, 4)
    ids = [9, 10, 11, 12, 4, 4, 3, 3, 9, 10, 11, 12]
    found = dataclasses.replace(found, ids=np.tile(ids, (len(found), 1)))
    _, _, rank = draw(OnlineSampler(manifest, np.ones(VOCAB, bool), 0), found)
    second = rank[:, 4:8] - 6  # all four are special, so each has its place
    orders, counts = np.unique(second, axis=0, return_counts=True)
    assert len(orders) == 24
    np.testing.assert_allclose(counts, len(found) / 24, rtol=0.12)
    is_target = rank[:, :4] > 0
    for position in range(4):
        share = (is_target[:, [position]] & (second == 0)).mean(axis=0)
        np.testing.assert_allclose(share, is_target[:, position].mean() / 4, atol=0.006)


def test_denoising_hides_targets_from_each_other(tmp_path):
    manifest = settings(tmp_path, objective="denoising")
    word_starts, found = cut(50, 96, 32)
    is_target, _, rank = draw(OnlineSampler(manifest, word_starts, 0), found)
    np.testing.assert_array_equal(rank, is_target | found.special)
    manifest = dataclasses.replace(manifest, functional_tokens="context")
    is_target, _, rank = draw(OnlineSampler(manifest, word_starts, 0), found)
    np.testing.assert_array_equal(rank, is_target)


@pytest.mark.parametrize(
    "span_mode,digest",
    [("words", "456fcef29a549bba"), ("pieces", "1e2ec6dc4c5c8bdc"), ("single", "19fdc2d12253fef0")],
)
def test_draws_of_a_seed_are_pinned(tmp_path, span_mode, digest):
    """A run that resumes with a newer version trains on what it would have."""
    word_starts, found = cut(40, 96, 32)
    manifest = settings(tmp_path)
    manifest = dataclasses.replace(manifest, mask={**manifest.mask, "span_mode": span_mode})
    _, *drawn = draw(OnlineSampler(manifest, word_starts, 3), found)
    content = b"".join(np.int16(part).tobytes() for part in drawn)
    assert hashlib.sha256(content).hexdigest()[:16] == digest


def test_draws_follow_from_seed_epoch_stream_and_segment(tmp_path):
    word_starts, found = cut(40, 96, 32)
    manifest = settings(tmp_path)
    sampler = OnlineSampler(manifest, word_starts, 3)
    base = draw(sampler, found)
    for first, second in zip(base, draw(sampler, found)):
        np.testing.assert_array_equal(first, second)
    others = [draw(sampler, found, epoch=1), draw(sampler, found, stream=6)]
    others.append(draw(OnlineSampler(manifest, word_starts, 4), found))
    for is_target, _, rank in others:
        assert (is_target != base[0]).any(axis=1).all() and (rank != base[2]).any(axis=1).all()
    rows = base[0].astype(float)
    rows -= rows.mean(axis=0)
    alike = np.corrcoef(rows)[~np.eye(len(rows), dtype=bool)]
    assert abs(alike.mean()) < 0.05  # segments of a stream, too


def read(manifest, steps, batch_size=4, permutation="online", **options):
    """Returns name -> [steps, rows of the host, ...]."""
    rows = batch_size // options.get("num_hosts", 1)
    count = steps * rows // options.get("rows_per_batch", rows)
    batches = pretraining_dataset(manifest, batch_size, permutation=permutation, seed=7, **options)
    batches = list(batches.take(count).as_numpy_iterator())
    columns = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    return {name: column.reshape(steps, rows, *column.shape[1:]) for name, column in columns.items()}


DRAWN = ("target_positions", "permutation_rank")
STEPS = 67  # of 4 rows: into the third epoch


@pytest.fixture(scope="module")
def online(records):
    return read(records, STEPS)


@pytest.fixture(scope="module")
def one_row(records):
    """Three epochs, of the first pass, the second and the first again; record by record."""
    columns = read(records, 3 * records.records // 2, batch_size=1)
    return {name: values[:, 0] for name, values in columns.items()}


def test_only_targets_and_orders_change(records, online):
    precomputed = read(records, STEPS, permutation="precomputed")
    for name, values in online.items():
        assert values.dtype == precomputed[name].dtype, name
        if name not in DRAWN:
            np.testing.assert_array_equal(values, precomputed[name], err_msg=name)
    for name in DRAWN:
        assert (online[name] != precomputed[name]).any(axis=2).mean() > 0.99, name


def test_every_epoch_draws_another_order(records, one_row):
    size = records.records // 2
    texts = [row.tobytes() for row in one_row["input_word_ids"]]
    assert sorted(texts[:size]) == sorted(texts[2 * size :])
    where = {text: 2 * size + index for index, text in enumerate(texts[2 * size :])}
    again = np.array([where[text] for text in texts[:size]])
    for name in DRAWN:
        assert (one_row[name][:size] != one_row[name][again]).any(axis=1).mean() > 0.99, name


def test_draws_do_not_depend_on_batch_layout_or_start(records, online, one_row):
    late = {"num_hosts": 2, "rows_per_batch": 1, "start_step": STEPS - 20}
    hosts = [read(records, 20, host=host, **late) for host in range(2)]
    for name, values in online.items():
        rows = np.concatenate([host[name] for host in hosts], axis=1)
        np.testing.assert_array_equal(rows, values[-20:], err_msg=name)
    # With another batch size records meet in other batches; an epoch's draws are still the same.
    size = records.records // 2
    texts = {row.tobytes(): index for index, row in enumerate(one_row["input_word_ids"][:size])}
    rows = {name: values[: size // 8].reshape(-1, *values.shape[2:]) for name, values in online.items()}
    places = [texts[row.tobytes()] for row in rows["input_word_ids"]]
    for name in DRAWN:
        np.testing.assert_array_equal(rows[name], one_row[name][places], err_msg=name)


def test_what_does_not_fit_is_refused(tmp_path, records):
    for options, message in (
        ({"permutation": "random"}, "permutation is 'random', expected one of precomputed, online"),
        ({"permutation": "online", "repeat": False}, "every record is read once"),
    ):
        with pytest.raises(UserError, match=message):
            pretraining_dataset(records, 2, **options)
    manifest = settings(tmp_path)
    with pytest.raises(UserError, match="has 7 pieces, expected 120"):
        OnlineSampler(manifest, np.ones(7, bool), 0)
    with pytest.raises(UserError, match="nothing to draw"):
        OnlineSampler(dataclasses.replace(manifest, objective="autoregressive"), np.ones(VOCAB, bool), 0)
    other = dataclasses.replace(records, tokenizer=records.tokenizer | {"sha256": "00"})
    with pytest.raises(UserError, match="spiece.model has the sha256"):
        pretraining_dataset(other, 2, permutation="online")
