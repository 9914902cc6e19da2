"""Rows that are cut to the length of their texts, and predictions for them in the positions of whole rows.

XLNet's positions are relative, so a text's numbers do not depend on where in a row it stands.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.text.special_tokens import PAD_ID


def cut_rows(
    features: Mapping[str, tf.Tensor],
    length: int | tf.Tensor,
    examples: ExampleSet,
    token_columns: Sequence[str],
    position_columns: Sequence[str],
) -> dict[str, tf.Tensor]:
    """Cuts the padding of rows to a length for each sequence, no less than the longest text has.

    `token_columns` have a value for each token of the rows [B, sequences * seq_len], `position_columns` [B] a
    token's position. Adds `offset`: int32 [B, sequences], tokens cut off on the left.
    """
    shape, cut_off = [-1, examples.sequences, examples.seq_len], examples.seq_len - length
    padded_left = tf.reshape(features["input_word_ids"], shape)[:, :, 0] == PAD_ID  # [B, sequences]
    offset = tf.where(padded_left, cut_off, 0)

    def cut(values: tf.Tensor) -> tf.Tensor:
        values = tf.reshape(values, shape)
        values = tf.where(padded_left[:, :, None], values[:, :, cut_off:], values[:, :, :length])
        return tf.reshape(values, [-1, examples.sequences * length])

    tokens = {name: cut(features[name]) for name in token_columns if name in features}
    positions = {name: features[name] - offset[:, 0] for name in position_columns if name in features}
    return {**features, **tokens, **positions, "offset": offset}


def whole_rows(
    predictions: Mapping[str, tf.Tensor],
    features: Mapping[str, tf.Tensor],
    examples: ExampleSet,
    token_predictions: Sequence[str],
    position_predictions: Sequence[str],
) -> dict[str, tf.Tensor]:
    """Maps predictions [B, ...] for the rows that `cut_rows` has cut back to the positions of whole rows.

    `token_predictions` name those with a value for each token, [B, tokens, ...], `position_predictions` those
    that are positions of tokens.
    """
    offset = features["offset"][:, 0]
    cut_off = examples.seq_len - tf.shape(features["input_word_ids"])[1] // examples.sequences
    whole = {}
    for name in token_predictions:
        if name not in predictions:
            continue
        values = predictions[name]
        rest = values.shape.rank - 2  # axes after rows and tokens
        left, right = (
            tf.pad(values, [[0, 0], side, *[[0, 0]] * rest]) for side in ([cut_off, 0], [0, cut_off])
        )
        whole[name] = tf.where(tf.reshape(offset > 0, [-1, 1, *[1] * rest]), left, right)
    for name in position_predictions:
        values = predictions[name]
        whole[name] = values + tf.reshape(offset, [-1] + [1] * (values.shape.rank - 1))
    return whole
