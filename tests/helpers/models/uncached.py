"""The computation without a cache: the model itself reads the whole text for each token."""

import numpy as np
import tf_keras

from xlnet_tf.config import XLNetConfig
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.text.special_tokens import EOP_ID

CONFIG = XLNetConfig(n_token=50, n_layer=1, d_model=16, n_head=2, d_head=6, d_inner=20)


def random_model(config=CONFIG, seed=0, **options):
    """A model whose weights are large enough for errors to show, with a bias of its own for each piece."""
    tf_keras.utils.set_random_seed(seed)
    options = {"dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.4, **options}
    model = XLNetPretrainer(XLNetEncoder(config, **options))
    model.build()
    model.lm_bias.assign(np.random.default_rng(seed).normal(size=config.n_token))
    return model


def logits(model, ids, is_context, order, tokens):
    """Predicts the tokens of each row, one after another, each from the context and those before it.

    Args:
        ids: int [B, T].
        is_context: bool [B, T].
        order: int [B, G], positions from 0, maybe beyond T; -1 from where a row has no more.
        tokens: int [B, G], what is written there.

    Returns:
        [B, G, V].
    """
    beyond = ((0, 0), (0, max(0, np.max(order) + 1 - ids.shape[1])))
    ids, rank = np.pad(ids, beyond), np.where(np.pad(is_context, beyond), 0, order.shape[1] + 1)
    for row, number in zip(*np.nonzero(order >= 0)):
        ids[row, order[row, number]] = tokens[row, number]
        rank[row, order[row, number]] = number + 1
    features = {"input_word_ids": ids, "permutation_rank": rank, "target_positions": order}
    return model(features)["logits"].numpy()


def log_probabilities(logits):
    """Normalizes logits [..., V] over words and `<eop>`."""
    words = np.where(np.arange(logits.shape[-1]) < EOP_ID, -np.inf, logits)
    words = words - words.max(axis=-1, keepdims=True)
    return words - np.log(np.exp(words).sum(axis=-1, keepdims=True))


def token_log_probabilities(model, ids, is_context, order, tokens):
    """Returns the log-probability of each token [B, G]; 0 where a row has no more."""
    found = log_probabilities(logits(model, ids, is_context, order, tokens))
    chosen = np.take_along_axis(found, np.maximum(tokens, 0)[:, :, None], axis=2)[:, :, 0]
    return np.where(order >= 0, chosen, 0)
