"""The best of several options, each read by itself with a question and a context, without TensorFlow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers import text_answers
from xlnet_tf.serving.answers.answering import as_bytes, softmax
from xlnet_tf.serving.answers.candidates import CandidateAnswers, CandidatesAnswering
from xlnet_tf.serving.answers.options import check_room, check_temperature
from xlnet_tf.text.inputs import join_option


class ChoiceAnswers(CandidateAnswers):
    """Probabilities of the options of a question."""

    LENGTHS = {"max_qa_len": 128}
    OF_EXAMPLES = ("max_qa_len",)

    def __init__(self, *served: Any, max_qa_len: int, temperature: Sequence[float] | None = None, **options):
        super().__init__(*served, **options)
        check_room("max_qa_len", max_qa_len, self.seq_len)
        self.max_qa_len = max_qa_len
        self.temperature = check_temperature(temperature, 1)

    def example_rows(self):
        return {
            "context": "The ship left the harbour at dawn and was never seen again.",
            "question": "The ship left _ .",
            "options": ["at night", "at dawn", "at noon", "in winter"],
        }

    def ask(self, texts, inputs, batch_size):
        for number, row in enumerate(text_answers.normalize_inputs(self.input_ranks(), texts, inputs)[0]):
            if not row["options"]:
                raise UserError(f"options of row {number} are empty; expected at least one")
        return super().ask(texts, inputs, batch_size)


class MultipleChoiceAnswering(ChoiceAnswers, CandidatesAnswering):
    """See MultipleChoiceModule, whose options and answers it has."""

    def output_kinds(self):
        numbers = (np.float32, -1)
        return {"answer": (np.int32,), "option": (bytes,), "probabilities": numbers, "logits": numbers}

    def serve(self, context, question, options):
        if not any(options):
            raise UserError("options has none; expected some for each question")
        joined = [join_option(each, option) for each, row in zip(question, options) for option in row]
        answers = iter(self.encode(joined))
        contexts = self.encode(context)
        rows = []
        for ids, row in zip(contexts, options):
            parts = [next(answers)[-self.max_qa_len :] for _ in row]
            rows.append([(ids[: self.seq_len - 3 - len(part)], part) for part in parts])
        logits, there = self.logits_of(rows)
        scaled = np.divide(logits, np.float32(self.temperature[0]), out=logits.copy(), where=there)
        probabilities = softmax(scaled)
        best = logits.argmax(axis=-1)
        return {
            "answer": best.astype(np.int32),
            "option": as_bytes([row[index] if row else "" for row, index in zip(options, best)]),
            "probabilities": np.where(there, probabilities, np.float32(0)),  # those without any option, too
            "logits": logits,
        }
