"""Batches by length: every example once an epoch, little padding, an index that is verified."""

import dataclasses
import itertools
import unittest.mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.records.synthetic import example_writer
from xlnet_tf.errors import UserError
from xlnet_tf.records import batching
from xlnet_tf.records import examples as examples_lib
from xlnet_tf.records.batching import FILLER, LENGTHS_FILE, Batches, choose_lengths, row_lengths
from xlnet_tf.records.example_reader import ExampleTable, batches_by_length, example_dataset
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.text.packing import pack
from xlnet_tf.text.special_tokens import PAD_ID

T = 64


class Lengths:
    """Stands for a set of examples of these lengths."""

    def __init__(self, lengths, seq_len=T):
        self._lengths, self.seq_len, self.folder = np.array(lengths, np.int32), seq_len, "set"
        self.records, self.sequences = len(self._lengths), 1

    def lengths(self):
        return self._lengths


random_sets = st.lists(st.integers(3, T), min_size=1, max_size=60).map(Lengths)


@given(random_sets, st.integers(1, 12), st.integers(1, 4), st.integers(0, 3))
def test_every_example_comes_once_an_epoch(examples, size, window, seed):
    batches = Batches(examples, size, seed, by_length=True, window=window)
    stream = np.concatenate([batches.numbers(step) for step in range(8 + 3 * examples.records)])
    for begin in range(0, len(stream) - examples.records + 1, examples.records):
        assert sorted(stream[begin : begin + examples.records]) == list(range(examples.records))
    again = Batches(examples, size, seed, by_length=True, window=window)
    for step in (7, 2, 0):  # a step does not depend on those before it
        np.testing.assert_array_equal(again.numbers(step), stream[step * size : (step + 1) * size])


