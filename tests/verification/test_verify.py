"""Whole pretrained weights pass the checks, damaged ones fail, and the published facts fit together."""

import json
import shutil

import numpy as np
import pytest

from tests.conftest import invent_texts
from tests.verification import language
from xlnet_tf.checkpoints import open_checkpoint
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.checkpoints.safetensors_file import write_safetensors
from xlnet_tf.config import XLNetConfig
from xlnet_tf.hub import releases
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.training import train_tokenizer
from xlnet_tf.verification import published, verify_pretrained

BASE = published.PUBLISHED[0]
TEXT = language.sentences(200, seed=3)
EMBEDDING = "word_embedding/embeddings"


def of_all(weights, change, *endings):
    return {name: change(value) for name, value in weights.items() if name.endswith(endings)}


# What was done to the weights, and the check that fails.
DAMAGES = {
    "half of the embedding is zero": (
        "values", lambda w: {EMBEDDING: np.where(np.arange(len(w[EMBEDDING]))[:, None] < 40, w[EMBEDDING], 0)}
    ),
    "one layer twice": (
        "values", lambda w: {n: w[n.replace("layer_2/", "layer_1/")] for n in w if n.startswith("layer_2/")}
    ),
    "a layer of zeros": (
        "values", lambda w: {n: 0 * v for n, v in w.items() if n.startswith("layer_1/")}
    ),
    "untrained gains": ("values", lambda w: of_all(w, np.ones_like, "gamma")),
    "random weights": (
        "loss",
        lambda w: {n: np.random.default_rng(0).normal(0, v.std(), v.shape) for n, v in w.items()},
    ),
    "rows of the embedding permuted": (
        "loss", lambda w: {EMBEDDING: np.random.default_rng(0).permutation(w[EMBEDDING])}
    ),
    "float16 overflow": (
        "values", lambda w: of_all(w, lambda v: (v * 1e6).astype(np.float16), "outer/kernel")
    ),
    "NaN": (
        "values", lambda w: {"lm_bias": np.where(np.arange(len(w["lm_bias"])) == 7, np.nan, w["lm_bias"])}
    ),
}  # fmt: skip


@pytest.fixture
def check(tmp_path):
    """Returns a function that writes the trained weights with changes, and verifies them."""
    shutil.copytree(language.TRAINED, tmp_path / "model")
    (tmp_path / "model" / "SHA256SUMS").unlink()
    weights = dict(open_checkpoint(language.TRAINED).arrays)

    def run(change=lambda _: {}, without=(), text=TEXT):
        with np.errstate(over="ignore"):
            written = {n: v for n, v in {**weights, **change(weights)}.items() if not n.startswith(without)}
        arrays = {n: v if v.dtype == np.float16 else v.astype(np.float32) for n, v in written.items()}
        write_safetensors(Arrays.of(arrays), f"{tmp_path}/model/weights.safetensors")
        return verify_pretrained(tmp_path / "model", text)

    run.folder = tmp_path / "model"
    return run


def failed(found):
    return [check.name for check in found.checks if check.passed is False]


def test_whole_weights_pass(check):
    found = check()
    assert found.passed and "no check failed" in found.table(), found.table()
    assert {check.name for check in found.checks if check.passed is None} == {"architecture", "continuation"}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_weights_fail(check, damage):
    name, change = DAMAGES[damage]
    found = check(change)
    assert name in failed(found) and "FAILED" in found.table(), found.table()


def test_lost_weights_fail(check):
    lost = check(without=("layer_1/", "layer_2/"))
    assert failed(lost) == ["variables"] and "layer_1" in lost.table()
    tuned = check(without=("lm_bias",))
    assert failed(tuned) == ["variables"] and "fine-tuned weights cannot be checked" in tuned.table()
    path = check.folder / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    assert failed(verify_pretrained(check.folder, TEXT)) == ["files"]


def test_another_config_or_tokenizer_fails(check):
    config = check.folder / "xlnet_config.json"
    settings = json.loads(config.read_text())
    config.write_text(json.dumps({**settings, "d_model": 48}))
    assert not check().passed
    config.write_text(json.dumps(settings))
    (check.folder / "spiece.model").write_bytes(train_tokenizer(invent_texts(600), 90).model_proto)
    assert "tokenizer" in failed(check())


def test_a_text_that_is_too_short_or_in_another_language_fails(check):
    assert "give a longer one" in check(text="bane0").table()
    empty = check(text="")
    assert "the text has 0 pieces; expected at least 60" in empty.table() and not empty.passed
    assert "token ids" in failed(check(text="漢字" * 100)) and "token ids" not in failed(empty)


@pytest.mark.long
def test_weights_trained_anew_pass(tmp_path):
    language.train_and_save(tmp_path)
    assert verify_pretrained(tmp_path, TEXT).passed


def test_releases_are_known_by_name_or_by_tokenizer_and_sizes():
    for release in releases.RELEASES:
        found = published.find(release.address, XLNetConfig.preset("micro"), None)
        assert found and any(release.name.endswith(name) for name in found.names)
    large = XLNetConfig.preset("large")
    assert published.find("weights", large, published.CASED) is published.PUBLISHED[1]
    assert published.find("weights", large, published.CHINESE) is None
    wrong = XLNetConfig.preset("base", n_head=16, d_head=48, ff_activation="relu")
    assert published.find("weights", wrong, published.CASED) is BASE
    assert published.differences(wrong, BASE.config) == [
        "n_head is 16, not 12", "d_head is 48, not 64", "ff_activation is relu, not gelu"
    ]  # fmt: skip
    assert not published.differences(XLNetConfig.preset("base", ff_activation="gelu_erf"), BASE.config)


def test_published_ids_and_paragraphs_are_those_of_the_released_tokenizers(shared):
    tokenizers = {n: XLNetTokenizer(shared(f"data/xlnet_{n}/spiece.model")) for n in ("cased", "chinese")}
    assert tokenizers["cased"].fingerprint == published.CASED
    text, ids = BASE.ids
    assert tokenizers["cased"].encode(text) == [*ids]
    prompt, continuation = map(tokenizers["cased"].decode, BASE.continuation)
    assert prompt.startswith("In 1991, the remains of Russian Tsar Nicholas")
    assert continuation.startswith(", Rasputin is asked to perform magic.")
    for name, text in (("cased", published.ENGLISH_TEXT), ("chinese", published.CHINESE_TEXT)):
        ids = tokenizers[name].encode(text)
        assert published.choose_text(tokenizers[name]) == text and len(ids) > 150 and ids.count(0) < 3


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
    assert published.agreeing_pieces(model, prompt, tuple((piece + 1) % 50 for piece in written)) < 4
