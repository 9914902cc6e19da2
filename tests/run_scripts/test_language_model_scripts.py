"""generate and fill_mask print what the library answers."""

import dataclasses
import math
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from run_scripts import fill_mask, generate
from run_scripts.common.sharded import models
from run_scripts.score import describe
from tests.conftest import REPOSITORY
from tests.helpers.command_flags import fresh_flags
from tests.helpers.models import uncached
from xlnet_tf.checkpoints import save_model
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.generation.results import FilledText, Filling, Guess, TextScore


@pytest.fixture(scope="module")
def model_dir(small_tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    config = dataclasses.replace(uncached.CONFIG, n_token=small_tokenizer.vocab_size)
    save_model(uncached.random_model(config), str(folder))
    (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
    return folder


@pytest.fixture(scope="module")
def model(model_dir):
    return XLNetLanguageModel.from_pretrained(model_dir)


@pytest.mark.integration
def test_generate(model_dir, model):
    flags = [f"--model_dir={model_dir}", "--max_new_tokens=6", "--temperature=0.7", "--seed=3"]
    command = [sys.executable, "-X", "importtime", "-m", "run_scripts.generate", *flags]
    command += ["--prompt=ba ne", "--prompt=tor"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    options = {"max_new_tokens": 6, "temperature": 0.7, "top_p": 0.95, "seed": 3}
    expected = model.generate(["ba ne", "tor"], **options)
    assert done.stdout == f"{expected[0].whole}\n{expected[1].whole}\n"
    # What training needs takes half a second to import; the user waits for it.
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "tensorflow" in loaded
    assert not {"official", "tensorflow_datasets", "matplotlib", "sklearn"} & loaded


@pytest.mark.integration
def test_generate_by_beam_search(model_dir, model):
    limits = {"max_new_tokens": 3, "stop": ["▁su"], "forbid": ["▁tor"], "repetition_penalty": 1.5}
    values = generate.GenerateOptions(model_dir=str(model_dir), prompt=["ba ne"], beams=2, **limits)
    [expected] = model.search(["ba ne"], beams=2, **limits)
    lines = [f"{found.total:8.2f} nats  {found.whole}" for found in expected]
    assert list(generate.write(values)) == lines


def main(script, options, *arguments):
    with fresh_flags() as values:
        define_flags(options)
        values(["script", *arguments])
        script.main([])


def test_sampling_flags_that_a_search_ignores_are_refused():
    with pytest.raises(UserError, match="with --beams these flags have no effect: --top_k, --seed."):
        flags = ("--model_dir=m", "--prompt=ba", "--beams=2", "--seed=1", "--top_k=2")
        main(generate, generate.GenerateOptions, *flags)


def test_generate_in_bfloat16(model_dir, monkeypatch):
    """The model computes in it; what is built afterwards does not."""
    loaded = []
    monkeypatch.setattr(XLNetLanguageModel, "search", lambda self, prompts, **_: loaded.append(self) or [[]])
    values = generate.GenerateOptions(
        model_dir=str(model_dir), prompt=["ba"], max_new_tokens=1, beams=2, dtype="bfloat16"
    )
    assert not list(generate.write(values))
    assert loaded[0].model.encoder.compute_dtype == "bfloat16"
    assert tf_keras.mixed_precision.global_policy().name == "float32"


@pytest.mark.integration
def test_fill_mask(model_dir, model):
    texts = ["ba <mask> <mask> tor", "<mask>"]
    values = types.SimpleNamespace(model_dir=str(model_dir), text=texts, top_k=2)
    found = model.fill_mask(texts, top_k=2)
    expected = [fill_mask.describe(*each) for each in zip(texts, found)]
    for eagerly in (False, True):
        tf.config.run_functions_eagerly(eagerly)
        try:
            assert list(fill_mask.fill(values)) == expected
        finally:
            tf.config.run_functions_eagerly(False)


def test_few_masks_are_filled_without_tracing_a_graph(tmp_path, monkeypatch):
    modes = []
    monkeypatch.setattr(tf.config, "run_functions_eagerly", modes.append)
    monkeypatch.setattr(fill_mask, "fill", lambda _: [])
    for masks in (16, 17):
        texts = ["--text=<mask>", "--text=ba" + " <mask>" * masks]
        main(fill_mask, fill_mask.FillOptions, f"--model_dir={tmp_path}", *texts)
    assert modes == [True, False]


def test_descriptions_show_what_filling_together_adds():
    probabilities = np.float32([0.5, 0.8]), np.float32([0.5, 0.125])
    filling = Filling("I live in New York.", ["▁New", "▁York"], *probabilities, math.log(0.4))
    new, york, city = Guess("▁New", 0.5), Guess("▁York", 0.8), Guess("▁City", 0.25)
    found = FilledText([filling], [[new], [york]], [[new], [city]])
    assert fill_mask.describe("I live in <mask> <mask>.", found).splitlines() == [
        "  I live in <mask> <mask>.",
        "     40.0%  I live in New York.",
        "            together New 50.0% x York 80.0%",
        "            apart    New 50.0% x York 12.5%",
        "    mask 1: New 50.0%",
        "    mask 2, given those before it: York 80.0%",
        "    mask 2, apart: City 25.0%",
    ]
    rare = Filling("a b", ["▁b"], np.float32([0]), np.float32([0]), -801.25)  # percent would show it as 0
    assert fill_mask.describe("a <mask>", FilledText([rare], [], [])).endswith("    -801.2 nats  a b")


def test_describes_a_text_in_the_order_of_prediction():
    score = TextScore(["▁a", "▁b"], np.float32([-1.5, -0.5]), np.array([1, 0]))
    lines = ["    -2.00 nats, 2 pieces, perplexity 2.7", "      1. piece 2       -0.50  ▁b"]
    assert describe("a b", score).splitlines() == ["  a b", *lines, "      2. piece 1       -1.50  ▁a"]
    assert describe("", TextScore([], np.float32([]), np.array([], int))) == "  \n    0.00 nats, 0 pieces"


def test_all_workers_load_the_version_that_is_the_newest_at_the_start(tmp_path):
    scoring = models.Scoring(path=str(tmp_path))
    assert scoring.of_version() == scoring  # weights have no versions
    for number in (1, 2):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "openvino_model.xml").touch()
        assert scoring.of_version().path == str(tmp_path / f"{number}")
    assert scoring.of_version().of_version() == scoring.of_version()
