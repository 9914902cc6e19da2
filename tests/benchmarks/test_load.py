"""The load of clients: all requests are counted, and what fails."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import load as benchmark_load

TEXT = "Every piece of this may be asked for; one letter is refused: \u00e9. " * 20


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that tells the length of its texts and fails at a letter."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")])
    def lengths(texts):
        bad = tf.strings.regex_full_match(texts, ".*\u00e9.*")
        with tf.control_dependencies([tf.debugging.Assert(~tf.reduce_any(bad), ["a bad letter"])]):
            return {"length": tf.strings.length(texts)}

    folder = str(tmp_path_factory.mktemp("model"))
    tf.saved_model.save(tf.Module(), folder, signatures={"serving_default": lengths})
    return folder


def test_requests_times_and_errors_are_reported(model):
    report = benchmark_load.measure(model, TEXT, benchmark_load.Load(0.6, clients=3, rows=2, longest=200))
    failed = sum(report["errors"].values())
    assert 0 < failed < report["requests"] < report["rows"] <= 2 * report["requests"]
    assert all("bad letter" in message for message in report["errors"]), report["errors"]
    assert 0 < report["seconds"]["50"] <= report["seconds"]["95"] <= report["seconds"]["99"] < 5
    assert report["memory"][-1] > 50e6
    (title, rows), (_, errors) = benchmark_load.tables(report).items()
    assert title.startswith("3 clients, 0.6 s") and {"": "errors", "value": failed} in rows
    assert "bad letter" in errors[0][""]


def test_another_answer_than_without_load_is_an_error(tmp_path):
    module = tf.Module()
    module.asked = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")])
    def count(texts):
        return {"asked": tf.zeros_like(tf.strings.length(texts)) + module.asked.assign_add(1)}

    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": count})
    report = benchmark_load.measure(
        str(tmp_path), TEXT, benchmark_load.Load(0.3, clients=3, rows=1, longest=400)
    )
    assert [*report["errors"]] == ["another answer than without load"]


def test_answers_are_the_same_but_for_rounding():
    def same(found, expected):
        return benchmark_load.same({"a": np.array(found)}, {"a": np.array(expected)})

    assert same([0.5, np.nan], [0.50001, np.nan]) and same([b"ab"], [b"ab"]) and same([100_000], [100_000])
    assert not same([0.5], [0.501]) and not same([b"ab"], [b"ac"]) and not same([100_001], [100_000])
    assert not same([0.5], [0.5, 0.5]) and not same([1.0], [1])
    assert not benchmark_load.same({}, {"a": np.zeros(1)})
