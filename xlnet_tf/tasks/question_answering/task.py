"""Extractive question answering, SQuAD 1.1 and 2.0: which words of a passage answer a question, if any."""

import dataclasses
from typing import Any

import numpy as np
import scipy.special
import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.models.question_answering import XLNetQuestionAnswering, span_losses
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.layout import Column
from xlnet_tf.task_registry import Sizes
from xlnet_tf.tasks.finetuning import FinetuningTask, register
from xlnet_tf.tasks.metrics.calibration import Probabilities
from xlnet_tf.tasks.model_config import SegmentsModelConfig
from xlnet_tf.tasks.question_answering import answers as squad_answers
from xlnet_tf.tasks.question_answering import files as squad_files
from xlnet_tf.tasks.question_answering import metrics as squad_metrics
from xlnet_tf.tasks.scoring import row_weights
from xlnet_tf.tasks.settings import FinetuningConfig
from xlnet_tf.text.graph.passage_windows import window_tokens
from xlnet_tf.training.task import Ratio, weighted

EXPERIMENT = "xlnet/question_answering"


@dataclasses.dataclass
class QuestionAnsweringModelConfig(SegmentsModelConfig):
    """The network.

    Attributes (besides those of SegmentsModelConfig):
        start_top: beginnings of answers that are looked at in a window.
        end_top: ends that are looked at for each beginning.
    """

    start_top: int = 5
    end_top: int = 5


@dataclasses.dataclass
class QuestionAnsweringConfig(FinetuningConfig):
    """Settings of question answering.

    Attributes (those that have a flag are described in its help):
        no_answer_threshold: the no-answer logit above which a prediction is empty. Not given: the one that
            was best for F1 in the run's best evaluation.
        answer_precision: the share of the answers given that must be exactly right on the dev examples, with
            as many questions answered as possible; instead of the best F1. 0: no such demand.
    """

    model: QuestionAnsweringModelConfig = dataclasses.field(default_factory=QuestionAnsweringModelConfig)
    n_best: int = squad_answers.N_BEST
    max_answer_len: int = squad_answers.MAX_ANSWER_LEN
    no_answer_threshold: float | None = None
    answer_precision: float = 0.0


