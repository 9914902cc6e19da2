"""Small models whose tokenizer is `small_tokenizer`, for tests of what is served."""

import tf_keras

from xlnet_tf.config import XLNetConfig
from xlnet_tf.models.encoder import XLNetEncoder

HOSTILE = [
    *("", "   \t\n ", "<sep> <mask> <cls> <pad>", "\x00\x01 control \x7f", "\ufeff\u200b"),
    *("\U0001f600" * 40, "5,000, and 12, more", "na\u00efve caf\u00e9 ``quotes''"),
]


def built(model_class, tokenizer, *args, layers=1, encoder_options=(), **options):
    """A model of random weights; nothing is near zero, so that errors show."""
    tf_keras.utils.set_random_seed(0)
    config = XLNetConfig(tokenizer.vocab_size, n_layer=layers, d_model=16, n_head=2, d_head=8, d_inner=20)
    encoder = XLNetEncoder(
        config, dropout=0.0, attention_dropout=0.0, initializer_range=0.4, **dict(encoder_options)
    )
    model = model_class(encoder, *args, **options)
    model.build()
    return model
