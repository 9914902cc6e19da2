"""Whole weights pass all checks; spoilt ones fail."""

import json
import shutil

import numpy as np
import pytest

from tests.conftest import invent_texts
from tests.verification import language
from xlnet_tf.checkpoints import open_checkpoint
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.checkpoints.safetensors_file import write_safetensors
from xlnet_tf.text.training import train_tokenizer
from xlnet_tf.verification import verify_pretrained

ATTENTION, FORWARD = "layer_1/attention", "layer_1/feed_forward"
EMBEDDING = "word_embedding/embeddings"


def random_like(value):
    return np.random.default_rng(0).normal(0, value.std(), value.shape).astype(np.float32)


def transposed(weights, name):
    value = weights[name]
    return {name: value.reshape(len(value), -1).T.reshape(value.shape)}


def rearranged(weights, order):
    """Puts layer order[i] where layer i was."""
    tails = [name.partition("/")[2] for name in weights if name.startswith("layer_0/")]
    return {f"layer_{i}/{tail}": weights[f"layer_{j}/{tail}"] for i, j in enumerate(order) for tail in tails}


def of_all(weights, change, *endings):
    return {name: change(value) for name, value in weights.items() if name.endswith(endings)}


def swapped(weights, one, other):
    return {one: weights[other], other: weights[one]}


SPOILT = {
    "half of the embedding of zeros": lambda w: {
        EMBEDDING: np.where(np.arange(len(w[EMBEDDING]))[:, None] < 40, w[EMBEDDING], 0)
    },
    "layers shuffled": lambda w: rearranged(w, [2, 0, 1]),
    "two layers exchanged": lambda w: rearranged(w, [0, 2, 1]),
    "one layer twice": lambda w: rearranged(w, [0, 1, 1]),
    "a layer of zeros": lambda w: {n: 0 * v for n, v in w.items() if n.startswith("layer_1/")},
    "value kernel transposed": lambda w: transposed(w, f"{ATTENTION}/value/kernel"),
    "all output kernels transposed": lambda w: {
        n: v for i in range(3) for n, v in transposed(w, f"layer_{i}/attention/output/kernel").items()
    },
    "query and key swapped": lambda w: {
        n: v
        for i in range(3)
        for n, v in swapped(w, f"layer_{i}/attention/query/kernel", f"layer_{i}/attention/key/kernel").items()
    },
    "value and output swapped": lambda w: {
        n: v
        for i in range(3)
        for n, v in swapped(
            w, f"layer_{i}/attention/value/kernel", f"layer_{i}/attention/output/kernel"
        ).items()
    },
    "rows of the embedding permuted": lambda w: {
        EMBEDDING: np.random.default_rng(0).permutation(w[EMBEDDING])
    },
    "embedding and bias shifted by one": lambda w: {
        EMBEDDING: np.roll(w[EMBEDDING], 1, 0),
        "lm_bias": np.roll(w["lm_bias"], 1),
    },
    "biases negated": lambda w: of_all(w, np.negative, "bias", "beta"),
    "gains lost": lambda w: of_all(w, np.ones_like, "gamma"),
    "all weights random": lambda w: {n: random_like(v) for n, v in w.items()},
    "value kernel random": lambda w: {
        f"{ATTENTION}/value/kernel": random_like(w[f"{ATTENTION}/value/kernel"])
    },
    "feed-forward network random": lambda w: {
        f"{FORWARD}/{n}/kernel": random_like(w[f"{FORWARD}/{n}/kernel"]) for n in ("inner", "outer")
    },
    "mask embedding random": lambda w: {"mask_embedding": random_like(w["mask_embedding"])},
    "position kernels of zeros": lambda w: of_all(w, np.zeros_like, "position/kernel"),
    "a bias of zeros": lambda w: {"lm_bias": 0 * w["lm_bias"]},
    "a kernel 10 times as large": lambda w: {f"{FORWARD}/outer/kernel": 10 * w[f"{FORWARD}/outer/kernel"]},
    "float16 overflow": lambda w: of_all(w, lambda v: (v * 1e6).astype(np.float16), "outer/kernel"),
    "NaN": lambda w: {"lm_bias": np.where(np.arange(len(w["lm_bias"])) == 7, np.nan, w["lm_bias"])},
}
# Those of `make test`; `make test-integration` has the others, one at least for each kind of check.
QUICK = ("layers shuffled", "float16 overflow", "NaN")


