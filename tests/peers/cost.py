"""What it costs to read other tokens: a small classifier, evaluated on the tokens of other libraries."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tf_keras

from xlnet_tf import XLNetClassifier, XLNetConfig, XLNetTokenizer
from xlnet_tf.text.packing import pack

_SEQ_LEN = 64
_SIZES = {"d_model": 128, "n_layer": 2, "n_head": 4, "d_head": 32, "d_inner": 256}


def read_rows(path: pathlib.Path, most: int) -> tuple[list[str], np.ndarray]:
    """Reads `sentence<tab>label` lines after a header."""
    rows = [line.rsplit("\t", 1) for line in path.read_text().splitlines()[1 : most + 1]]
    return [text.strip() for text, _ in rows], np.array([int(label) for _, label in rows])


def inputs(rows: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """Returns a model's inputs of piece ids."""
    packed = [pack(np.array(row, np.int32), None, seq_len=_SEQ_LEN) for row in rows]
    ids = np.array([row.input_ids for row in packed], np.int32)
    segments = np.array([row.segment_ids for row in packed], np.uint8)
    return {"input_word_ids": ids, "input_mask": (ids != 5).astype(np.uint8), "input_type_ids": segments}


def train(tokenizer: XLNetTokenizer, texts: Sequence[str], labels: np.ndarray) -> tf_keras.Model:
    """Trains a classifier from random weights on our tokens."""
    tf_keras.utils.set_random_seed(0)
    model = XLNetClassifier(XLNetConfig(n_token=tokenizer.vocab_size, **_SIZES), 2)
    model.compile(
        tf_keras.optimizers.Adam(5e-4), tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.fit(inputs(tokenizer.encode(list(texts))), labels, batch_size=64, epochs=3, verbose=2)
    return model


def evaluate(
    model: tf_keras.Model, labels: np.ndarray, tokens: Mapping[str, Sequence[Sequence[int]]]
) -> Iterator[list[str]]:
    """Yields the rows of the table: whose tokens, how many texts differ, accuracy and loss on each kind."""
    yield ["tokens of", "texts split differently", "accuracy", "loss", "accuracy on those", "ours on those"]
    names = list(tokens)
    ours = tokens[names[0]]
    own = _log_probabilities(model, ours)
    for name in names:
        log_probs = _log_probabilities(model, tokens[name])
        different = np.array([a != b for a, b in zip(ours, tokens[name], strict=True)])
        right, own_right = (each.argmax(1) == labels for each in (log_probs, own))
        loss = -log_probs[np.arange(len(labels)), labels].mean()
        shares = [
            f"{100 * each[different].mean():.1f}" if different.any() else "" for each in (right, own_right)
        ]
        yield [
            name,
            f"{different.sum():,} of {len(labels):,}",
            f"{100 * right.mean():.1f}",
            f"{loss:.4f}",
            *shares,
        ]


def _log_probabilities(model: tf_keras.Model, rows: Sequence[Sequence[int]]) -> np.ndarray:
    logits = model.predict(inputs(rows), batch_size=256, verbose=0)
    largest = logits.max(1, keepdims=True)
    return logits - largest - np.log(np.exp(logits - largest).sum(1, keepdims=True))
