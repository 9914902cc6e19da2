"""Files of predicted classes, numbers and sets of labels."""

import contextlib
import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from etils import epath

from xlnet_tf import files
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.shards import is_plain_name
from xlnet_tf.tasks import compatibility
from xlnet_tf.tasks.classification.metrics import decide
from xlnet_tf.tasks.metrics.thresholds import DECISION
from xlnet_tf.tasks.scoring import MOST_MISTAKES, Mistake

TABLE_FILE, LINES_FILE = "predictions.tsv", "predictions.jsonl"
_NAMES = {"classification": "label", "regression": "value", "multi_label": "assigned"}  # of answers
_GRADES = 0, 5  # of STS-B, the only regression with a submission


def write_files(
    examples: ExampleSet, outputs: np.ndarray, alerts: np.ndarray | None, folder: epath.PathLike
) -> list[str]:
    """Writes predictions.tsv, predictions.jsonl (with the texts) and, for GLUE's test sets, the submission.

    In predictions.jsonl, predictions are named as in a served model's answers (label, value or, with several
    labels, assigned); `prediction` is the old name. predictions.tsv quotes fields as Python's csv module
    does; several labels in a field are a csv line of their own. `outputs` are [N, C], or values [N].
    """
    settings = examples.settings
    labels, submission = settings["labels"], settings["submissions"].get(examples.split)
    if submission is not None and not is_plain_name(submission):
        raise compatibility.wrong_setting(
            examples, "submissions", "names of files by split, without a folder"
        )
    folder = files.make_folder(folder)
    paths = [folder / TABLE_FILE, folder / LINES_FILE, *([folder / submission] if submission else [])]
    with contextlib.ExitStack() as opened:
        table, lines, *submissions = [opened.enter_context(files.replacing(path)) for path in paths]
        name = _NAMES[settings["kind"]]
        columns = ["id", "prediction", *labels, *(["alert"] if alerts is not None else [])]
        table.write(_csv_line(columns, "\t") + "\n")
        for file in submissions:
            file.write("index\tprediction\n")
        for number, (row, prediction) in enumerate(_predicted(examples, outputs)):
            numbers = outputs[number].tolist() if labels else []
            alert = {} if alerts is None else {"alert": bool(alerts[number])}
            cells = [row["id"], _text(prediction), *(f"{p:.6f}" for p in numbers), *map(int, alert.values())]
            table.write(_csv_line(cells, "\t") + "\n")
            probabilities = {"probabilities": dict(zip(labels, numbers))} if labels else {}
            line = {**row, name: prediction, "prediction": prediction, **probabilities, **alert}
            lines.write(json.dumps(line, ensure_ascii=False) + "\n")
            for file in submissions:  # GLUE's server takes a label, or a grade to three places
                known = prediction if isinstance(prediction, str) else f"{np.clip(prediction, *_GRADES):.3f}"
                file.write(f"{row['id']}\t{known}\n")
    return [str(path) for path in paths]


def _predicted(
    examples: ExampleSet, outputs: np.ndarray
) -> Iterator[tuple[dict[str, Any], str | float | list[str]]]:
    """Yields what the set has of each example besides its tensors, and the label, number or labels."""
    labels, kind = examples.settings["labels"], examples.settings["kind"]
    for row, output in zip(examples.sidecar(), outputs, strict=True):
        if kind == "regression":
            yield row, float(output)
        elif kind == "multi_label":
            yield row, [labels[index] for index in np.flatnonzero(output >= DECISION)]
        else:
            yield row, labels[decide(output)]


def mistakes(examples: ExampleSet, targets: np.ndarray, outputs: np.ndarray) -> Iterator[Mistake]:
    """Yields texts with wrong answers, those first of which the model is surest, or that are furthest off.

    Targets are labels [N], of several [N, C], or values [N]; outputs are those of `write_files`.
    """
    labels, kind = examples.settings["labels"], examples.settings["kind"]
    if kind == "regression":
        errors = np.abs(outputs - targets)
    elif kind == "multi_label":
        errors = np.where((outputs >= DECISION) != (targets == 1), np.abs(outputs - targets), 0).max(axis=1)
    else:
        errors = np.where(decide(outputs) != targets, outputs.max(axis=1), 0)
    worst = [number for number in np.argsort(-errors, kind="stable")[:MOST_MISTAKES] if errors[number] > 0]
    answers = {number: each for number, each in enumerate(_predicted(examples, outputs)) if number in worst}
    for number in worst:
        row, answer = answers[number]
        target = targets[number]
        if kind == "regression":
            expected: Any = float(target)
        elif kind == "multi_label":
            expected = [labels[index] for index in np.flatnonzero(target == 1)]
        else:
            expected = labels[target]
        text = " / ".join(value for name, value in row.items() if name != "id" and isinstance(value, str))
        shown = (f"{each:.5g}" if isinstance(each, float) else _text(each) for each in (expected, answer))
        yield Mistake(text, *shown)


def _text(prediction: str | float | list[str]) -> str:
    if isinstance(prediction, float):
        return f"{prediction:.9g}"  # all digits of float32
    return _csv_line(prediction, ",") if isinstance(prediction, list) else prediction


def _csv_line(cells: Sequence[Any], delimiter: str) -> str:
    line = io.StringIO()
    csv.writer(line, delimiter=delimiter).writerow(cells)  # quotes what its ends of lines, CR LF, are made of
    return line.getvalue().removesuffix("\r\n")
