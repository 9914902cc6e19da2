"""Every kernel gives the values and gradients of the reference, for random shapes and options."""

import importlib
import pkgutil

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.profiles import examples
from xlnet_tf.layers import kernels as package
from xlnet_tf.layers.attention import AttentionWeights, attend
from xlnet_tf.layers.base import NormWeights
from xlnet_tf.layers.block import ACTIVATIONS
from xlnet_tf.layers.kernels import Kernels, position_shift
from xlnet_tf.layers.kernels.graph import GraphKernels
from xlnet_tf.layers.kernels.reference import ReferenceKernels
from xlnet_tf.layers.kernels.tpu import TpuKernels
from xlnet_tf.layers.masks import AttentionContext, attention_bias

SEED = tf.constant([3, 11])


def fast_kernels() -> dict[str, ReferenceKernels]:
    """Returns the kernels of every class of the package but the reference, for training and for serving."""
    classes = {}
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and hasattr(value, "combine_scores"):
                classes[name.removesuffix("Kernels")] = value
    assert classes.pop("Reference") is ReferenceKernels
    return {
        f"{name}, {'training' if training else 'serving'}": classes[name](training)
        for name in sorted(classes)
        for training in (True, False)
    }


FAST = fast_kernels()
DTYPES = [
    pytest.param(dtype, marks=[pytest.mark.integration] * (dtype == tf.bfloat16), id=dtype.name)
    for dtype in (tf.float32, tf.bfloat16)
]


class ReferenceWithMasksOf(ReferenceKernels):
    """The reference, with the dropout masks of other kernels, which draw their own."""

    def __init__(self, kernels):
        self.keep_mask = kernels.keep_mask


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(position_shift, "_BLOCK", 4)


@st.composite
def attention_cases(draw):
    query_len = draw(st.sampled_from([1, 3, 4, 8, 12]))
    targets = draw(st.none() | st.integers(1, 5))
    return {
        "batch": draw(st.integers(1, 3)),
        "query_len": query_len,
        "memory_len": draw(st.sampled_from([0, 0, 4, 5])),
        "heads": draw(st.integers(1, 3)),
        "width": draw(st.integers(1, 4)),
        "half_model": draw(st.integers(1, 4)),
        "targets": targets,
        "attention_type": draw(st.sampled_from(["bi", "bi", "uni"])),
        "clamp_len": draw(st.sampled_from([-1, -1, 2])),
        "directions": draw(st.booleans()),
        "segments": draw(st.booleans()),
        "masked": draw(st.booleans()),
        "rate": draw(st.sampled_from([0.0, 0.4])),
        "position_rate": draw(st.sampled_from([0.0, 0.0, 0.4])),
        "number": draw(st.integers(0, 2**31)),
    }


def attention_inputs(case, dtype):
    rng = np.random.default_rng(case["number"])
    batch, heads, width, d_model = case["batch"], case["heads"], case["width"], 2 * case["half_model"]
    query_len, key_len = case["query_len"], case["query_len"] + case["memory_len"]
    rows = case["targets"] or query_len

    def normal(*shape):
        return tf.constant(rng.normal(size=shape).astype(np.float32))

    tensors = {
        "stream": tf.cast(normal(batch, rows, d_model), dtype),
        "source": tf.cast(normal(batch, key_len, d_model), dtype),
        "kernels": normal(5, d_model, heads, width) * d_model**-0.5,  # keeps scores about 1
        "biases": normal(3, heads, width),
        "segment_embedding": normal(2, heads, width),
    }
    visible = rng.random([batch, rows, key_len]) < 0.7
    visible[..., 0] = True  # what is blind depends on rounding alone
    # A query left to right has no encoding of keys ahead of it.
    positions = np.arange(query_len)
    if case["targets"]:
        positions = rng.integers(0, query_len, [batch, rows])
    if case["attention_type"] == "uni":
        distances = case["memory_len"] + np.reshape(positions, [-1, rows])[..., None] - np.arange(key_len)
        visible &= distances >= 0
    masked = case["masked"] or case["attention_type"] == "uni"
    mismatch = (rng.random([batch, rows, key_len]) < 0.5).astype(np.float32)
    context = AttentionContext(
        query_len,
        key_len,
        bias=attention_bias(tf.constant(visible))[:, None] if masked else None,
        segment_mismatch=tf.constant(mismatch)[:, None] if case["segments"] else None,
        positions=tf.constant(positions, tf.int32) if case["targets"] else None,
        query_mask=tf.constant(rng.random([batch, 1, rows, 1]) < 0.9),
    )
    direction = tf.constant(rng.choice([-1.0, 1.0], batch), tf.float32) if case["directions"] else None
    return tensors, context, direction, normal(batch, rows, d_model)


