"""The benchmark's steps run and count right at tiny sizes; nothing is asserted about time."""

import dataclasses
import math
import re
import sys

import numpy as np
import pytest

from benchmarks import batches, checkpoints, profile, tpu_step
from benchmarks import step as benchmark_step
from benchmarks.profile import Operation
from tests.helpers import hlo
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.tpu import flops

TINY = XLNetConfig(n_token=50, n_layer=2, d_model=8, n_head=2, d_head=3, d_inner=10)
ONE_LAYER = dataclasses.replace(TINY, n_layer=1, d_head=4)  # compiles sooner
SIZES = {"seq_len": 32, "num_predict": 4}
RATES = {"float32": 1e9, "bfloat16": 2e9}


@pytest.mark.integration
@pytest.mark.parametrize("seq_len", [32, 256])  # 256 are two groups of queries
def test_flops_are_those_of_the_graph(seq_len):
    import tensorflow as tf

    from xlnet_tf.models import encoder, pretrainer

    batch = batches.make_batch(TINY, 4, seq_len, 4)
    model = pretrainer.XLNetPretrainer(encoder.XLNetEncoder(TINY))
    model.build()
    graph = tf.function(lambda features: model(features)["logits"]).get_concrete_function(batch).graph
    products = sum(_matrix_product_flops(operation) for operation in graph.get_operations())
    assert products == sum(flops.forward_flops(TINY, 4, seq_len, 4).values())


def _matrix_product_flops(operation):
    """Multiplications and additions of an operation, 0 if it is no matrix product."""
    if operation.type == "Einsum":
        operands = operation.get_attr("equation").decode().split("->")[0].split(",")
        sizes = {
            label: size
            for labels, tensor in zip(operands, operation.inputs, strict=True)
            for label, size in zip(labels, tensor.shape, strict=True)
        }
        return 2 * math.prod(sizes.values())
    if re.fullmatch("(Batch)?MatMul(V2)?", operation.type):
        left = operation.inputs[0].shape
        transposed = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
        return 2 * math.prod(operation.outputs[0].shape) * left[-2 if transposed else -1]
    return 0


def test_both_models_get_the_same_batch():
    from xlnet_tf.layers import masks

    batch = batches.make_batch(TINY, 4, **SIZES)
    theirs = batches.model_garden_batch(batch)
    assert batch["direction"].tolist() == [1, 1, -1, -1]
    assert theirs["target_mapping"].sum(axis=-1).tolist() == [[1] * 4] * 4
    is_target = theirs["masked_tokens"] == 1
    visible = masks.permutation_visible(batch["permutation_rank"], is_target).numpy()
    np.testing.assert_array_equal(theirs["permutation_mask"], visible)
    assert not visible[:, np.arange(32), np.arange(32)][is_target].any()  # no target sees itself
    hugging_face = batches.hugging_face_batch(batch)
    np.testing.assert_array_equal(hugging_face["perm_mask"], 1 - theirs["permutation_mask"])
    targets = np.einsum("bpt,bt->bp", hugging_face["target_mapping"], hugging_face["input_ids"])
    np.testing.assert_array_equal(targets, hugging_face["labels"])
    batch["target_positions"][:, -1] = -1  # an empty slot is not a target
    theirs = batches.model_garden_batch(batch)
    assert theirs["target_mapping"].sum(axis=-1).tolist() == [[1, 1, 1, 0]] * 4
    with pytest.raises(UserError, match="batch_size is 3.*even"):
        benchmark_step.measure_step(TINY, 3, repeats=1, gemm_rates=RATES, **SIZES)


def test_ratios_are_of_the_best_modes():
    ours = {"graph": 3, "xla": 4, "graph bfloat16": 2, "graph recompute": 3.9, "xla recompute": 2.8}
    seconds = {
        "ours": ours | {"graph recompute cheap": 3.6},
        "model_garden": {"graph": 6, "xla": 9},
        "hugging_face": {"eager": 12, "fused": 10, "bfloat16": 1},
    }
    ratios = benchmark_step.ratios(seconds, {"xla": 8, "xla recompute": 2, "xla recompute cheap": 4})
    assert ratios == {
        "ours / model_garden": 3 / 6,
        "ours / hugging_face": 3 / 10,
        "bfloat16 / float32": 2 / 3,
        "graph recompute / graph": 1.3,
        "xla recompute / xla": 0.7,
        "graph recompute cheap / graph": 1.2,
        "temporaries, recompute": 0.25,
        "temporaries, recompute cheap": 0.5,
    }
    assert benchmark_step.ratios({"ours": {"graph": 3}}, {}) == {}


