"""What must hold for any configuration and any batch: no leaks, independent rows, nothing hidden counts."""

import dataclasses
import unittest.mock

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from hypothesis import given
from hypothesis import strategies as st

from tests.generation import test_decoder
from tests.helpers.models import reference
from tests.helpers.models.cases import N_TOKEN, assert_all_close, cases, take_rows
from tests.helpers.profiles import examples
from xlnet_tf.config import XLNetConfig
from xlnet_tf.models import contexts as contexts_lib
from xlnet_tf.models.pretrainer import XLNetPretrainer, target_losses
from xlnet_tf.training.memory import Memory

STREAMS = ["sequence_output", "query_output"]


def known_to(case, row: int, place: int, stream: str) -> np.ndarray:
    """Returns bool [T]: the tokens that may have a say in a stream's output at a place.

    Paper section 2.3: the query stream knows what precedes a target in the factorization order, the content
    stream its own token as well. Tokens that are no targets know their equals in the order; in a query stream
    of full length they hold themselves.
    """
    rank, is_target = case.features["permutation_rank"][row].astype(int), case.is_target[row]
    real = case.features.get("input_mask", np.ones(case.shape))[row]
    known = np.zeros(case.shape[1], bool)
    for other in range(case.shape[1]):
        earlier = rank[other] < rank[place] or (rank[other] == rank[place] and not is_target[place])
        left = case.options["attention_type"] == "bi" or other <= place
        known[other] = earlier and left and real[other]
    known[place] |= stream == "sequence_output" or not is_target[place]
    return known


@examples(9, 1000)
@given(case=cases(rates=(0.0, 0.3), uniform_when_blind=False), stream=st.sampled_from(STREAMS))
def test_nothing_flows_against_the_order(case, stream):
    """An output has no gradient to what it must not know, and no bit of it depends on that.

    That is: the target itself, what comes later in the order, padding, and empty slots of the memory.
    """
    rng, (batch, length) = case.rng, case.shape
    slots, known, known_memory = draw_outputs(case, rng, stream)
    model, features = case.model(), dict(case.features)
    features["input_word_ids"] = np.arange(batch * length, dtype=np.int32).reshape(batch, length)
    if "memory" in features:
        features["memory"] = tf.constant(features["memory"])

    with tf.GradientTape() as tape:
        tape.watch(features.get("memory", []))
        before = tf.gather(case.run(model, features, training=True)[stream], slots, batch_dims=1)
        total = tf.reduce_sum(before**3)
    sources = {"words": model.word_embedding, "memory": features.get("memory", tf.zeros([]))}
    gradients = tape.gradient(total, sources, unconnected_gradients="zero")
    of_words, of_memory = (np.asarray(tf.convert_to_tensor(gradients[name])) for name in ("words", "memory"))
    moved = of_words[: batch * length].any(axis=1).reshape(batch, length)
    assert not moved[~known].any()
    if not (case.options["dropout"] or case.options["attention_dropout"] or case.options["same_length"]):
        np.testing.assert_array_equal(moved, known)
    if "memory" in features:
        assert not of_memory.any(axis=(0, 3))[~known_memory].any()

    others = rng.integers(0, N_TOKEN, [batch, length])
    features["input_word_ids"] = np.where(known, features["input_word_ids"], others)
    if "memory" in features:
        garbage = rng.choice([-1e6, 1e6], features["memory"].shape).astype(np.float32)
        features["memory"] = np.where(known_memory[None, :, :, None], features["memory"], garbage)
    after = tf.gather(case.run(model, features, training=True)[stream], slots, batch_dims=1)
    np.testing.assert_array_equal(before, after)


