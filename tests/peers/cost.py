"""What tokens of other libraries cost a small classifier that was trained on our tokens."""

import csv
import pathlib
import random
from collections.abc import Iterator, Sequence

import numpy as np
import tf_keras

from tests.peers.environments import log
from tests.peers.tokens import LIBRARIES
from xlnet_tf import XLNetClassifier, XLNetConfig, XLNetEncoder, XLNetTokenizer
from xlnet_tf.text.packing import pack
from xlnet_tf.text.special_tokens import PAD_ID

SEQ_LEN, TRAINED, TESTED, SEEDS, EPOCHS = 64, 8000, 2500, 3, 2
_SIZES = {"d_model": 64, "n_layer": 2, "n_head": 4, "d_head": 16, "d_inner": 128}
Ids = Sequence[Sequence[int]]


def table(tokenizer: XLNetTokenizer, labelled: str, folder: pathlib.Path, only: str) -> Iterator[list[str]]:
    """Yields the rows of the table; `labelled` is a csv file with the columns text and label."""
    with open(labelled, newline="") as file:
        rows = [(" ".join(row["text"].split()), row["label"]) for row in csv.DictReader(file)]
    random.Random(0).shuffle(rows)
    texts = [text for text, _ in rows[: TRAINED + TESTED]]
    names = sorted({label for _, label in rows})
    labels = np.array([names.index(label) for _, label in rows[: len(texts)]])
    ids = tokenizer.encode(texts)
    test, expected = ids[TRAINED:], labels[TRAINED:]
    training = tokenizer.vocab_size, ids[:TRAINED], labels[:TRAINED], len(names)
    models = [_trained(*training, seed) for seed in range(SEEDS)]
    own = [_log_probabilities(model, test) for model in models]
    yield ["tokens of", "texts split differently", "accuracy", "loss", "answers that change"]
    yield _row("this project", test, test, own, own, expected)
    tokenizer.save_pretrained(folder)
    for library in LIBRARIES:
        if library.cleans and only in library.name:
            name, [found] = library.ids(folder, texts[TRAINED:])
            answers = [_log_probabilities(model, found) for model in models]
            yield _row(name, test, found, own, answers, expected)


def _row(name: str, expected: Ids, read: Ids, own, found, labels: np.ndarray) -> list[str]:
    """Returns cells; accuracies, losses and changes of all seeds."""
    rows = np.arange(len(labels))
    different = sum(a != b for a, b in zip(expected, read, strict=True))
    accuracy = [100 * np.mean(each.argmax(1) == labels) for each in found]
    loss = [-each[rows, labels].mean() for each in found]
    changed = [np.sum(a.argmax(1) != b.argmax(1)) for a, b in zip(own, found)]
    return [
        name,
        f"{different:,} of {len(labels):,}",
        " ".join(f"{value:.2f}" for value in accuracy),
        " ".join(f"{value:.4f}" for value in loss),
        " ".join(f"{value:,}" for value in changed),
    ]


def _features(rows: Ids) -> dict[str, np.ndarray]:
    packed = [pack(row, seq_len=SEQ_LEN) for row in rows]
    ids = np.array([row.input_ids for row in packed])
    segments = np.array([row.segment_ids for row in packed])
    return {"input_word_ids": ids, "input_mask": (ids != PAD_ID).astype(np.uint8), "input_type_ids": segments}


def _trained(vocab_size: int, rows: Ids, labels: np.ndarray, classes: int, seed: int) -> tf_keras.Model:
    """Trains a classifier from random weights."""
    tf_keras.utils.set_random_seed(seed)
    model = XLNetClassifier(XLNetEncoder(XLNetConfig(n_token=vocab_size, **_SIZES)), classes)
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf_keras.optimizers.Adam(5e-4), loss)
    history = model.fit(_features(rows), labels, batch_size=64, epochs=EPOCHS, verbose=0)
    log(f"seed {seed}: {history.history['loss']}")
    return model


def _log_probabilities(model: tf_keras.Model, rows: Ids) -> np.ndarray:
    logits = model.predict(_features(rows), batch_size=256, verbose=0)
    logits = logits - logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))
