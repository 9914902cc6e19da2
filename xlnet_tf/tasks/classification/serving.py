"""SavedModels that classify texts or pairs of texts, or give them a number."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import tensorflow as tf

from xlnet_tf.serving.graph.exported_model import CLASSIFY, REGRESS, ExportableModel
from xlnet_tf.serving.graph.inputs import parse_examples, serialized_example, signature
from xlnet_tf.tasks.classification.answering import AlertRule, ClassAnswers, OneVectorAnswers
from xlnet_tf.tasks.metrics.thresholds import DECISION
from xlnet_tf.text.graph.packing import without_middle

CLASSIFY_NAME, REGRESS_NAME = "classify", "regress"


class _OneVector(OneVectorAnswers, ExportableModel):
    """Base of both kinds: a text, or a pair, becomes one sequence, cut at its end or in its middle."""

    SERVING_OUTPUTS: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    def serve(self, **texts):
        ids = [self.texts.encode(text) for text in texts.values()]
        if self.truncation == "middle" and not self.pair:
            ids = [without_middle(ids[0], self.seq_len - 2)]
        return self.serve_tokens(self.pack(*ids))

    def signatures(self):
        [(name, outputs)] = self.SERVING_OUTPUTS.items()
        specs = self.input_specs()

        def serve(inputs):  # as TensorFlow Serving asks: tf.Examples, and outputs by its own names
            answers = self.answer(**parse_examples(inputs, specs))
            return {name: answers[answer] for answer, name in outputs.items()}

        inputs = tf.TensorSpec([None], tf.string)
        return {**super().signatures(), name: signature(serve, inputs=inputs)}

    def example_inputs(self):
        [name] = self.SERVING_OUTPUTS
        inputs = np.array([serialized_example(self.example_rows())], object)
        return {**super().example_inputs(), name: {"inputs": inputs}}


class ClassificationModule(ClassAnswers, _OneVector):
    """Labels by name with their probabilities.

    Signatures: serving_default (text, or text_a and text_b), examples, tokens: see ExportableModel; they give
        label [B] string and score [B], the likeliest label and its probability (with one label a text), or
        assigned [B, C] bool (with several): the labels of at least 0.5;
        labels [B, C] string, probabilities [B, C] float32;
        alert [B] bool, if alerts are looked for.
      classify: TensorFlow Serving's Classify; tf.Examples in, classes and scores [B, C] out.

    Args:
        alert: what an alert is, of probabilities without a temperature; None: there are none.
        temperature: what logits are divided by for the probabilities, one for all labels or one for each (see
            metrics.calibration); None: they are as the model has them. It changes no label and no alert.
        **options: pair, truncation, and those of ExportableModel.

    Example:
        >>> module = ClassificationModule(model, tokenizer, seq_len=128)
        >>> export(module, "served/reviews")
    """

    METHODS = {CLASSIFY_NAME: CLASSIFY}
    SERVING_OUTPUTS = {CLASSIFY_NAME: {"labels": "classes", "probabilities": "scores"}}

    @classmethod
    def options_of_run(cls, task):
        label = task.task_config.alert.label
        alert = AlertRule(label, task.alert_threshold()) if label else None
        return {**super().options_of_run(task), "alert": alert}

    @property
    def _to_probabilities(self):
        return tf.nn.sigmoid if self.multi_label else tf.nn.softmax

    def graph_outputs(self, features):
        """Returns logits and probabilities [B, C]; the temperature changes the probabilities alone."""
        logits = self.run(features)
        return {"logits": logits, "probabilities": self._to_probabilities(logits / self.temperature)}

    def serve_tokens(self, features):
        logits, probabilities = self.graph_outputs(features).values()
        labels = tf.constant(self.labels)
        answers = {"labels": tf.broadcast_to(labels, tf.shape(probabilities)), "probabilities": probabilities}
        if self.multi_label:
            answers["assigned"] = self._to_probabilities(logits) >= DECISION
        else:
            answers["label"] = tf.gather(labels, tf.argmax(logits, axis=-1))
            answers["score"] = tf.reduce_max(probabilities, axis=-1)
        if self.alert:
            watched = self._to_probabilities(logits)[:, self.labels.index(self.alert.label)]
            answers["alert"] = watched >= self.alert.threshold
        return answers


class RegressionModule(_OneVector):
    """A number for a text or a pair of texts.

    Signatures: serving_default, examples, tokens: see ExportableModel; they give value [B] float32.
      regress: TensorFlow Serving's Regress; tf.Examples in, outputs [B] out.
    """

    METHODS = {REGRESS_NAME: REGRESS}
    SERVING_OUTPUTS = {REGRESS_NAME: {"value": "outputs"}}

    def graph_outputs(self, features):
        return {"value": self.run(features)}

    serve_tokens = graph_outputs
