"""What others have published of the released models."""

import numpy as np
import pytest

from xlnet_tf.config import XLNetConfig
from xlnet_tf.hub import releases
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.verification import paragraphs, published, statistics

BASE = published.PUBLISHED[0]


def test_each_released_model_is_known_by_its_name():
    for release in releases.RELEASES:
        found = published.find(release.address, XLNetConfig.preset("micro"), None)
        assert found and any(release.name.endswith(name) for name in found.names)


def test_a_folder_is_known_by_its_tokenizer_and_sizes():
    large = XLNetConfig.preset("large")
    assert published.find("weights", large, published.CASED) is published.PUBLISHED[1]
    assert published.find("weights", large, published.CHINESE) is None
    assert published.find("weights", XLNetConfig.preset("tiny", n_token=32000), published.CASED) is None


def test_the_wrong_heads_and_activation_of_a_release_are_named():
    wrong = XLNetConfig.preset("base", n_head=16, d_head=48, ff_activation="relu")
    assert published.find("weights", wrong, published.CASED) is BASE
    assert published.differences(wrong, BASE.config) == [
        "n_head is 16, not 12", "d_head is 48, not 64", "ff_activation is relu, not gelu"
    ]  # fmt: skip
    assert not published.differences(XLNetConfig.preset("base", ff_activation="gelu_erf"), BASE.config)


def test_published_ids_are_those_of_the_released_tokenizer(shared):
    tokenizer = XLNetTokenizer(shared("data/xlnet_cased/spiece.model"))
    assert tokenizer.fingerprint == published.CASED
    text, ids = BASE.ids
    assert tokenizer.encode(text) == [*ids]
    assert tokenizer.decode(BASE.continuation[0]).startswith("In 1991, the remains of Russian Tsar Nicholas")
    assert tokenizer.decode(BASE.continuation[1]).startswith(", Rasputin is asked to perform magic.")


def test_each_language_has_its_paragraph(shared):
    for name, text in (("xlnet_cased", paragraphs.ENGLISH), ("xlnet_chinese", paragraphs.CHINESE)):
        tokenizer = XLNetTokenizer(shared(f"data/{name}/spiece.model"))
        assert paragraphs.choose(tokenizer) == text
        ids = tokenizer.encode(text)
        assert len(ids) > 150 and ids.count(0) < 3


def test_a_continuation_agrees_with_a_memory_as_without():
    """Where nothing but one layer's content counts, what the memory holds is what a whole reading sees."""
    config = XLNetConfig(n_token=50, n_layer=1, d_model=16, n_head=2, d_head=8, d_inner=32)
    encoder = XLNetEncoder(config, dropout=0.0, attention_dropout=0.0, memory_len=64, initializer_range=0.5)
    model = XLNetPretrainer(encoder)
    model.build()
    prompt, written = tuple(range(10, 25)), []
    for _ in range(8):
        tokens = [*prompt, *written]
        features = {
            "input_word_ids": np.array([[*tokens, 0]]),
            "permutation_rank": np.array([[0] * len(tokens) + [1]]),
            "target_positions": np.array([[len(tokens)]]),
        }
        written.append(int(np.argmax(model.logits(model.encoder(features)["query_output"]))))
    assert published.agreeing_pieces(model, prompt, tuple(written)) == 8
    assert published.agreeing_pieces(model, prompt, tuple(piece + 1 for piece in written)) < 4


@pytest.mark.parametrize("shape", [(256, 256), (300, 4, 64), (256, 1024)])
def test_random_kernels_have_no_structure_and_others_have(shape):
    random = np.random.default_rng(0)
    kernel = random.normal(0, 0.02, shape).astype(np.float32)
    assert statistics.structure(kernel) < statistics.LEAST_STRUCTURE
    column = random.normal(size=(shape[0],) + (1,) * (len(shape) - 1))
    structured = kernel + 0.01 * column * random.normal(size=shape[1:])
    assert statistics.structure(structured) > statistics.LEAST_STRUCTURE
    assert (
        statistics.structure(random.permuted(structured.ravel()).reshape(shape)) < statistics.LEAST_STRUCTURE
    )
