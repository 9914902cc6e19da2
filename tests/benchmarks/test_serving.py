"""The serving benchmark runs end to end at tiny sizes; nothing is asserted about time."""

import numpy as np
import pytest
from scipy.special import softmax

from benchmarks import peers
from benchmarks import serving as benchmark_serving
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError

TINY = XLNetConfig(n_token=7, n_layer=1, d_model=16, n_head=2, d_head=8, d_inner=10)

# Stands for a Python with torch: answers every line with the same logits, after a line of its own.
PEER = """#!{python}
import json, sys
print("loading", flush=True)
for line in sys.stdin:
    if "mode" not in json.loads(line):
        rows = len(json.loads(line)["input_word_ids"])
    print("ANSWER", json.dumps([[0.0, 1.0]] * rows), flush=True)
"""


@pytest.mark.long
def test_measure(small_tokenizer, peer_python):
    options = {"seq_len": 8, "repeats": 2, "peer_python": peer_python, "runtimes": benchmark_serving.RUNTIMES}
    report = benchmark_serving.measure(TINY, small_tokenizer, batches=(1, 3), **options)
    [rows] = report.values()
    ours = ("float32", "bfloat16", "openvino float32", "openvino bfloat16", "openvino int8")
    theirs = ("", " bfloat16", " openvino", " openvino bfloat16", " openvino int8", " onnxruntime")
    names = [*(f"ours {name}" for name in ours), "model_garden", *(f"hugging_face{name}" for name in theirs)]
    assert [row[""] for row in rows] == [f"{n} x 8, {name}" for n in (1, 3) for name in [*names, "products"]]
    for row in rows:
        assert 0 < row["fastest ms"] <= row["median ms"]
        assert row["examples/s"] == pytest.approx(1e3 * int(row[""][0]) / row["median ms"])
    assert rows[0]["time / ours"] == 1
    assert 0 < rows[1]["largest difference"] < 0.05
    assert rows[2]["largest difference"] < 1e-5
    assert rows[6]["largest difference"] > 0.1  # the stand-in's answers are its own


@pytest.mark.integration
def test_our_server_answers_match_the_model(small_tokenizer, tmp_path):
    """Hugging Face's process gets the very weights that are served."""
    from xlnet_tf.models.classifier import XLNetClassifier

    config = XLNetConfig.from_dict(TINY.to_dict() | {"n_token": small_tokenizer.vocab_size})
    folder = benchmark_serving.save_weights(config, small_tokenizer, tmp_path)
    features = benchmark_serving.make_features(config.n_token, 3, 8)
    expected = softmax(XLNetClassifier.from_pretrained(folder)(features).numpy(), axis=-1)
    served = benchmark_serving.load(benchmark_serving.export_ours(folder, "float32", 8, tmp_path))
    np.testing.assert_allclose(served(features), expected, atol=1e-6)


@pytest.mark.integration
def test_model_garden_does_not_see_the_padding(tmp_path):
    config = XLNetConfig.from_dict(TINY.to_dict() | {"n_token": 90})
    served = benchmark_serving.load(benchmark_serving.export_model_garden(config, tmp_path))
    features = benchmark_serving.make_features(config.n_token, 3, 8)
    changed = features | {"input_word_ids": features["input_word_ids"].copy()}
    changed["input_word_ids"][:, :3] = 50
    mask = np.ones_like(features["input_mask"])
    mask[:, :3] = 0
    padded = [served(each | {"input_mask": mask}) for each in (features, changed)]
    np.testing.assert_allclose(*padded, atol=1e-7)
    assert np.abs(served(features) - served(changed)).max() > 1e-5


def test_a_peer_that_does_not_answer_is_an_error(tmp_path):
    peer = peers.HuggingFace("/bin/true", "", str(tmp_path), 1)
    with pytest.raises(UserError, match="/bin/true ended without an answer.*--peer_python"):
        peer.ask(benchmark_serving.make_features(90, 2, 6))
    peer.close()
