"""The demos' results as one self-contained page with pictures."""

import html
import pathlib
from collections.abc import Sequence

from examples.demo import masks
from examples.demo.outcome import DemoOutcome
from run_scripts.common.pictures import COLORS, INK, axes_of, draw_scores
from xlnet_tf.pages import page as pages
from xlnet_tf.pages.page import picture, section, table
from xlnet_tf.records.manifest import Manifest

MASK_POSITIONS = 22  # as many as a telephone shows
EXAMPLES = 5  # test texts to show
TERMS = {
    "piece": "A word or a part of a word: what the model reads and predicts.",
    "target": "A piece that is hidden and has to be predicted; the other pieces are context.",
    "mask": "Which positions a position may see. Targets are predicted in a random order.",
    "content stream": "A reading of the text in which each position knows its own piece.",
    "query stream": "A reading in which it does not, so that it can predict it.",
    "loss in nats": "How surprised the model is by the right pieces, on average: less is better.",
    "held out": "Not trained on. Only such texts show what a model has learned.",
    "token frequencies alone": "The loss of guessing by how common each piece is, whatever the text.",
    "forward, backward": "Half of the texts are read from their end to their beginning.",
    "F1, accuracy": "The share of right answers. F1 counts only words with a tag, found and missed.",
    "from scratch": "The same model without pretraining: its weights are random at first.",
    "seed": "The number that random choices begin with. Several seeds show how much is chance.",
}


def write(outcome: DemoOutcome, records: Manifest) -> None:
    """Draws the pictures and writes index.html."""
    folder, figures = outcome.folder, outcome.pretraining
    _draw_losses(outcome.history, outcome.unigram_entropy, folder / "loss")
    result, task = outcome.result, outcome.result.task
    draw_scores(result.scores, task.METRIC, folder / "scores")
    medians = ", ".join(f"{name}: {median:.1%}" for name, median in result.medians.items())
    gaps = [
        (sentence, ", ".join(f"{piece.strip('▁')} ({share:.0%})" for piece, share in guesses))
        for sentence, found in outcome.filled.items()
        for guesses in found.guesses
    ]
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in figures.items()]
    parts = [
        section(task.TITLE, f"Learned from {task.LABELS}. {task.METRIC} on test texts: {medians}."),
        picture(folder / "scores.svg", f"{task.METRIC}: medians as bars, single seeds as points."),
        "<p>The pretrained model's answers; wrong words are <mark>red and underlined</mark>:</p>",
        *(_answer(*answer) for answer in result.answers[:EXAMPLES]),
        section("Pretraining", "Loss on training batches and on documents held out from them."),
        picture(folder / "loss.svg", "Loss in nats per target. Dotted: the best guess that ignores context."),
        section("Filled gaps", "What the pretrained model expects at each <mask>, given the gaps before it."),
        table(("Sentence", "Likeliest pieces"), gaps),
        section(
            "Permutation mask",
            f"The first {MASK_POSITIONS} positions of a pretraining record. A row shows what its position "
            "sees; (1), (2), ... is the order in which the targets are predicted.",
        ),
        masks.draw(records, 0, MASK_POSITIONS),
        section("Figures", f"All steps together took {outcome.seconds} s."),
        table(("Figure", "Value"), rows),
        section("Terms", "What the words on this page mean."),
        table(("Term", "Meaning"), TERMS.items()),
        section("Try next", "These commands use what the demo has made."),
        "<pre>" + html.escape("\n".join(outcome.commands())) + "</pre>",
    ]
    pages.write(folder / "index.html", "XLNet, from raw text to a fine-tuned model", parts)


def _answer(text: str, truth: str, answer: str) -> str:
    """Returns a text with the true answer and the model's, whose wrong words are marked."""
    words = [
        html.escape(word) if word == right else f"<mark>{html.escape(word)}</mark>"
        for word, right in zip(answer.split(), truth.split(), strict=True)
    ]
    rows = {"Text": html.escape(text), "True answer": html.escape(truth), "Model's answer": " ".join(words)}
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows.items()) + "</dl>"


def _draw_losses(history: Sequence[dict], entropy: float, path: pathlib.Path) -> None:
    """Draws the loss curves of a pretraining's history and the line to beat, as `axes_of` saves pictures."""
    train = [line for line in history if line["kind"] == "train"]
    dev = [line for line in history if line["kind"] == "dev"]
    with axes_of(path, 4.2) as axes:
        steps, losses = ([line[name] for line in train] for name in ("step", "training_loss"))
        axes.plot(steps, losses, color=COLORS[2], alpha=0.6, lw=1, label="train")
        # Points alone: a line between two evaluations would be a guess.
        for name, label, marker, color in (
            ("loss_forward", "held out, read forward", "o", COLORS[0]),
            ("loss_backward", "held out, read backward", "x", COLORS[1]),
        ):
            steps, losses = ([line[key] for line in dev] for key in ("step", name))
            axes.plot(steps, losses, marker, color=color, ms=4, label=label)
        axes.axhline(entropy, color=INK, lw=1, ls=":", label=f"token frequencies alone: {entropy:.2f}")
        axes.set(xlabel="step", ylabel="loss (nats per target)")
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)
