"""The profile of a step: nothing counts twice, and every operation has its part."""

import pytest

from benchmarks import profile
from benchmarks.batches import make_batch
from benchmarks.profile import Operation
from benchmarks.step import our_steps
from xlnet_tf.config import XLNetConfig

TINY = XLNetConfig(n_token=50, n_layer=1, d_model=8, n_head=2, d_head=4, d_inner=10)


def test_an_operation_within_another_counts_for_the_outer_one():
    inner, outer = Operation(2, 5, "", "Mul"), Operation(0, 9, "", "While")
    after = Operation(9, 12, "", "Add")
    assert list(profile.outermost([after, inner, outer])) == [outer, after]


@pytest.mark.parametrize(
    ("scope", "part"),
    [
        ("pretrainer/encoder/layer_11/attention/MatMul", "attention"),
        ("gradient_tape/pretrainer/encoder/layer_0/attention_norm/mul", "normalization"),
        ("pretrainer/encoder/layer_3/feed_forward/MatMul", "feed-forward network"),
        ("pretrainer/encoder/GatherV2", "embeddings, masks, positions"),
        ("gradient_tape/pretrainer/MatMul", "vocabulary and loss"),
        ("MatMul_4", profile.UNNAMED),
    ],
)
def test_part_of_a_scope(scope, part):
    assert profile.part_of(scope) == part


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("pretrainer/dense/MatMul:MatMul", ("pretrainer/dense/MatMul", "MatMul")),
        ("a/MatMul:_MklMatMul", ("a/MatMul", "MatMul")),
        ("a/MatMul:_MklNativeFusedMatMul", ("a/MatMul", "MatMul")),
        ("a/einsum:_MklBatchMatMulV2", ("a/einsum", "BatchMatMulV2")),
        ("a/MatMul:_FusedMatMul", ("a/MatMul", "MatMul")),
        ("a/Relu:_Retval", ("a/Relu", "Retval")),
        ("call", ("", profile.FUSED)),
        ("ExecutorState::Process", None),
        ("tf.matmul", None),
    ],
)
def test_name_of_an_operation(name, parsed):
    assert profile.parse_name(name) == parsed


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
    steps = our_steps(TINY, make_batch(TINY, 2, 32, 4), 0.1, ["graph"])
    profiles = profile.measure_profile(steps, repeats=2)
    by_part, by_operation = profiles.values()
    assert sum(row["forward"] + row["backward"] for row in by_part) == pytest.approx(1)
    assert sum(row["share"] for row in by_operation) == pytest.approx(1)
    # Where XLA fuses a normalization, which depends on the processor, nothing of it has a name.
    assert {part for _, part in profile.PARTS} - {"normalization"} <= {row[""] for row in by_part}
    assert by_operation[-1][""] == "others"