@register(EXPERIMENT, QuestionAnsweringConfig)
class QuestionAnsweringTask(FinetuningTask):
    """Predicts an answer's first and last token in each window, and in 2.0 whether there is one."""

    TASK = "question_answering"
    BEST_METRIC = "best_f1"
    IN_PERCENT = True
    TOKEN_COLUMNS = ("answer_mask",)
    POSITION_COLUMNS = ("start_position", "end_position")
    TRAINING_NAMES = {"answer_first": "start_position", "answer_last": "end_position"}
    POSITION_PREDICTIONS = ("start_top_index", "end_top_index")
    SETTINGS = {"unanswerable": bool, "max_question_len": int, "stride": int, "answered": bool}
    ANSWERED = "answered"

    def __init__(
        self, params: QuestionAnsweringConfig, *args, trained_on: ExampleSet | None = None, **kwargs
    ):
        super().__init__(params, *args, trained_on=trained_on, **kwargs)
        if not 0 <= params.answer_precision <= 1:
            raise UserError(
                f"task.answer_precision (--answer_precision) is {params.answer_precision}: expected 0 to 1"
            )
        if params.answer_precision and not self.unanswerable:
            raise UserError(
                "task.answer_precision (--answer_precision) is for questions of which some have no answer: "
                f"those of {self.example_set.folder} all have one"
            )
        if params.answer_precision and trained_on is None and self.validation_set is None:
            raise UserError(
                f"task.answer_precision (--answer_precision) is {params.answer_precision:g}: it finds its "
                "threshold on dev examples, and there are none. Give a set with --dev_split "
                "(task.validation_data.input_path), or leave out --answer_precision"
            )
        if self.validation_set and self.validation_set.settings["unanswerable"] and not self.unanswerable:
            raise UserError(
                f"{self.validation_set.folder} has questions without an answer (SQuAD 2.0), but the model is "
                f"trained on questions that have one (1.1, {self.example_set.folder}): expected data of the "
                "same version"
            )

    def check_settings(self, examples):
        """Raises UserError, too, if the examples do not have the question in each segment that is read."""
        super().check_settings(examples)
        built, asked = examples.settings.get("segment_len", 0), self.segment_len
        if built == asked:
            return
        if not built:
            raise UserError(
                f"task.model.segment_len (--segment_len) is {asked}, but the examples in {examples.folder} "
                "have the question at the end only, where earlier segments do not see it: build them with "
                f"--segment_len={asked}"
            )
        raise UserError(
            f"the examples in {examples.folder} have the question in each segment of {built} tokens, and "
            f"task.model.segment_len is {asked}: give --segment_len={built}"
        )

    @property
    def unanswerable(self) -> bool:
        return self.example_set.settings["unanswerable"]

    def build_head(self, encoder):
        model = self.task_config.model
        options = {"start_top": model.start_top, "end_top": model.end_top, **model.segment_options()}
        return XLNetQuestionAnswering(encoder, **options)

    @property
    def min_length(self):
        return max(self.task_config.model.start_top, self.task_config.model.end_top)

    def build_metrics(self, training: bool = True):
        return [Ratio(name) for name in ("loss", "start_accuracy", "end_accuracy")] if training else []

    def sums(self, features, outputs):
        if not self.unanswerable:
            features = {name: value for name, value in features.items() if name != "is_impossible"}

        def hits(logits, positions):
            predicted = tf.argmax(logits, axis=-1, output_type=tf.int32) == tf.cast(positions, tf.int32)
            return tf.cast(predicted, tf.float32)

        return weighted(
            row_weights(features),
            loss=span_losses(outputs, features),
            start_accuracy=hits(outputs["start_logits"], features["start_position"]),
            end_accuracy=hits(outputs["end_logits"], features["end_position"]),
        )

    def validation_sums(self, features, outputs):
        return {}  # evaluation searches for answers and does not know where they begin

    def predictions(self, features, outputs):
        if not self.segment_len:
            return dict(outputs)
        tokens = {
            name: window_tokens(features["answer_mask"], outputs[name]) for name in self.POSITION_PREDICTIONS
        }
        return {**outputs, **tokens}

    def constant_score(self, examples):
        return squad_metrics.share_without_answer(examples) if self.unanswerable else 0.0

    def units(self, examples, predictions):
        units = squad_metrics.question_scores(self._answers(examples, predictions), self.unanswerable)
        threshold = self.no_answer_threshold()
        if self.unanswerable and threshold is not None:
            units["threshold"] = np.full(len(units["f1"]), threshold)
        return units

    def score_units(self, units):
        return squad_metrics.score(units, units.get("threshold"), self.task_config.answer_precision)

    def probabilities(self, examples, predictions):
        """Returns the probability that a question has no answer, where some have none."""
        if not self.unanswerable:
            return None
        questions = self.units(examples, predictions)
        values = scipy.special.expit(questions["no_answer_logit"])[:, None]
        return Probabilities(values, ~questions["has_answer"][:, None], ["no answer"], exclusive=False)

    def shortfall(self, metrics):
        wish, precision = self.task_config.answer_precision, metrics.get("precise_precision", np.nan)
        if not precision < wish:
            return ""
        return (
            f"with the best threshold {precision:.4f} of the answers given, to "
            f"{metrics['precise_answered']:.1%} of the questions, are right, and --answer_precision asks for "
            f"{wish:g}"
        )

    def find_mistakes(self, examples, predictions):
        answers = {each.question.id: each for each in self._answers(examples, predictions)}
        return squad_files.mistakes(examples.sidecar(), answers, self.refusal_threshold())

    def write_predictions(self, examples, predictions, folder):
        return squad_files.write_files(self._answers(examples, predictions), folder, self.refusal_threshold())

    def _answers(self, examples, predictions) -> list[squad_answers.Prediction]:
        return squad_answers.predict(
            list(squad_answers.read_questions(examples)),
            predictions,
            self.task_config.n_best,
            self.task_config.max_answer_len,
        )

    def no_answer_threshold(self) -> float | None:
        """Returns the threshold that is asked for or was found in training; None if there is none."""
        asked = self.task_config.no_answer_threshold
        found = "precise_threshold" if self.task_config.answer_precision else "best_f1_threshold"
        return self.best_metrics().get(found) if asked is None else asked

    def refusal_threshold(self) -> float | None:
        """Returns the logit of no answer above which an answer is refused; None: all questions have one."""
        if not self.unanswerable:
            return None
        threshold = self.no_answer_threshold()
        return squad_answers.UNDECIDED if threshold is None else threshold


def synthetic(sizes: Sizes) -> tuple[list[Column], dict[str, Any]]:
    """Returns the columns and settings of questions without content."""
    length = sizes.seq_len // 2  # of a part: of no weight for a step
    columns = [
        Column("answer_mask", "uint8", sizes.seq_len),
        Column("is_impossible", "uint8", None),
        Column("answer_first", "int32", None),
        Column("answer_last", "int32", None),
    ]
    settings = {"unanswerable": True, "max_question_len": length, "stride": length, "answered": True}
    if sizes.segment_len:
        settings["segment_len"] = sizes.segment_len
    return columns, settings
