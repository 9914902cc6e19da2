"""Requests that are answered together get the answers that each would get alone, whatever the model is."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef

from tests.helpers.profiles import examples
from xlnet_tf.serving.local.batching import Batcher, Rule
from xlnet_tf.serving.local.saved_model import RequestError

# The axes of the outputs, of which the first is the batch, and the rule that follows.
SIGNATURES = {
    "rows": ({"score": [-1]}, Rule.ROWS),
    "requests": ({"values": [-1, -1], "num_entities": [-1]}, Rule.REQUESTS),
    "alone": ({"values": [-1, -1]}, Rule.ALONE),
}
MOST = 8  # rows of a batch


def definition(outputs):
    found = SignatureDef()
    for side, names in ((found.inputs, {"text": [-1]}), (found.outputs, outputs)):
        for name, sizes in names.items():
            for size in sizes:
                side[name].tensor_shape.dim.add(size=size)
    return found


class Model:
    """Answers with the lengths of texts, or with as many values; `free` lets it begin."""

    def __init__(self):
        self.definitions = {name: definition(outputs) for name, (outputs, _) in SIGNATURES.items()}
        self.free, self.runs = threading.Event(), []

    def run(self, name, inputs, seconds=None):
        assert self.free.wait(20)
        texts = inputs["text"]
        self.runs.append((name, texts.tolist()))
        if b"bad" in texts:
            raise RequestError("INVALID_ARGUMENT", "a bad text")
        lengths = np.array([len(text) for text in texts])
        places = np.arange(lengths.max(initial=0))
        values = np.where(places < lengths[:, None], 1 + places, 0)
        answers = {"score": lengths / 7, "values": values, "num_entities": lengths}
        return {output: answers[output] for output in SIGNATURES[name][0]}

    def close(self):
        self.free.set()

    def bucket(self, row):
        return 4 if len(row[0][0]) <= 4 else 16


def columns(lengths):
    return {"text": np.array([b"x" * length for length in lengths], object)}


def answered(requests):
    """Returns the model, and the futures of requests that all came before it began."""
    model = Model()
    batcher = Batcher(model, max_batch=MOST)
    futures = [batcher.submit(name, inputs) for name, inputs in requests]
    model.free.set()
    batcher.close()
    return model, futures


REQUESTS = st.tuples(st.sampled_from(list(SIGNATURES)), st.lists(st.integers(0, 16), max_size=12))


@examples(60, 2000)
@given(requests=st.lists(REQUESTS, min_size=1, max_size=9))
def test_answers_are_those_of_requests_alone(requests):
    requests = [(name, columns(lengths)) for name, lengths in requests]
    model, futures = answered(requests)
    reference = Model()
    reference.free.set()
    for (name, inputs), future in zip(requests, futures, strict=True):
        found, expected = future.result(20), reference.run(name, inputs)
        assert found.keys() == expected.keys()
        for key in expected:
            np.testing.assert_array_equal(found[key], expected[key])
    alone = sorted(len(inputs["text"]) for name, inputs in requests if name == "alone")
    assert sorted(len(texts) for name, texts in model.runs if name == "alone") == alone


@pytest.mark.parametrize("name", SIGNATURES)
def test_single_rows_share_batches_of_one_length(name):
    """Two workers begin with a request each; of the other 18, 9 are short and 9 long."""
    model, _ = answered([(name, columns([16 if number % 2 else 3])) for number in range(20)])
    assert Rule.of(model.definitions[name]) is SIGNATURES[name][1]
    assert len(model.runs) == 20 if name == "alone" else len(model.runs) <= 2 + 4
    assert all(len(texts) <= MOST for _, texts in model.runs)
    assert all(len({len(text) > 4 for text in texts}) == 1 for _, texts in model.runs)


def test_closing_drops_what_runs_for_nobody():
    """The fake's run ends when the model is closed, as TensorFlow's does."""
    model = Model()
    batcher = Batcher(model, max_batch=MOST)
    left = batcher.submit("alone", columns([1]))
    while batcher._queues:  # until it runs
        time.sleep(0.01)
    assert left.cancel()
    begun = time.monotonic()
    batcher.close()
    assert time.monotonic() - begun < 5 and len(model.runs) == 1


def test_a_run_ends_when_its_last_request_is_late():
    model, limits = Model(), []
    model.run = lambda name, inputs, seconds: (
        limits.append(seconds) or {"score": np.zeros(len(inputs["text"]))}
    )
    batcher = Batcher(model, max_batch=MOST)
    batcher.submit("rows", columns([1]), 5.0).result(20)
    batcher.submit("rows", columns([1])).result(20)
    batcher.close()
    assert 4 < limits[0] <= 5 and limits[1] is None
