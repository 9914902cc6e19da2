"""One small random model of each head, and texts to give it."""

import numpy as np
import tf_keras

from tests.helpers.training import programs
from xlnet_tf import task_registry
from xlnet_tf.config import XLNetConfig
from xlnet_tf.models.classifier import XLNetClassifier, XLNetRegressor
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice, XLNetRanker
from xlnet_tf.models.question_answering import XLNetQuestionAnswering
from xlnet_tf.models.token_classifier import XLNetTokenClassifier

CONFIG = XLNetConfig(n_token=50, n_layer=1, d_model=16, n_head=2, d_head=6, d_inner=20)
B, T = 3, 12
CHOICES = 3
PAD = 5

HEADS = {
    "classifier": lambda encoder: XLNetClassifier(encoder, 3),
    "classifier_mean": lambda encoder: XLNetClassifier(encoder, 3, "sts-b", summary="mean", projection=False),
    "classifier_attn": lambda encoder: XLNetClassifier(encoder, 3, summary="attn"),
    "classifier_long": lambda encoder: XLNetClassifier(encoder, 3, segment_len=4),
    "regressor": lambda encoder: XLNetRegressor(encoder, "sts-b", summary="first"),
    "span": lambda encoder: XLNetQuestionAnswering(encoder, start_top=2, end_top=3),
    "choice": lambda encoder: XLNetMultipleChoice(encoder, CHOICES),
    "ranker": lambda encoder: XLNetRanker(encoder, CHOICES),
    "tagger": lambda encoder: XLNetTokenClassifier(encoder, 4),
    "tagger_long": lambda encoder: XLNetTokenClassifier(encoder, 4, segment_len=4),
}
_TASKS = ("classification", "regression", "question_answering", "multiple_choice", "ranking", "tagging")
OTHERS = [task for task in task_registry.tasks() if task not in _TASKS]  # as the registry has them


def random_head(kind: str, **options):
    """A built model; nothing is near zero, so that errors show."""
    tf_keras.utils.set_random_seed(0)
    options = {"dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.4, **options}
    if kind not in HEADS:
        return programs.model_of(kind, CONFIG, **options)
    model = HEADS[kind](XLNetEncoder(CONFIG, memory_len=4 if kind.endswith("_long") else 0, **options))
    model.build()
    return model


def random_texts(rng, rows=B, length=T, side="left"):
    """Features of texts [A SEP CLS] of different lengths, each padded on one side."""
    features = {
        "input_word_ids": np.full([rows, length], PAD, np.int32),
        "input_type_ids": np.full([rows, length], 4, np.uint8),
    }
    for row, tokens in enumerate(rng.integers(4, length + 1, rows)):
        place = slice(length - tokens, None) if side == "left" else slice(0, tokens)
        features["input_word_ids"][row, place] = [*rng.integers(9, CONFIG.n_token, tokens - 2), 4, 3]
        features["input_type_ids"][row, place] = [0] * (tokens - 1) + [2]
    features["input_mask"] = (features["input_word_ids"] != PAD).astype(np.uint8)
    return features


def random_features(kind: str, rng, side="left", training=True):
    """What the head `kind` reads; a span's answers are in its text."""
    sequences = CHOICES if kind in ("choice", "ranker") else 1
    if kind not in HEADS:
        sequences = task_registry.find(kind).sequences or CHOICES
    if sequences > 1:
        texts = random_texts(rng, B * sequences, side=side)
        return {name: value.reshape(B, sequences * T) for name, value in texts.items()}
    features = random_texts(rng, side=side)
    if kind == "span":
        features["answer_mask"] = features["input_mask"] * (features["input_word_ids"] != 4).astype(np.uint8)
        if training:
            features["start_position"] = np.argmax(features["answer_mask"], axis=1).astype(np.int32)
    return features


def by_token(outputs, features):
    """Flattens outputs to what does not depend on where a text lies in its row."""
    mask = features["input_mask"].astype(bool)
    first = mask.argmax(axis=1)

    def flatten(name, value):
        if value.shape[:2] == mask.shape:
            return value[mask]
        if name.endswith("_index"):
            return value - first.reshape([-1] + [1] * (value.ndim - 1))
        return value

    return {name: flatten(name, value) for name, value in arrays(outputs).items()}


def arrays(outputs):
    outputs = outputs if isinstance(outputs, dict) else {"logits": outputs}
    return {name: np.asarray(value) for name, value in outputs.items()}


def assert_equal(ours, theirs, **tolerance):
    assert set(ours) == set(theirs)
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], **(tolerance or {"atol": 2e-5}), err_msg=name)
