"""The words of a context that answer a question, without TensorFlow; see serving.py for the answers."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers import answering
from xlnet_tf.tasks.question_answering.answers import MAX_ANSWER_LEN, N_BEST
from xlnet_tf.text.offsets import Encoded, encode_with_offsets
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.windows import Window, answer_mask, best_windows, pack_window, split_windows, window_room

NOWHERE = -1  # the characters of no answer
WINDOWS_AT_ONCE = 16
_IMPOSSIBLE = np.float32(-np.inf)


class SpanAnswers(answering.TextAnswers):
    """The words of a context that answer a question, if any do."""

    LENGTHS = {"max_question_len": 64}
    IN_EACH_SEGMENT = True
    OF_EXAMPLES = ("max_question_len", "stride")
    start_top: int
    end_top: int

    def __init__(
        self,
        *served: Any,
        max_question_len: int = 64,
        stride: int = 128,
        threshold: float | None = None,
        n_best: int = N_BEST,
        max_answer_len: int = MAX_ANSWER_LEN,
        **options,
    ):
        super().__init__(*served, **options)
        self.read_at_once = self.segment_len or self.seq_len
        self.most_room = window_room(0, self.seq_len, self.read_at_once)
        most = window_room(1, self.read_at_once)
        if not 0 < max_question_len <= most:
            sequences, longer = "sequences", f", or a seq_len of at least {max(max_question_len, 1) + 4}"
            if self.segment_len:
                sequences, longer = "segments", ""
            raise UserError(
                f"max_question_len is {max_question_len}; expected 1 to {most}, so that {sequences} of "
                f"{self.read_at_once} tokens have room for some of the context{longer}"
            )
        for name, value in (("stride", stride), ("n_best", n_best), ("max_answer_len", max_answer_len)):
            if value < 1:
                raise UserError(f"{name} is {value}; expected at least 1")
        if threshold is not None and math.isnan(threshold):
            raise UserError("threshold is NaN; expected a number, or None to answer always")
        looked_at = max(self.start_top, self.end_top)
        self.buckets = tuple(length for length in self.buckets if length >= looked_at)
        if not self.buckets:
            raise UserError(
                f"seq_len is {self.seq_len}, but the model looks at {looked_at} tokens; expected at least "
                f"{looked_at}"
            )
        self.max_question_len, self.stride, self.threshold = max_question_len, stride, threshold
        self.n_best = min(n_best, self.start_top * self.end_top)
        self.max_answer_len = max_answer_len

    def example_rows(self):
        return {
            "question": "Who wrote the first program?",
            "context": "Ada Lovelace wrote the first program for Babbage's engine in 1843.",
        }

    def readable(self, row, answer):
        columns = {name: answer[f"{name}s"] for name in ("answer", "start", "end", "score")}
        best = [dict(zip(columns, values)) for values in zip(*columns.values())]
        single = {name: answer[name] for name in (*columns, "null_odds") if name in answer}
        return {**single, "answers": [one for one in best if one["start"] != NOWHERE]}


class _Reading(NamedTuple):
    """A question with its context, and the windows over it."""

    question: answering.Ids
    context: Encoded
    windows: list[Window]


class QuestionAnsweringAnswering(SpanAnswers, answering.Answering):
    """See QuestionAnsweringModule, whose options and answers it has; both tops are the graph's."""

    def __init__(
        self, graph: answering.Graph, tokenizer: XLNetTokenizer, *, start_top: int, end_top: int, **options
    ):
        self.start_top, self.end_top = start_top, end_top
        super().__init__(graph, tokenizer, **options)

    def output_kinds(self):
        single = {"answer": bytes, "start": np.int32, "end": np.int32, "score": np.float32}
        kinds = {name: (kind,) for name, kind in single.items()}
        kinds |= {f"{name}s": (kind, self.n_best) for name, kind in single.items()}
        return kinds | ({} if self.threshold is None else {"null_odds": (np.float32,)})

    def serve(self, question, context):
        questions = [ids[: self.max_question_len] for ids in self.encode(question)]
        readings = [self._reading(*pair) for pair in zip(questions, context)]
        windows = [(row, number) for row, each in enumerate(readings) for number in range(len(each.windows))]
        most = max(len(readings), WINDOWS_AT_ONCE)
        found = answering.in_chunks(
            lambda begin, end: self._candidates(readings, windows[begin:end]), len(windows), most
        )
        stops = np.cumsum([len(each.windows) for each in readings])[:-1]
        by_row = [dict(zip(found, row)) for row in zip(*(np.split(each, stops) for each in found.values()))]
        rows = [self._top({name: row[name].reshape(1, -1) for name in _PLACES}) for row in by_row]
        best = {name: np.concatenate([row[name] for row in rows]) for name in _PLACES}
        nothing = best["log_probs"] == _IMPOSSIBLE
        starts, ends = (np.where(nothing, np.int32(NOWHERE), best[name]) for name in ("starts", "ends"))
        texts = [
            [text[begin:end] if begin != NOWHERE else "" for begin, end in zip(*spans)]
            for text, *spans in zip(context, starts, ends)
        ]
        several = {"answers": answering.as_bytes(texts), "starts": starts, "ends": ends}
        several["scores"] = np.exp(best["log_probs"])
        null_odds = np.array([row["no_answer_logits"].min() for row in by_row], np.float32)
        return {**several, **self._single(several, null_odds)}

    def _single(self, several: dict[str, np.ndarray], null_odds: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the best answers, unless they are refused."""
        answered = several["starts"][:, 0] != NOWHERE
        single = {}
        if self.threshold is not None:
            answered &= null_odds <= np.float32(self.threshold)
            single["null_odds"] = null_odds
        nothing = {
            "answer": b"",
            "start": np.int32(NOWHERE),
            "end": np.int32(NOWHERE),
            "score": np.float32(0),
        }
        for name, value in nothing.items():
            single[name] = np.where(answered, several[f"{name}s"][:, 0], value)
        return single

    def _reading(self, question: answering.Ids, text: str) -> _Reading:
        context = encode_with_offsets(self.tokenizer, text)
        room = self.most_room - self.seq_len // self.read_at_once * len(question)
        return _Reading(question, context, split_windows(len(context.ids), room, self.stride))

    def _candidates(
        self, readings: Sequence[_Reading], windows: Sequence[tuple[int, int]]
    ) -> dict[str, np.ndarray]:
        """Returns the n_best answers of each window, as QuestionAnsweringModule chooses them."""
        beams = self._beams([(readings[row], readings[row].windows[number]) for row, number in windows])
        last = beams["end_top_index"]  # [C, K, E]
        first = np.broadcast_to(beams["start_top_index"][:, :, None], last.shape)
        lengths = np.array([readings[row].windows[number].length for row, number in windows])[:, None, None]
        allowed = (first <= last) & (last < lengths) & (last - first < self.max_answer_len)
        log_probs = beams["start_top_log_probs"][:, :, None] + beams["end_top_log_probs"]
        starts, ends = np.full(last.shape, NOWHERE, np.int32), np.full(last.shape, NOWHERE, np.int32)
        for index, (row, number) in enumerate(windows):
            allowed[index] &= self._shows_best(readings[row].windows, number, first[index])
            base, place = readings[row].windows[number].first, allowed[index]
            starts[index, place] = readings[row].context.begins[base + first[index, place]]
            ends[index, place] = readings[row].context.ends[base + last[index, place]]
        log_probs = np.where(allowed & (starts < ends), log_probs, _IMPOSSIBLE)
        flat = {"log_probs": log_probs, "starts": starts, "ends": ends}
        best = self._top({name: values.reshape(len(windows), -1) for name, values in flat.items()})
        return {**best, "no_answer_logits": beams["no_answer_logits"]}

    def _shows_best(self, windows: Sequence[Window], number: int, tokens: np.ndarray) -> np.ndarray:
        reach = math.ceil(self.most_room / self.stride)  # windows that may hold the same token
        near = windows[(begin := max(0, number - reach)) : number + reach + 1]
        best = best_windows(near, (windows[number].first + tokens).ravel())
        return (best == number - begin).reshape(tokens.shape)

    def _beams(self, windows: Sequence[tuple[_Reading, Window]]) -> dict[str, np.ndarray]:
        """Returns the graph's outputs for windows; positions are tokens of the window, or lie beyond it."""
        if not self.segment_len:
            parts = [(each.context.ids[w.first : w.first + w.length], each.question) for each, w in windows]
            return self.graph(self.pack(parts, padding="right"))
        beams = self.graph(
            answering.features(
                pack_window(each.context.ids, window, each.question, self.seq_len, self.segment_len)
                for each, window in windows
            )
        )
        for index, (each, window) in enumerate(windows):
            mask = answer_mask(window, len(each.question), self.seq_len, self.segment_len).astype(np.int32)
            tokens = np.where(mask > 0, np.cumsum(mask) - mask, self.seq_len)
            for name in ("start_top_index", "end_top_index"):
                beams[name][index] = tokens[beams[name][index]]
        return beams

    def _top(self, found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the n_best of each row of log_probs, starts and ends [N, any]; of equals, the first."""
        order = np.argsort(-found["log_probs"], axis=-1, kind="stable")[:, : self.n_best]
        return {name: np.take_along_axis(values, order, axis=-1) for name, values in found.items()}


_PLACES = ("log_probs", "starts", "ends")
