"""Computes what the page shows of a language model for one text, as JSON values.

These are gaps as they are filled, probabilities, masks and attention.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from xlnet_tf.errors import UserError, short_json
from xlnet_tf.generation import gap_parsing, scoring
from xlnet_tf.generation.arrays.gaps import check_gaps
from xlnet_tf.generation.arrays.openvino import OpenVinoEngine
from xlnet_tf.generation.infilling import fill_stepwise
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.layers.masks import permutation_visible
from xlnet_tf.models.attention_maps import attention_maps
from xlnet_tf.text.graph.tokenizer import GraphTokenizer
from xlnet_tf.text.inputs import check_text
from xlnet_tf.text.special_tokens import EOP_ID

MOST_CHARACTERS = 4000
MOST_PIECES = 256
MOST_GAPS = 16
MOST_IN_MASKS = 48  # pieces of a text whose masks and attention are drawn
_CANDIDATES = 5  # of a gap, the likeliest at any step
_MOST_CANDIDATES = 8  # of those, the ones that ever were likeliest
_DIGITS = 5


class Explainer:
    """Answers the page's questions about a language model."""

    def __init__(self, model: XLNetLanguageModel, name: str):
        if isinstance(model.model, OpenVinoEngine):
            raise UserError(
                f"{name} is exported for OpenVINO, whose graphs show no attention: give the weights that were"
                " exported"
            )
        self._model = model.model
        self._tokenizer = model.tokenizer
        self._gaps = GraphTokenizer(model.tokenizer)
        self._name = name

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {piece: number for piece, number in self._tokenizer.get_vocab().items() if number >= EOP_ID}

    def about(self) -> dict[str, Any]:
        """Describes the model and the limits on texts."""
        config = self._model.encoder.config
        limits = {"pieces": MOST_PIECES, "gaps": MOST_GAPS, "in_masks": MOST_IN_MASKS}
        return {"name": self._name, "layers": config.n_layer, "heads": config.n_head, "limits": limits}

    def fill(self, text: str, order: Sequence[int] | None = None, choices: Sequence[str] = ()) -> dict:
        """Predicts all gaps of a text, after each of the gaps that `choices` fill, in `order`.

        Returns:
            tokens: the text's tokens, each the number of a gap or a piece.
            order: gap numbers in the order of filling.
            filled: for each choice its piece, its probability given the earlier ones, and alone.
            gaps: for each gap its candidates, each with its piece and its probabilities at each step.
        """
        _check_text(text)
        if gap_parsing.MARK not in text:
            raise UserError(f"The text has no gap. Write {gap_parsing.MARK} where a piece is missing.")
        [order] = check_gaps([text], None if order is None else [_whole_numbers(order, "order")])
        order = list(order)
        layout, _ = gap_parsing.gaps(self._gaps, tf.constant([text]))
        _check_length("gaps", len(order), MOST_GAPS)
        _check_length("pieces", layout.ids.shape[1], MOST_PIECES)
        if not _are(str, choices) or len(choices) > len(order):
            raise UserError(f"There are {len(order)} gaps to fill; expected at most as many pieces.")
        if unknown := [piece for piece in choices if piece not in self._ids]:
            raise UserError(f"{short_json(unknown[0])} is not a piece of the vocabulary.")

        positions = layout.order.numpy()[0]
        layout = layout._replace(order=tf.constant(positions[order][None]))
        chosen = np.array([self._ids[piece] for piece in choices], np.int32)
        by_step = np.exp(fill_stepwise(self._model, layout, tf.constant(chosen)).numpy())  # [S + 1, G, V]
        gap_at = {position: number for number, position in enumerate(positions.tolist())}
        tokens = [
            {"gap": gap_at[position]} if position in gap_at else {"piece": self._tokenizer.id_to_piece(piece)}
            for position, piece in enumerate(layout.ids.numpy()[0].tolist())
        ]
        filled = [
            {"piece": piece, "probability": _number(by_step[step, step, number])}
            | {"alone": _number(by_step[0, step, number])}
            for step, (piece, number) in enumerate(zip(choices, chosen))
        ]
        candidates = [self._candidates(by_step[:, order.index(gap)]) for gap in range(len(order))]
        for step, gap in enumerate(order[: len(chosen)]):  # once filled, a gap's candidates stay
            for candidate in candidates[gap]:
                candidate["probabilities"] = candidate["probabilities"][: step + 1]
        return {"tokens": tokens, "order": order, "filled": filled, "gaps": candidates}

    def _candidates(self, by_step: np.ndarray) -> list[dict]:
        """Returns the likeliest pieces of a gap from probabilities [S + 1, V], sorted by the last step's."""
        best = np.unique(np.argsort(-by_step, axis=1, kind="stable")[:, :_CANDIDATES])
        best = best[np.argsort(-by_step[:, best].max(axis=0), kind="stable")][:_MOST_CANDIDATES]
        best = best[np.argsort(-by_step[-1, best], kind="stable")]
        return [
            {
                "piece": self._tokenizer.id_to_piece(int(number)),
                "probabilities": [*map(_number, by_step[:, number])],
            }
            for number in best
            if by_step[:, number].max() > 0
        ]

    def score(self, text: str, given: Sequence[int] = (), order: Sequence[int] | None = None) -> dict:
        """Predicts the pieces of a text in an order, by default as written, except for the `given` context.

        Returns pieces, order, log_probabilities in nats, None for context, and their total.
        """
        features, is_scored, ranks, order = self._in_order(text, given, order, MOST_PIECES)
        values = scoring.token_log_probabilities(self._model, features, is_scored, ranks).numpy()[0]
        scored = is_scored.numpy()[0]
        return {
            "pieces": self._tokenizer.convert_ids_to_tokens(features["input_word_ids"][0]),
            "order": order,
            "log_probabilities": [
                _number(value) if counts else None for value, counts in zip(values, scored, strict=True)
            ],
            "total": _number(values.sum()),
        }

    def look_inside(
        self, text: str, given: Sequence[int] = (), order: Sequence[int] | None = None, layer: int = 0
    ) -> dict:
        """Shows which positions each stream may see, and its attention in a layer, numbered from 0.

        Returns pieces and order as `score` does, and for content and query `visible` [T, T], 1 or 0, and the
        heads' `attention` [N, T, T], empty where the query stream predicts nothing.
        """
        layers = self._model.encoder.config.n_layer
        if not _are(int, [layer]) or not 0 <= layer < layers:
            raise UserError(f"The layer is {short_json(layer)}; expected a number from 0 to {layers - 1}.")
        features, is_scored, ranks, order = self._in_order(text, given, order, MOST_IN_MASKS)
        rank = tf.where(is_scored, ranks + 1, 0)
        maps = attention_maps(
            self._model.encoder, {**features, "permutation_rank": rank, "target_mask": is_scored}
        )
        visible = permutation_visible(rank, is_scored).numpy()[0]
        predicted = is_scored.numpy()[0]

        def stream(visible, attention, is_query):
            return {
                "visible": _rows(visible.astype(int), is_query),
                "attention": [_rows(head, is_query) for head in attention[layer, 0].numpy()],
            }

        everyone = np.ones_like(predicted)
        return {
            "pieces": self._tokenizer.convert_ids_to_tokens(features["input_word_ids"][0]),
            "order": order,
            "content": stream(visible | np.eye(len(visible), dtype=bool), maps.content, everyone),
            "query": stream(visible, maps.query, predicted),
        }

    def _in_order(self, text, given, order, most: int):
        """Reads a text and its factorization order: features, is_scored and ranks [1, T], and the order."""
        _check_text(text)
        ids = self._tokenizer.encode(text)
        if not ids:
            raise UserError("The text is empty. Write a sentence first.")
        _check_length("pieces", len(ids), most)
        given = _whole_numbers(given, "given")
        others = [number for number in range(len(ids)) if number not in given]
        order = others if order is None else _whole_numbers(order, "order")
        if sorted(order) != others or sorted({*given, *others}) != list(range(len(ids))):
            raise UserError(
                f"The text has {len(ids)} pieces. Expected each of 0 to {len(ids) - 1} once, in the order or "
                "as given."
            )
        if not order:
            raise UserError("All pieces are given, so there is nothing to predict. Leave at least one out.")
        is_scored = np.isin(np.arange(len(ids)), order)[None]
        ranks = np.zeros([1, len(ids)], np.int32)
        ranks[0, order] = np.arange(len(order))
        features = {"input_word_ids": tf.constant([ids]), "input_mask": tf.ones([1, len(ids)], tf.int32)}
        return features, tf.constant(is_scored), tf.constant(ranks), order


def _check_text(text: Any) -> None:
    if not isinstance(text, str) or not text.strip():
        raise UserError("The text is empty. Write a sentence first.")
    check_text(text, "the text")
    _check_length("characters", len(text), MOST_CHARACTERS)


def _check_length(what: str, count: int, most: int) -> None:
    if count > most:
        raise UserError(f"The text has {count:,} {what}; this page takes at most {most:,}. Shorten the text.")


def _are(kind: type, values: Any) -> bool:
    return isinstance(values, list | tuple) and all(type(value) is kind for value in values)


def _whole_numbers(values: Any, name: str) -> list[int]:
    if not _are(int, values):
        raise UserError(f"{name} is not a list of whole numbers.")
    return list(values)


def _number(value: float) -> float:
    """Rounds a number to few digits, in a form that JSON can hold."""
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else 0.0


def _rows(matrix: np.ndarray, kept: np.ndarray) -> list[list]:
    return [np.round(row, _DIGITS).tolist() if keep else [] for row, keep in zip(matrix, kept, strict=True)]
