"""SavedModels that answer questions with words of a context of any length."""

from collections.abc import Mapping

import tensorflow as tf
import tf_keras

from xlnet_tf.layers.map_in_chunks import map_in_chunks
from xlnet_tf.layers.summary import last_position
from xlnet_tf.serving.graph.exported_model import ExportableModel
from xlnet_tf.tasks.question_answering.answering import NOWHERE, WINDOWS_AT_ONCE, SpanAnswers
from xlnet_tf.text.graph.characters import characters, substrings
from xlnet_tf.text.graph.passage_windows import (
    PassageWindows,
    pack_segments,
    shows_best,
    split_windows,
    window_tokens,
)
from xlnet_tf.text.special_tokens import SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

_IMPOSSIBLE = float("-inf")


class QuestionAnsweringModule(SpanAnswers, ExportableModel):
    """The words of a context that answer a question, if any do.

    A context that is too long for one sequence is read in windows that overlap, as in training; at most 16
    at once, or as many as there are rows, so that a long context takes time, not memory.

    Signatures: serving_default (question, context [B] string), examples: see ExportableModel; they give
        answer [B] string, as it stands in the context; empty: none.
        start, end [B] int32, its first character and the one after its last, counted in the context's Unicode
            characters; -1: no answer.
        score [B] float32, the probability of its first token in its window times that of its last one given
            the first; 0: no answer.
        answers, starts, ends, scores [B, n_best], the best answers whether they are refused or not, best
            first, filled up with empty ones. Equal words at two positions are two answers.
        null_odds [B] float32, if a question may have no answer: the logit of "no answer", the lowest of all
            windows. Where it is above the threshold, the answer is refused.
      tokens: the span head's outputs for packed windows [P SEP Q SEP CLS] (see models.question_answering).

    Args:
        max_question_len: most tokens of a question; the rest is cut.
        stride: tokens from one window of a context to the next.
        threshold: the no-answer logit above which an answer is refused; None: never.
        n_best: number of answers, at most as many as the model looks at in a window.
        **options: of ExportableModel; buckets that are shorter than what the model looks at are left out.

    Example:
        >>> module = QuestionAnsweringModule(model, tokenizer, seq_len=512)
        >>> module.serve(question=tf.constant(["Who?"]), context=tf.constant(["Ada did."]))["answer"]
    """

    def __init__(self, model: tf_keras.Model, tokenizer: XLNetTokenizer, **options):
        self.start_top, self.end_top = model.start_top, model.end_top
        super().__init__(model, tokenizer, **options)

    @classmethod
    def options_of_run(cls, task):
        return {
            **super().options_of_run(task),
            "threshold": task.refusal_threshold(),
            "n_best": task.task_config.n_best,
            "max_answer_len": task.task_config.max_answer_len,
        }

    def serve_tokens(self, features):
        """Returns the head's outputs; answers may be where segment 0 is, SEP left out, and on CLS."""
        return self.run({**features, "answer_mask": _answer_mask(features)})

    graph_outputs = serve_tokens

    def serve(self, question, context):
        questions = self.texts.encode(question)[:, : self.max_question_len]
        encoded = self.texts.encode_with_offsets(context)
        segments = self.seq_len // self.read_at_once
        room = self.most_room - segments * tf.cast(questions.row_lengths(), tf.int32)
        windows = split_windows(tf.cast(encoded.ids.row_lengths(), tf.int32), room, self.stride)
        rows = tf.size(room)
        found = map_in_chunks(
            lambda begin, end: self._candidates(questions, encoded, windows.slice(begin, end)),
            tf.size(windows.row),
            tf.maximum(rows, WINDOWS_AT_ONCE),
            {
                "log_probs": tf.TensorSpec([None, self.n_best], tf.float32),
                "starts": tf.TensorSpec([None, self.n_best], tf.int32),
                "ends": tf.TensorSpec([None, self.n_best], tf.int32),
                "no_answer_logits": tf.TensorSpec([None], tf.float32),
            },
        )
        best = self._best(found, windows.row, rows)
        offsets = characters(self.texts.valid(context)), *(best[name] for name in ("starts", "ends"))
        answers = {**best, "answers": _texts(*offsets)}
        answered = answers["starts"][:, 0] != NOWHERE
        if self.threshold is not None:
            null_odds = tf.math.segment_min(found["no_answer_logits"], windows.row)
            answered &= null_odds <= self.threshold
            answers["null_odds"] = null_odds
        nothing = {"answer": "", "start": NOWHERE, "end": NOWHERE, "score": 0.0}
        for name, value in nothing.items():
            answers[name] = tf.where(answered, answers[f"{name}s"][:, 0], value)
        return answers

    def _candidates(self, questions, encoded, windows: PassageWindows) -> dict[str, tf.Tensor]:
        """Returns each window's n_best answers, as answers.predict chooses them: [C, n_best].

        log_probs are best first, -inf where there is no answer; starts and ends are characters.
        """
        base = tf.cast(tf.gather(encoded.ids.row_starts(), windows.row), tf.int32) + windows.first
        pieces = tf.gather(encoded.ids.flat_values, tf.ragged.range(base, base + windows.length))
        beams = self._beams(pieces, tf.gather(questions, windows.row))
        last = beams["end_top_index"]  # [C, K, E]
        first = tf.broadcast_to(beams["start_top_index"][:, :, None], tf.shape(last))
        length, base = windows.length[:, None, None], base[:, None, None]
        allowed = (first <= last) & (last < length) & (last - first < self.max_answer_len)
        allowed &= shows_best(windows, beams["start_top_index"], self.most_room, self.stride)[:, :, None]
        starts = _characters_at(encoded.begins, tf.where(allowed, base + first, -1))
        ends = _characters_at(encoded.ends, tf.where(allowed, base + last, -1))
        log_probs = beams["start_top_log_probs"][:, :, None] + beams["end_top_log_probs"]
        log_probs = tf.where(allowed & (starts < ends), log_probs, _IMPOSSIBLE)
        found = {"log_probs": log_probs, "starts": starts, "ends": ends}
        flat = {
            name: tf.reshape(values, [-1, last.shape[1] * last.shape[2]]) for name, values in found.items()
        }
        return {**self._top(flat), "no_answer_logits": beams["no_answer_logits"]}

    def _beams(self, pieces: tf.RaggedTensor, questions: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        """Returns the head's outputs for windows; positions are tokens of the window, or lie beyond it."""
        if self.read_at_once == self.seq_len:
            return self.serve_tokens(self.pack(pieces, questions, padding="right"))
        features = pack_segments(pieces, questions, self.seq_len, self.read_at_once)
        beams, mask = self.serve_tokens(features), _answer_mask(features)
        tokens = {name: window_tokens(mask, beams[name]) for name in ("start_top_index", "end_top_index")}
        return {**beams, **tokens}

    def _best(self, found: dict[str, tf.Tensor], row: tf.Tensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns scores, starts and ends [B, n_best] of each row from those of its windows."""
        windows = tf.RaggedTensor.from_value_rowids(row, row, rows, validate=False)
        together = {}
        for name in ("log_probs", "starts", "ends"):
            nothing = tf.constant(_IMPOSSIBLE if name == "log_probs" else NOWHERE, found[name].dtype)
            dense = windows.with_values(found[name]).to_tensor(nothing)  # [B, windows, n_best]
            columns = tf.maximum(tf.shape(dense)[1], 1) * self.n_best  # some even if there are no rows
            together[name] = tf.reshape(dense, [rows, columns])
        best = self._top(together)
        scores = tf.exp(best["log_probs"])
        nothing = best["log_probs"] == _IMPOSSIBLE
        return {
            "scores": scores,
            "starts": tf.where(nothing, NOWHERE, best["starts"]),
            "ends": tf.where(nothing, NOWHERE, best["ends"]),
        }

    def _top(self, found: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the n_best of each row of log_probs, starts and ends [N, any]; of equals, the first."""
        log_probs, indices = tf.math.top_k(found["log_probs"], self.n_best)
        offsets = {name: tf.gather(found[name], indices, batch_dims=1) for name in ("starts", "ends")}
        return {"log_probs": log_probs, **offsets}


def _answer_mask(features: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns text.windows.answer_mask of packed windows, bool [W, T]."""
    ids, mask = features["input_word_ids"], tf.cast(features["input_mask"], tf.bool)
    cls = tf.range(tf.shape(ids)[1]) == last_position(mask)[:, None]
    return mask & (features["input_type_ids"] == 0) & (ids != SEP_ID) | cls


def _characters_at(offsets: tf.RaggedTensor, pieces: tf.Tensor) -> tf.Tensor:
    """Returns the offsets of pieces, counted through all contexts; NOWHERE for those below 0."""
    return tf.gather(tf.concat([[NOWHERE], offsets.flat_values], 0), pieces + 1)


def _texts(codes: tf.RaggedTensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """Returns the texts from `starts` to `ends` [B, n] of each row, "" where they are NOWHERE."""
    first = tf.cast(codes.row_starts()[:, None], starts.dtype)
    begins, ends = (tf.reshape(first + tf.maximum(offsets, 0), [-1]) for offsets in (starts, ends))
    return tf.reshape(substrings(codes.flat_values, begins, ends), tf.shape(starts))
