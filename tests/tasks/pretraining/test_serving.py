"""Served pretrained models give what the library gives for the same texts, tokenized in Python."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import invent_texts
from tests.helpers.serving.toys import HOSTILE, built
from xlnet_tf.errors import UserError
from xlnet_tf.generation import scoring
from xlnet_tf.generation.embedding import embed
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.generation.sampling import log_probabilities
from xlnet_tf.models import contexts as contexts_lib
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.tasks.pretraining import serving as language_model
from xlnet_tf.tasks.pretraining.serving import LanguageModelModule

SEQ_LEN = 24
TEXTS = [*HOSTILE, *invent_texts(4), " ".join(invent_texts(20))]


@pytest.fixture(scope="module")
def model(small_tokenizer):
    return built(XLNetPretrainer, small_tokenizer)


@pytest.fixture(scope="module")
def module(model, small_tokenizer):
    return LanguageModelModule(
        model, small_tokenizer, seq_len=SEQ_LEN, buckets=[8, 16], max_new_tokens=6, top_k=3, beams=2
    )


def texts(values):
    return tf.constant([value.encode() for value in values])


def score(module, text, context=None, order="left_to_right", seed=0):
    rows = len(text)
    orders = [order] * rows if isinstance(order, str) else order
    seeds = tf.fill([rows], tf.constant(seed, tf.int64))
    answers = module.score(texts(text), texts(context or [""] * rows), texts(orders), seeds)
    return {name: value.numpy() for name, value in answers.items()}


def test_vectors_are_the_models(model, module, small_tokenizer):
    answers = module.embed(texts(TEXTS))
    features = small_tokenizer(TEXTS, seq_len=SEQ_LEN)
    expected = embed(model.encoder, features)
    np.testing.assert_allclose(answers["mean"], expected.mean, atol=1e-5)
    np.testing.assert_allclose(answers["cls"], expected.cls, atol=1e-5)
    for row, text in enumerate(TEXTS):
        pieces = [small_tokenizer.id_to_piece(index) for index in small_tokenizer.encode(text)]
        count = int(answers["num_tokens"][row])
        assert count == min(len(pieces) + 2, SEQ_LEN) == features["input_mask"][row].sum()
        found = [piece.decode() for piece in answers["pieces"][row].numpy()]
        assert found == [*pieces[: count - 2], "<sep>", "<cls>"] + [""] * (len(found) - count)
        np.testing.assert_allclose(answers["tokens"][row, :count], expected.tokens[row, -count:], atol=1e-5)
        assert answers["truncated"][row] == (len(pieces) + 2 > SEQ_LEN)
    assert answers["truncated"].numpy().any() and not answers["truncated"].numpy().all()


@pytest.mark.parametrize("order", scoring.ORDERS)
def test_likelihoods_are_the_models(model, module, small_tokenizer, order):
    contexts = TEXTS[::-1]
    answers = score(module, TEXTS, contexts, order, seed=3)
    for row, (text, context) in enumerate(zip(TEXTS, contexts)):
        ids, before = small_tokenizer.encode(text), small_tokenizer.encode(context)
        kept = ids[:SEQ_LEN]
        kept_before = before[max(0, len(before) - SEQ_LEN + len(kept)) :]
        features, is_scored = scoring.join_contexts(
            tf.ragged.constant([kept_before], tf.int32, ragged_rank=1),
            tf.ragged.constant([kept], tf.int32, ragged_rank=1),
            SEQ_LEN,
        )
        places = scoring.order_ranks(is_scored, order, tf.constant([3], tf.int64))
        expected = scoring.token_log_probabilities(model, features, is_scored, places)[is_scored]
        count = answers["num_tokens"][row]
        assert count == len(kept)
        np.testing.assert_allclose(answers["log_probabilities"][row, :count], expected, atol=1e-4)
        assert not answers["log_probabilities"][row, count:].any()
        np.testing.assert_allclose(answers["log_probability"][row], np.sum(expected), atol=1e-3)
        assert answers["pieces"][row, :count].tolist() == [
            small_tokenizer.id_to_piece(index).encode() for index in kept
        ]
        assert answers["truncated"][row] == (len(kept) + len(kept_before) < len(ids) + len(before))
    assert not any(answers["error"])


def test_an_unknown_order_affects_only_its_row(module):
    expected = score(module, TEXTS[:3] + TEXTS[-3:])
    orders = ["left_to_right"] * 5 + ["backward"]
    answers = score(module, TEXTS[:3] + TEXTS[-3:], order=orders)
    np.testing.assert_allclose(answers["log_probability"][:5], expected["log_probability"][:5], atol=1e-4)
    assert np.isnan(answers["log_probability"][5])
    assert answers["error"].tolist() == [b""] * 5 + [
        b"order is 'backward'; expected one of left_to_right, right_to_left, random"
    ]


def test_a_text_that_is_too_long_affects_only_its_row(module):
    long, short = "ba ne <mask> " * 45_000, "mi <mask> kal"
    expected = {name: getattr(module, name) for name in ("embed", "fill_mask", "search")}
    expected["serve"] = module.serve
    expected["score"] = lambda text: module.score(
        text, text[::-1], texts(["left_to_right"] * 3), tf.zeros([3], tf.int64)
    )
    expected["search"] = lambda text: module.search(text, tf.ones([3], tf.int64))
    for name, answer in expected.items():
        found, alone = answer(texts([short, long, short])), answer(texts([short, "", short]))
        faults = [error.decode() for error in found["error"].numpy()]
        assert faults[0] == faults[2] == "" and "has 585000 bytes" in faults[1], name
        assert faults[1].endswith("bytes; expected at most 524288"), name
        for output, values in found.items():
            for row in (0, 2):
                np.testing.assert_array_equal(values[row], alone[output][row], err_msg=f"{name} {output}")
            if output in ("mean", "cls", "tokens", "log_probability") and name not in ("search", "fill_mask"):
                assert np.isnan(values[1]).all(), name
    assert module.fill_mask(texts([long]))["probability"].numpy().max() == 0


def test_a_long_sequence_is_read_in_blocks(model, small_tokenizer, module, monkeypatch):
    monkeypatch.setattr(language_model, "AT_ONCE", 8)
    monkeypatch.setattr(contexts_lib, "_SCORES_OF_BLOCK", 60)
    options = {"buckets": [8, 16], "max_new_tokens": 6, "top_k": 3, "beams": 2}
    blocks = LanguageModelModule(model, small_tokenizer, seq_len=SEQ_LEN, **options)
    for answer in (
        lambda module: module.embed(texts(TEXTS)),
        lambda module: score(module, TEXTS),
        lambda module: module.fill_mask(texts([f"{text} <mask>" for text in TEXTS])),
        lambda module: module.search(texts(TEXTS), tf.ones([len(TEXTS)], tf.int64)),
    ):
        for found, expected in zip(answer(blocks).values(), answer(module).values(), strict=True):
            if np.asarray(found).dtype == np.float32:
                np.testing.assert_allclose(found, expected, atol=1e-4)
            else:
                np.testing.assert_array_equal(found, expected)


MARKED = ["bane <mask> kal <mask>", "no mask", "<mask>", "", "kal<mask> tor", "<mask> " * 7, *HOSTILE]
FILLED = {0: 2, 2: 1, 4: 1, 8: 1}  # rows of MARKED that have gaps to fill, and how many


def conditional(model, ids, positions):
    """Log-probabilities of the tokens at positions, in that order, each after all others; and all pieces'."""
    rank = np.zeros([1, len(ids)], np.int32)
    rank[0, positions] = 1 + np.arange(len(positions))
    logits = model(
        {
            "input_word_ids": np.int32([ids]),
            "permutation_rank": rank,
            "target_positions": np.int32([positions]),
        }
    )["logits"]
    found = log_probabilities(logits)[0].numpy()
    return found[np.arange(len(positions)), np.array(ids)[positions]], found