@given(random_sets, st.integers(1, 12), st.integers(0, 3))
def test_no_length_in_one_batch_lies_between_those_of_another(examples, size, seed):
    """With a window of the whole epoch, and but for the batches that two epochs share."""
    batches = Batches(examples, size, seed, by_length=True, window=examples.records)
    for epoch in range(4):
        steps = range(-(-epoch * examples.records // size), (epoch + 1) * examples.records // size)
        lengths = sorted(sorted(examples.lengths()[batches.numbers(step)]) for step in steps)
        assert (np.diff(np.ravel(lengths)) >= 0).all()


@given(random_sets, st.integers(1, 12), st.booleans(), st.integers(0, 3), st.data())
def test_balanced_sampling_takes_turns(examples, size, by_length, seed, data):
    """Over any number of epochs: each class as often, and of each all examples before one comes again."""
    records = examples.records
    classes = np.array(data.draw(st.lists(st.sampled_from([0, 1, 1, 4]), min_size=records, max_size=records)))
    batches = Batches(examples, size, seed, by_length=by_length, window=2, classes=classes)
    stream = np.concatenate([batches.numbers(step) for step in range(8 + 5 * records // size)])
    members = [np.flatnonzero(classes == one) for one in np.unique(classes)]
    for epochs in range(1, len(stream) // records + 1):
        drawn = np.bincount(stream[: epochs * records], minlength=records)
        of_class = [drawn[part].sum() for part in members]
        assert max(of_class) - min(of_class) <= 1
        assert all(np.ptp(drawn[part]) <= 1 for part in members)
    again = Batches(examples, size, seed, by_length=by_length, window=2, classes=classes)
    for step in (7, 2, 0):  # as a resumed run reads them
        np.testing.assert_array_equal(again.numbers(step), stream[step * size : (step + 1) * size])
    if (len(members) > 1 or len(members[0]) > 4) and not by_length:
        orders = {tuple(dataclasses.replace(batches, seed=other).numbers(0)) for other in range(20)}
        assert len(orders) > 1 or size == 1


@given(random_sets, st.integers(1, 8), st.integers(1, 3), st.integers(1, 3))
def test_packed_texts_share_rows_and_never_overlap(examples, size, micro_batches, sequences):
    examples.sequences = sequences
    batches = Batches(examples, size * micro_batches, 5).pack(micro_batches, 6)
    random_order = Batches(examples, size * micro_batches, 5)
    for step in (3, 0):
        assert sorted(batches.numbers(step)) == sorted(random_order.numbers(step))
        lengths = np.repeat(examples.lengths()[batches.numbers(step)], sequences)
        starts = batches.starts(step)
        assert starts.shape == (size * micro_batches, sequences)
        for part, rooms in zip(starts.reshape(micro_batches, -1), lengths.reshape(micro_batches, -1)):
            places = np.concatenate([np.arange(start, start + room) for start, room in zip(part, rooms)])
            assert len({*places}) == len(places) and places.max() < T * batches.rows(step)
            np.testing.assert_array_equal(part // T, (part + rooms - 1) // T)  # each within one row
        assert batches.length(step) == min(rows for rows in batches.cut_to if rows >= batches.rows(step))


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=80))
def test_each_text_goes_into_the_fullest_row_with_room(lengths):
    """The longest first, of equals the first; of rows equally full, the first."""
    free, expected = [], {}
    for text in sorted(range(len(lengths)), key=lambda text: -lengths[text]):
        fits = [row for row, room in enumerate(free) if room >= lengths[text]]
        row = min(fits, key=free.__getitem__, default=len(free))
        free[row:] = free[row:] or [12]
        expected[text] = 12 * row + 12 - free[row]
        free[row] -= lengths[text]
    found = batching.best_fit(np.array(lengths), 12)
    assert found.tolist() == [expected[text] for text in range(len(lengths))]


def test_a_step_that_fits_no_number_of_rows_is_named():
    batches = Batches(Lengths([5, 5, 5, T, T, T]), 3, repeat=False).pack(1, 1)
    assert batches.cut_to == (1,)
    with pytest.raises(UserError, match="step 1 needs 3 packed rows: expected at most 1"):
        batches.length(1)
    with pytest.raises(UserError, match="batch_size is 3: expected a multiple of 2 micro-batches"):
        batches.pack(2, 1)


@given(random_sets, st.integers(1, 12))
def test_an_evaluation_has_the_longest_first_and_each_once(examples, size):
    batches = Batches(examples, size, repeat=False).cut()
    rows = np.concatenate([batches.numbers(step) for step in range(batches.steps)])
    real = rows[rows != FILLER]
    assert sorted(real) == list(range(examples.records)) and (rows[len(real) :] == FILLER).all()
    assert (np.diff(examples.lengths()[real]) <= 0).all()


@given(random_sets, st.integers(1, 12), st.sampled_from([1, 4, 8]), st.integers(1, 20))
def test_each_step_is_cut_to_the_least_length_that_holds_its_rows(examples, size, multiple, least):
    batches = Batches(examples, size).cut(multiple=multiple, least=least)
    assert 1 <= len(batches.cut_to) <= 8
    assert all(least <= length and (length % multiple == 0 or length == T) for length in batches.cut_to)
    for step in range(2 * batches.steps):
        longest = examples.lengths()[batches.numbers(step)].max()
        assert batches.length(step) == min(length for length in batches.cut_to if length >= longest)


@given(st.lists(st.integers(1, 80), min_size=1, max_size=30))
def test_no_other_lengths_leave_less_padding(longest):
    chosen = choose_lengths(longest, 80, 8)
    possible = sorted({-(-length // 8) * 8 for length in longest})

    def positions(lengths):
        return sum(min(length for length in lengths if length >= rows) for rows in longest)

    def fewest(count):
        return min(
            positions((*other, possible[-1])) for other in itertools.combinations(possible[:-1], count - 1)
        )

    def is_worth(count):
        before = fewest(count - 1)
        return before - fewest(count) >= max(0.02 * before, 80)

    assert positions(chosen) == fewest(len(chosen))
    assert all(map(is_worth, range(2, len(chosen) + 1)))
    assert len(chosen) == min(8, len(possible)) or not is_worth(len(chosen) + 1)


def test_padding_is_before_the_text():
    ids = [[PAD_ID, PAD_ID, 7, 8], [7, 7, 7, 7], [PAD_ID] * 4]
    assert row_lengths(np.array(ids), 4).tolist() == [2, 4, 0]
    pairs = np.array([ids[0] + ids[2], ids[2] + ids[1]])
    assert row_lengths(pairs, 4).tolist() == [2, 4]


def test_lengths_that_do_not_fit_are_refused():
    for lengths, message in (
        ([16, 8], "ascending"),
        ([8, 8, 64], "ascending"),
        ([2, 64], "from 4 to 64"),
        ([8, 128], "from 4 to 64"),
        ([8, 20, 64], "multiples of 8"),
        ([8, 16, 32], "at least 40, the tokens of its longest example"),
    ):
        with pytest.raises(UserError, match=message):
            Batches(Lengths([5, 40, 17]), 2).cut(lengths, least=4)
    with pytest.raises(UserError, match="from 1 to 64"):
        Batches(Lengths([5, 40]), 2).cut([0, 64])
    assert Batches(Lengths([5, 40], seq_len=60), 2).cut([8, 60]).cut_to == (8, 60)  # the last: the set's


@pytest.fixture
def examples(tmp_path, small_tokenizer):
    folder = tmp_path / "set"
    with example_writer(folder, small_tokenizer, seq_len=T) as writer:
        for number in range(20):
            writer.write(pack([20 + number] * (1 + 2 * number), seq_len=T)._asdict(), {})
    examples = ExampleSet.load(folder)
    assert not (folder / LENGTHS_FILE).exists()
    examples.lengths()
    return examples


def test_the_index_is_made_when_it_is_missing(examples, monkeypatch):
    path = examples.folder / LENGTHS_FILE
    built, expected = path.read_bytes(), [3 + 2 * number for number in range(20)]
    assert examples.lengths().tolist() == expected
    path.unlink()  # a set of an earlier version
    assert examples.lengths().tolist() == expected and path.read_bytes() == built
    path.unlink()
    monkeypatch.setattr(examples_lib, "write_lengths", unittest.mock.Mock(side_effect=UserError("read-only")))
    assert examples.lengths().tolist() == expected and not path.exists()


def test_another_index_is_refused(examples):
    path, other = examples.folder / LENGTHS_FILE, np.full(20, 9, np.int32)
    whole = path.read_bytes()

    def refused(message):
        with pytest.raises(UserError, match=message):
            Batches(examples, 4).cut()

    for damaged in (b"", whole[:100], whole[:-40], whole.replace(b"\x07\0\0\0", b"\x08\0\0\0", 1)):
        path.write_bytes(damaged)
        refused(f"{LENGTHS_FILE} is damaged.*remove it")
    batching.write_lengths(examples.folder, np.zeros(3, np.int32), examples.digest)
    refused(r"damaged \(int32 \[3\], expected int32 \[20\]")
    batching.write_lengths(examples.folder, other, "another")
    refused("is of other examples")
    batching.write_lengths(examples.folder, other, examples.digest)  # right set, wrong
    with np.load(path) as arrays:
        changed = {**arrays, "lengths": arrays["lengths"] + 1}
    batches = Batches(examples, 4).cut()
    for read in (example_dataset, lambda order: example_dataset(order, ExampleTable(examples), steps=5)):
        with pytest.raises(Exception, match="tokens of an example that has .*remove it"):
            list(read(batches).take(5))
    np.savez(path, **changed)
    refused("differ from their checksum.*remove it")
    del changed["checksum"]  # as an earlier version wrote it: made again
    np.savez(path, **changed)
    Batches(examples, 4).cut()
    assert path.read_bytes() == whole


def random_features(rng, rows, sequences=1):
    texts = [rng.integers(20, 60, rng.integers(1, 40)).tolist() for _ in range(rows * sequences)]
    packed = [pack(ids, seq_len=T) for ids in texts]
    ids = np.array([text.input_ids for text in packed], np.int32).reshape(rows, -1)
    return {"input_word_ids": ids, "input_mask": (ids != PAD_ID).astype(np.uint8)}


@pytest.mark.parametrize(("sequences", "padding"), [(1, "left"), (3, "left"), (1, "right")])
def test_batches_for_fit_hold_each_text_once_and_cut(sequences, padding):
    features = random_features(np.random.default_rng(0), 50, sequences)
    if padding == "right":
        features = {name: values[:, ::-1] for name, values in features.items()}
    dataset = batches_by_length(features, np.arange(50), batch_size=8, seed=3, sequences=sequences)
    orders = []
    for _ in range(2):
        order = []
        for batch, numbers in dataset:
            ids = batch["input_word_ids"].numpy().reshape(len(numbers), sequences, -1)
            whole = features["input_word_ids"][numbers].reshape(len(numbers), sequences, T)
            length = ids.shape[2]
            kept = whole[:, :, T - length :] if padding == "left" else whole[:, :, :length]
            np.testing.assert_array_equal(ids, kept)
            assert row_lengths(whole.reshape(len(ids), -1), T).max() <= length <= 48
            order += numbers.numpy().tolist()
        assert sorted(order) == list(range(50))
        orders.append(order)
    assert len(dataset) == 7 and orders[0] != orders[1]
    unshuffled = batches_by_length(features, np.arange(50), batch_size=8, shuffle=False, sequences=sequences)
    assert np.concatenate([numbers for _, numbers in unshuffled]).tolist() == list(range(50))


def test_labels_of_tokens_are_cut_with_them():
    features = random_features(np.random.default_rng(1), 20)
    labels = features["input_word_ids"] * 2
    for batch, tags in batches_by_length(features, labels, batch_size=6, token_labels=True):
        np.testing.assert_array_equal(tags, batch["input_word_ids"] * 2)
    in_order = list(batches_by_length(features, batch_size=6))  # for predict
    for batch, expected in zip(in_order, batches_by_length(features, labels, 6, shuffle=False), strict=True):
        np.testing.assert_array_equal(batch["input_word_ids"], expected[0]["input_word_ids"])
    with pytest.raises(UserError, match="there are 20 texts and {'labels': 3}"):
        batches_by_length(features, [1, 2, 3])
    with pytest.raises(UserError, match="batch_size is 0; expected at least 1"):
        batches_by_length(features, labels, batch_size=0)