def attention_and_gradients(kernels, case, tensors, context, direction, upstream):
    """Returns one stream's attention, and the gradients of all that it comes from, in float32."""
    names = list(tensors)
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        weights = AttentionWeights(
            *tf.unstack(tensors["kernels"]), *tf.unstack(tensors["biases"]), tensors["segment_embedding"]
        )
        positions = kernels.encode_positions(
            tensors["stream"].shape[2],
            context.query_len,
            context.key_len,
            attention_type=case["attention_type"],
            clamp_len=case["clamp_len"],
            direction=direction,
            rate=case["position_rate"],
            seed=SEED,
        )
        keys = kernels.project_heads(tensors["source"], weights.key)
        values = kernels.project_heads(tensors["source"], weights.value)
        position_keys = kernels.project_positions(positions, weights.position, keys.dtype)
        context = kernels.with_positions(context, positions)
        stream = tensors["stream"]
        result = attend(weights, stream, keys, values, position_keys, context, kernels, case["rate"], SEED)
    gradients = tape.gradient(result, tensors, tf.cast(upstream, result.dtype))
    assert result.dtype == stream.dtype
    return [
        tf.cast(tensor, tf.float32)
        for tensor in (result, *(gradients[name] for name in names))
        if tensor is not None
    ]


def close(found, expected, dtype):
    """Compares arrays, by the largest value of all: where gradients cancel, rounding is what is left."""
    largest = max(1.0, *(np.abs(wanted).max() for wanted in expected))
    tolerance = largest * (1e-5 if dtype == tf.float32 else 0.08)
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=tolerance)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("name", FAST)
@given(case=attention_cases())
@examples(4, 300)
def test_attention(name, dtype, case):
    kernels = FAST[name]
    if isinstance(kernels, TpuKernels) and case["clamp_len"] < 0:
        case["position_rate"] = 0.0  # rotated positions drop a dimension for all distances alike
    inputs = attention_inputs(case, dtype)
    expected = attention_and_gradients(ReferenceWithMasksOf(kernels), case, *inputs)
    found = tf.function(lambda: attention_and_gradients(kernels, case, *inputs), autograph=False)()
    close(found, expected, dtype)


@pytest.fixture
def rounded_products(monkeypatch):
    """Rounds products of bfloat16 as devices do; on a CPU without it TensorFlow cuts them towards zero."""
    matmul = tf.matmul

    def rounded(a, b, **options):
        wide = matmul(tf.cast(a, tf.float32), tf.cast(b, tf.float32), **options)
        return tf.cast(wide, a.dtype)

    monkeypatch.setattr(tf, "matmul", rounded)
    monkeypatch.setattr(GraphKernels, "_product", staticmethod(rounded))


@pytest.mark.usefixtures("rounded_products")
@pytest.mark.parametrize("name", [name for name in FAST if name.endswith("training")])
def test_what_tokens_have_in_common_has_no_gradient_in_bfloat16(name):
    """A softmax takes out of its gradient what all keys share; rounding must not put it back."""
    case = {"batch": 4, "query_len": 64, "memory_len": 0, "heads": 2, "width": 16, "half_model": 16,
            "targets": None, "attention_type": "bi", "clamp_len": -1, "directions": False, "segments": True,
            "masked": False, "rate": 0.0, "position_rate": 0.0, "number": 5}  # fmt: skip
    tensors, *others = attention_inputs(case, tf.float32)
    common = tensors["source"][:1, :1]
    tensors |= {part: common + 0.2 * tensors[part] for part in ("stream", "source")}
    narrow = {part: tf.cast(tensors[part], tf.bfloat16) for part in ("stream", "source")}

    def gradients(kernels, tensors):
        _, _, _, weights, biases, segment_embedding = attention_and_gradients(kernels, case, tensors, *others)
        return [weights[0], weights[3], *tf.unstack(biases), segment_embedding]  # of queries and positions

    expected = gradients(ReferenceKernels(), tensors)
    found = tf.function(gradients, autograph=False)(FAST[name], tensors | narrow)
    errors = [float(tf.norm(f - e) / tf.norm(e)) for f, e in zip(found, expected)]
    assert max(errors) < 0.04, errors  # 0.34 with a row's sum of rounded numbers; the reference's 0.015


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAST)
@given(sizes=st.tuples(*[st.integers(1, 4)] * 6), number=st.integers(0, 2**31))
@examples(3, 100)
def test_scores_of_keys_in_no_order(name, dtype, sizes, number):
    """In decoding, each pair of query and key has its own entry among the distances."""
    rng = np.random.default_rng(number)
    batch, heads, queries, keys, distances, width = sizes
    rows = tf.cast(rng.normal(size=[batch, heads, queries, width]), dtype)
    position_keys = tf.cast(rng.normal(size=[1, heads, distances, width]), dtype)
    entries = tf.constant(rng.integers(0, distances, [batch, queries, keys]), tf.int32)
    context = AttentionContext(query_len=9, key_len=keys, distance_entries=entries)
    expected = ReferenceKernels().position_scores(rows, position_keys, context)
    specs = [tf.TensorSpec([None, heads, None, width], dtype), tf.TensorSpec([1, heads, None, width], dtype)]

    @tf.function(input_signature=[*specs, tf.TensorSpec([None, None, None], tf.int32)], autograph=False)
    def found(rows, position_keys, entries):
        return FAST[name].position_scores(
            rows, position_keys, context._replace(key_len=tf.shape(entries)[2], distance_entries=entries)
        )

    scores = [tf.cast(found(rows, position_keys, entries), tf.float32)]
    close(scores, [tf.cast(expected, tf.float32)], dtype)


