"""The generation benchmark runs end to end at tiny sizes; nothing is asserted about time."""

import json
import sys

import numpy as np
import pytest
import tf_keras

from run_scripts.benchmark.peers import save_for_hugging_face
from run_scripts.benchmark.timing import Timing, machine, our_model
from run_scripts.benchmark_generation import measure as benchmark
from tests.helpers.models import uncached
from xlnet_tf import checkpoints
from xlnet_tf.config import XLNetConfig

TINY = XLNetConfig(n_token=50, n_layer=1, d_model=16, n_head=2, d_head=8, d_inner=20)
# Stands for a Python with torch: writes piece 9 always.
PEER = """#!{python}
import json, sys
for line in sys.stdin:
    if line.strip():
        request = json.loads(line)
    print("ANSWER", json.dumps([[9] * request["new_tokens"] for _ in request["ids"]]), flush=True)
"""


@pytest.fixture
def peer_python(tmp_path):
    path = tmp_path / "python"
    path.write_text(PEER.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


@pytest.mark.integration
def test_measure(peer_python):
    report = benchmark.measure(
        TINY,
        batches=(1, 3),
        prompt_lens=(5,),
        new_tokens=4,
        repeats=2,
        bfloat16=True,
        peer_python=peer_python,
    )
    assert [(case["prompt_len"], case["rows"]) for case in report["cases"]] == [(5, 1), (5, 3)]
    for case in report["cases"]:
        assert set(case["seconds"]) == {"ours", "ours bfloat16", "hugging_face"}
        for name, seconds in case["seconds"].items():
            assert case["tokens_per_second"][name] == pytest.approx(case["rows"] * 4 / seconds)
        for name in ("ours", "ours bfloat16"):
            speed_up = case["seconds"]["hugging_face"] / case["seconds"][name]
            assert case["speed_up"][name] == pytest.approx(speed_up)
            assert 0 <= case["same"][name] < 1
    table = benchmark.table({"machine": machine(), **json.loads(json.dumps(report))})
    assert table.count("times as fast") == 4


def test_each_of_our_modes_is_compared():
    timings = {name: Timing(wall, 0, 0) for name, wall in (("ours", 2), ("ours xla", 1), ("hugging_face", 9))}
    assert benchmark.figures(timings, 8)["speed_up"] == {"ours": 4.5, "ours xla": 9}
    assert benchmark.figures(timings, 8)["tokens_per_second"]["ours xla"] == 8


def test_all_get_the_same_weights(tmp_path):
    model, bfloat16 = our_model(TINY), our_model(TINY, bfloat16=True)
    save_for_hugging_face(model, str(tmp_path))
    written = checkpoints.open_checkpoint(str(tmp_path)).arrays
    np.testing.assert_array_equal(written["word_embedding/embeddings"], model.encoder.word_embedding)
    for ours, theirs in zip(model.variables, bfloat16.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert bfloat16.compute_dtype == "bfloat16"
    assert tf_keras.mixed_precision.global_policy().name == "float32"


@pytest.mark.integration
@pytest.mark.parametrize("xla", [False, True])
def test_our_generation_writes_the_likeliest_pieces(xla):
    model = uncached.random_model()
    prompts = benchmark.make_prompts(50, 2, 6)
    assert prompts.min() > 8  # no special symbols
    tokens = benchmark.our_writer(model, xla)(prompts, 3)
    order = np.tile(np.arange(6, 9), [2, 1])
    logits = uncached.logits(model, prompts, np.ones_like(prompts, bool), order, tokens)
    np.testing.assert_array_equal(tokens, uncached.log_probabilities(logits).argmax(axis=-1))