def test_fillings_have_the_models_probabilities(model, module, small_tokenizer):
    answers = {name: value.numpy() for name, value in module.fill_mask(texts(MARKED)).items()}
    id_of = {piece: index for index, piece in enumerate(small_tokenizer.pieces)}
    for row, count in FILLED.items():
        assert answers["num_masks"][row] == count
        assert (np.diff(answers["probability"][row]) <= 0).all()
        for filling in range(3):
            pieces = [piece.decode() for piece in answers["pieces"][row, filling]]
            assert all(pieces[:count]) and not any(pieces[count:])
            found = answers["probabilities"][row, filling]
            assert answers["probability"][row, filling] == pytest.approx(np.prod(found[:count]), rel=1e-4)
            assert not found[count:].any()
    # The first text, rebuilt here.
    begin, middle = small_tokenizer.encode("bane"), small_tokenizer.encode("kal")
    for filling in range(3):
        new = [id_of[piece.decode()] for piece in answers["pieces"][0, filling, :2]]
        ids = [*begin, new[0], *middle, new[1]]
        assert answers["texts"][0, filling].decode() == small_tokenizer.decode(ids)
        together, distributions = conditional(model, ids, [len(begin), len(ids) - 1])
        np.testing.assert_allclose(np.log(answers["probabilities"][0, filling, :2]), together, atol=1e-4)
        alone = [distributions[0, new[0]], conditional(model, ids, [len(ids) - 1, len(begin)])[0][0]]
        np.testing.assert_allclose(np.log(answers["alone_probabilities"][0, filling, :2]), alone, atol=1e-4)
    # The best one: what else was likely, after the first piece and alone.
    ids, last = [*begin, id_of[answers["pieces"][0, 0, 0].decode()], *middle, 0], len(begin) + 1 + len(middle)
    for name, distribution in (
        ("", conditional(model, ids, [len(begin), last])[1][1]),
        ("alone_", conditional(model, ids, [last, len(begin)])[1][0]),
    ):
        best = np.argsort(-distribution)[:3]
        guesses = [piece.decode() for piece in answers[f"{name}guesses"][0, 1]]
        assert guesses == [small_tokenizer.id_to_piece(index) for index in best]
        found = answers[f"{name}guess_probabilities"][0, 1]
        np.testing.assert_allclose(np.log(found), distribution[best], atol=1e-4)
    # One gap: its likeliest pieces.
    for name in ("guesses", "alone_guesses"):
        assert answers["pieces"][2, :, 0].tolist() == answers[name][2, 0].tolist()


