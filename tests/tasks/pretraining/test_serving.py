"""Served pretrained models: long texts, seeds, and what is wrong with a row.

That their numbers are the library's is shown in test_answering.py and tests/generation.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import invent_texts
from tests.helpers.serving.toys import HOSTILE, built
from xlnet_tf.errors import UserError
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.models import contexts as contexts_lib
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.tasks.pretraining import serving as language_model
from xlnet_tf.tasks.pretraining.serving import LanguageModelModule

SEQ_LEN = 24
TEXTS = ["", HOSTILE[-1], *invent_texts(2), " ".join(invent_texts(20))]


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


def score(module, text, orders):
    seeds = tf.zeros([len(text)], tf.int64)
    return module.score(texts(text), texts([""] * len(text)), texts(orders), seeds)


def test_a_long_sequence_is_read_in_blocks(model, small_tokenizer, module, monkeypatch):
    monkeypatch.setattr(language_model, "AT_ONCE", 8)
    monkeypatch.setattr(contexts_lib, "_SCORES_OF_BLOCK", 60)
    options = {"buckets": [8, 16], "max_new_tokens": 6, "top_k": 3, "beams": 2}
    blocks = LanguageModelModule(model, small_tokenizer, seq_len=SEQ_LEN, **options)
    for answer in (
        lambda module: module.embed(texts(TEXTS)),
        lambda module: score(module, TEXTS, ["left_to_right"] * len(TEXTS)),
        lambda module: module.fill_mask(texts([f"{text} <mask>" for text in TEXTS])),
        lambda module: module.search(texts(TEXTS), tf.ones([len(TEXTS)], tf.int64)),
    ):
        for found, expected in zip(answer(blocks).values(), answer(module).values(), strict=True):
            if np.asarray(found).dtype == np.float32:
                np.testing.assert_allclose(found, expected, atol=1e-4)
            else:
                np.testing.assert_array_equal(found, expected)


def test_a_served_seed_draws_what_pythons_draws_for_that_row(model, module, small_tokenizer):
    """As docs/how-to/language-model.md says it."""
    prompts = ["ba ne", "tor", "mi kal"]
    python = XLNetLanguageModel(model, small_tokenizer).generate(prompts, max_new_tokens=3, seed=3)
    seeds = [3 * 1_048_576 + row for row in range(3)]
    served = generate(module, prompts, max_new_tokens=3, seed=seeds)["text"].numpy()
    assert [text.decode() for text in served] == [found.whole for found in python]


def generate(module, prompts, **options):
    options = {"max_new_tokens": 5, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0, **options}
    floats = ("temperature", "top_p")
    tensors = {n: tf.constant(v, tf.float32 if n in floats else tf.int64) for n, v in options.items()}
    rows = {name: tf.broadcast_to(value, [len(prompts)]) for name, value in tensors.items()}
    return module.generate(texts(prompts), **rows)


def test_what_is_wrong_with_a_row_is_its_error(module):
    def errors(answers):
        return [error.decode().partition("; ")[0] for error in answers["error"].numpy()]

    many, long = "<mask> " * 7, "ba " * 30 + "<mask>"
    said = "the number of <mask> in the "
    expected = ["", f"{said}text is 7", f"{said}first 24 tokens is 0"]
    assert errors(module.fill_mask(texts(["<mask>", many, long]))) == expected
    assert errors(score(module, ["ba"] * 2, ["random", "back"])) == ["", "order is 'back'"]
    assert errors(module.embed(texts(["ba", "ba" * 300_000]))) == ["", "text has 600000 bytes"]
    found = generate(
        module,
        ["ba"] * 7,
        max_new_tokens=[5, 7, 5, 5, 5, 5, 5],
        temperature=[0.0, 1.0, np.nan, 1.0, 1.0, np.inf, 1e-45],
        top_k=[0, 0, 0, -1, 0, 0, 0],
        top_p=[1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0],
    )
    wrong = ["max_new_tokens is 7", "temperature is nan", "top_k is -1", "top_p is 0.000000"]
    assert errors(found) == ["", *wrong, "temperature is inf", ""]
    text = found["text"].numpy()
    assert text[0] == text[6] and not found["continuation"].numpy()[1:6].any()


def test_invalid_numbers_are_refused(model, small_tokenizer):
    for name, value in (("max_new_tokens", SEQ_LEN), ("top_k", 0), ("beams", 91)):
        with pytest.raises(UserError, match=f"{name} is {value}; expected 1 to"):
            LanguageModelModule(model, small_tokenizer, seq_len=SEQ_LEN, **{"max_new_tokens": 4, name: value})
    with pytest.raises(UserError, match="layer is 7; the model has layers 0 to"):
        LanguageModelModule(model, small_tokenizer, seq_len=SEQ_LEN, layer=7)
