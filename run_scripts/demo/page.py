"""The demos' result as one page that needs nothing else: pictures are part of it."""

import base64
import html
import pathlib
import re
import string
from collections.abc import Iterable, Sequence

from run_scripts.demo import pictures
from run_scripts.demo.outcome import Outcome
from tfrecord_builders.inspection import plot_mask
from xlnet_tf import files
from xlnet_tf.records.manifest import Manifest

TEMPLATE = pathlib.Path(__file__).with_name("page.html")
MASK_POSITIONS = 32
EXAMPLES = 5  # test texts to show


def write(outcome: Outcome, records: Manifest) -> None:
    """Draws the pictures and writes index.html.

    Args:
        outcome: what to show.
        records: of the pretraining, one of whose masks is shown.
    """
    folder, figures = outcome.folder, outcome.pretraining
    pictures.draw_losses(outcome.history, outcome.unigram_entropy, folder / "loss")
    plot_mask.draw(records, 0, str(folder / "mask.png"), count=MASK_POSITIONS)
    result, question = outcome.result, outcome.result.question
    pictures.draw_scores(result.scores, question.METRIC, folder / "scores")
    medians = ", ".join(f"{name}: {median:.1%}" for name, median in result.medians.items())
    gaps = [
        (sentence, ", ".join(f"{piece.strip('▁')} ({share:.0%})" for piece, share in guesses))
        for sentence, found in outcome.filled.items()
        for guesses in found.guesses
    ]
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in figures.items()]
    parts = [
        section(
            question.TITLE, f"Learned from {question.LABELS}. {question.METRIC} on test texts: {medians}."
        ),
        picture(folder / "scores.svg", f"{question.METRIC}: medians as bars, single seeds as points."),
        table(("Test text", "True answer", "Pretrained model's answer"), result.answers[:EXAMPLES]),
        section("Pretraining", "Loss on training batches and on documents held out from them."),
        picture(folder / "loss.svg", "Loss in nats per target. Dotted: the best guess that ignores context."),
        section("Filled gaps", "What the pretrained model expects at each <mask>, given the gaps before it."),
        table(("Sentence", "Likeliest pieces"), gaps),
        section("Permutation mask", "Which positions each position of a record sees, in both streams."),
        picture(folder / "mask.png", f"The first {MASK_POSITIONS} positions of a pretraining record."),
        section("Figures", f"All steps together took {outcome.seconds} s."),
        table(("Figure", "Value"), rows),
        section("Try next", "These commands use what the demo has made."),
        "<pre>" + html.escape("\n".join(outcome.commands())) + "</pre>",
    ]
    title = "XLNet, from raw text to a fine-tuned model"
    files.write(folder / "index.html", fill(title, "\n".join(parts)))


def fill(title: str, body: str) -> str:
    """Returns a whole page."""
    template = string.Template(TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(title=html.escape(title), body=body)


def section(title: str, text: str) -> str:
    """Returns a title and a paragraph below it."""
    return f"<h2>{html.escape(title)}</h2>\n<p>{html.escape(text)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table, with cells of figures aligned to the right."""

    def cell(text: str) -> str:
        kind = ' class="number"' if re.fullmatch(r"[-\d.,]+( %| s)?( \([\d.]+%\))?", text) else ""
        return f"<td{kind}>{html.escape(text)}</td>"

    lines = ["".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)]
    lines += ["".join(map(cell, row)) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll"><table>\n{body}\n</table></div>'


def picture(path: pathlib.Path, caption: str) -> str:
    """Returns a picture: an .svg as part of the page and in its text colour, others as they are."""
    if path.suffix == ".svg":
        svg = path.read_text(encoding="utf-8")
        svg = re.sub("<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
        svg = svg.replace(pictures.INK, "currentColor")
        image = svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(caption)}"', 1)
    else:
        content = base64.b64encode(path.read_bytes()).decode()
        image = f'<img alt="{html.escape(caption)}" src="data:image/png;base64,{content}">'
    return f"<figure>\n{image}\n<figcaption>{html.escape(caption)}</figcaption></figure>"