@pytest.mark.integration
def test_modes_compute_what_they_say():
    batch = batches.make_batch(TINY, 2, **SIZES)
    modes = ["graph", "xla", "graph bfloat16", "graph recompute", "graph recompute cheap"]
    steps = benchmark_step.our_steps(ONE_LAYER, batch, 0.0, modes)
    first, xla, bfloat16, *recompute = (steps[mode]() for mode in modes)
    assert recompute == pytest.approx([first, first], rel=1e-6)
    assert bfloat16 == pytest.approx(first, rel=1e-2) and bfloat16 != first
    assert xla < first  # it continues with the graph's variables


def test_hugging_face_computes_the_same_loss():
    """With dropout off, on rows read forward; where this Python has PyTorch."""
    for name in ("torch", "transformers"):
        pytest.importorskip(name, reason=f"{name} is not installed: no step of Hugging Face's")
    batch = batches.make_batch(TINY, 2, **SIZES)
    batch["direction"] = np.abs(batch["direction"])
    ours = benchmark_step.our_steps(ONE_LAYER, batch, 0.0, ["graph"])["graph"]()
    with benchmark_step.hugging_face_steps(
        ONE_LAYER, batch, 0.0, ["eager", "fused"], sys.executable
    ) as theirs:
        assert float(theirs["eager"]()) == pytest.approx(ours, abs=1e-5)
        assert float(theirs["fused"]()) < ours


@pytest.mark.integration
def test_steps_train_and_checkpoints_are_measured_in_all_ways():
    batch = batches.make_batch(TINY, 2, **SIZES)
    ours = benchmark_step.our_steps(ONE_LAYER, batch, 0.0, ["graph"])["graph"]
    theirs = benchmark_step.model_garden_steps(ONE_LAYER, batch, 0.0, ["graph", "xla"])["graph"]
    for step in (ours, theirs):
        losses = [step() for _ in range(40)]
        assert losses[-1] < losses[0]
    [rows] = checkpoints.measure_checkpoint(ours, repeats=1).values()
    assert [row[""] for row in rows] == ["none", "waiting", "background"]
    assert all(row["s in all"] > row["s to the first step"] for row in rows)


@pytest.mark.integration
def test_model_gardens_step_for_tpus_updates_in_place():
    config = dataclasses.replace(ONE_LAYER, d_model=16, d_head=8)
    program = tpu_step.model_garden_step(config, 2, 16, 3, 0.0, gradient_only=False)
    weights = hlo.donated(program).count(("f32", (16, 2, 8)))
    assert weights and not weights % 3  # each with two moments
    assert ("f32", (2, 16, 16)) in hlo.parameters(program)  # its permutation mask
    assert program.lengths == {"seq_len": 16, "num_predict": 3, "memory_len": 0}
    assert hlo.donated(tpu_step.model_garden_step(config, 2, 16, 3, 0.0, gradient_only=True)) == []


def test_an_operation_within_another_counts_for_the_outer_one():
    inner, outer = Operation(2, 5, "", "Mul"), Operation(0, 9, "", "While")
    after = Operation(9, 12, "", "Add")
    assert list(profile.outermost([after, inner, outer])) == [outer, after]


def test_shares_by_operation_and_part():
    shares = profile.shares(
        [
            Operation(0, 6, "pretrainer/encoder/layer_0/attention/a", "MatMul"),
            Operation(0, 3, "gradient_tape/pretrainer/encoder/layer_0/attention/a", "Mul"),
            Operation(3, 4, "", profile.FUSED),
        ]
    )
    assert shares["products"] == 0.6 and shares["busy"] == 10e-12
    assert shares["operations"] == {"MatMul": 0.6, "Mul": 0.3, profile.FUSED: 0.1}
    assert shares["parts"] == {
        "attention": {"forward": 0.6, "backward": 0.3},
        profile.UNNAMED: {"forward": 0, "backward": 0.1},
    }


@pytest.mark.integration
def test_a_step_is_profiled():
    steps = benchmark_step.our_steps(ONE_LAYER, batches.make_batch(ONE_LAYER, 2, 32, 4), 0.1, ["graph"])
    profiles = profile.measure_profile(steps, repeats=2)
    by_part, by_operation = profiles.values()
    assert sum(row["forward"] + row["backward"] for row in by_part) == pytest.approx(1)
    assert sum(row["share"] for row in by_operation) == pytest.approx(1)
    # Where XLA fuses a normalization, which depends on the processor, nothing of it has a name.
    assert {part for _, part in profile.PARTS} - {"normalization"} <= {row[""] for row in by_part}
    assert by_operation[-1][""] == "others"
