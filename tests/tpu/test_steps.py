from collections import Counter

import pytest
import tensorflow as tf
import tf_keras
from official.core import task_factory

from tests.helpers import hlo
from tests.helpers.profiles import mostly_integration
from tests.helpers.serving.exports import KINDS
from tests.helpers.training import programs
from xlnet_tf.errors import UserError
from xlnet_tf.layers.kernels import current, device
from xlnet_tf.serving.export import export
from xlnet_tf.tasks.classification.serving import ClassificationModule
from xlnet_tf.tpu import steps
from xlnet_tf.tpu.lowering import lower

_NAMES = {"float32": "f32", "bfloat16": "bf16", "bool": "pred", "int64": "s64", "int32": "s32"}
_NAMES |= {"uint8": "u8", "int16": "s16", "int8": "s8"}


def _kind(value) -> tuple[str, tuple[int, ...]]:
    return _NAMES[value.dtype.name], tuple(value.shape)


@pytest.mark.parametrize("task", mostly_integration(programs.TASKS, "pretraining"))
def test_all_state_is_updated_in_place_and_nothing_needs_the_host(task, tmp_path):
    params = programs.settings(task, tmp_path)
    program = steps.training_step(params, length=None if task == "pretraining" else programs.T // 3)
    built = task_factory.get_task_cls(type(params.task))(params.task)
    weights = Counter(map(_kind, built.build_model().trainable_variables))
    state = Counter({kind: 3 * count for kind, count in weights.items()})  # and two moments
    if task == "pretraining":
        state[("f32", (1, programs.ROWS, programs.MEMORY, 16))] += 1
        state[("pred", (programs.ROWS, programs.MEMORY))] += 1
    state[("s64", ())] += 2  # the trainer's and the optimizer's count of steps
    donated = Counter(hlo.donated(program))
    assert not state - donated
    # The rest are sums of metrics and the like, of one number each.
    assert {shape for _, shape in donated - state} <= {()}

    inputs = built.build_inputs(params.task.train_data).element_spec
    kept = Counter(hlo.parameters(program)) - donated
    assert not kept - Counter(map(_kind, inputs.values())) - weights  # zeros for a weight without gradient
    assert sum(kept.values()) <= len(inputs) + 1
    assert hlo.host_operations(program) == []
    assert hlo.dynamic_shapes(program) == []
    assert program.loops_with_products() == 0


def test_memory_is_kept_in_the_type_of_activations_and_weights_in_float32(tmp_path):
    program = programs.step("pretraining", tmp_path, "bfloat16")
    bfloat16 = {shape for kind, shape in hlo.donated(program) if kind == "bf16"}
    assert bfloat16 == {(1, programs.ROWS, programs.MEMORY, 16)}


def test_a_gradient_alone_writes_nothing_and_micro_batches_are_a_loop_with_products(tmp_path):
    params = programs.settings("pretraining", tmp_path, memory_len=0)
    program = steps.training_step(params, gradient_only=True)
    assert hlo.donated(program) == []
    params.trainer.accumulation_steps = 2
    whole = steps.training_step(params)
    assert len(hlo.parameters(whole)) > 2 * len(hlo.parameters(program))  # with two moments of each weight
    assert whole.loops_with_products() == 1


@pytest.mark.parametrize("task", ["pretraining", "choice"])
def test_a_set_smaller_than_the_batch_gives_its_shapes(task, tmp_path):
    params = programs.settings(task, tmp_path)
    data = params.task.train_data
    data.global_batch_size = 7 * programs.ROWS
    program = steps.training_step(params)
    tokens = programs.T * program.lengths.get("sequences", 1)
    assert ("s32", (7 * programs.ROWS, tokens)) in hlo.parameters(program)
    more = {"choice": {"sequences": 4}}.get(
        task, {"num_predict": programs.T // 6, "memory_len": programs.MEMORY}
    )
    assert program.lengths == {"seq_len": programs.T, **more}
    assert data.global_batch_size == 7 * programs.ROWS and params.task.train_data is data


def test_nothing_is_left_of_what_was_assumed(tmp_path):
    before = tf_keras.mixed_precision.global_policy().name, device.hardware()
    programs.step("classification", tmp_path, "bfloat16")
    params = programs.settings("tagging", tmp_path / "tags")
    params.task.train_data.input_path = str(tmp_path / "none")
    params.runtime.mixed_precision_dtype = "bfloat16"
    with pytest.raises(FileNotFoundError, match="none/manifest.json"):
        steps.training_step(params)
    with pytest.raises(UserError, match="dtype is 'int8': expected one of float32, bfloat16, float16"):
        programs.step("squad", tmp_path / "squad", "int8")
    assert (tf_keras.mixed_precision.global_policy().name, device.hardware()) == before


@pytest.fixture
def exported(tmp_path, small_tokenizer):
    """Returns a function that exports a classifier and returns the version's path."""
    kind = KINDS["classification"]

    def export_with(**options) -> str:
        module = ClassificationModule(kind.model(small_tokenizer), small_tokenizer, **options)
        return export(module, str(tmp_path / "served"))

    return export_with


def _tokens(program) -> list[tuple[int, ...]]:
    return [shape for kind, shape in hlo.parameters(program) if kind == "s32"]


@pytest.mark.integration
def test_a_served_model_is_compiled_from_its_tokens_on(exported):
    program = steps.served_signature(exported(seq_len=40, buckets=[24]), rows=3, seq_len=24)
    assert _tokens(program) == [(3, 24)] * 3
    assert program.lengths == {"seq_len": 24}
    assert hlo.host_operations(program) == []
    results = [tuple(shape.dimensions) for shape in program.module.host_program_shape.result.tuple_shapes]
    assert (3, 3) in results  # probabilities of labels; their names are the host's


@pytest.mark.integration
@pytest.mark.parametrize("options", [{"buckets": [24]}, {"buckets": [24], "int8": True}, {"buckets": []}])
def test_a_served_model_is_compiled_for_the_longest_texts_that_it_takes(exported, options):
    program = steps.served_signature(exported(seq_len=40, **options), rows=2)
    assert set(_tokens(program)) == {(2, 40)}
    assert program.lengths == {"seq_len": 40}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("buckets", "seq_len", "expected"), [([24], 41, "at most 40"), ([], 41, "no other"), ([], 24, "no other")]
)
def test_lengths_that_a_served_model_refuses_are_named(exported, buckets, seq_len, expected):
    path = exported(seq_len=40, buckets=buckets)
    with pytest.raises(UserError, match=f"seq_len is {seq_len}, .*served/1 .* with 40: expected {expected}"):
        steps.served_signature(path, 2, seq_len)


def test_a_model_without_the_signature_is_named(tmp_path):
    module = tf.Module()
    module.double = tf.function(lambda x: 2 * x, input_signature=[tf.TensorSpec([], tf.float32)])
    tf.saved_model.save(module, str(tmp_path), signatures={"double": module.double})
    with pytest.raises(UserError, match="has the signatures double: expected one called tokens"):
        steps.served_signature(str(tmp_path), 1, 8)


def test_lowering_shows_what_a_function_does_to_variables():
    written, read = tf.Variable(tf.zeros([4, 5])), tf.Variable(tf.zeros([7]))

    def function(inputs):
        written.assign_add(inputs["x"] * tf.reduce_sum(read))
        return tf.reduce_sum(written)

    program = lower(function, {"x": tf.TensorSpec([4, 5], tf.float32)})
    assert hlo.parameters(program) == [("f32", (4, 5)), ("f32", (7,)), ("f32", (4, 5))]  # as read
    assert hlo.donated(program) == [("f32", (4, 5))]
    opcodes = {i.opcode for computation in program.module.computations for i in computation.instructions}
    assert "copy" not in opcodes  # the TPU's compiler takes none


def test_lowering_shows_what_the_host_must_do_and_dynamic_shapes():
    one = {"x": tf.TensorSpec([6], tf.float32)}
    assert hlo.dynamic_shapes(lower(lambda inputs: tf.boolean_mask(inputs["x"], inputs["x"] > 0), one))
    program = lower(lambda inputs: inputs["x"] + 1, one)
    assert hlo.host_operations(program) == []
    program.module.computations[0].instructions.add(opcode="custom-call", custom_call_target="ask_host")
    program.module.computations[0].instructions.add(opcode="outfeed")
    assert hlo.host_operations(program) == ["ask_host", "outfeed"]


def drawing(draw):
    """Returns the instructions of a program of a TPU that draws from a seed."""
    with device.assume("tpu"):
        program = lower(lambda inputs: draw(inputs["seed"]), {"seed": tf.TensorSpec([2], tf.int32)})
    return {i.id: i for computation in program.module.computations for i in computation.instructions}


def dropout_mask(seed):
    return current(True).keep_mask([8, 128], 0.1, seed)


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: tf.random.stateless_uniform([8, 128], seed),
        lambda seed: tf.random.stateless_normal([9], seed) + tf.random.stateless_uniform([9], seed),
        dropout_mask,
    ],
)
def test_devices_draw_with_their_own_generators(draw):
    instructions = drawing(draw)
    assert draw is not dropout_mask or len(instructions) < 100  # a key alone takes 200
    drawn = [i for i in instructions.values() if i.opcode == "rng-bit-generator"]
    assert drawn
    for generator in drawn:
        assert generator.rng_algorithm == 0  # RNG_DEFAULT
        [state] = (instructions[number] for number in generator.operand_ids)
        assert list(state.shape.dimensions) == [2] == list(generator.shape.tuple_shapes[0].dimensions)


@pytest.mark.parametrize(("kind", "copies"), [("cpu", 1), ("tpu", 2)])
def test_narrow_copies_of_weights_are_not_kept_for_the_gradient(kind, copies):
    weights = tf.Variable(tf.ones([64, 32]))

    def function(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs["x"])
            product = current(True).matmul(inputs["x"], weights)
        return product, tape.gradient(product, inputs["x"])

    with device.assume(kind):
        program = lower(function, {"x": tf.TensorSpec([8, 64], tf.bfloat16)})
    instructions = [i for computation in program.module.computations for i in computation.instructions]
    narrowed = [
        i.operand_ids[0]
        for i in instructions
        if i.opcode == "convert" and list(i.shape.dimensions) == [64, 32]
    ]
    assert len(narrowed) == len(set(narrowed)) == copies
