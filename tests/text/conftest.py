"""Tokenizers for the tests: a small one, and the real ones of the shared folder."""

import pytest

from xlnet_tf.text.tokenizer import XLNetTokenizer


@pytest.fixture(params=["small", "golden/data/sp300.model", "data/xlnet_cased/spiece.model"])
def any_tokenizer(request, small_tokenizer, shared):
    return small_tokenizer if request.param == "small" else XLNetTokenizer(shared(request.param))