@pytest.fixture
def spoil(trained, tmp_path):
    """Returns a function that writes the trained weights with changes, and checks them."""
    folder, text = trained
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / "SHA256SUMS").unlink()
    weights = dict(open_checkpoint(folder).arrays)

    def check(changes=None, without=()):
        written = {
            name: value for name, value in {**weights, **(changes or {})}.items() if name not in without
        }
        arrays = {n: v if v.dtype == np.float16 else v.astype(np.float32) for n, v in written.items()}
        write_safetensors(Arrays.of(arrays), f"{tmp_path}/model/weights.safetensors")
        return verify_pretrained(tmp_path / "model", text)

    check.folder, check.weights, check.text = tmp_path / "model", weights, text
    return check


def configure(folder, **changes):
    path = folder / "xlnet_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def failed(found):
    return [check.name for check in found.checks if check.passed is False]


def test_whole_weights_pass(spoil):
    found = spoil()
    assert found.passed and not failed(found), found.table()
    assert "no check failed" in found.table()
    unchecked = {check.name for check in found.checks if check.passed is None}
    assert unchecked == {"architecture", "structure", "continuation"}


@pytest.mark.long
def test_weights_trained_anew_pass(trained, tmp_path):
    language.train_and_save(tmp_path)
    assert verify_pretrained(tmp_path, trained[1]).passed


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.integration] * (name not in QUICK)) for name in SPOILT]
)
def test_spoilt_weights_fail(spoil, name):
    with np.errstate(over="ignore"):
        found = spoil(SPOILT[name](spoil.weights))
    assert not found.passed, found.table()
    assert "FAILED" in found.table()


def test_a_truncated_file_fails(spoil):
    path = spoil.folder / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    found = verify_pretrained(spoil.folder, spoil.text)
    assert failed(found) == ["files"]


def test_weights_without_half_of_the_layers_fail(spoil):
    lost = [name for name in spoil.weights if name.startswith(("layer_1/", "layer_2/"))]
    found = spoil(without=lost)
    assert failed(found) == ["variables"] and "layer_1" in found.table()


@pytest.mark.parametrize("changes", [{"d_model": 48}, {"n_head": 8, "d_head": 4}])
def test_another_config_fails(spoil, changes):
    configure(spoil.folder, **changes)
    assert not spoil().passed


@pytest.mark.integration
def test_heads_cut_another_way_fail(spoil):
    configure(spoil.folder, n_head=2, d_head=16)
    changes = {
        name: value.reshape(*value.shape[:-2], 2, 16)
        for name, value in spoil.weights.items()
        if "/attention/" in name
    }
    assert not spoil(changes).passed


@pytest.mark.integration
def test_another_tokenizer_fails(spoil):
    other = train_tokenizer(invent_texts(600), 80)
    (spoil.folder / "spiece.model").write_bytes(other.model_proto)
    assert not spoil().passed


def test_fine_tuned_weights_are_not_pretrained_ones(spoil):
    found = spoil(without=["lm_bias"])
    assert failed(found) == ["variables"] and "fine-tuned weights cannot be checked" in found.table()


def test_a_text_that_is_too_short_or_in_another_language_fails(spoil):
    short = verify_pretrained(spoil.folder, "bane0")
    assert "give a longer one" in short.table() and not short.passed
    empty = verify_pretrained(spoil.folder, "")
    assert "the text has 0 pieces; expected at least 60" in empty.table() and not empty.passed
    assert "token ids" not in failed(empty)  # it is not in another language
    assert "token ids" in failed(verify_pretrained(spoil.folder, "漢字" * 100))


def test_nothing_at_a_path_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        verify_pretrained(tmp_path / "absent")
