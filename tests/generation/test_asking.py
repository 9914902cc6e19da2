"""What a language model may be asked: one text or a list, and what it must not write."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers.models import uncached
from xlnet_tf.checkpoints import save_model
from xlnet_tf.errors import UserError
from xlnet_tf.generation.language_model import XLNetLanguageModel


@pytest.fixture(scope="module")
def model(small_tokenizer):
    config = dataclasses.replace(uncached.CONFIG, n_token=small_tokenizer.vocab_size)
    return XLNetLanguageModel(uncached.random_model(config), small_tokenizer)


def test_forbidden_and_repeated_pieces(model):
    [whole] = model.generate(["ba"], max_new_tokens=8, temperature=0)
    forbid = whole.pieces[:2]
    asked = {"max_new_tokens": 8, "forbid": forbid}
    drawn = model.generate(["ba"] * 20, **asked)
    assert not {piece for found in drawn for piece in found.pieces} & {*forbid}
    assert not {piece for found in model.search("ba", beams=3, **asked) for piece in found.pieces} & {*forbid}
    repeats = model.generate("ba", max_new_tokens=40, temperature=0)
    fewer = model.generate("ba", max_new_tokens=40, temperature=0, repetition_penalty=5.0)
    assert len({*fewer.pieces}) > len({*repeats.pieces})


def test_something_must_be_left_to_write(model):
    with pytest.raises(UserError, match="forbid has all pieces that are ever written; expected fewer"):
        model.generate("ba", forbid=model.tokenizer.pieces)


def test_one_text_is_answered_alone(model):
    for method, text, options in (
        ("generate", "ba ne", {"max_new_tokens": 3}),
        ("search", "ba ne", {"max_new_tokens": 2, "beams": 2}),
        ("fill_mask", "ba <mask> <mask>", {"top_k": 2}),
        ("infill", "ba <mask> <mask>", {}),
        ("score", "ba ne", {}),
    ):
        [expected] = getattr(model, method)([text], **options)
        assert repr(getattr(model, method)(text, **options)) == repr(expected)
    marked, orders = "ba <mask> <mask>", [1, 0]
    assert repr(model.fill_mask(marked, orders=orders)) == repr(model.fill_mask([marked], orders=[orders])[0])
    assert model.infill(marked, orders="easiest_first") == model.infill([marked], orders="easiest_first")[0]
    after = model.score(texts="ba", contexts="ne", order=[0])
    assert after.total == model.score(["ba"], ["ne"])[0].total == model.score("ba", "ne").total
    alone, [mean] = model.embed("ba ne", tokens=True), model.embed(["ba ne"]).mean
    np.testing.assert_array_equal(alone.mean, mean)
    assert alone.tokens.shape == (len(alone.pieces), len(mean)) and alone.pieces[-1] == "<cls>"


@pytest.mark.integration
def test_python_prints_no_lines_of_tensorflow(tmp_path, small_tokenizer):
    """About drivers that it lacks, and what its processor could do."""
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    config = dataclasses.replace(uncached.CONFIG, n_token=small_tokenizer.vocab_size)
    save_model(uncached.random_model(config), str(tmp_path))
    script = """
import sys, xlnet_tf
print(type(xlnet_tf.from_pretrained(sys.argv[1])).__name__)
"""
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert (done.stdout, done.stderr) == ("XLNetLanguageModel\n", "")
