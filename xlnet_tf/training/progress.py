"""The visible progress of a run: one progress bar, and a file of losses for plots."""

import json
import sys
from collections.abc import Mapping

import numpy as np
import orbit
import tensorflow as tf
import tqdm

from xlnet_tf import files
from xlnet_tf.checkpoints.of_runs import HISTORY, read_history
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.training.report import RunReport

# Without the time so far and the steps per second, so that loss and learning rate fit into 80 columns.
_BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {remaining}{postfix}"


def number(value: tf.Tensor | float) -> float:
    """Returns a metric as a Python number; counts are ints."""
    return np.asarray(orbit.utils.get_value(value)).item()


class Progress:
    """Moves a bar over the steps and writes `history.jsonl`, one line per report, inside of a `with` block.

    When the block begins, it drops lines after the resumed step. `metric` is the task's own, shown next to
    the loss; `report` gets all lines; only the chief should `write`.
    """

    def __init__(
        self,
        model_dir: str,
        global_step: tf.Variable,
        train_steps: int,
        metric: str = "",
        write: bool = True,
        report: RunReport | None = None,
    ):
        self._path = f"{model_dir}/{HISTORY}"
        self._step = global_step
        self._train_steps = train_steps
        self._metric = metric
        self._write = write
        self._report = report
        # In the order in which a narrow terminal has room for them.
        self._shown = dict.fromkeys(("loss", "lr", f"dev_{metric}", "tokens", "dev_loss"), "")

    def __enter__(self) -> "Progress":
        step = int(self._step.numpy())
        if self._write:
            self._drop_after(step)
        options = {"bar_format": _BAR} if sys.stderr.isatty() else {}
        self._bar = self._new_bar(total=self._train_steps, initial=step, desc="train", **options)
        return self

    def __exit__(self, *error):
        self._bar.close()

    def say(self, text: str):
        if self._write:
            tqdm.tqdm.write(text, file=sys.stderr)

    def train(self, logs: Mapping[str, tf.Tensor]):
        """Reports the means since the last report."""
        values = self._record("train", logs)
        if skipped := int(values.get("skipped_steps", 0)):
            self.say(
                f"step {int(self._step.numpy())}: {skipped} of the last steps were skipped: their loss or "
                "gradient was infinite, NaN or a spike"
            )
        self._show(
            loss=f"{values['training_loss']:.3f}",
            lr=f"{values['learning_rate']:.1e}",
            tokens=f"{values['tokens_per_second']:,.0f}/s",
        )

    def evaluation(self, logs: Mapping[str, tf.Tensor]):
        """Reports an evaluation of the whole validation set."""
        values = self._record("dev", logs)
        names = dict.fromkeys(name for name in ("loss", self._metric) if name in values)
        self._show(**{f"dev_{name}": f"{values[name]:.3f}" for name in names})

    def evaluation_bar(self, steps: int) -> ProgressBar:
        """Returns a bar for the steps of one evaluation; the caller closes it."""
        return self._new_bar(total=steps, desc="dev", leave=False)

    def _new_bar(self, **options) -> ProgressBar:
        return ProgressBar(unit="step", dynamic_ncols=True, disable=not self._write, **options)

    def _show(self, **values: str):
        self._shown |= values
        self._bar.set_postfix({name: value for name, value in self._shown.items() if value}, refresh=False)
        self._bar.n = int(self._step.numpy())
        self._bar.refresh()

    def _record(self, kind: str, logs) -> dict[str, float]:
        values = {name: number(value) for name, value in logs.items()}
        if self._write:
            line = {"step": int(self._step.numpy()), "kind": kind} | values
            with files.writing(self._path), tf.io.gfile.GFile(self._path, "a") as file:
                file.write(json.dumps(line) + "\n")
            if self._report:
                self._report.add(line)
        return values

    def _drop_after(self, step: int):
        """Drops what a resumed run will report again: training after `step`, evaluations at or after it."""
        if not tf.io.gfile.exists(self._path):
            return
        lines = [line for line in read_history(self._path) if line["step"] < step + (line["kind"] == "train")]
        files.write(self._path, "".join(json.dumps(line) + "\n" for line in lines))
        for line in lines if self._report else ():
            self._report.add(line)
