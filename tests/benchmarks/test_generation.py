"""The generation benchmark runs end to end at tiny sizes; nothing is asserted about time."""

import numpy as np
import pytest
import tf_keras

from benchmarks import generation as benchmark
from benchmarks.harness import our_model
from benchmarks.peers import save_for_hugging_face
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


@pytest.mark.integration
def test_measure(peer_python):
    options = {"bfloat16": True, "runtimes": benchmark.RUNTIMES, "peer_python": peer_python}
    sizes = {"batches": (1, 3), "prompt_lens": (5,), "new_tokens": 4, "repeats": 2}
    report = benchmark.measure(TINY, **sizes, **options)
    [rows] = report.values()
    ours = ("ours", "ours bfloat16", "openvino float32", "openvino int8", "openvino int4")
    names = (*ours, "hugging_face")
    assert [row[""] for row in rows] == [f"{size} x 5, {name}" for size in (1, 3) for name in names]
    for size, peer, ours in ((1, rows[5], rows[:5]), (3, rows[11], rows[6:11])):
        for row in (*ours, peer):
            assert row["tokens/s"] == pytest.approx(size * 4 / row["s"])
        for row in ours:
            assert row["times as fast as hugging_face"] == pytest.approx(peer["s"] / row["s"])
            assert 0 <= row["same tokens"] < 1


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
