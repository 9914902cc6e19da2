"""Tokenizers for the tests: one trained here, and the real ones of the shared folder."""

import random

import pytest

from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.training import train_tokenizer


def invent_texts(count, seed=0):
    """Invents sentences with words, numbers and commas."""
    rng = random.Random(seed)
    syllables = ["ba", "ne", "tor", "mi", "kal", "su", "ren", "do"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(60)]
    words += [f"{number}," for number in (5, 12, 1999, 2008)] + [f"{word}," for word in words[:10]]
    return [" ".join(rng.choices(words, k=rng.randint(3, 20))) + "." for _ in range(count)]


@pytest.fixture(scope="session")
def small_tokenizer():
    return train_tokenizer(invent_texts(600), 90)


@pytest.fixture(params=["small", "golden/data/sp300.model", "data/xlnet_cased/spiece.model"])
def any_tokenizer(request, small_tokenizer, shared):
    return small_tokenizer if request.param == "small" else XLNetTokenizer(shared(request.param))
