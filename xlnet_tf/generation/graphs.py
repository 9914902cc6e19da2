"""TensorFlow's graphs of a model, each traced once for all shapes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from xlnet_tf.generation import decoding_loop, scoring
from xlnet_tf.generation.embedding import embed
from xlnet_tf.generation.infilling import fill_easiest_first, fill_jointly
from xlnet_tf.generation.layout import AT_ONCE, continuation, infilling
from xlnet_tf.generation.settings import LONGEST
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer


class Graphs:
    """Runs functions of a model: graph(function, *inputs, **static) is function(model, *inputs, **static)."""

    def __init__(self, model: tf.Module):
        self._model = model
        self._graphs: dict[Any, Callable] = {}

    def __call__(self, function: Callable, *inputs, **static):
        """Returns a function's results as arrays; for long texts there is a graph that reads in blocks.

        The first of the inputs are the ids [B, T].
        """
        inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
        static["in_blocks"] = inputs[0].shape[1] > AT_ONCE
        key = (function, *static.items())
        if key not in self._graphs:
            specs = tf.nest.map_structure(
                lambda value: tf.TensorSpec([None] * value.shape.rank, value.dtype), inputs
            )
            self._graphs[key] = tf.function(
                lambda *inputs: function(self._model, *inputs, **static), specs, autograph=False
            )
        return tf.nest.map_structure(lambda value: value.numpy(), self._graphs[key](*inputs))


class EncoderGraphs:
    """An arrays.engine.EncoderEngine."""

    longest = LONGEST

    def __init__(self, encoder: XLNetEncoder):
        self.n_layer, self.d_model = encoder.config.n_layer, encoder.config.d_model
        self._read = Graphs(encoder)

    def embed(self, ids, mask, type_ids, layer):
        return self._read(_embed, ids, mask, type_ids, layer=layer)


class LanguageModelGraphs(EncoderGraphs):
    """An arrays.engine.Engine."""

    def __init__(self, model: XLNetPretrainer):
        if not model.built:  # a new one, with random weights
            model.build()
        super().__init__(model.encoder)
        self.vocab_size = model.encoder.config.n_token
        self._run = Graphs(model)

    def sample(self, ids, lengths, new_tokens, settings, stop_ids, rules):
        return self._run(_sample, ids, lengths, np.int32(new_tokens), settings, stop_ids, rules)

    def search(self, ids, lengths, new_tokens, beams, stop_ids, rules):
        return self._run(_search, ids, lengths, np.int32(new_tokens), stop_ids, rules, beams=beams)

    def fill_jointly(self, ids, is_context, order, top_k):
        return self._run(_fill_jointly, ids, is_context, order, top_k=top_k)

    def infill(self, ids, is_context, order, settings, easiest_first):
        return self._run(_infill, ids, is_context, order, settings, easiest_first=easiest_first)

    def score(self, ids, mask, is_scored, ranks):
        return self._run(_score, ids, mask, is_scored, ranks)


def _embed(encoder, ids, mask, type_ids, *, layer, in_blocks):
    features = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": type_ids}
    return embed(encoder, features, layer, in_blocks)


def _score(model, ids, mask, is_scored, ranks, *, in_blocks):
    features = {"input_word_ids": ids, "input_mask": mask}
    return scoring.token_log_probabilities(model, features, is_scored, ranks, in_blocks)


def _sample(model, ids, lengths, most, settings, stop_ids, rules, *, in_blocks):
    layout = continuation(ids, lengths, tf.fill(tf.shape(lengths), most), most)
    return decoding_loop.sample(model, layout._replace(in_blocks=in_blocks), settings, stop_ids, rules=rules)


def _search(model, ids, lengths, most, stop_ids, rules, *, beams, in_blocks):
    layout = continuation(ids, lengths, tf.fill(tf.shape(lengths), most), most)
    return decoding_loop.search(model, layout._replace(in_blocks=in_blocks), beams, stop_ids, rules=rules)


def _fill_jointly(model, ids, is_context, order, *, top_k, in_blocks):
    layout = infilling(ids, is_context, order)._replace(in_blocks=in_blocks)
    return fill_jointly(model, layout, beams=top_k, guesses=top_k)


def _infill(model, ids, is_context, order, settings, *, easiest_first, in_blocks):
    """Returns what was written, and in which order."""
    layout = infilling(ids, is_context, order)._replace(in_blocks=in_blocks)
    if easiest_first:
        return fill_easiest_first(model, layout, settings)
    return decoding_loop.sample(model, layout, settings), order
