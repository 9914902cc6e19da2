"""What lets a step on CPUs repeat bit for bit, however its operations take turns."""

from collections import Counter

import pytest
import tensorflow as tf

from tests.training.test_static_graphs import build_trainer

SUMS = ("AddN", "_MklAddN")
# Each output has the memory of the input of its number.
SAME_MEMORY = (
    "Reshape", "Identity", "IdentityN", "StopGradient", "PreventGradient", "ExpandDims", "Squeeze",
    "EnsureShape",
)  # fmt: skip


def sums_by_timing(nodes) -> list[str]:
    """Names the sums that may add up in more than one order.

    A sum of several tensors begins with the first whose memory nothing else needs any more. Where another
    operation reads them as well, that depends on which of both came first; only between the first two it
    does not matter.
    """
    by_name = {node.name: node for node in nodes}
    inputs = {node.name: [_output(name) for name in node.input if name[0] != "^"] for node in nodes}
    readers = Counter(output for outputs in inputs.values() for output in outputs)

    def is_free(output) -> bool:
        name, number = output.split(":")
        if readers[output] > 1 or name not in by_name:  # an argument: others may read it, too
            return False
        return by_name[name].op not in SAME_MEMORY or is_free(inputs[name][int(number)])

    return [
        node.name
        for node in nodes
        if node.op in SUMS and len(inputs[node.name]) > 2 and not any(map(is_free, inputs[node.name][:2]))
    ]


def _output(name: str) -> str:
    """Names an operation's output in one way: a graph says "a" or "a:0", a function "a:sum:0"."""
    operation, *_, number = name.split(":") if ":" in name else (name, "0")
    return f"{operation}:{number}"


def all_sums_by_timing(graph: tf.compat.v1.GraphDef) -> list[str]:
    """Looks into all functions of a graph that XLA does not compile, as that has an order of its own."""
    called = (f for f in graph.library.function if not f.attr["_XlaMustCompile"].b)
    return sums_by_timing(graph.node) + [name for f in called for name in sums_by_timing(f.node_def)]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("task", "settings", "model"),
    [
        ("pretraining", {}, {"n_layer": 2}),
        ("pretraining", {"accumulation_steps": 2, "recompute": True}, {"untie_r": False}),
        ("squad", {}, {"n_layer": 2}),
        ("tagging", {"recompute": True}, {"n_layer": 2, "untie_r": False}),
    ],
)
def test_no_order_of_a_sum_is_a_matter_of_timing(tmp_path, task, settings, model):
    trainer = build_trainer(tmp_path, task, settings, model, tf.distribute.OneDeviceStrategy("CPU:0"))
    with trainer.strategy.scope():
        is_dynamic = trainer.batching.has_dynamic_length
        steps = trainer.steps_of_dynamic_length if is_dynamic else trainer.steps_of_length(None)
        count = tf.TensorSpec([None], tf.int32) if is_dynamic else tf.constant(3)
        traced = steps.get_concrete_function(iter(trainer.train_dataset), count)
    graph = traced.graph.as_graph_def()
    assert any(node.op == "AddN" for f in graph.library.function for node in f.node_def)
    assert not all_sums_by_timing(graph)


@pytest.mark.parametrize(
    ("read", "expected"), [((), False), ((0,), False), ((0, 2), False), ((0, 1), True), ((0, 1, 2), True)]
)
@pytest.mark.parametrize("inside", [False, True])
def test_sums_by_timing_are_found(read, expected, inside):
    def step(x):
        terms = [tf.reshape(x * factor, [2, 2]) for factor in (2.0, 3.0, 4.0)]
        others = [tf.reduce_sum(tf.reshape(terms[number], [4])) for number in read]
        return tf.add_n(terms), others

    function = tf.function(lambda x: tf.function(step)(x) if inside else step(x))
    graph = function.get_concrete_function(tf.TensorSpec([4])).graph.as_graph_def()
    assert bool(all_sums_by_timing(graph)) is expected
