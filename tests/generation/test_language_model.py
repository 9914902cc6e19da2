"""Strings in, strings and probabilities out: the same as the numbers that other tests prove."""

import dataclasses
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.models import uncached
from xlnet_tf.checkpoints import save_model
from xlnet_tf.errors import UserError
from xlnet_tf.generation import graphs, scoring
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.models import contexts as contexts_lib
from xlnet_tf.text.special_tokens import EOP_ID

PROMPTS = ["ba ne tor", "", "mi kal su ren do ba ne tor mi", "Su 12, ren."]
MARKED = ["ba <mask> <mask> tor", "<mask>", "ne <mask> mi kal su <mask> ren do <mask>", "<mask>ba"]


@pytest.fixture(scope="module")
def model(small_tokenizer):
    config = dataclasses.replace(uncached.CONFIG, n_token=small_tokenizer.vocab_size)
    return XLNetLanguageModel(uncached.random_model(config), small_tokenizer)


@pytest.fixture(scope="module")
def total(model):
    return lambda text, context="": model.score([text], [context])[0].total


def test_continuations_have_the_probability_that_score_gives(model, small_tokenizer):
    for prompt, found in zip(PROMPTS, model.generate(PROMPTS, max_new_tokens=6, seed=3), strict=True):
        assert len(found.pieces) == len(found.log_probabilities) == 6
        before = small_tokenizer.encode(prompt)
        new = [small_tokenizer.pieces.index(piece) for piece in found.pieces]
        assert small_tokenizer.decode([*before, *new]) == small_tokenizer.decode(before) + found.text
        ids, order = np.int32([[*before, 0]]), np.arange(len(before), len(before) + 6)[None]
        is_context = np.arange(len(before) + 1)[None] < len(before)
        expected = uncached.token_log_probabilities(model.model, ids, is_context, order, np.int32([new]))
        np.testing.assert_allclose(found.log_probabilities, expected[0], atol=1e-4)
        assert found.total == pytest.approx(expected.sum(), abs=1e-3)


def test_written_pieces_share_the_probability_that_score_gives_to_symbols(model, small_tokenizer):
    """p(fill_mask) = p(score) / (1 - p(symbols)), for every piece that can be written."""
    pieces = small_tokenizer.pieces
    before = np.tile(np.int32(small_tokenizer.encode("ba ne")), [len(pieces), 1])
    rows = map(tf.RaggedTensor.from_tensor, (before, np.arange(len(pieces), dtype=np.int32)[:, None]))
    features, is_scored = scoring.join_contexts(*rows, before.shape[1] + 1)
    ranks = scoring.order_ranks(is_scored, "left_to_right")
    found = scoring.token_log_probabilities(model.model, features, is_scored, ranks)
    scored = np.exp(found.numpy().sum(axis=1))  # of each piece after the same text
    assert scored.sum() == pytest.approx(1, abs=1e-4)
    symbols = scored[:EOP_ID].sum()
    [guesses] = model.fill_mask(["ba ne <mask>"], top_k=len(pieces))[0].guesses
    written = {guess.piece: guess.probability for guess in guesses if guess.probability}
    assert written.keys() == set(pieces[EOP_ID:]) and symbols > 0.01
    expected = [scored[pieces.index(piece)] / (1 - symbols) for piece in written]
    np.testing.assert_allclose([*written.values()], expected, rtol=1e-3)


@pytest.fixture
def blocks(monkeypatch):
    """Reads all but the shortest texts in blocks of one query or a few."""
    monkeypatch.setattr(graphs, "AT_ONCE", 3)
    monkeypatch.setattr(contexts_lib, "_SCORES_OF_BLOCK", 60)


def results(model, **options):
    """What each method makes of the texts: everything but numbers, and all numbers."""
    found = [
        model.generate(PROMPTS, max_new_tokens=4, seed=1, top_p=0.8, **options),
        model.search(PROMPTS, max_new_tokens=3, beams=2, **options),
        model.infill(MARKED, seed=2, **options),
        model.infill(MARKED, seed=2, orders="easiest_first", **options),
        model.fill_mask(MARKED, top_k=2, **options),
        model.score(PROMPTS, PROMPTS[::-1], order="random", **options),
        model.embed(PROMPTS, tokens=True, **options),
    ]
    numbers = []

    def strings(value):
        if isinstance(value, (float, np.ndarray)):
            numbers.extend(np.ravel(value))
            return "numbers"
        if dataclasses.is_dataclass(value):
            return strings([getattr(value, field.name) for field in dataclasses.fields(value)])
        if isinstance(value, (list, tuple)):
            return [strings(each) for each in value]
        return value

    return strings(found), np.array(numbers, float)


