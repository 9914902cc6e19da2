"""SavedModels that choose among several options, each read by itself with a question and a context."""

import tensorflow as tf

from xlnet_tf.serving.answers.signatures import LOWEST
from xlnet_tf.serving.graph.exported_model import CandidatesModule
from xlnet_tf.serving.graph.inputs import lists
from xlnet_tf.tasks.multiple_choice.answering import ChoiceAnswers
from xlnet_tf.text.graph.packing import first_pieces, last_pieces

_BLANK = "_+"


class MultipleChoiceModule(ChoiceAnswers, CandidatesModule):
    """Probabilities of the options of a question.

    Signatures: serving_default (context [B], question [B], options [B, C]; C may differ between requests) and
        examples give
        answer [B] int32 and option [B] string, the likeliest option;
        probabilities [B, C] float32;
        logits [B, C] float32, before the softmax.
        Of tf.Examples with fewer options than others, the rest has a probability of 0.
      tokens: sequences of single options; gives logits [B].

    Args:
        max_qa_len: most pieces of a question with an option.
        temperature: what logits are divided by for the probabilities, [1]; None: 1.
    """

    SCORES = "logits"

    def serve(self, context, question, options):
        options, is_option = lists(options)
        rows, choices = tf.unstack(tf.shape(options))
        has_options = tf.debugging.Assert(choices > 0, ["options has none; expected some for each question"])
        with tf.control_dependencies([has_options]):
            options = tf.identity(options)
        answers = join_options(question, options)
        answer_ids = self.texts.encode(tf.reshape(answers, [-1]))
        answer_ids = last_pieces(answer_ids, self.max_qa_len)
        context_ids = tf.gather(self.texts.encode(context), tf.repeat(tf.range(rows), choices))
        context_ids = first_pieces(context_ids, self.seq_len - 3 - answer_ids.row_lengths())
        logits = tf.reshape(self.run(self.pack(context_ids, answer_ids)), [rows, choices])
        logits = tf.where(is_option, logits, LOWEST)
        probabilities = tf.nn.softmax(logits / self.temperature)
        best = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return {
            "answer": best,
            "option": tf.gather(options, best, batch_dims=1),
            "probabilities": tf.where(is_option, probabilities, 0.0),  # those without any option, too
            "logits": logits,
        }


def join_options(question: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
    """Fills each option into the blanks of its question (runs of underscores), or appends it if it has none.

    Questions [B] and options [B, C] give strings [B, C], joined as text.inputs.join_option does.
    """
    with tf.device("/CPU:0"):
        choices = tf.shape(options)[1]
        options = tf.reshape(options, [-1])
        question = tf.repeat(question, choices)
        parts = tf.strings.split(tf.strings.regex_replace(question, _BLANK, "_"), "_")  # [B * C, (parts)]
        first = tf.ragged.range(parts.row_lengths()).flat_values == 0
        before = tf.where(first, "", tf.gather(options, parts.value_rowids()))
        filled = tf.strings.reduce_join(parts.with_flat_values(before + parts.flat_values), axis=-1)
        joined = tf.where(parts.row_lengths() > 1, filled, question + " " + options)
        return tf.reshape(joined, [-1, choices])
