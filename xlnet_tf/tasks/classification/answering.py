"""Classes of texts or pairs of texts, or a number for them, without TensorFlow."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers.answering import Answering, TextAnswers, as_bytes, softmax
from xlnet_tf.serving.answers.options import check_temperature
from xlnet_tf.tasks.metrics.thresholds import DECISION
from xlnet_tf.text.packing import without_middle

TRUNCATIONS = ("end", "middle")


class AlertRule(NamedTuple):
    """A text is an alert if this label has at least this probability."""

    label: str
    threshold: float


class OneVectorAnswers(TextAnswers):
    """Answers about a text, or a pair, as one sequence; of a text "end" or "middle" is cut."""

    OF_EXAMPLES = ("pair", "truncation")

    def __init__(self, *served: Any, pair: bool = False, truncation: str = "end", **options):
        super().__init__(*served, **options)
        self.pair, self.truncation = pair, check_truncation(truncation)

    def example_rows(self):
        text = "A fine film, from the first minute to the last."
        return {"text_a": text, "text_b": "The film is good."} if self.pair else {"text": text}


class ClassAnswers(OneVectorAnswers):
    """Labels by name with their probabilities."""

    def __init__(
        self,
        *served: Any,
        alert: AlertRule | Mapping[str, Any] | None = None,
        temperature: Sequence[float] | None = None,
        **options,
    ):
        super().__init__(*served, **options)
        if isinstance(alert, Mapping):
            if set(alert) != set(AlertRule._fields):
                raise UserError(f"alert has {', '.join(alert) or 'nothing'}; expected label and threshold")
            alert = AlertRule(**alert)
        if alert and alert.label not in self.labels:
            raise UserError(f"alert.label is {alert.label!r}; expected one of {', '.join(self.labels)}")
        self.alert = alert
        self.temperature = check_temperature(temperature, len(self.labels) if self.multi_label else 1)

    def ask(self, texts, inputs, batch_size):
        if len(set(self.labels)) < len(self.labels):
            raise UserError(
                f"the model has the labels {', '.join(self.labels)}, and answers have a probability of each "
                "label: expected each of them once. Set model.labels"
            )
        return super().ask(texts, inputs, batch_size)

    def readable(self, row, answer):
        answer = dict(answer)
        answer["probabilities"] = dict(zip(labels := answer.pop("labels"), answer["probabilities"]))
        if "assigned" in answer:
            assigned = [label for label, is_one in zip(labels, answer.pop("assigned")) if is_one]
            return {"assigned": assigned, "labels": assigned, **answer}  # `labels` is the old name
        return {name: answer.pop(name) for name in ("label", "score")} | answer


class _OneVector(OneVectorAnswers, Answering):
    def outputs_of(self, texts: Mapping[str, Sequence[str]]) -> dict[str, np.ndarray]:
        """Returns the graph's outputs for columns of texts, in whatever order a request has them."""
        ids, *second = (self.encode(texts[name]) for name in self.input_ranks())
        if self.truncation == "middle" and not self.pair:
            ids = [without_middle(row, self.seq_len - 2) for row in ids]
        return self.graph(self.pack([*zip(ids, *second or [[None] * len(ids)])]))


class ClassificationAnswering(ClassAnswers, _OneVector):
    """See ClassificationModule, whose options and answers it has."""

    def output_kinds(self):
        count = len(self.labels)
        kinds = {"labels": (bytes, count), "probabilities": (np.float32, count)}
        if self.multi_label:
            kinds["assigned"] = (bool, count)
        else:
            kinds |= {"label": (bytes,), "score": (np.float32,)}
        return kinds | ({"alert": (bool,)} if self.alert else {})

    def serve(self, **texts):
        logits = self.outputs_of(texts)["logits"]  # [B, C]
        to_probabilities = sigmoid if self.multi_label else softmax
        probabilities = to_probabilities(logits / np.array(self.temperature, np.float32))
        labels = as_bytes(self.labels)
        answers = {"labels": np.tile(labels, (len(logits), 1)), "probabilities": probabilities}
        if self.multi_label:
            answers["assigned"] = to_probabilities(logits) >= DECISION
        else:
            answers["label"] = labels[logits.argmax(axis=-1)]
            answers["score"] = probabilities.max(axis=-1)
        if self.alert:
            watched = to_probabilities(logits)[:, self.labels.index(self.alert.label)]
            answers["alert"] = watched >= self.alert.threshold
        return answers


class RegressionAnswering(_OneVector):
    """See RegressionModule, whose options and answers it has."""

    def output_kinds(self):
        return {"value": (np.float32,)}

    def serve(self, **texts):
        return {"value": self.outputs_of(texts)["value"]}


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns the logistic function of each, without overflow."""
    return np.float32(0.5) * (np.float32(1) + np.tanh(np.float32(0.5) * logits))


def check_truncation(truncation: str) -> str:
    """Returns what is cut from a text that is too long; raises UserError if it is none of TRUNCATIONS."""
    if truncation not in TRUNCATIONS:
        raise UserError(f"truncation is {truncation!r}; expected one of {', '.join(TRUNCATIONS)}")
    return truncation
