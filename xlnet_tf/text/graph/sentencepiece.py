"""SentencePiece models as TensorFlow operations, those of tensorflow_text, on the CPU only."""

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import tensorflow as tf
from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer as operations

from xlnet_tf.errors import UserError
from xlnet_tf.text import ties as ties_lib
from xlnet_tf.text.graph.characters import CPU

# No sampling (nbest_size, alpha), no symbols around the text (add_bos, add_eos), not reversed.
_PLAIN = {"nbest_size": 0, "alpha": 1.0, "add_bos": False, "add_eos": False, "reverse": False}
_PLAIN_DECODING = {name: _PLAIN[name] for name in ("add_bos", "add_eos", "reverse")}
_OTHER_TIES = (
    f"TensorFlow Text breaks ties between pieces differently from {ties_lib.RULE}, the rule of the model and "
    "its records: load it with TensorFlow Text 2.20"
)


class SentencePieceModel(tf.saved_model.experimental.TrackableResource):
    """A serialized SentencePiece model; a SavedModel that uses it holds it.

    tensorflow_text's SentencepieceTokenizer would load one model for pieces and another for ids, and lets a
    SavedModel create it on any device: only the CPU has these operations. `ties` are texts with ways of equal
    scores and the ids that they must get; a SavedModel that gives others fails when it is loaded.
    """

    def __init__(self, proto: bytes, ties: Mapping[str, Sequence[int]] = MappingProxyType({})):
        super().__init__(device=CPU)
        self._proto = proto
        self._ties = dict(ties)
        _ = self.resource_handle  # created now, not where a function is first traced
        try:
            self._initialize()
        except tf.errors.InvalidArgumentError:
            raise UserError(_OTHER_TIES) from None

    def _create_resource(self):
        # A name of its own keeps models apart that one SavedModel holds.
        name = f"sentencepiece_{hashlib.sha256(self._proto).hexdigest()}"
        with tf.device(CPU):
            return operations.sentencepiece_op(model=self._proto, shared_name=name)

    def _initialize(self):
        if not self._ties:
            return
        rows = [*self._ties.values()]
        expected = " ".join(map(str, [*map(len, rows), *itertools.chain.from_iterable(rows)]))
        with tf.device(CPU):
            found = self.ids(tf.constant([*self._ties]))
            numbers = tf.concat([tf.cast(found.row_lengths(), tf.int32), found.values], 0)
            joined = tf.strings.reduce_join(tf.strings.as_string(numbers), separator=" ")
            tf.debugging.Assert(joined == expected, [_OTHER_TIES])

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
