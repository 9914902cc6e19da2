"""A language model's numbers from the graphs that export wrote for OpenVINO: an Engine without TensorFlow.

generation/functions.py has the graphs. The cache of a text that is being written is numpy's memory, of a
fixed size, which OpenVINO reads where it is; a step returns only what the newest tokens add to it.

Shapes: as in decoder.py; L layers.
"""

from collections.abc import Callable, Mapping

import numpy as np

from xlnet_tf.generation.arrays import decoding
from xlnet_tf.generation.results import Vectors
from xlnet_tf.text.special_tokens import CLS_ID, PAD_ID, SEP_ID

# From the name of a function, and those of the wanted outputs, to the function of arrays by name.
Compile = Callable[[str, tuple[str, ...]], Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]]

LONGEST = 4_096  # tokens: attention needs memory for the square of them
_BLOCK = 512  # rows of logits computed at a time: with 32,000 pieces, 64 MB


class OpenVinoEngine:
    """An Engine; `compile` makes the version's graphs, `left_to_right` is whether attention is."""

    longest = LONGEST

    def __init__(
        self, compile: Compile, *, n_layer: int, d_model: int, vocab_size: int, left_to_right: bool = False
    ):
        self.n_layer, self.d_model, self.vocab_size = n_layer, d_model, vocab_size
        self._left_to_right = left_to_right
        self._compile = compile
        self._compiled: dict[tuple[str, ...], Callable] = {}
        self._table = 0, np.zeros([1, 1, 0, 1], np.float32)  # the length of texts that it is for

    def embed(self, ids, mask, type_ids, layer):
        name = f"layer_{layer % self.n_layer}"
        features = {"ids": ids, "mask": mask, "type_ids": type_ids}
        tokens = self._run("vectors", features, (name,), table=ids.shape[1])[name]
        tokens[mask == 0] = 0
        is_text = (mask != 0) & (ids != SEP_ID) & (ids != CLS_ID)
        weights = is_text / np.maximum(is_text.sum(axis=1, keepdims=True), 1).astype(np.float32)
        last = mask.shape[1] - 1 - np.argmax(mask[:, ::-1] != 0, axis=1)
        mean = np.einsum("btd,bt->bd", tokens, weights.astype(np.float32))
        return Vectors(mean, tokens[np.arange(len(ids)), last], tokens)

    def score(self, ids, mask, is_scored, ranks):
        is_text = (mask != 0) & (ids != SEP_ID) & (ids != CLS_ID)
        ranks = np.where(is_scored, ranks + 1, np.where(is_text, 0, ids.shape[1] + 1))
        queries = self._queries(ids, ranks, is_scored)[is_scored]
        pieces, log_probs = ids[is_scored], np.zeros(ids.shape, np.float32)
        picked = [
            self._run("score_head", {"rows": queries[begin:][:_BLOCK], "ids": pieces[begin:][:_BLOCK]})
            for begin in range(0, len(pieces), _BLOCK)
        ]
        if picked:
            log_probs[is_scored] = np.concatenate([part["log_probs"] for part in picked])
        return log_probs

    def sample(self, ids, lengths, new_tokens, settings, stop_ids, rules):
        ids, is_context, order = _continuation(ids, lengths, new_tokens)
        decoder, log_probs = self._start(ids, is_context, order, order[:, :1], 1, forward=True)
        change = decoding.keep_rules(ids, is_context, rules)
        return decoding.sample(decoder, order, log_probs[:, 0], settings, stop_ids, change)

    def search(self, ids, lengths, new_tokens, beams, stop_ids, rules):
        ids, is_context, order = _continuation(ids, lengths, new_tokens)
        decoder, log_probs = self._start(ids, is_context, order, order[:, :1], beams, forward=True)
        change = decoding.keep_rules(ids, is_context, rules)
        return decoding.write(decoder, order, log_probs[:, 0], decoding.best_continuations, stop_ids, change)

    def fill_jointly(self, ids, is_context, order, top_k):
        decoder, apart = self._start(ids, is_context, order, order, top_k)
        nothing = np.zeros(0, np.int32)
        fills = decoding.write(decoder, order, apart[:, 0], decoding.best_continuations, nothing)
        by_gap = fills.tokens.transpose(0, 2, 1)  # [B, G, C]
        fills_apart = np.take_along_axis(apart, by_gap, axis=2).transpose(0, 2, 1)
        jointly = self._reread(ids, is_context, order, fills.tokens[:, 0])
        return decoding.Filled(
            fills=fills,
            apart=np.where(order[:, None] >= 0, fills_apart, np.float32(0)),
            guesses=decoding.Guesses.best(jointly, order, top_k),
            guesses_apart=decoding.Guesses.best(apart, order, top_k),
        )

    def infill(self, ids, is_context, order, settings, easiest_first):
        if easiest_first:
            decoder, log_probs = self._start(ids, is_context, order, order, 1)
            return decoding.fill_easiest_first(decoder, order, log_probs, settings)
        decoder, log_probs = self._start(ids, is_context, order, order[:, :1], 1)
        nothing = np.zeros(0, np.int32)
        return decoding.sample(decoder, order, log_probs[:, 0], settings, nothing), order

    def _start(
        self, ids, is_context, order, targets, candidates: int, forward: bool = False
    ) -> tuple["_CachedDecoder", np.ndarray]:
        """Reads the context; returns a decoder and the log-probabilities of the targets, [B, P, V]."""
        features = {"ids": ids, "ranks": np.where(is_context, 0, 1), "targets": targets}
        started = self._run("start", features, table=ids.shape[1])
        length = ids.shape[1] + order.shape[1] * forward
        ahead = 0 if forward or self._left_to_right else length - 1
        log_probs = self._writable(started.pop("queries"))
        keys = self._position_keys(length, ahead)
        known = {f"position_keys_{layer}": layer_keys for layer, layer_keys in enumerate(keys)}
        known |= {"length": np.array(length, np.int32), "position_keys": keys}  # the latter: earlier exports
        room = candidates * (order.shape[1] - 1)  # nothing follows the last token
        return _CachedDecoder(self._get("step"), known, started, is_context, candidates, room), log_probs

    def _reread(self, ids, is_context, order, tokens) -> np.ndarray:
        """Predicts tokens [B, G] of filled gaps again, each after those before it: [B, G, V]."""
        filled, ranks = ids.copy(), np.where(is_context, 0, order.shape[1] + 1)
        rows, steps = np.nonzero(order >= 0)
        positions = order[rows, steps]
        filled[rows, positions], ranks[rows, positions] = tokens[rows, steps], steps + 1
        queries = self._queries(filled, ranks, ids != np.where(is_context, ids, -1))
        return self._writable(np.take_along_axis(queries, np.maximum(order, 0)[:, :, None], axis=1))

    def _queries(self, ids, ranks, is_target) -> np.ndarray:
        features = {"ids": ids, "ranks": ranks, "is_target": is_target}
        return self._run("query_vectors", features, table=ids.shape[1])["queries"]

    def _writable(self, queries: np.ndarray) -> np.ndarray:
        """Returns the log-probabilities [B, P, V] of queries [B, P, D]."""
        rows = queries.reshape(-1, self.d_model)
        return self._run("write_head", {"rows": rows})["log_probs"].reshape(*queries.shape[:2], -1)

    def _run(
        self, name: str, inputs: Mapping[str, np.ndarray], outputs: tuple[str, ...] = (), table: int = 0
    ) -> dict[str, np.ndarray]:
        """Computes a function; those that read texts of `table` tokens get the distances in them."""
        features = {key: value if key == "rows" else value.astype(np.int32) for key, value in inputs.items()}
        if table:
            features["position_keys"] = self._distances(table)
        return self._get(name, outputs)(features)

    def _get(self, name: str, outputs: tuple[str, ...] = ()):
        key = (name, *outputs)
        if key not in self._compiled:
            self._compiled[key] = self._compile(name, outputs)
        return self._compiled[key]

    def _distances(self, length: int) -> np.ndarray:
        """Returns a table of projected distances for texts of this length or more, which is kept."""
        known, table = self._table  # both at once: other threads may replace them
        if length > known:
            known = max(128, 1 << (length - 1).bit_length())
            table = self._position_keys(known, 0 if self._left_to_right else known - 1)
            self._table = known, table
        return table

    def _position_keys(self, length: int, ahead: int) -> np.ndarray:
        lengths = {"length": np.array(length), "ahead": np.array(ahead)}
        return self._run("position_keys", lengths)["position_keys"]


