"""How likely texts are: the texts and orders that a model reads, and its answers.

Shapes: B batch, T tokens.
"""

from collections.abc import Sequence

import numpy as np

from xlnet_tf.config import MOST_SEED
from xlnet_tf.errors import UserError, short_repr
from xlnet_tf.generation.arrays.engine import Engine
from xlnet_tf.generation.arrays.sampling import uniform_draws
from xlnet_tf.generation.results import TextScore
from xlnet_tf.generation.settings import by_length, check_range, check_text_lengths, is_permutation
from xlnet_tf.schema import is_whole
from xlnet_tf.text.special_tokens import PAD_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

ORDERS = ("left_to_right", "right_to_left", "random")


def score_texts(
    engine: Engine,
    tokenizer: XLNetTokenizer,
    texts: Sequence[str],
    contexts: Sequence[str] | None = None,
    *,
    order: str | Sequence[Sequence[int]] = "left_to_right",
    seed: int = 0,
    batch_size: int = 8,
) -> list[TextScore]:
    """Scores texts, each as a whole: time grows with the square of the longest.

    Args:
        contexts: the given, unscored text before each text; None: nothing. A text and its context have at
            most settings.LONGEST pieces.
        order: one of ORDERS, or for each text the numbers of its pieces, from 0, in the order of prediction.
        batch_size: B, texts scored together; of about the same length, since all are padded to the longest.
    """
    ids = tokenizer.encode_rows(texts, "texts")
    before = tokenizer.encode_rows([""] * len(ids) if contexts is None else contexts, "contexts")
    if len(before) != len(ids):
        raise UserError(f"there are {len(ids)} texts and {len(before)} contexts; expected as many.")
    lengths = [len(context) + len(text) for context, text in zip(before, ids)]
    check_text_lengths("texts", lengths, longest=engine.longest)
    is_seed = is_whole(seed) and abs(seed) <= MOST_SEED
    check_range("seed", seed, is_seed, f"a whole number from {-MOST_SEED} to {MOST_SEED}")
    if not isinstance(order, str):
        _check_permutations(order, ids)
    elif order not in ORDERS:
        raise UserError(f"the order is {order!r}; expected one of {', '.join(ORDERS)}.")

    scores: list[TextScore | None] = [None] * len(ids)
    for rows in by_length(lengths, batch_size):
        row_ids, mask, is_scored = joined([before[row] for row in rows], [ids[row] for row in rows])
        ranks = np.zeros(row_ids.shape, np.int32)
        for index, row in enumerate(rows):
            count = len(ids[row])
            ranks[index, is_scored[index]] = ranks_of(
                order if isinstance(order, str) else order[row], count, seed
            )
        log_probs = engine.score(row_ids, mask, is_scored, ranks)
        for index, row in enumerate(rows):
            pieces = [tokenizer.id_to_piece(piece) for piece in ids[row]]
            scored = is_scored[index]
            scores[row] = TextScore(pieces, log_probs[index, scored], np.argsort(ranks[index, scored]))
    return scores  # type: ignore[return-value]


def joined(
    contexts: Sequence[np.ndarray], texts: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Puts contexts before texts, as scoring.join_contexts: ids, mask and is_scored [B, T]."""
    length = max(1, *(len(context) + len(text) for context, text in zip(contexts, texts)))
    ids = np.full([len(texts), length], PAD_ID, np.int32)
    mask, is_scored = np.zeros(ids.shape, np.int32), np.zeros(ids.shape, bool)
    for row, (context, text) in enumerate(zip(contexts, texts, strict=True)):
        end = len(context) + len(text)
        ids[row, :end] = np.concatenate([context, text])
        mask[row, :end] = 1
        is_scored[row, len(context) : end] = True
    return ids, mask, is_scored


def ranks_of(order: str | Sequence[int], count: int, seed: int) -> np.ndarray:
    """Returns the rank of each of a text's pieces, from 0, as scoring.order_ranks."""
    if isinstance(order, str):
        if order == "random":
            draws = uniform_draws(np.array([seed]), count)[0]
            return np.argsort(np.argsort(draws, kind="stable"))  # the inverse permutation
        return np.arange(count)[:: -1 if order == "right_to_left" else 1]
    return np.argsort(np.asarray(order, np.int32))


def _check_permutations(orders: Sequence[Sequence[int]], ids: Sequence[np.ndarray]):
    if not isinstance(orders, (Sequence, np.ndarray)):
        raise UserError(
            f"order is {short_repr(orders)}; expected one of {', '.join(ORDERS)}, or a list of numbers for "
            "each text"
        )
    if len(orders) != len(ids):
        raise UserError(f"there are {len(ids)} texts and {len(orders)} orders; expected as many.")
    for index, (order, text) in enumerate(zip(orders, ids)):
        if not is_permutation(order, len(text)):
            raise UserError(
                f"order[{index}] is {short_repr(order)}; expected each number from 0 to {len(text) - 1} "
                f"once: the text has {len(text)} pieces."
            )