def test_a_text_with_masks_does_not_know_the_others(module):
    together = module.fill_mask(texts(MARKED))
    for row, text in enumerate(MARKED):
        alone = module.fill_mask(texts([text]))
        assert alone["texts"][0].numpy().tolist() == together["texts"][row].numpy().tolist()
        np.testing.assert_allclose(alone["probability"][0], together["probability"][row], atol=1e-5)


def test_texts_without_masks_and_with_too_many_stay_as_they_are(module):
    answers = {name: value.numpy() for name, value in module.fill_mask(texts(MARKED)).items()}
    for row, text in enumerate(MARKED):
        if row not in FILLED:
            assert {found.decode() for found in answers["texts"][row]} == {text}
            assert answers["num_masks"][row] == text.count("<mask>") and not answers["pieces"][row].any()
    faults = {row: error.decode() for row, error in enumerate(answers["error"]) if error}
    assert faults == {5: "the number of <mask> in the text is 7; expected at most 6"}
    assert not answers["probability"][5].any()


def test_a_mask_that_is_cut_off_is_an_error_of_its_row(model, small_tokenizer):
    module = language_model.LanguageModelModule(model, small_tokenizer, seq_len=8, max_new_tokens=4)
    long = "ba ne tor mi kal su ren do " * 4
    answers = module.fill_mask(
        texts([f"{long}<mask>", f"<mask> {long}<mask>", f"<mask> {long}", "ba <mask>"])
    )
    errors = [error.decode() for error in answers["error"].numpy()]
    expected = "the number of <mask> in the first 8 tokens is {}; expected all of the text's"
    assert errors == [expected.format(0), expected.format(1), "", ""]
    assert answers["truncated"].numpy().tolist() == [True, True, True, False]
    assert not answers["probability"].numpy()[:2].any() and answers["probability"].numpy()[2:, 0].all()
    np.testing.assert_allclose(np.exp(answers["log_probability"]), answers["probability"], rtol=1e-5)


def test_a_served_seed_draws_what_pythons_draws_for_that_row(model, module, small_tokenizer):
    """As docs/how-to/language-model.md says it."""
    prompts = ["ba ne", "tor", "mi kal"]
    python = XLNetLanguageModel(model, small_tokenizer).generate(prompts, max_new_tokens=5, seed=3)
    seeds = [3 * 1_048_576 + row for row in range(3)]
    served = generate(module, prompts, seed=seeds)["text"]
    assert [text.decode() for text in served] == [found.whole for found in python]


def generate(module, prompts, **options):
    options = {"max_new_tokens": 5, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0, **options}
    rows = {
        name: tf.broadcast_to(
            tf.constant(value, tf.float32 if name in ("temperature", "top_p") else tf.int64), [len(prompts)]
        )
        for name, value in options.items()
    }
    return {name: value.numpy() for name, value in module.generate(texts(prompts), **rows).items()}