@pytest.mark.integration
def test_batches_and_blocks_of_long_texts_change_nothing(model, small_tokenizer, request):
    expected, expected_numbers = results(model)
    alone = results(model, batch_size=1)
    request.getfixturevalue("blocks")
    for found, found_numbers in (alone, results(XLNetLanguageModel(model.model, small_tokenizer))):
        assert found == expected
        np.testing.assert_allclose(found_numbers, expected_numbers, atol=1e-4)


@pytest.mark.integration
def test_memory_grows_with_a_text_and_not_with_its_square(tmp_path, small_tokenizer):
    """A prompt of 25 KB once took 11 GB."""
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    config = dataclasses.replace(uncached.CONFIG, n_token=small_tokenizer.vocab_size)
    save_model(uncached.random_model(config), str(tmp_path))
    script = r"""
import re, sys
from xlnet_tf.generation.language_model import XLNetLanguageModel as Model
model = Model.from_pretrained(sys.argv[1])
found = model.generate(["bane tormi, 12 " * 1700], max_new_tokens=3)[0].pieces
print(len(found), re.search(r"VmHWM:\s*(\d+)", open("/proc/self/status").read())[1])
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pieces, kilobytes = map(int, printed.split())
    assert pieces == 3 and kilobytes < 2.5e6


METHODS = ["generate", "search", "fill_mask", "infill", "score", "embed"]


@pytest.mark.parametrize("method", METHODS)
def test_a_text_that_is_too_long_is_named(model, method):
    with pytest.raises(UserError, match=r"\[1\] has [2-9]\d\d,\d\d\d pieces.* at most 32,768 .*Shorten"):
        getattr(model, method)(["<mask>", "<mask>" + "bane tor " * 111_111])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<mask> \udce9", r"\[1\] is '<mask> \\udce9': its character 8, '\\udce9', is a byte that is not"),
        (b"<mask>", r"\[1\] is b'<mask>'; expected a string; decode it"),
        (None, r"\[1\] is None; expected a string\."),
    ],
)
def test_what_is_not_text_is_named(model, method, text, message):
    with pytest.raises(UserError, match=message):
        getattr(model, method)(["<mask>", text])


@pytest.mark.parametrize("mark", ["[MASK]", "<MASK>", "[mask]", "___", "{mask}"])
def test_gaps_as_others_write_them(model, mark):
    for text in (f"ba {mark} ne", f"<mask> ba {mark} ne")[mark == "{mask}" :]:
        if mark == "___" and "<mask>" in text:
            assert model.fill_mask([text])
            continue
        with pytest.raises(UserError, match=rf"write <mask>, instead of {re.escape(mark)}"):
            model.fill_mask([text])


def test_seeds_and_row_indices_give_different_texts(model):
    texts = [model.generate(["ba"] * 8, max_new_tokens=8, seed=seed) for seed in (0, 0, 1)]
    first, again, other = ([found.text for found in batch] for batch in texts)
    assert first == again
    assert len({*first, *other}) == 16


def test_a_stop_piece_ends_a_text(model):
    [whole] = model.generate(["ba"], max_new_tokens=8, temperature=0)
    stop = whole.pieces[2]
    [cut] = model.generate(["ba"], max_new_tokens=8, temperature=0, stop=[stop])
    assert cut.pieces == whole.pieces[: whole.pieces.index(stop) + 1]


def test_fillings(model, small_tokenizer):
    for text, found in zip(MARKED, model.fill_mask(MARKED, top_k=3), strict=True):
        gaps = text.count("<mask>")
        assert len(found.fillings) == 3
        probabilities = [filling.probability for filling in found.fillings]
        assert probabilities == sorted(probabilities, reverse=True)
        for filling in found.fillings:
            assert len(filling.pieces) == len(filling.probabilities) == len(filling.alone) == gaps
            assert "<mask>" not in filling.text
            assert filling.alone[0] == pytest.approx(filling.probabilities[0], abs=1e-5)
        for guesses in (found.guesses, found.guesses_alone):
            assert [len(guess) for guess in guesses] == [3] * gaps
        best = found.fillings[0]
        for guesses, piece, probability in zip(found.guesses, best.pieces, best.probabilities, strict=True):
            assert dict(guesses).get(piece, probability) == pytest.approx(probability, abs=1e-5)
    first = model.fill_mask(["ba <mask> ne"], top_k=1)[0].fillings[0]
    ids = [*small_tokenizer.encode("ba"), small_tokenizer.pieces.index(first.pieces[0])]
    assert first.text == small_tokenizer.decode([*ids, *small_tokenizer.encode("ne")])


def test_orders_of_filling(model):
    [text], orders = ["ne <mask> mi <mask> ren <mask>"], [[2, 0, 1]]
    [found] = model.fill_mask([text], top_k=2, orders=orders)
    [forward] = model.fill_mask([text], top_k=2)
    tokenizer = model.tokenizer
    parts = [tokenizer.encode(part) for part in text.split("<mask>")[:3]]
    ids = np.int32([[*parts[0], 6, *parts[1], 6, *parts[2], 6]])
    order = np.nonzero(ids == 6)[1][None, orders[0]]
    for filling in found.fillings:
        new = np.int32([[tokenizer.pieces.index(piece) for piece in filling.pieces]])
        expected = uncached.token_log_probabilities(model.model, ids, ids != 6, order, new)
        np.testing.assert_allclose(filling.probabilities, np.exp(expected[0]), atol=1e-4)
    assert found.fillings[0].probability != pytest.approx(forward.fillings[0].probability, rel=1e-3)


@pytest.mark.parametrize("method", ["fill_mask", "infill", "embed"])
def test_a_column_of_pandas_is_read_in_its_order(model, method):
    """Its index may begin elsewhere, or be in another order, as after sorting or choosing rows."""
    pandas = pytest.importorskip("pandas")
    expected = getattr(model, method)(MARKED)
    found = getattr(model, method)(pandas.Series(MARKED, index=[3, 2, 1, 0]))
    if method == "embed":
        expected, found = expected.mean.tolist(), found.mean.tolist()
    assert repr(found) == repr(expected)


def test_numbers_of_numpy_are_numbers(model):
    plain = model.generate(["ba"], max_new_tokens=3, seed=5000, top_p=0.9)
    found = model.generate(["ba"], max_new_tokens=np.int64(3), seed=np.int32(5000), top_p=np.float64(0.9))
    assert found[0].text == plain[0].text
    assert model.search(["ba"], max_new_tokens=np.int64(2))[0][0].text
    [by_array], [by_list] = (
        model.fill_mask(["<mask> <mask>"], orders=o) for o in (np.array([[1, 0]]), [[1, 0]])
    )
    assert by_array.fillings[0].text == by_list.fillings[0].text


def test_infilled_texts_keep_what_was_given(model):
    for options in ({}, {"orders": "easiest_first"}, {"orders": [[0, 1], [0], [2, 1, 0], [0]]}):
        [first, _, third, _] = model.infill(MARKED, temperature=0.5, seed=5, **options)
        assert first.startswith("ba") and first.endswith(" tor")
        assert third.startswith("ne") and "mi kal su" in third and "ren do" in third


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("generate", {"prompts": 3}, "prompts is one int; expected a list of strings"),
        ("generate", {"prompts": {"input_word_ids": [[17]]}}, "prompts is one dict; expected a list of str"),
        ("embed", {"texts": {"ba", "ne"}}, "texts is one set; expected a list of strings"),
        ("generate", {"prompts": []}, "prompts is empty"),
        ("generate", {"prompts": ["ba"], "max_new_tokens": 0}, "max_new_tokens is 0"),
        ("generate", {"prompts": ["ba"], "temperature": -1}, "temperature is -1"),
        ("generate", {"prompts": ["ba"], "temperature": "0.7"}, "temperature is '0.7'; expected 0"),
        ("infill", {"texts": ["<mask>"], "top_p": None}, "top_p is None; expected more than 0, to 1"),
        ("score", {"texts": ["ba"], "batch_size": 2.5}, "batch_size is 2.5; expected a whole number"),
        ("generate", {"prompts": ["ba"], "top_k": -1}, "top_k is -1"),
        ("generate", {"prompts": ["ba"], "top_p": 0}, "top_p is 0"),
        ("generate", {"prompts": ["ba"], "stop": ["no such piece"]}, "no such piece"),
        ("generate", {"prompts": ["ba"], "stop": ["<sep>"]}, "<sep>"),
        ("generate", {"prompts": ["ba"], "batch_size": 0}, "batch_size is 0"),
        ("search", {"prompts": ["ba"], "beams": 0}, "beams is 0"),
        ("fill_mask", {"texts": ["ba <mask>", "ba"]}, r"texts\[1\] is 'ba'"),
        ("fill_mask", {"texts": ["<mask>"], "top_k": 0}, "top_k is 0"),
        ("fill_mask", {"texts": ["<mask> <mask>"], "orders": [[0, 0]]}, r"orders\[0\] is \[0, 0\]"),
        ("infill", {"texts": ["<mask>"], "orders": "backward"}, "orders is 'backward'"),
        ("infill", {"texts": [None]}, "expected a string"),
        ("score", {"texts": ["ba"], "contexts": ["ba", "ne"]}, "1 texts and 2 contexts"),
        ("score", {"texts": ["ba"], "order": [[0], [0]]}, "1 texts and 2 orders"),
        (
            "score",
            {"texts": ["ba"], "order": "random", "seed": 1 << 63},
            "seed is 9223372036854775808; expec",
        ),
        ("embed", {"texts": ["ba"], "layer": 1}, "layer is 1; the model has layers 0 to 0"),
        ("score", {"texts": ["ba"], "order": None}, "order is None; expected one of left_to_right"),
        ("score", {"texts": ["ba"], "order": [[0.0]]}, r"order\[0\] is \[0.0\]; expected each number"),
        ("score", {"texts": ["ba"], "order": [None]}, r"order\[0\] is None; expected each number"),
        ("fill_mask", {"texts": ["<mask>"], "orders": [[0.0]]}, r"orders\[0\] is \[0.0\]; expected each of"),
        ("fill_mask", {"texts": ["<mask>"], "orders": 3}, "orders is 3; expected a list of numbers"),
        ("fill_mask", {"texts": ["<mask>"], "orders": [0]}, r"orders\[0\] is 0; expected each of"),
        ("fill_mask", {"texts": ["<mask>"], "top_k": 257}, "top_k is 257; expected a whole number from 1"),
        ("search", {"prompts": ["ba"], "beams": 32000}, "beams is 32000; expected a whole number from 1"),
        ("generate", {"prompts": ["ba"], "temperature": True}, "temperature is True"),
        ("generate", {"prompts": ["ba"], "stop": None}, "stop is None; expected a list of pieces"),
        ("generate", {"prompts": ["ba"], "stop": [["a"]]}, r"stop has \['a'\], which is not a piece"),
        ("generate", {"prompts": ["ba"], "forbid": "<eop>"}, r"forbid is '<eop>'; expected a list of pieces"),
        ("search", {"prompts": ["ba"], "forbid": ["ba ne"]}, "forbid has 'ba ne', which is not a piece of"),
        ("search", {"prompts": ["ba"], "stop": ["."], "forbid": ["."]}, "forbid has '.', and so has stop"),
        ("generate", {"prompts": ["ba"], "repetition_penalty": 0.5}, "repetition_penalty is 0.5; expected a"),
        ("search", {"prompts": ["ba"], "repetition_penalty": math.inf}, "repetition_penalty is inf; expe"),
        ("embed", {"texts": ["ba"], "layer": "last"}, "layer is 'last'; the model has layers 0"),
        ("fill_mask", {"texts": ["<mask>" * 257]}, r"texts\[0\] has 257 <mask>; expected at most 256"),
        ("generate", {"prompts": ["ba"], "max_new_tokens": 32_768}, "1 pieces, and 32,768 are to follow"),
        ("score", {"texts": [], "ordering": "random"}, "unknown option ordering; expected some of batch_siz"),
        ("embed", {"texts": [], "layers": 2}, "unknown option layers; expected some of batch_size, layer, t"),
    ],
)
def test_wrong_input_is_named(model, method, arguments, message):
    with pytest.raises(UserError, match=message):
        getattr(model, method)(**arguments)


def test_many_gaps_have_a_log_probability(model):
    [found] = model.fill_mask([" ".join(["<mask>"] * 250)], top_k=1)
    [filling] = found.fillings
    assert filling.log_probability < -300
    np.testing.assert_allclose(filling.log_probability, np.log(filling.probabilities).sum(), rtol=1e-4)
    [found] = model.fill_mask(["ba <mask> <mask>"], top_k=1)
    assert found.fillings[0].probability == pytest.approx(found.fillings[0].probabilities.prod(), rel=1e-5)


def test_the_whole_is_what_the_model_read_and_wrote(model, small_tokenizer):
    [found] = model.generate(["  ba \u00a0 ne  "], max_new_tokens=2)
    assert found.whole == f"ba ne{found.text}"


@pytest.mark.parametrize("method", ["score", "embed"])
def test_one_graph_serves_texts_of_all_lengths(model, method, monkeypatch):
    run, traced = getattr(model._engine, {"score": "_run", "embed": "_read"}[method]), []
    for texts in (["ba"], ["ba ne tor mi", "kal su"], [""]):
        getattr(model, method)(texts)
        traced.append([graph.experimental_get_tracing_count() for key, graph in run._graphs.items()
                       if method in key[0].__name__])  # fmt: skip
    assert traced == [[1]] * 3


def test_another_tokenizer_is_refused(small_tokenizer):
    with pytest.raises(UserError, match="90 pieces, the model 50"):
        XLNetLanguageModel(uncached.random_model(), small_tokenizer)
