"""The pretraining batches that the benchmarks train on, in each implementation's form."""

from collections.abc import Mapping

import numpy as np

from xlnet_tf.config import XLNetConfig
from xlnet_tf.records import ranks, segments, spans
from xlnet_tf.text import special_tokens

SENTENCE_TOKENS = 20  # of a synthetic sentence


def make_batch(config: XLNetConfig, batch_size: int, seq_len: int, num_predict: int) -> dict[str, np.ndarray]:
    """Makes a synthetic batch in the reader's form: random tokens, sampled as the builder samples.

    The first half of the B rows is read forward, the other backward. Features: input_word_ids,
    input_type_ids, permutation_rank [B, T], target_positions [B, P], direction [B].
    """
    rng = np.random.default_rng(0)
    reuse_len = seq_len // 2
    length = (batch_size + 1) * reuse_len + seq_len
    tokens = rng.integers(special_tokens.EOP_ID + 1, config.n_token, length, dtype=np.int32)
    ends = np.append(np.arange(SENTENCE_TOKENS, length, SENTENCE_TOKENS), length)
    sampled = segments.sample_segments(rng, tokens, ends, seq_len, reuse_len, np.ones(length, bool))
    is_target = spans.sample_segment_targets(rng, sampled, reuse_len, num_predict, **spans.MASK)
    rank = ranks.sample_ranks(
        rng, is_target, sampled.special, objective="permutation", reuse_len=reuse_len, perm_size=reuse_len
    )
    return {
        "input_word_ids": sampled.ids[:batch_size],
        "input_type_ids": sampled.segment_ids[:batch_size],
        "permutation_rank": rank[:batch_size],
        "target_positions": np.nonzero(is_target[:batch_size])[1].reshape(batch_size, -1).astype(np.int16),
        "direction": np.where(np.arange(batch_size) < batch_size // 2, 1, -1).astype(np.int8),
    }


def model_garden_batch(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Converts a batch of the reader's to the form of Model Garden's XLNetPretrainer.

    Its permutation mask, unlike the original's and its own documentation, is 1 where a token may see another.
    Directions are left out: with bi_data the second half of its batch is read backward, too.

    Returns:
        input_word_ids, input_type_ids int32, masked_tokens [B, T]; permutation_mask [B, T, T];
        target_mapping [B, P, T], zeros for an empty slot; target_ids [B, P].
    """
    word_ids, positions = batch["input_word_ids"], batch["target_positions"].astype(np.int64)
    mapping = positions[:, :, None] == np.arange(word_ids.shape[1])  # [B, P, T]
    is_target = mapping.any(axis=1)
    _, query_visible = ranks.expand(batch["permutation_rank"], is_target)
    return {
        "input_word_ids": word_ids,
        "input_type_ids": batch["input_type_ids"].astype(np.int32),
        "permutation_mask": query_visible.astype(np.float32),
        "target_mapping": mapping.astype(np.float32),
        "masked_tokens": is_target.astype(np.float32),
        "target_ids": np.take_along_axis(word_ids, np.maximum(positions, 0), axis=1),
    }


def hugging_face_batch(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Converts a reader's batch to arguments of XLNetLMHeadModel, which knows directions only by position."""
    dense = model_garden_batch(batch)
    return {
        "input_ids": dense["input_word_ids"],
        "token_type_ids": dense["input_type_ids"],
        "perm_mask": 1 - dense["permutation_mask"],
        "target_mapping": dense["target_mapping"],
        "labels": dense["target_ids"],
    }