def feed_forward(kernels, rows, weights, bias, activation: str, rate: float):
    hidden = kernels.dense(kernels.dropout(rows, rate, SEED), weights, bias)
    hidden = kernels.activate(hidden, ACTIVATIONS[activation], rate, SEED)
    return kernels.matmul(hidden, weights, transpose_b=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAST)
@given(
    sizes=st.tuples(*[st.integers(1, 9)] * 3),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    rate=st.sampled_from([0.0, 0.3]),
    number=st.integers(0, 2**31),
)
@examples(3, 100)
def test_feed_forward_operations(name, dtype, sizes, activation, rate, number):
    rng = np.random.default_rng(number)
    row_count, width, inner = sizes
    rows, upstream = (tf.cast(rng.normal(size=[row_count, width]), dtype) for _ in range(2))
    weights = tf.constant(rng.normal(size=[width, inner]).astype(np.float32))
    bias = tf.constant(rng.normal(size=[inner]).astype(np.float32))

    def results(kernels):
        with tf.GradientTape() as tape:
            tape.watch([rows, weights, bias])
            result = feed_forward(kernels, rows, weights, bias, activation, rate)
        gradients = tape.gradient(result, [rows, weights, bias], upstream)
        return [tf.cast(tensor, tf.float32) for tensor in (result, *gradients)]

    kernels = FAST[name]
    close(
        tf.function(lambda: results(kernels), autograph=False)(),
        results(ReferenceWithMasksOf(kernels)),
        dtype,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAST)
@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(3, 20)), number=st.integers(0, 2**31)
)
@examples(2, 100)
def test_normalized_sums(name, dtype, sizes, number):
    rng = np.random.default_rng(number)
    a, b, upstream = (tf.cast(rng.normal(size=sizes), dtype) for _ in range(3))
    norm = NormWeights(*(tf.Variable(rng.normal(size=sizes[-1:]), dtype=tf.float32) for _ in range(2)))

    def results(kernels):
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            result = kernels.normalize_sum(a, b, norm)
        assert result.dtype == dtype
        gradients = tape.gradient(result, [a, b, *norm], upstream)
        return [tf.cast(tensor, tf.float32) for tensor in (result, *gradients)]

    kernels = FAST[name]
    close(tf.function(lambda: results(kernels), autograph=False)(), results(ReferenceKernels()), dtype)


class Recorder:
    """Kernels that note which operations were asked for."""

    def __init__(self, kernels):
        self.kernels, self.called = kernels, set()

    def __getattr__(self, name):
        self.called.add(name)
        return getattr(self.kernels, name)


def test_every_operation_is_compared():
    """But keep_mask, which is random: test_dropout_mask.py has its distribution.

    test_normalized_sums compares normalize_sum.
    """
    recorder = Recorder(ReferenceKernels())
    case = {"batch": 2, "query_len": 3, "memory_len": 0, "heads": 1, "width": 2, "half_model": 2,
            "targets": 2, "attention_type": "bi", "clamp_len": -1, "directions": True, "segments": True,
            "masked": True, "rate": 0.4, "position_rate": 0.4, "number": 0}  # fmt: skip
    attention_and_gradients(recorder, case, *attention_inputs(case, tf.float32))
    feed_forward(recorder, tf.ones([2, 3]), tf.ones([3, 4]), tf.ones([4]), "gelu", 0.3)
    operations = {name for name in vars(Kernels) if not name.startswith("_")}
    assert recorder.called == operations - {"keep_mask", "normalize_sum"}
