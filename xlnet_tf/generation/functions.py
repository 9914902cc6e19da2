"""A language model's functions of numbers, as graphs for a runtime without TensorFlow.

What they are together: generation/arrays/openvino.py, which calls them.

Shapes: as in decoder.py; L layers.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import tensorflow as tf

from xlnet_tf.generation.cached_layer import shape_of
from xlnet_tf.generation.decoder import Cache, DecodingStep, check_decodes, read_context
from xlnet_tf.generation.sampling import log_probabilities
from xlnet_tf.layers import kernels as kernels_lib
from xlnet_tf.layers.positions import RelativePositions
from xlnet_tf.models.pretrainer import XLNetPretrainer

Function = Callable[..., dict[str, tf.Tensor]]


class NamedFunction(NamedTuple):
    """A function from tensors by name to tensors by name, and the specs of its inputs."""

    function: Function
    specs: Mapping[str, tf.TensorSpec]


def functions_of(model: XLNetPretrainer) -> Iterator[tuple[str, NamedFunction]]:
    """Yields the functions of a model by name; to be traced with the kernels that are current then."""
    check_decodes(model.encoder)
    config = model.encoder.config
    table = {"position_keys": _floats(config.n_layer, config.n_head, None, config.d_head)}
    ids = _ints(None, None)
    rows = {"rows": _floats(None, config.d_model)}
    for function, specs in (
        (_position_keys, {"length": _ints(), "ahead": _ints()}),
        (_vectors, {"ids": ids, "mask": ids, "type_ids": ids, **table}),
        (_query_vectors, {"ids": ids, "ranks": ids, "is_target": ids, **table}),
        (_score_head, {**rows, "ids": _ints(None)}),
        (_write_head, rows),
        (_start, {"ids": ids, "ranks": ids, "targets": ids, **table}),
        (_step, _step_specs(model)),
    ):
        name = function.__name__.lstrip("_")
        yield name, NamedFunction(_bound(function, model), specs)


def _bound(function: Callable[..., dict[str, tf.Tensor]], model: XLNetPretrainer) -> Function:
    return lambda **inputs: function(model, **inputs)


def _position_keys(model, length, ahead):
    """Projects the distances in a text of `length` tokens, `ahead` of them beyond a query, for all layers."""
    encoder = model.encoder
    positions = RelativePositions.of_step(encoder.config.d_model, length, length, "bi", encoder.clamp_len)
    positions = positions._replace(ahead=ahead)
    kernels = kernels_lib.current(training=False)
    keys = [
        kernels.project_positions(positions, block.attention.position_kernel, encoder.compute_dtype)
        for block in encoder.blocks
    ]
    return {"position_keys": tf.cast(tf.concat(keys, axis=0), tf.float32)}


def _vectors(model, ids, mask, type_ids, position_keys):
    """Reads texts with the content stream alone: the output of each layer, [B, T, D]."""
    features = {
        "input_word_ids": ids,
        "input_mask": mask,
        "input_type_ids": type_ids,
        "position_keys": position_keys,
    }
    layers = model.encoder(features, training=False)["encoder_outputs"]
    return {f"layer_{number}": tf.cast(layer, tf.float32) for number, layer in enumerate(layers)}


def _query_vectors(model, ids, ranks, is_target, position_keys):
    """Predicts the targets [B, T] from what has lower ranks: the query stream [B, T, D]."""
    features = {
        "input_word_ids": ids,
        "permutation_rank": ranks,
        "target_mask": is_target,
        "position_keys": position_keys,
    }
    encoded = model.encoder(features, training=False, query_only=True)
    return {"queries": tf.cast(encoded["query_output"], tf.float32)}


def _score_head(model, rows, ids):
    """Returns the log-probabilities of pieces [S] among all pieces, from queries [S, D]."""
    log_probs = tf.nn.log_softmax(_logits(model, rows))
    return {"log_probs": tf.gather(log_probs, ids, batch_dims=1)}


def _write_head(model, rows):
    """Returns the log-probabilities [S, V] of the pieces that can be written, from queries [S, D]."""
    return {"log_probs": log_probabilities(_logits(model, rows))}


def _logits(model, rows):
    return model.logits(tf.cast(rows, model.encoder.compute_dtype)[None])[0]


def _start(model, ids, ranks, targets, position_keys):
    """Reads the context, of rank 0: the query stream of the targets [B, P], and what a cache keeps."""
    features = {
        "input_word_ids": ids,
        "permutation_rank": ranks,
        "target_positions": targets,
        "position_keys": position_keys,
    }
    queries, keys, values = read_context(model, features, kernels_lib.current(training=False))
    return {"queries": tf.cast(queries, tf.float32), **_by_layer("keys", keys), **_by_layer("values", values)}


def _step_specs(model: XLNetPretrainer) -> dict[str, tf.TensorSpec]:
    config = model.encoder.config
    ids, layers = _ints(None, None), range(config.n_layer)
    return {
        "tokens": ids,
        "positions": ids,
        "targets": _ints(None, None, None),
        "slot_positions": ids,
        "visible": _ints(None, None, None),
        "length": _ints(),
        # Each layer's by itself: a slice of a table would be a copy in each step.
        **{f"position_keys_{layer}": _floats(config.n_head, None, config.d_head) for layer in layers},
        **{
            f"{name}_{layer}": _floats(None, config.n_head, None, config.d_head)
            for name in ("keys", "values")
            for layer in layers
        },
    }


def _step(model, tokens, positions, targets, slot_positions, visible, length, **by_layer):
    """Computes a DecodingStep; returns the keys and values of the tokens [B, C], which the caller puts in.

    slot_positions [B, S + C] and visible [B, C, S + C], 1 or 0, have room for these tokens after the S slots.
    """
    layers = range(model.encoder.config.n_layer)
    table = [tf.cast(by_layer[f"position_keys_{layer}"], model.encoder.compute_dtype) for layer in layers]
    fresh = []

    def append(slots, new, slot, axis):
        del slot
        # OpenVINO multiplies by keys as they are, [B, N, S, H], where transposing them back costs nothing.
        turned = tf.linalg.matrix_transpose if axis == 3 else tf.identity
        fresh.append(turned(new))
        return turned(tf.concat([tf.cast(slots, new.dtype), fresh[-1]], axis=2))

    step = DecodingStep(model, [RelativePositions(keys=keys) for keys in table], length, append)
    cache = Cache(
        keys=tuple(by_layer[f"keys_{layer}"] for layer in layers),
        values=tuple(by_layer[f"values_{layer}"] for layer in layers),
        positions=slot_positions,
        visible=tf.cast(visible, tf.bool),
        used=shape_of(slot_positions)[1] - shape_of(tokens)[1],
    )
    logits, _ = step(cache, tokens, positions, targets)
    return {
        "log_probs": log_probabilities(logits),
        **_by_layer("new_keys", fresh[::2]),
        **_by_layer("new_values", fresh[1::2]),
    }


def _by_layer(name: str, tensors) -> dict[str, tf.Tensor]:
    return {f"{name}_{layer}": tf.cast(tensor, tf.float32) for layer, tensor in enumerate(tensors)}


def _ints(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.int32)


def _floats(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.float32)