class _CachedDecoder:
    """A decoding.Decoder of the step's graph and the cache, with `room` slots for what will be written.

    `known` are inputs that are always the same, `heads` keys and values of the context by the names of the
    step's inputs, `is_context` [B, T] which of them are seen.
    """

    def __init__(self, step, known, heads, is_context: np.ndarray, candidates: int, room: int):
        self.candidates = candidates
        self._step = step
        batch, self._used = is_context.shape
        self._slots = self._used + room
        self._caches = {}
        for name, values in heads.items():
            self._caches[name] = np.pad(values, [[0, 0], [0, 0], [0, room], [0, 0]])
        # After the slots come the tokens of the step, each seen by its candidate.
        self._visible = np.zeros([batch, candidates, self._slots + candidates], np.int32)
        self._visible[:, :, : self._used] = is_context[:, None]
        self._visible[:, :, self._slots :] = np.eye(candidates, dtype=np.int32)
        self._positions = np.zeros([batch, self._slots + candidates], np.int32)
        self._positions[:, : self._used] = np.arange(self._used)
        slots = {"slot_positions": self._positions, "visible": self._visible}
        self._inputs = {**known, **self._caches, **slots}

    def step(self, tokens, positions, targets):
        self._positions[:, self._slots :] = positions
        given = {"tokens": tokens, "positions": positions, "targets": targets}
        found = self._step(
            {**self._inputs, **{name: value.astype(np.int32) for name, value in given.items()}}
        )
        begin, end = self._used, self._used + self.candidates
        if end <= self._slots:
            for name, cache in self._caches.items():
                cache[:, :, begin:end] = found[f"new_{name}"]
            self._positions[:, begin:end] = positions
            self._visible[:, :, begin:end] = self._visible[:, :, self._slots :]
            self._used = end
        return found["log_probs"]

    def follow(self, parents):
        slots = np.take_along_axis(self._visible[:, :, : self._slots], parents[:, :, None], axis=1)
        self._visible[:, :, : self._slots] = slots


def _continuation(ids, lengths, new_tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lays out texts that continue prompts, as layout.continuation: ids, is_context and order."""
    # One column more, where the longest prompt's first token goes.
    ids = np.pad(ids, [[0, 0], [0, 1]], constant_values=PAD_ID)
    is_context = np.arange(ids.shape[1]) < lengths[:, None]
    return ids, is_context, lengths[:, None] + np.arange(new_tokens)
