"""SavedModels that find entities, or give each word a tag, in texts of any length."""

import tensorflow as tf
import tf_keras

from xlnet_tf.layers.map_in_chunks import map_in_chunks
from xlnet_tf.serving.graph.exported_model import ExportableModel
from xlnet_tf.tasks.tagging.answering import WINDOWS_AT_ONCE, EntityAnswers
from xlnet_tf.text.graph.characters import characters, substrings
from xlnet_tf.text.graph.word_windows import WordWindows, word_windows
from xlnet_tf.text.graph.words import WordFinder, Words
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.words import OUTSIDE


class TaggingModule(EntityAnswers, ExportableModel):
    """The entities of texts.

    Words are found as in training (see tfrecord_builders/tagging/words.py), in any language; a word's tag is
    that of its first piece; entities are read from tags as conlleval does. Of tags that mark no entities,
    such as parts of speech, each word is an entity of its own, whose label is its tag. A text that is too
    long for one sequence is read in windows that overlap, at most 16 at once, or as many as there are rows.

    Signatures: serving_default (text [B] string), examples: see ExportableModel; they give
        num_entities [B] int32, and of each entity, E being the largest number of a text,
        entity [B, E] string, as it stands in the text, "" after the last entity;
        label [B, E] string, "" after the last;
        start, end [B, E] int32, its first character and the one after its last, counted in the text's Unicode
            characters, -1 after the last;
        score [B, E] float32, the mean probability of its words' tags, 0 after the last.
      tokens: labels [B, T] string and scores [B, T] float32, the likeliest tag of each token and its
        probability, and probabilities [B, T, C] of all tags.

    Args:
        model: an XLNetTokenClassifier, its labels BIO tags, or tags none of which begins with B- or I-.
        stride: pieces between the starts of two windows; None: half of a window.
        temperature: what logits are divided by for the probabilities, [1] (see metrics.calibration); None: 1.
            It changes no tag.

    Example:
        >>> module = TaggingModule(model, tokenizer, seq_len=128)
        >>> module.serve(text=tf.constant(["Ada met Charles in London."]))["entity"]
    """

    def __init__(self, model: tf_keras.Model, tokenizer: XLNetTokenizer, **options):
        super().__init__(model, tokenizer, **options)
        self.find_words = WordFinder(tokenizer, self.texts)

    def graph_outputs(self, features):
        return {"logits": self.run(features)}  # [B, T, C]

    def serve_tokens(self, features):
        probabilities = tf.nn.softmax(self.run(features) / self.temperature)
        return {
            "labels": tf.gather(tf.constant(self.labels), tf.argmax(probabilities, axis=-1)),
            "scores": tf.reduce_max(probabilities, axis=-1),
            "probabilities": probabilities,
        }

    def serve(self, text):
        with tf.device("/CPU:0"):
            codes = characters(tf.strings.join([self.texts.valid(text), " "]))
        words = self.find_words(text, codes)
        pieces = words.pieces[:, : self.room]
        windows = word_windows(pieces.row_lengths(), words.row, self.room, self.stride)
        tags = map_in_chunks(
            lambda begin, end: self._tags(pieces, windows.slice(begin, end)),
            tf.size(windows.start),
            tf.maximum(tf.size(text), WINDOWS_AT_ONCE),
            {"tags": tf.TensorSpec([None], tf.int32), "scores": tf.TensorSpec([None], tf.float32)},
        )
        return self._entities(codes, words, **tags)

    def _tags(self, pieces: tf.RaggedTensor, windows: WordWindows) -> dict[str, tf.Tensor]:
        """Returns the best tag of each word that the windows predict, and its probability: [words]."""
        offsets = pieces.row_splits
        begin, end = tf.gather(offsets, windows.start), tf.gather(offsets, windows.stop)
        features = self.pack(tf.gather(pieces.flat_values, tf.ragged.range(begin, end)))
        logits = self.run(features)  # [C, T, labels]
        words = tf.ragged.range(windows.predict_start, windows.predict_stop)
        window = words.value_rowids()
        first = tf.shape(logits, tf.int64)[1] - (self.seq_len - self.room) - end  # padding is on the left
        tokens = tf.gather(first, window) + tf.gather(offsets, words.flat_values)
        logits = tf.gather_nd(logits, tf.stack([window, tokens], 1))
        return {
            "tags": tf.argmax(logits, axis=-1, output_type=tf.int32),
            "scores": tf.reduce_max(tf.nn.softmax(logits / self.temperature), axis=-1),
        }

    def _entities(
        self, codes: tf.RaggedTensor, words: Words, tags: tf.Tensor, scores: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Reads entities of texts from tags [W] and their probabilities: as conlleval does, or each word."""
        if self.of_entities:
            types = list(dict.fromkeys(label[2:] for label in self.labels if label != OUTSIDE))
            type_of = [-1 if label == OUTSIDE else types.index(label[2:]) for label in self.labels]
            begins_one = [label.startswith("B-") for label in self.labels]
        else:  # each word is one
            types, type_of = list(self.labels), list(range(len(self.labels)))
            begins_one = [True] * len(self.labels)
        type_ = tf.gather(type_of, tags)
        inside = type_ >= 0
        goes_on = (words.row[1:] == words.row[:-1]) & (type_[1:] == type_[:-1])
        goes_on = tf.concat([[False], goes_on], 0)[: tf.size(tags)]
        opens = inside & (tf.gather(begins_one, tags) | ~goes_on)
        closes = inside & tf.concat([opens | ~inside, [True]], 0)[1:]

        first, last, within = (tf.where(mask)[:, 0] for mask in (opens, closes, inside))
        number = tf.gather(tf.cumsum(tf.cast(opens, tf.int32)) - 1, within)
        means = tf.math.unsorted_segment_mean(tf.gather(scores, within), number, tf.size(first))
        begins, ends = tf.gather(words.begins, first), tf.gather(words.ends, last)
        row = tf.gather(words.row, first)
        text = tf.gather(codes.row_starts(), row)
        found = {
            "entity": (substrings(codes.flat_values, text + begins, text + ends), ""),
            "label": (tf.gather(tf.constant(types, tf.string), tf.gather(type_, first)), ""),
            "start": (tf.cast(begins, tf.int32), -1),
            "end": (tf.cast(ends, tf.int32), -1),
            "score": (means, 0.0),
        }
        rows = tf.RaggedTensor.from_value_rowids(first, row, codes.nrows(), validate=False)
        entities = {
            name: rows.with_values(values).to_tensor(padding) for name, (values, padding) in found.items()
        }
        return {**entities, "num_entities": tf.cast(rows.row_lengths(), tf.int32)}
