"""The model: a score for each of two texts."""

import tensorflow as tf
import tf_keras

from xlnet_tf.models.head import PooledHead
from xlnet_tf.models.loading import Pretrained
from xlnet_tf.models.reading import token_features


@tf_keras.utils.register_keras_serializable("tests")
class XLNetPreference(PooledHead):
    """Scores two texts, each by itself: [B, 2 * T] -> [B, 2]."""

    def __init__(self, encoder, *, name="preference", **kwargs):
        super().__init__(encoder, "preference", 1, name=name, **kwargs)

    @classmethod
    def from_pretrained(cls, path, **options):
        source = Pretrained.open(path)
        return cls.load(source, source.find_head("preference"), options)

    def call(self, features, training=None):
        length = tf.shape(features["input_word_ids"])[1] // 2
        texts = {name: tf.reshape(value, [-1, length]) for name, value in token_features(features).items()}
        return tf.reshape(self.pooled_logits({**features, **texts}, training), [-1, 2])