def draw_outputs(case, rng, stream: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws one output of each row.

    Returns:
        Its index in the stream [B], and what it may know: of the tokens [B, T], and of the memory [B, M].
    """
    batch, length = case.shape
    slots = places = rng.integers(0, length, batch)
    if stream == "query_output" and "target_positions" in case.features:
        positions = case.features["target_positions"]
        slots = rng.integers(0, positions.shape[1], batch)
        places = positions[np.arange(batch), slots]
    memory_slots = case.features["memory"].shape[2] if "memory" in case.features else 0
    known = np.zeros([batch, length], bool)
    known_memory = np.ones([batch, memory_slots], bool) & case.features.get("memory_mask", True)
    for row, place in enumerate(places):
        if place >= 0:
            known[row] = known_to(case, row, place, stream)
        else:  # an empty slot
            known_memory[row] = False
    return slots, known, known_memory


@examples(6, 300)
@given(case=cases(rates=(0.0,)))
def test_rows_are_independent(case):
    """What else is in the batch changes no bit of a row; alone and in another order a row gives the same."""
    rng, (batch, _) = case.rng, case.shape
    model = case.model()
    together = case.run(model)
    row = rng.integers(batch)
    others = take_rows(case.features, rng.integers(0, batch, batch))
    for name, value in case.features.items():
        at_row = (slice(None), row) if name == "memory" else row
        if name != "dropout_seed":
            others[name][at_row] = value[at_row]
    alone = case.run(model, take_rows(case.features, [row]))
    order = rng.permutation(batch)
    reordered = case.run(model, take_rows(case.features, order))
    for name, expected in together.items():
        for one, other, single, moved in zip(
            *map(tf.nest.flatten, (expected, case.run(model, others)[name], alone[name], reordered[name]))
        ):
            axis = 1 if name == "next_memory" else 0
            one, other, single, moved = (
                np.moveaxis(np.asarray(x), axis, 0) for x in (one, other, single, moved)
            )
            np.testing.assert_array_equal(one[row], other[row], err_msg=name)
            np.testing.assert_allclose(single[0].astype(float), one[row], atol=1e-4, err_msg=name)
            np.testing.assert_allclose(moved.astype(float), one[order], atol=1e-4, err_msg=name)


@examples(6, 300)
@given(
    case=cases(
        max_memory=0,
        same_length=False,
        uniform_when_blind=False,
        optional=("input_type_ids", "direction"),
        queries=("positions", "none"),
    )
)
def test_padding_on_either_side_is_irrelevant(case):
    rng, (batch, length) = case.rng, case.shape
    model = case.model()
    features = case.features
    before, behind = rng.integers(0, 4, 2)
    place = slice(before, before + length)
    padded = dict(features)
    for name, value in features.items():
        if value.shape == (batch, length) and name != "target_positions":
            padded[name] = rng.integers(0, 4, [batch, before + length + behind]).astype(value.dtype)
            padded[name][:, place] = value
    padded["input_mask"][:, :before] = padded["input_mask"][:, before + length :] = 0
    if "target_positions" in features:
        positions = features["target_positions"]
        padded["target_positions"] = np.where(positions < 0, -1, positions + before)
    plain, outputs = case.run(model), case.run(model, padded)
    np.testing.assert_allclose(outputs["sequence_output"][:, place], plain["sequence_output"], atol=1e-4)
    if "query_output" in plain:
        np.testing.assert_allclose(outputs["query_output"], plain["query_output"], atol=1e-4)
    if "next_memory_mask" in outputs:
        fresh = padded["input_mask"][:, : case.options["reuse_len"]].astype(bool)
        np.testing.assert_array_equal(outputs["next_memory_mask"], fresh[:, -case.options["memory_len"] :])


@examples(6, 300)
@given(case=cases(max_memory=0, same_length=False, uniform_when_blind=False))
def test_a_reset_row_remembers_nothing(case):
    """A row that starts a stream gives what it gives without a memory, whatever (finite) the memory holds."""
    rng, (batch, _) = case.rng, case.shape
    model = case.model()
    slots = rng.integers(1, 13)
    memory = Memory(case.config.n_layer, batch, slots, case.config.d_model)
    content = rng.normal(size=[case.config.n_layer, batch, slots, case.config.d_model])
    memory.write(tf.constant(content, tf.float32), tf.constant(rng.random([batch, slots]) < 0.8))
    starts = rng.random(batch) < 0.7
    read = memory.read(tf.constant(starts))
    with_memory, without = case.run(model, {**case.features, **read}), case.run(model)
    memory.write(tf.constant(np.where(starts[:, None, None], 1e6, content), tf.float32), read["memory_mask"])
    with_garbage = case.run(model, {**case.features, **memory.read(tf.constant(starts))})
    for name in STREAMS:
        np.testing.assert_allclose(with_memory[name][starts], without[name][starts], atol=1e-4)
        np.testing.assert_array_equal(with_garbage[name], with_memory[name])


@examples(5, 200)
@given(case=cases(queries=("positions",)))
def test_dense_mask_and_full_length_queries_equal_ranks_and_positions(case):
    model, features = case.model(), dict(case.features)
    expected = case.run(model)
    positions, rank = features.pop("target_positions"), features.pop("permutation_rank")
    features["permutation_mask"] = rank[:, None, :] < (rank + 1 - case.is_target)[:, :, None]
    features["target_mask"] = case.is_target
    outputs = case.run(model, features)
    query_output, outputs["query_output"] = outputs["query_output"], expected["query_output"]
    assert_all_close(outputs, expected, atol=1e-5)
    for row, slot in zip(*np.nonzero(positions >= 0)):
        np.testing.assert_allclose(
            query_output[row, positions[row, slot]], expected["query_output"][row, slot], atol=1e-4
        )


@examples(7, 300)
@given(
    case=cases(queries=("positions", "mask", "none"), max_memory=0, order=("permutation", "any", "none")),
    scores=st.sampled_from([1, 20, 1000]),
    query_only=st.booleans(),
)
def test_reading_in_blocks_gives_equal_results(case, scores, query_only):
    features = {name: value for name, value in case.features.items() if name != "direction"}
    model = case.model()
    expected = case.run(model, features, query_only=query_only)
    with unittest.mock.patch.object(contexts_lib, "_SCORES_OF_BLOCK", scores):
        found = case.run(model, features, query_only=query_only, in_blocks=True)
    assert_all_close(found, expected, atol=1e-5)


@examples(5, 300)
@given(case=cases(queries=("none",)), num_outputs=st.integers(1, 4), training=st.booleans())
def test_a_choice_of_output_positions_changes_no_number(case, num_outputs, training):
    """Neither values nor gradients, with memory, padding, segments and directions."""
    (batch, length), model, features = case.shape, case.model(), dict(case.features)
    positions = case.rng.integers(0, length, [batch, num_outputs])
    found = {}
    for chosen in (False, True):
        inputs = {**features, "output_positions": positions} if chosen else features
        with tf.GradientTape() as tape:
            outputs = case.run(model, inputs, training=training)
            vectors = outputs["sequence_output"]
            vectors = vectors if chosen else tf.gather(vectors, positions, batch_dims=1)
            loss = tf.reduce_sum(tf.sin(vectors))
        gradients = tape.gradient(loss, model.trainable_variables, unconnected_gradients="zero")
        assert len(outputs["encoder_outputs"]) == case.config.n_layer - chosen
        memory = {name: value for name, value in outputs.items() if name.startswith("next_memory")}
        found[chosen] = {"vectors": vectors, "gradients": [*map(tf.convert_to_tensor, gradients)], **memory}
    assert_all_close(found[True], found[False], atol=1e-4)
    if not {"memory", "direction"} & set(features):
        blocks = case.run(model, {**features, "output_positions": positions}, in_blocks=True)
        np.testing.assert_allclose(blocks["sequence_output"], vectors, atol=1e-4)


@examples(7, 300)
@given(
    case=cases(order=("permutation", "any", "none"), queries=("positions", "none"), uniform_when_blind=False)
)
def test_equals_the_equations(case):
    """Against a plain numpy implementation of the paper's equations."""
    model = case.model()
    outputs = case.run(model)
    weights = reference.read_weights(model)
    for row in range(case.shape[0]):
        inputs = {
            "rank" if name == "permutation_rank" else name: value[:, row] if name == "memory" else value[row]
            for name, value in case.features.items()
            if name != "dropout_seed"
        }
        content, query, memory = reference.encode(weights, case.config, case.options, inputs)
        np.testing.assert_allclose(outputs["sequence_output"][row], content, atol=1e-4)
        if query is not None:
            np.testing.assert_allclose(outputs["query_output"][row], query, atol=1e-4)
        if "next_memory" in outputs:
            np.testing.assert_allclose(outputs["next_memory"][:, row], memory, atol=1e-4)


@examples(5, 200)
@given(case=cases(initializer_range=0.1, max_memory=700))
def test_bfloat16_is_near_float32(case):
    """The loss of each target; over a long memory, too, whose distances bfloat16 would merge."""
    losses = {}
    for policy in ("float32", "mixed_bfloat16"):
        tf_keras.mixed_precision.set_global_policy(policy)
        try:
            model = XLNetPretrainer(case.model())
            model.build()
            outputs = case.run(model)
            assert outputs["logits"].dtype == tf.float32
            assert all(variable.dtype == tf.float32 for variable in model.variables)
            losses[policy] = target_losses(outputs).numpy()
        finally:
            tf_keras.mixed_precision.set_global_policy("float32")
    np.testing.assert_allclose(losses["mixed_bfloat16"], losses["float32"], atol=0.05)


RANDOM = [
    test_nothing_flows_against_the_order,
    test_rows_are_independent,
    test_reading_in_blocks_gives_equal_results,
    test_equals_the_equations,
    test_decoder.test_any_order_equals_the_uncached_computation,
]


@pytest.mark.parametrize("test", RANDOM, ids=lambda test: test.__name__)
def test_every_field_of_the_architecture_is_drawn(test):
    """A field that is added to XLNetConfig is tried by them all, the reference and the decoder included."""
    drawn = []

    def note(config=None, case=None, **_):
        drawn.append(config or case.config)

    with unittest.mock.patch.object(test.hypothesis, "inner_test", note):
        test()
    for field in dataclasses.fields(XLNetConfig):
        values = {getattr(config, field.name) for config in drawn}
        assert len(values) > 1, f"{field.name} is always {values}: draw it in cases.architectures"
