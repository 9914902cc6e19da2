"""The demos' results, and their form in the terminal and in report.json."""

import dataclasses
import functools
import pathlib
from typing import TYPE_CHECKING

import numpy as np

from examples.demo.finetuning import DemoResult
from run_scripts import fill_mask
from xlnet_tf import files

if TYPE_CHECKING:
    from xlnet_tf.generation.results import FilledText


@dataclasses.dataclass(frozen=True)
class DemoOutcome:
    """A demo's results; `unigram_entropy`, in nats, is the loss of the best guess without a context."""

    folder: pathlib.Path
    history: list[dict]
    unigram_entropy: float
    filled: dict[str, "FilledText"]
    result: DemoResult
    seconds: int

    @functools.cached_property
    def pretraining(self) -> dict[str, float]:
        first, *_, last = [line for line in self.history if line["kind"] == "dev"]
        speeds = [line["tokens_per_second"] for line in self.history if line["kind"] == "train"]
        return {
            "steps": last["step"],
            "tokens_per_second": round(float(np.median(speeds))),
            "unigram_entropy": round(self.unigram_entropy, 4),
            "dev_loss_start": round(first["loss"], 4),
            "dev_loss_end": round(last["loss"], 4),
            "dev_loss_forward": round(last["loss_forward"], 4),
            "dev_loss_backward": round(last["loss_backward"], 4),
            "dev_accuracy": round(last["accuracy"], 4),
        }

    def commands(self) -> list[str]:
        """Returns three commands that use the demo's results."""
        finetuned, task = self.result.pretrained.folder, self.result.task
        *_, sentence = self.filled
        return [
            f'xlnet-tf predict --model_dir={finetuned} --input=text="{task.EXAMPLE}"',
            f'xlnet-tf fill-mask --model_dir={self.folder / "model"} --text="{sentence}"',
            f"xlnet-tf export --model_dir={finetuned} --output_dir={self.folder / 'served'}",
        ]

    def lines(self) -> list[str]:
        figures = self.pretraining
        lines = [fill_mask.describe(sentence, found) for sentence, found in self.filled.items()]
        task, width = self.result.task, max(map(len, self.result.scores))
        lines += ["", f"{task.TITLE} Learned from {task.LABELS}; {task.METRIC} on test texts:"]
        for name, values in self.result.scores.items():
            seeds = f"  (seeds: {', '.join(f'{value:.1%}' for value in values)})" if len(values) > 1 else ""
            lines.append(f"  {name:<{width}}  {self.result.medians[name]:6.1%}{seeds}")
        return [
            *lines,
            "",
            f"Pretraining took the held-out loss from {figures['dev_loss_start']:.2f} to "
            f"{figures['dev_loss_end']:.2f} nats in {figures['steps']:,} steps "
            f"(token frequencies alone: {self.unigram_entropy:.2f}).",
            f"All steps took {self.seconds} s. Curves, masks and figures: {self.folder / 'index.html'}",
            "",
            "Try next:",
            *(f"  {command}" for command in self.commands()),
        ]

    def write_report(self) -> None:
        report = {
            **self.pretraining,
            "task": self.result.task.NAME,
            "metric": self.result.task.METRIC,
            "medians": self.result.medians,
            "pretrained": dataclasses.asdict(self.result.pretrained),
            "scratch": dataclasses.asdict(self.result.scratch),
            "seconds": self.seconds,
        }
        files.write_json(self.folder / "report.json", report)
