"""The original's behaviour, bit for bit, against fixtures that its own code made."""

import json
import random

import numpy as np
import pytest

from tests.helpers.records import original_records
from tfrecord_builders.pretraining import compat_sampling
from xlnet_tf.errors import UserError
from xlnet_tf.records import ranks
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

RUNS = ("proc_bi", "proc_uni", "proc_bi_uncased_nofnp")


def load(path):
    arrays = np.load(path)
    return arrays, json.loads(str(arrays["meta_json"]))


@pytest.fixture
def tokenizer(shared):
    return XLNetTokenizer(shared("golden/data/sp300.model"))


def test_split_a_and_b(golden):
    arrays, meta = load(golden("data_split_a_and_b.npz"))
    tokens, borders = arrays["data"], original_records.sentence_borders(arrays["sent_ids"])
    for case in meta["cases"]:
        choices = random.Random(case["random_seed"])
        begin = case["begin_idx"]
        cut = compat_sampling.split_a_and_b(choices, borders, len(tokens), begin, case["tot_len"])
        assert choices.random() == case["random_after"]
        assert (cut is None) == case["is_none"]
        if cut is not None:
            number = case["case"]
            assert cut.label == case["label"]
            np.testing.assert_array_equal(tokens[begin : cut.a_end], arrays[f"a_data_{number}"])
            np.testing.assert_array_equal(tokens[cut.b_begin : cut.b_end], arrays[f"b_data_{number}"])
            np.testing.assert_array_equal(tokens[begin + 1 : cut.a_end + 1], arrays[f"a_target_{number}"])
            np.testing.assert_array_equal(tokens[cut.b_begin : cut.b_end + 1], arrays[f"b_target_{number}"])


def test_another_text_lies_anywhere_but_on_the_last_token():
    """Every token is a sentence here, so that B is as long as there is room, from where it was drawn."""
    begins = set()
    for seed in range(200):
        cut = compat_sampling.split_a_and_b(random.Random(seed), np.arange(1, 12), 12, 0, 6)
        if cut.label == 0:
            assert cut.b_end - cut.b_begin == 6 - cut.a_end and cut.b_end <= 11
            begins.add(11 - cut.b_end)
    assert begins >= set(range(6))


def test_sample_mask(golden, tokenizer):
    arrays, meta = load(golden("data_sample_mask.npz"))
    names = ("goal_num_predict", "mask_alpha", "mask_beta", "max_gram", "reverse")
    for case in meta["cases"]:
        numbers = np.random.RandomState(case["np_seed"])
        starts = tokenizer.original_word_starts[arrays[f"seg_{case['case']}"]]
        mask = compat_sampling.sample_mask(numbers, starts, *(case[name] for name in names))
        np.testing.assert_array_equal(mask, arrays[f"mask_{case['case']}"])
        assert numbers.random_sample() == case["np_random_after"]


def corpus(shared):
    paths = [shared(f"golden/data/text/{name}.txt") for name in ("alice_ch1", "pride_ch1")]
    return [path.read_text(encoding="utf-8").splitlines() for path in paths]


def test_token_stream(golden, shared, tokenizer):
    arrays, _ = load(golden("data_tokens.npz"))
    tokens, flags = original_records.token_stream(tokenizer, corpus(shared), np.random.RandomState(0))
    np.testing.assert_array_equal(tokens, arrays["input_data"])
    np.testing.assert_array_equal(flags, arrays["sent_ids"])


@pytest.mark.parametrize("run", RUNS)
def test_records(golden, shared, run):
    arrays, meta = load(golden(f"data_records_{run}.npz"))
    flags = meta["flags"]
    cleaning = CleaningConfig(lower=flags["uncased"])
    tokenizer = XLNetTokenizer(shared("golden/data/sp300.model"), cleaning=cleaning)
    choices = random.Random(meta["python_random_seed"])
    numbers = np.random.RandomState(meta["np_random_seed"])
    stream = original_records.token_stream(tokenizer, corpus(shared), numbers, flags["use_eod"])
    layout = (flags["bsz_per_host"], flags["num_core_per_host"], flags["bi_data"])
    rows = (original_records.batch_rows(part, *layout) for part in stream)
    sizes = (flags["seq_len"], flags["reuse_len"], flags["num_predict"])
    settings = {"alpha": flags["mask_alpha"], "beta": flags["mask_beta"], "bidirectional": flags["bi_data"]}
    settings |= {"num_cores": flags["num_core_per_host"], "piece_starts": tokenizer.original_word_starts}
    batches = list(original_records.batches(choices, numbers, *rows, *sizes, **settings))
    assert len(batches) == meta["record_info"]["num_batch"]
    for name in ("input", "target", "seg_id", "is_masked", "label"):
        np.testing.assert_array_equal(np.concatenate([batch[name] for batch in batches]), arrays[name])
    assert choices.random() == meta["rng_probe"]["random_after"]
    assert numbers.random_sample() == meta["rng_probe"]["np_random_after"]


