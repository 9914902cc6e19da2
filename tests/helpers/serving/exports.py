"""One tiny module of each kind that is served, what to ask it, and what its model says of tokens."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

from tests.conftest import invent_texts
from tests.helpers.serving.toys import built
from tests.helpers.training import programs
from xlnet_tf import task_registry
from xlnet_tf.config import XLNetConfig
from xlnet_tf.generation.embedding import embed
from xlnet_tf.models.classifier import XLNetClassifier, XLNetRegressor
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice, XLNetRanker
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.models.question_answering import XLNetQuestionAnswering
from xlnet_tf.models.token_classifier import XLNetTokenClassifier
from xlnet_tf.serving.graph.exported_model import ExportableModel
from xlnet_tf.tasks.classification.serving import AlertRule, ClassificationModule, RegressionModule
from xlnet_tf.tasks.multiple_choice.serving import MultipleChoiceModule
from xlnet_tf.tasks.pretraining.serving import LanguageModelModule
from xlnet_tf.tasks.question_answering.serving import QuestionAnsweringModule
from xlnet_tf.tasks.ranking.serving import RankingModule
from xlnet_tf.tasks.tagging.serving import TaggingModule
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID

LENGTHS = {"seq_len": 40, "buckets": [24]}
TEXTS = ["", b"\xff ba\x00ne", *invent_texts(2), " ".join(invent_texts(6)).encode()]
OTHERS = [*invent_texts(3, seed=1), " \t", "<sep> <mask> 5, 7"]
LABELS = ["bad", "fair", "good"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC"]


class Kind(NamedTuple):
    """A served task.

    Attributes:
        model: of the tokenizer, the model as it was trained.
        module: of model and tokenizer, what is exported.
        columns: inputs of serving_default, some rows; None: the module's example.
        answer: some outputs of `tokens`, computed from model and features without the module.
    """

    model: Callable[..., tf_keras.Model]
    module: Callable[..., ExportableModel]
    columns: Mapping[str, list[Any]] | None = None
    answer: Callable[[tf_keras.Model, Mapping[str, np.ndarray]], Mapping[str, Any]] | None = None

    def rows(self, module: ExportableModel) -> Mapping[str, list[Any]]:
        """Returns the rows to ask, by input."""
        return self.columns or {name: [value] * 3 for name, value in module.example_rows().items()}


def _span_answer(model, features):
    ids, segments = features["input_word_ids"], features["input_type_ids"]
    passage = (features["input_mask"] == 1) & (segments == 0) & (ids != SEP_ID)
    return model({**features, "answer_mask": passage | (ids == CLS_ID)})


_KINDS = {
    "classification": Kind(
        lambda tokenizer: built(XLNetClassifier, tokenizer, 3, labels=LABELS),
        lambda *parts: ClassificationModule(*parts, alert=AlertRule("bad", 0.4), **LENGTHS),
        {"text": TEXTS},
        lambda model, features: {"probabilities": tf.nn.softmax(model(features))},
    ),
    "regression": Kind(
        lambda tokenizer: built(XLNetRegressor, tokenizer),
        lambda *parts: RegressionModule(*parts, pair=True, **LENGTHS),
        {"text_a": TEXTS, "text_b": OTHERS},
        lambda model, features: {"value": model(features)},
    ),
    "multiple_choice": Kind(
        lambda tokenizer: built(XLNetMultipleChoice, tokenizer, 3),
        lambda *parts: MultipleChoiceModule(*parts, max_qa_len=12, **LENGTHS),
        {"context": TEXTS, "question": OTHERS, "options": [[text, "ba ne", b"\xfftor"] for text in OTHERS]},
        lambda model, features: {"logits": model.pooled_logits(features, False)[:, 0]},
    ),
    "ranking": Kind(
        lambda tokenizer: built(XLNetRanker, tokenizer, 3),
        lambda *parts: RankingModule(*parts, max_query_len=7, **LENGTHS),
        {"query": OTHERS, "candidates": [[text, "ba ne"] for text in TEXTS]},
        lambda model, features: {"scores": model.pooled_logits(features, False)[:, 0]},
    ),
    "question_answering": Kind(
        lambda tokenizer: built(XLNetQuestionAnswering, tokenizer, start_top=4, end_top=3),
        lambda *parts: QuestionAnsweringModule(
            *parts, threshold=0.0, max_question_len=10, stride=9, **LENGTHS
        ),
        {"question": OTHERS, "context": TEXTS},
        _span_answer,
    ),
    "tagging": Kind(
        lambda tokenizer: built(XLNetTokenClassifier, tokenizer, len(TAGS), labels=TAGS),
        lambda *parts: TaggingModule(*parts, **LENGTHS),
        {"text": TEXTS},
        lambda model, features: {"probabilities": tf.nn.softmax(model(features))},
    ),
    "language_model": Kind(
        lambda tokenizer: built(XLNetPretrainer, tokenizer),
        lambda *parts: LanguageModelModule(*parts, **LENGTHS),
        {"text": TEXTS},
        lambda model, features: embed(model.encoder, features)._asdict(),
    ),
}


def of_registry(task: str) -> Kind:
    """Returns the kind of a task that has none above: what its entry in the registry says."""

    def model(tokenizer):
        config = XLNetConfig(tokenizer.vocab_size, n_layer=1, d_model=16, n_head=2, d_head=8, d_inner=20)
        return programs.model_of(task, config, dropout=0.0, attention_dropout=0.0, initializer_range=0.4)

    serving = task_registry.find(task).load("serving")
    return Kind(model, lambda *parts: serving(*parts, **LENGTHS))


KINDS = {
    name: _KINDS.get(name) or of_registry(name)
    for name in (*task_registry.tasks(), task_registry.LANGUAGE_MODEL)
}
