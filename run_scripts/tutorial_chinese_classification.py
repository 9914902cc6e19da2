r"""Tutorial: the sentiment of Chinese reviews, from texts and labels to accuracy on a test set.

    python -m run_scripts.tutorial_chinese_classification --train=train.tsv --test=test.tsv \
        --tokenizer=chinese_xlnet_base/spiece.model

The tables (tsv, csv or jsonl, plain or gzip) have columns `label` and `text_a`, as ChnSentiCorp has them;
--label_column and --text_column name others. A folder of texts for each label does as well, with
--text_column=text. With --checkpoint=chinese_xlnet_base, any checkpoint with its tokenizer, pretrained
weights are fine-tuned. Without one, a tiny model learns from nothing but the reviews, in a few minutes on a
CPU: from ChnSentiCorp's 9,600 training reviews to an accuracy of 0.88 on the 1,200 of its dev set.
"""

import logging
import os
from collections import Counter
from collections.abc import Sequence

import numpy as np
from absl import flags

from tfrecord_builders import tables
from xlnet_tf import XLNetConfig, XLNetTokenizer, errors
from xlnet_tf.errors import UserError

FLAGS = flags.FLAGS


def read(path: str, text_column: str, label_column: str) -> tuple[list[str], list[str]]:
    """Returns the texts of a table or of folders, and their labels."""
    rows = list(tables.read_table(path, tables.infer_format(path)))
    if not rows:
        raise UserError(f"{path} has no rows")
    return [row.text(text_column) for row in rows], [row.text(label_column) for row in rows]


def new_model(tokenizer: XLNetTokenizer, labels: Sequence[str]):
    """Returns a classifier small enough to learn from thousands of texts alone."""
    from xlnet_tf import XLNetClassifier, XLNetEncoder

    config = XLNetConfig(tokenizer.vocab_size, n_layer=2, d_model=64, n_head=4, d_head=16, d_inner=256)
    encoder = XLNetEncoder(config, attention_dropout=0.0, initializer_range=0.12)
    return XLNetClassifier(encoder, len(labels), labels=labels, summary="mean")


def train(model, features, answers, *, learning_rate: float, epochs: int, batch_size: int = 32) -> None:
    """Trains with a tenth of the examples held out, which tell when to stop."""
    import tf_keras

    from xlnet_tf.training.optimizer import OptimizerConfig, build_optimizer

    order = np.random.default_rng(0).permutation(len(answers))
    held_out, kept = np.split(order, [max(1, len(order) // 10)])
    steps = epochs * -(-len(kept) // batch_size)
    settings = OptimizerConfig(learning_rate=learning_rate, warmup_steps=steps // 10)
    model.compile(
        build_optimizer(settings, steps, model.encoder.config.n_layer),
        tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    training, validation = (
        ({name: array[rows] for name, array in features.items()}, answers[rows]) for rows in (kept, held_out)
    )
    stop = tf_keras.callbacks.EarlyStopping("val_accuracy", patience=1, restore_best_weights=True)
    model.fit(*training, batch_size, epochs, validation_data=validation, callbacks=[stop], verbose=2)


def run(
    train_path: str,
    test_path: str,
    *,
    tokenizer_path: str | None = None,
    checkpoint: str | None = None,
    text_column: str = "text_a",
    label_column: str = "label",
    seq_len: int = 128,
    epochs: int = 3,
    seed: int = 0,
    output: str | None = None,
) -> dict[str, float]:
    """Trains a classifier and measures it.

    Args:
        train_path: texts to learn from.
        test_path: texts that training never sees.
        tokenizer_path: of a new model; a checkpoint has its own beside it.
        checkpoint: pretrained weights to begin with; None: random ones.
        text_column, label_column: of the tables.
        seq_len: T; longer texts are cut.
        epochs: how often to see each text, at most.
        seed: of the new weights, dropout and the order of the texts.
        output: file to save the model to, for example model.keras.

    Returns:
        accuracy on the test set, and majority, the accuracy of always giving its most frequent label.

    Raises:
        UserError: data, tokenizer or checkpoint are wrong.
        FileNotFoundError: one of them is missing.
    """
    import tf_keras

    from xlnet_tf import XLNetClassifier

    if not (tokenizer_path or checkpoint):
        raise UserError("there is no tokenizer: give --tokenizer, or --checkpoint, a folder that has one")
    texts, answers = read(train_path, text_column, label_column)
    test_texts, test_answers = read(test_path, text_column, label_column)
    labels = sorted(set(answers))
    if unknown := sorted(set(test_answers) - set(labels)):
        raise UserError(f"{test_path} has labels that {train_path} has not: {', '.join(unknown)}")

    tf_keras.utils.set_random_seed(seed)
    tokenizer = XLNetTokenizer.from_pretrained(tokenizer_path or checkpoint)
    if checkpoint:
        model = XLNetClassifier.from_pretrained(checkpoint, labels=labels)
    else:
        model = new_model(tokenizer, labels)

    numbers = np.array([labels.index(answer) for answer in answers])
    learning_rate = 3e-5 if checkpoint else 1e-3
    train(model, tokenizer(texts, seq_len=seq_len), numbers, learning_rate=learning_rate, epochs=epochs)

    logits = model.predict(tokenizer(test_texts, seq_len=seq_len), batch_size=128, verbose=0)
    guesses = [labels[number] for number in logits.argmax(axis=1)]
    for text, answer, guess in list(zip(test_texts, test_answers, guesses))[:5]:
        print(f"  {guess} (is {answer})  {text[:50]}")
    if output:
        model.save(output)
    return {
        "accuracy": float(np.mean(np.array(guesses) == np.array(test_answers))),
        "majority": Counter(test_answers).most_common(1)[0][1] / len(test_answers),
    }


def main(_: Sequence[str]) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # tf_keras warns of the one weight that only pretraining uses, the embedding of masked tokens.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    result = run(
        FLAGS.train,
        FLAGS.test,
        tokenizer_path=FLAGS.tokenizer,
        checkpoint=FLAGS.checkpoint,
        text_column=FLAGS.text_column,
        label_column=FLAGS.label_column,
        seq_len=FLAGS.seq_len,
        epochs=FLAGS.epochs,
        seed=FLAGS.seed,
        output=FLAGS.output,
    )
    print(f"accuracy {result['accuracy']:.3f}; always the most frequent label: {result['majority']:.3f}")


if __name__ == "__main__":
    flags.DEFINE_string("train", None, "Texts to learn from: a table or a folder.", required=True)
    flags.DEFINE_string("test", None, "Texts to measure accuracy on.", required=True)
    flags.DEFINE_string("tokenizer", None, "spiece.model, for a new model.")
    flags.DEFINE_string("checkpoint", None, "Folder of pretrained weights and their tokenizer to fine-tune.")
    flags.DEFINE_string("text_column", "text_a", "Column of the texts.")
    flags.DEFINE_string("label_column", "label", "Column of the labels.")
    flags.DEFINE_integer("seq_len", 128, "Tokens of a text; longer ones are cut.", lower_bound=3)
    flags.DEFINE_integer("epochs", 3, "How often to see each text, at most.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Of new weights, dropout and the order of texts.", lower_bound=0)
    flags.DEFINE_string("output", None, "File to save the model to, for example model.keras.")
    errors.run(main)