@pytest.mark.parametrize("name", ["p32", "p32_tail", "p16"])
def test_ranks_expand_to_the_masks_of_local_perm(golden, name):
    arrays, _ = load(golden(f"data_local_perm_{name}.npz"))
    special = np.isin(arrays["inputs"], (SEP_ID, CLS_ID))
    is_target = arrays["is_masked"] & ~special
    order = ranks.tile_permutation(arrays["perm"][None], len(special))
    np.testing.assert_array_equal(order[0], arrays["index"])
    rank = ranks.permutation_ranks(is_target[None], special[None], order, len(special))[0]
    _, query_visible = ranks.expand(rank, is_target)
    np.testing.assert_array_equal(query_visible, 1 - arrays["perm_mask"])
    np.testing.assert_array_equal(is_target, arrays["target_mask"])


@pytest.mark.parametrize("name", ["bi_p32", "uni_p32", "nofnp_p32"])
def test_ranks_expand_to_the_masks_of_training(golden, name):
    arrays, meta = load(golden(f"data_input_fn_{name}.npz"))
    records, _ = load(golden(f"data_records_{meta['run']}.npz"))
    perm_mask = arrays["perm_mask"].reshape(-1, *arrays["perm_mask"].shape[2:])
    count, seq_len, _ = perm_mask.shape
    ids, is_masked = records["input"][:count], records["is_masked"][:count].astype(bool)
    special = np.isin(ids, (SEP_ID, CLS_ID))
    is_target = is_masked & ~special
    halves = [
        np.tile(ranks.tile_permutation(arrays[part][None], seq_len // 2), (count, 1))
        for part in ("perm0", "perm1")
    ]
    rank = ranks.permutation_ranks(is_target, special, np.concatenate(halves, axis=1), seq_len // 2)
    _, query_visible = ranks.expand(rank, is_target)
    np.testing.assert_array_equal(query_visible, 1 - perm_mask)
    np.testing.assert_array_equal(is_target, arrays["input_q"].reshape(count, seq_len))
    wanted = arrays["target"].reshape(count, -1)
    weights = arrays["target_mask"].reshape(count, -1).astype(bool)
    for row in range(count):
        found = wanted[row][weights[row]]
        np.testing.assert_array_equal(ids[row][is_target[row]], found)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_slice_equals_one_row_of_the_original(golden, tokenizer, reverse):
    """The reversed row is the second of a bidirectional core; alone it is drawn with the same generators."""
    arrays, _ = load(golden("data_tokens.npz"))
    tokens, flags = (arrays[name][:: -1 if reverse else 1] for name in ("input_data", "sent_ids"))
    ends = np.append(original_records.sentence_borders(flags), len(tokens))
    starts, settings = tokenizer.original_word_starts, {"reverse": reverse}
    choices, numbers = random.Random(5), np.random.RandomState(6)
    found, is_target = compat_sampling.segments_and_targets(
        choices, numbers, tokens, ends, 64, 32, 10, piece_starts=starts, **settings
    )
    choices, numbers = random.Random(5), np.random.RandomState(6)
    for row in range(len(found)):
        cut = compat_sampling.split_a_and_b(choices, ends[:-1], len(tokens), row * 32 + 32, 29)
        halves = found.ids[row, :32], found.ids[row, 32:]
        masks = [compat_sampling.sample_mask(numbers, starts[half], 5, **settings) for half in halves]
        text = [tokens[row * 32 : cut.a_end], [SEP_ID], tokens[cut.b_begin : cut.b_end], [SEP_ID, CLS_ID]]
        np.testing.assert_array_equal(found.ids[row], np.concatenate(text))
        np.testing.assert_array_equal(is_target[row], np.concatenate(masks) & ~found.special[row])
        assert found.next_sentence[row] == cut.label
    assert len(found) == (len(tokens) - 64) // 32 + 1
    in_text = found.source_positions >= 0
    np.testing.assert_array_equal(found.ids[in_text], tokens[found.source_positions[in_text]])
    np.testing.assert_array_equal(in_text, ~found.special)
    # Words start where they do in the text, reversed where they end in it, and at the borders of a segment.
    begins = np.append(True, starts[tokens][:-1]) if reverse else starts[tokens]
    inside = in_text[:, 1:] & (np.diff(found.source_positions) == 1)
    inside[:, 31] = False  # the first token of A
    positions = found.source_positions[:, 1:][inside]
    np.testing.assert_array_equal(found.word_start[:, 1:][inside], begins[positions])


def test_a_stream_too_short_gives_no_segments():
    """The original wants as many tokens as a segment has, SEP and CLS included."""
    draws = random.Random(0), np.random.RandomState(0)
    for num_tokens in (20, 63):
        tokens, ends = np.arange(20, 20 + num_tokens), np.append(np.arange(5, num_tokens, 5), num_tokens)
        stream = tokens, ends, 64, 32, 10
        found = compat_sampling.segments_and_targets(*draws, *stream, piece_starts=np.ones(100, bool))
        assert found[0].ids.shape == found[1].shape == (0, 64)


def test_impossible_settings_are_refused():
    with pytest.raises(UserError, match="reuse_len = seq_len / 2"):
        compat_sampling.halves(64, 16, 10)
    with pytest.raises(UserError, match="at most 32"):
        compat_sampling.sample_mask(np.random.RandomState(0), np.ones(32, bool), 33)
    assert compat_sampling.sample_mask(np.random.RandomState(0), np.ones(32, bool), 32).all()
