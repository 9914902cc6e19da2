"""What an adaptation has done, for the terminal and as report.json, report.md and a page, index.html."""

import dataclasses
import html
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from run_scripts.adapt import texts
from run_scripts.adapt.comparison import AFTER, BEFORE, Comparison
from run_scripts.common import pages, pictures
from xlnet_tf import files
from xlnet_tf.records.manifest import Manifest

TITLE = "Continued pretraining: what it gained and what it cost"


class Table(NamedTuple):
    """A part of the report.

    Attributes:
        title: of the part.
        text: below it.
        head: names of the columns.
        rows: cells of text.
        picture: name of a picture, "" for none.
    """

    title: str
    text: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    picture: str = ""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What is known after an adaptation.

    Attributes:
        checkpoint: that it began with.
        counts: of documents, as `texts.Choice.counts` gives them.
        held_out: texts of the task's dev and test sets that were looked for.
        records: the sets, by the names of `texts`.
        settings: of the training that a reader wants to see.
        history: lines of the run's history.
        kept: metrics of the evaluation whose weights were kept, and its step.
        bound: rise of the loss on general text after which the run was to end; 0: none.
        comparison: on a task; None: there was none.
    """

    folder: pathlib.Path
    checkpoint: str
    counts: Mapping[str, Mapping[str, Any]]
    held_out: int
    records: Mapping[str, Manifest]
    settings: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    kept: Mapping[str, Any]
    bound: float
    comparison: Comparison | None

    @property
    def losses(self) -> dict[str, tuple[float, float]]:
        """Losses on dev text in nats, before and after, by what the text is of."""
        first = next(line for line in self.history if line["kind"] == "dev")
        names = {"domain": "loss", "general": "general_loss"}
        return {text: (first[n], self.kept[n]) for text, n in names.items() if n in self.kept}

    @property
    def ended(self) -> str:
        """Why the run ended early; "" if it did not."""
        first, *_, last = [line for line in self.history if line["kind"] == "dev"]
        if last["step"] >= self.settings["train_steps"]:
            return ""
        rise = last.get("general_loss", 0.0) - first.get("general_loss", 0.0)
        if self.bound and rise > self.bound:
            return (
                f"ended at step {last['step']}, where the loss on general text had risen by {rise:.3f}, more "
                f"than --max_general_rise={self.bound:g}"
            )
        return f"ended at step {last['step']}, as --patience says"

    def words(self) -> dict[str, tuple[float, float]]:
        """Share of pieces that are <unk>, and pieces per word, by what the text is of."""
        found = {}
        for name in (texts.TRAIN, texts.GENERAL):
            if name in self.records:
                statistics = self.records[name].statistics
                found[name.partition("-")[0]] = (
                    statistics["unknown_rate"],
                    1 / max(statistics["word_start_rate"], 1e-9),
                )
        return found

    def tables(self) -> list[Table]:
        """Returns the parts of the report."""
        counts = [
            (flag, f"{c['documents']:,}", f"{c['leaks']:,}", f"{c['duplicates']:,}", _files(c))
            for flag, c in self.counts.items()
        ]
        looked = "No --task_data was given: no dev or test texts were looked for."
        if self.held_out:
            looked = (
                f"Documents that hold one of the task's {self.held_out:,} dev and test texts are left out."
            )
        losses = [
            (text, f"{before:.3f}", f"{after:.3f}", f"{after - before:+.3f}")
            for text, (before, after) in self.losses.items()
        ]
        said = f"Nats per target, at step {self.kept['step']} of {self.settings['train_steps']}: "
        said += "the step with the lowest loss on the domain. " + (
            f"The run {self.ended}. " if self.ended else ""
        )
        if "general" not in self.losses:
            said += "What was forgotten was not measured: give --general_input or --general_dev_input."
        found = [
            Table("Texts", looked, ("corpus", "documents", "leaks", "duplicates", "used"), counts),
            Table(
                "The tokenizer on these texts",
                "The checkpoint's own. Many <unk>, or many pieces per word, mean that it fits badly.",
                ("text", "<unk>", "pieces per word"),
                [(text, f"{unk:.2%}", f"{pieces:.2f}") for text, (unk, pieces) in self.words().items()],
            ),
            Table("Loss on dev text", said.strip(), ("text", "before", "after", "change"), losses, "losses"),
        ]
        if comparison := self.comparison:
            found.append(
                Table(
                    "The task",
                    f"Fine-tuned on {comparison.trained_on:,} examples from both, with the same seeds; "
                    f"{comparison.metric} on {comparison.examples:,} {comparison.split} examples. "
                    + comparison.verdict,
                    ("weights", "median", "lowest", "highest", "seeds", "failed"),
                    [
                        (
                            name,
                            *(f"{value:.4f}" for value in comparison.spread(name)),
                            ", ".join(f"{value:.4f}" for value in comparison.scores[name]),
                            "; ".join(comparison.problems[name]) or "none",
                        )
                        for name in (BEFORE, AFTER)
                    ],
                    "scores",
                )
            )
        return found

    def commands(self) -> list[str]:
        """Returns commands that use the adapted weights."""
        return [
            f"xlnet-tf finetune --init_checkpoint={self.folder} --data=... --model_dir=...",
            f'xlnet-tf fill-mask --model_dir={self.folder} --text="... <mask> ..."',
        ]

    def lines(self) -> list[str]:
        """Returns what the terminal shows."""
        lines = []
        for table in self.tables():
            rows = [table.head, *table.rows]
            widths = [max(map(len, column)) for column in zip(*rows)]
            lines += ["", f"{table.title}. {table.text}"]
            lines += ["  " + "  ".join(f"{c:<{w}}" for c, w in zip(row, widths)).rstrip() for row in rows]
        return [*lines, "", "Try next:", *(f"  {command}" for command in self.commands())]

    def write(self) -> list[str]:
        """Writes the report and its pictures; returns the files' names."""
        names = ["report.json", "report.md", "index.html"]
        _draw_losses(self, self.folder / "losses")
        if comparison := self.comparison:
            scores = {f"{name} adaptation": comparison.scores[name] for name in (BEFORE, AFTER)}
            pictures.draw_scores(scores, comparison.metric, self.folder / "scores", comparison.split)
        tables = self.tables()
        facts = [(name.replace("_", " "), str(value)) for name, value in self.settings.items()]
        markdown = [f"# {TITLE}", f"`{self.checkpoint}`, adapted in `{self.folder}`."]
        parts = [f"<p>{html.escape(f'{self.checkpoint}, adapted in {self.folder}')}.</p>"]
        for table in tables:
            markdown += [
                f"## {table.title}",
                table.text.replace("<", "&lt;"),
                _markdown(table.head, table.rows),
            ]
            parts += [pages.section(table.title, table.text), pages.table(table.head, table.rows)]
            if table.picture:
                markdown.append(f"![{table.title}]({table.picture}.png)")
                parts.append(pages.picture(self.folder / f"{table.picture}.svg", f"{table.title}."))
        markdown += ["## Settings", _markdown(("setting", "value"), facts)]
        parts += [
            pages.section("Settings", "Of the continued pretraining."),
            pages.table(("setting", "value"), facts),
        ]
        files.write(self.folder / names[1], "\n\n".join(markdown) + "\n")
        pages.write(self.folder / names[2], TITLE, parts)
        report = {
            "checkpoint": self.checkpoint,
            "counts": self.counts,
            "held_out": self.held_out,
            "losses": self.losses,
            "words": self.words(),
            "kept": dict(self.kept),
            "ended": self.ended,
            "settings": dict(self.settings),
            "comparison": self.comparison and self.comparison.as_json(),
        }
        files.write_json(self.folder / names[0], report)
        return names


def _files(counts: Mapping[str, Any]) -> str:
    used = {name: value for name, value in counts.items() if isinstance(value, Mapping)}
    return ", ".join(f"{name} {v['documents']:,} ({v['bytes'] / 1e6:.2f} MB)" for name, v in used.items())


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '/').replace('<', '&lt;') for cell in row)} |" for row in lines
    )


def _draw_losses(outcome: Outcome, path: pathlib.Path) -> None:
    dev = [line for line in outcome.history if line["kind"] == "dev"]
    with pictures.axes_of(path, 3.6) as axes:
        for (name, label), color in zip((("loss", "domain"), ("general_loss", "general")), pictures.COLORS):
            if name in dev[0]:
                axes.plot(
                    [d["step"] for d in dev], [d[name] for d in dev], "o-", ms=4, color=color, label=label
                )
        axes.axvline(outcome.kept["step"], color=pictures.INK, lw=1, ls=":", label="kept")
        axes.set(xlabel="step", ylabel="loss on dev text (nats per target)")
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)
