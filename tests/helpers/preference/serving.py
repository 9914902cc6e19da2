"""How it is served: two texts in, the preferred one out."""

import tensorflow as tf

from tests.helpers.preference.builder import LETTERS
from xlnet_tf.serving.module import ServingModule


class PreferenceModule(ServingModule):
    """text_a, text_b [B] -> preferred [B] string, scores [B, 2]; of tokens: scores [B]."""

    def input_specs(self):
        return dict.fromkeys(("text_a", "text_b"), tf.TensorSpec([None], tf.string))

    def example_rows(self):
        return {"text_a": "ba ne", "text_b": "1999,"}

    def forward(self, model, features):
        return model.pooled_logits(features, training=False)

    def serve(self, text_a, text_b):
        texts = [self.pack(self.texts.encode(text)) for text in (text_a, text_b)]
        scores = tf.concat([self.run(features) for features in texts], axis=1)
        return {"scores": scores, "preferred": tf.gather(tf.constant(LETTERS), tf.argmax(scores, axis=1))}

    def serve_tokens(self, features):
        return {"scores": tf.squeeze(self.run(features), axis=-1)}
