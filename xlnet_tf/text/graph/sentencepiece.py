"""SentencePiece models as TensorFlow operations, those of tensorflow_text, on the CPU only."""

import hashlib

import tensorflow as tf
from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer as operations

from xlnet_tf.text.graph.characters import CPU

# No sampling (nbest_size, alpha), no symbols around the text (add_bos, add_eos), not reversed.
_PLAIN = {"nbest_size": 0, "alpha": 1.0, "add_bos": False, "add_eos": False, "reverse": False}
_PLAIN_DECODING = {name: _PLAIN[name] for name in ("add_bos", "add_eos", "reverse")}


class SentencePieceModel(tf.saved_model.experimental.TrackableResource):
    """A serialized SentencePiece model; a SavedModel that uses it holds it.

    tensorflow_text's SentencepieceTokenizer would load one model for pieces and another for ids, and lets a
    SavedModel create it on any device: only the CPU has these operations.
    """

    def __init__(self, proto: bytes):
        super().__init__(device=CPU)
        self._proto = proto
        _ = self.resource_handle  # created now, not where a function is first traced

    def _create_resource(self):
        # A name of its own keeps models apart that one SavedModel holds.
        name = f"sentencepiece_{hashlib.sha256(self._proto).hexdigest()}"
        with tf.device(CPU):
            return operations.sentencepiece_op(model=self._proto, shared_name=name)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns ragged int32 [N, (pieces)], the ids of the pieces of string [N] texts."""
        return self._tokenize(texts, tf.int32)

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns ragged string [N, (pieces)]; an unknown piece keeps its spelling."""
        return self._tokenize(texts, tf.string)

    def ids_with_bytes(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns ids as `ids` does, and int64 alike: the first byte of each, and the one after."""
        with tf.device(CPU):
            ids, splits, begins, ends = operations.sentencepiece_tokenize_with_offsets_op(
                self.resource_handle, texts, **_PLAIN
            )
            ids = tf.RaggedTensor.from_row_splits(ids, splits, validate=False)
            return ids, ids.with_values(begins), ids.with_values(ends)

    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns string [N], the texts of ragged int32 [N, (pieces)] ids."""
        with tf.device(CPU):
            return operations.sentencepiece_detokenize_op(
                self.resource_handle, ids.values, ids.row_splits, **_PLAIN_DECODING
            )

    def spell(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns string [K], the pieces of int32 [K] ids."""
        with tf.device(CPU):
            return operations.sentencepiece_id_to_string_op(self.resource_handle, ids)

    def _tokenize(self, texts, out_type) -> tf.RaggedTensor:
        with tf.device(CPU):
            values, splits = operations.sentencepiece_tokenize_op(
                self.resource_handle, texts, out_type=out_type, **_PLAIN
            )
            return tf.RaggedTensor.from_row_splits(values, splits, validate=False)
