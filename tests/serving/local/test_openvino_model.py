"""A served model for OpenVINO takes requests as a SavedModel does; the graph is a toy."""

import types

import numpy as np
import pytest

from xlnet_tf.serving.local import openvino_model
from xlnet_tf.serving.local.served_model import RequestError
from xlnet_tf.serving.openvino.compiled import CompiledGraph
from xlnet_tf.tasks.classification.answering import ClassificationAnswering


def graph(features):
    """Returns logits that depend on the order of the tokens."""
    ids = features["input_word_ids"].astype(np.float32)
    return {"logits": ids @ np.float32([np.arange(24), np.ones(24)]).T / 1000}


@pytest.fixture
def pairs(small_tokenizer, monkeypatch):
    options = {"seq_len": 24, "buckets": [24], "labels": ["a", "b"], "pair": True}
    answering = ClassificationAnswering(graph, small_tokenizer, **options)
    folder = types.SimpleNamespace(task="classification", answering=lambda: answering)
    monkeypatch.setattr(openvino_model.OpenVinoFolder, "read", lambda path: folder)
    return openvino_model.OpenVinoModel("somewhere")


def run(model, **texts):
    inputs = {name: np.array([*values, None], object)[:-1] for name, values in texts.items()}
    model.check("serving_default", inputs)
    return model.run("serving_default", inputs)


def test_a_request_may_have_the_texts_of_a_pair_in_any_order(pairs):
    first, second = [b"ba ne", b"ba"], [b"ne ba ba", b"ne"]
    expected = run(pairs, text_a=first, text_b=second)["probabilities"]
    found = run(pairs, text_b=second, text_a=first)["probabilities"]  # a proto's map has no order
    np.testing.assert_array_equal(found, expected)
    assert (run(pairs, text_a=second, text_b=first)["probabilities"] != expected).all()


def test_inputs_have_equally_many_rows(pairs):
    for counts in ((2, 3), (3, 2), (0, 1), (1, 0)):
        first, second = ([b"ba"] * count for count in counts)
        with pytest.raises(RequestError, match="text_b has another number of rows than text_a") as error:
            run(pairs, text_b=second, text_a=first)
        assert error.value.code == "INVALID_ARGUMENT"
    answers = run(pairs, text_a=[], text_b=[])
    assert answers["probabilities"].shape == answers["labels"].shape == (0, 2)
    assert answers["label"].dtype == object and answers["score"].dtype == np.float32


def test_an_answer_that_takes_too_long_is_given_up(pairs):
    openvino = pytest.importorskip("openvino")
    from openvino import opset15 as ops

    ids = ops.parameter([-1, 24], np.int32, name="input_word_ids")
    row = ops.matmul(ops.convert(ids, np.float32), np.full((24, 1500), 1e-4, np.float32), False, False)
    square = ops.matmul(row, row, True, False)
    for _ in range(8):  # 54 GFLOP
        square = ops.matmul(square, np.eye(1500, dtype=np.float32), False, False)
    weights = ops.matmul(square, np.ones((1500, 2), np.float32), False, False)
    logits = ops.matmul(row, weights, False, False)
    logits.output(0).set_names({"logits"})
    pairs._answering.graph = CompiledGraph(openvino.Model([logits], [ids], "slow"), "float32")
    texts = {name: np.array([b"ba ne"], object) for name in ("text_a", "text_b")}
    with pytest.raises(RequestError, match="time for an answer is over") as error:
        pairs.run("serving_default", texts, 0.001)
    assert error.value.code == "DEADLINE_EXCEEDED"
    assert pairs.run("serving_default", texts)["probabilities"].shape == (1, 2)  # the stream is free again
