"""What a TPU needs of the training loop: fixed shapes, and nothing inside that only a host can do."""

import pytest
import tensorflow as tf
from official.core import task_factory

from tests.helpers.training import programs, synthetic_tpu
from xlnet_tf import task_registry
from xlnet_tf.training.optimizer import build_optimizer
from xlnet_tf.training.trainer import Trainer

# Operations whose result's shape depends on values, or that run Python or go to the host.
DYNAMIC = {"Where", "Unique", "UniqueV2", "UniqueWithCounts", "DynamicPartition", "ListDiff"}
DYNAMIC |= {"NonMaxSuppressionV3"}
HOST = {"PyFunc", "PyFuncStateless", "EagerPyFunc", "Assert", "Print", "PrintV2", "HostCompute"}
HOST |= {"OutfeedEnqueue"}
# Its result is axes: constant as soon as the shapes of its operands are.
AXES = "BroadcastGradientArgs"
# The loop's own: it asks each device's pipeline for the next batch, whose shapes are known.
NEXT_BATCH = "IteratorGetNext"


def build_trainer(
    folder, task: str, trainer_settings, model, strategy=None, evaluate=False, batching=None
) -> Trainer:
    """Builds a trainer of a small model, with dropout, on made-up data, by default for a made-up TPU."""
    params = programs.settings(task, folder, rows=4, **model)
    params.task.validation_data.override({"input_path": str(folder), "global_batch_size": 4})
    if batching:
        params.task.batching = batching
    params.override({"trainer": {"train_steps": 10, **trainer_settings}})
    with (strategy or synthetic_tpu.strategy()).scope():
        built = task_factory.get_task_cls(type(params.task))(params.task)
        optimizer = build_optimizer(params.trainer.optimizer_config, 10, built.n_layer)
        return Trainer(params, built, built.build_model(), optimizer, evaluate=evaluate)


def nodes(function) -> dict[str, tf.compat.v1.NodeDef]:
    """Returns the operations of a traced function and of all functions that it calls, by place and name."""
    graph = function.graph.as_graph_def(add_shapes=True)
    found = {f"/{node.name}": node for node in graph.node}
    for called in graph.library.function:
        found |= {f"{called.signature.name}/{node.name}": node for node in called.node_def}
    return found


def faults(found) -> list[str]:
    """Says which operations a TPU could not run, or not in one program of fixed shapes."""
    wrong = []
    for place, node in found.items():
        if node.op in DYNAMIC | HOST or "String" in node.op:
            wrong.append(f"{place}: {node.op}")
        types = [value.type for value in node.attr.values()] + [
            kind for value in node.attr.values() for kind in value.list.type
        ]
        if tf.string.as_datatype_enum in types:
            wrong.append(f"{place}: {node.op} of strings")
        shapes = node.attr["_output_shapes"].list.shape
        unknown = any(shape.unknown_rank or any(dim.size < 0 for dim in shape.dim) for shape in shapes)
        if unknown and node.op != AXES:
            wrong.append(f"{place}: {node.op} of an unknown shape")
    return wrong


LOOPS = [
    ("pretraining", {}, {"n_layer": 2}, None),
    ("pretraining", {"accumulation_steps": 2}, {}, None),
    ("multiple_choice", {"accumulation_steps": 2}, {}, "packed"),
    *((task, {}, {}, "fixed") for task in task_registry.tasks()),
]


@pytest.mark.parametrize(
    ("task", "trainer_settings", "model", "batching"),
    [pytest.param(*loop, marks=[pytest.mark.integration] * (loop != LOOPS[0])) for loop in LOOPS],
)
def test_the_whole_loop_has_fixed_shapes_and_stays_on_the_device(
    tmp_path, task, trainer_settings, model, batching
):
    trainer = build_trainer(tmp_path, task, trainer_settings, model, batching=batching)
    with trainer.strategy.scope():
        loop = trainer.steps_of_length(trainer.batching.compiled_lengths[0])
        iterator = iter(trainer.train_dataset)
        traced = loop.get_concrete_function(iterator, tf.constant(3))
    found = nodes(traced)
    asked = [node for node in found.values() if node.op == NEXT_BATCH]
    assert len(asked) == trainer.strategy.num_replicas_in_sync and len(found) > 500
    loops = [place for place, node in found.items() if node.op in ("While", "StatelessWhile")]
    assert any(place.startswith("/") for place in loops)
    counter = {place: node for place, node in found.items() if place.startswith("/") and node.op == "Range"}
    assert not faults({place: node for place, node in found.items() if place not in counter})


@pytest.mark.parametrize("task", ["pretraining", "squad"])
def test_an_evaluations_step_has_fixed_shapes_and_stays_on_the_device(tmp_path, task):
    trainer = build_trainer(tmp_path, task, {}, {}, evaluate=True)
    with trainer.strategy.scope():
        traced = tf.function(trainer.eval_step).get_concrete_function(iter(trainer.eval_dataset))
    found = nodes(traced)
    assert len(found) > 300 and not faults(found)


def test_faults_are_found():
    @tf.function
    def step(values):
        kept = tf.boolean_mask(values, values > 0)
        return tf.cond(tf.size(kept) > 1, lambda: tf.numpy_function(abs, [kept], tf.float32), lambda: kept)

    found = faults(nodes(step.get_concrete_function(tf.TensorSpec([4]))))
    assert any("Where" in fault for fault in found) and any("PyFunc" in fault for fault in found)
    assert any("unknown shape" in fault for fault in found)
