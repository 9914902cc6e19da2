"""A small trained model, of a language in which each word says which may follow it.

python -m tests.verification.language

trains it anew, half a minute, and writes it to tests/verification/trained.
"""

import pathlib
import random

import numpy as np
import tensorflow as tf
import tf_keras

from xlnet_tf.checkpoints import save_model
from xlnet_tf.config import XLNetConfig
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer, target_losses
from xlnet_tf.text.training import train_tokenizer

TRAINED = pathlib.Path(__file__).with_name("trained")
WORDS = 40
LENGTH, ROWS, STEPS = 48, 32, 700


def sentences(words: int, seed: int) -> str:
    """Returns a walk over words of which each has two successors, some words oftener than others."""
    language = random.Random(1)
    syllables = ["ba", "ne", "tor", "mi", "kal", "su", "ren", "do", "pi", "la"]
    known = ["".join(language.choices(syllables, k=2)) + str(n % 3) for n in range(WORDS)]
    follow = [(language.randrange(WORDS), int(language.triangular(0, WORDS, 0))) for _ in range(WORDS)]
    walk, at = random.Random(seed), 0
    text = []
    for _ in range(words):
        text.append(known[at])
        at = walk.choice(follow[at]) if walk.random() < 0.97 else walk.randrange(WORDS)
    return " ".join(text)


def train(ids: np.ndarray, config: XLNetConfig) -> XLNetPretrainer:
    """Trains a model on a text: a sixth of each row's tokens are targets, in a random order."""
    tf_keras.utils.set_random_seed(1)
    options = {"dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.18}
    model = XLNetPretrainer(XLNetEncoder(config, **options))
    model.build()
    schedule = tf_keras.optimizers.schedules.PolynomialDecay(0.01, STEPS, 0.0005)
    optimizer = tf_keras.optimizers.Adam(schedule, beta_2=0.98, global_clipnorm=1.0)
    draw = np.random.default_rng(1)

    @tf.function(autograph=False)
    def step(features):
        with tf.GradientTape() as tape:
            outputs = model(features, training=True)
            loss = tf.reduce_sum(target_losses(outputs)) / tf.reduce_sum(outputs["target_weights"])
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        optimizer.apply_gradients(zip(gradients, variables))
        return loss

    targets = LENGTH // 6
    for _ in range(STEPS):
        begins = draw.integers(0, len(ids) - LENGTH, [ROWS, 1])
        order = draw.permuted(np.tile(np.arange(LENGTH), (ROWS, 1)), axis=1)[:, :targets]
        ranks = np.zeros([ROWS, LENGTH], np.int32)
        np.put_along_axis(ranks, order, np.tile(1 + np.arange(targets, dtype=np.int32), (ROWS, 1)), axis=1)
        segments = np.tile(np.arange(LENGTH) >= LENGTH // 2, (ROWS, 1)).astype(np.int32)
        step(
            {
                "input_word_ids": ids[begins + np.arange(LENGTH)],
                "input_type_ids": segments,
                "permutation_rank": ranks,
                "target_positions": order.astype(np.int32),
            }
        )
    return model


def train_and_save(folder: pathlib.Path) -> None:
    """Trains a model of the language, and saves it with its tokenizer."""
    text = sentences(20_000, seed=2)
    tokenizer = train_tokenizer([text[begin : begin + 200] for begin in range(0, len(text), 200)], 80)
    config = XLNetConfig(n_token=80, n_layer=3, d_model=32, n_head=4, d_head=8, d_inner=64)
    save_model(train(np.array(tokenizer.encode(text), np.int32), config), folder, tokenizer)


if __name__ == "__main__":
    train_and_save(TRAINED)