def test_continuations_have_the_models_probabilities(model, module, small_tokenizer):
    prompts = TEXTS[-4:]
    id_of = {piece: index for index, piece in enumerate(small_tokenizer.pieces)}
    greedy = generate(module, prompts, temperature=0.0, max_new_tokens=6)
    found = module.search(texts(prompts), tf.fill([4], tf.constant(6, tf.int64)))
    found = {name: value.numpy() for name, value in found.items()}
    assert found["text"].shape == (4, 2)
    for row, prompt in enumerate(prompts):
        ids = small_tokenizer.encode(prompt)[-(SEQ_LEN - 6) :]
        candidates = [{name: value[row] for name, value in greedy.items()}]
        candidates += [
            {name: value[row, number] for name, value in found.items() if value.ndim > 1} for number in (0, 1)
        ]
        for candidate in candidates:
            new = [id_of[piece.decode()] for piece in candidate["pieces"]]
            expected, distributions = conditional(model, [*ids, *new], len(ids) + np.arange(6))
            np.testing.assert_allclose(candidate["log_probabilities"], expected, atol=1e-4)
            assert candidate["log_probability"] == pytest.approx(expected.sum(), abs=1e-3)
            assert candidate["text"].decode() == small_tokenizer.decode([*ids, *new])
            assert candidate["text"] == small_tokenizer.decode(ids).encode() + candidate["continuation"]
            if candidate is candidates[0]:
                assert distributions.argmax(axis=1).tolist() == new
        assert found["truncated"][row] == (len(small_tokenizer.encode(prompt)) > SEQ_LEN - 6)
    assert (found["log_probability"][:, 0] > found["log_probability"][:, 1]).all()


def test_what_an_export_forbids_is_not_written(model, small_tokenizer):
    rules = {"forbid": ["▁ba", "<eop>"], "repetition_penalty": 1.4}
    sizes = {"seq_len": SEQ_LEN, "max_new_tokens": 5, "beams": 2}
    module = LanguageModelModule(model, small_tokenizer, **sizes, **rules)
    here = XLNetLanguageModel(model, small_tokenizer)
    found = generate(module, ["ba ne"], temperature=0.0)["text"]
    expected = here.generate("ba ne", temperature=0.0, max_new_tokens=5, **rules)
    assert found[0].decode() == expected.whole
    found = module.search(texts(["ba ne"]), tf.constant([5], tf.int64))["text"][0].numpy()
    expected = here.search("ba ne", beams=2, max_new_tokens=5, **rules)
    assert [text.decode() for text in found] == [one.whole for one in expected]


@pytest.mark.integration
def test_samples_are_a_function_of_their_row(module):
    numbers = np.arange(len(TEXTS))
    options = {
        "max_new_tokens": 1 + numbers % 6,
        "temperature": numbers / 5,
        "top_k": numbers,
        "seed": numbers,
    }
    together = generate(module, TEXTS, **options)
    assert together["num_tokens"].tolist() == (1 + numbers % 6).tolist()
    for row, text in enumerate(TEXTS):
        alone = generate(module, [text], **{name: value[[row]] for name, value in options.items()})
        assert alone["text"][0] == together["text"][row]
        np.testing.assert_allclose(alone["log_probability"][0], together["log_probability"][row], atol=1e-3)
    drawn = {generate(module, TEXTS[-2:-1], seed=seed)["text"][0] for seed in range(8)}
    assert len(drawn) > 4


def test_a_wrong_option_affects_only_its_row(module):
    prompts = TEXTS[-4:-3] * 7
    expected = generate(module, prompts)
    found = generate(
        module,
        prompts,
        max_new_tokens=[5, 7, 5, 5, 5, 5, 5],
        temperature=[1.0, 1.0, np.nan, 1.0, 1.0, np.inf, 1e-45],
        top_k=[0, 0, 0, -1, 0, 0, 0],
        top_p=[1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0],
    )
    assert found["text"][0] == expected["text"][0] and not found["continuation"][1:6].any()
    assert found["text"][6] == generate(module, prompts[:1], temperature=0.0)["text"][0]
    assert [error.decode().split(";")[0] for error in found["error"]] == [
        "",
        "max_new_tokens is 7",
        "temperature is nan",
        "top_k is -1",
        "top_p is 0.000000",
        "temperature is inf",
        "",
    ]


def test_invalid_numbers_are_refused(model, small_tokenizer):
    for name, value in (("max_new_tokens", SEQ_LEN), ("top_k", 0), ("beams", 91)):
        with pytest.raises(UserError, match=f"{name} is {value}; expected 1 to"):
            LanguageModelModule(model, small_tokenizer, seq_len=SEQ_LEN, **{"max_new_tokens": 4, name: value})
    with pytest.raises(UserError, match="layer is 7; the model has layers 0 to"):
        LanguageModelModule(model, small_tokenizer, seq_len=SEQ_LEN, layer=7)
