"""Writes the files of `predict` for questions with options."""

import csv
import json
from collections.abc import Iterator

import numpy as np
from etils import epath

from xlnet_tf import files
from xlnet_tf.records.examples import option_letters
from xlnet_tf.tasks.scoring import Mistake

TSV_FILE, JSONL_FILE = "predictions.tsv", "predictions.jsonl"


def write_files(questions, probabilities: np.ndarray, folder: epath.PathLike) -> list[str]:
    """Writes predictions.tsv (id, letter, probabilities [questions, C]) and predictions.jsonl."""
    folder = files.make_folder(folder)
    letters = option_letters(probabilities.shape[1])
    with files.replacing(folder / TSV_FILE) as tsv, files.replacing(folder / JSONL_FILE) as jsonl:
        table = csv.writer(tsv, delimiter="\t", lineterminator="\n")
        table.writerow(["id", "answer", *letters])
        for question, row in zip(questions, probabilities, strict=True):
            best = int(np.argmax(row))
            row = row[: len(question["options"])]  # others of the set may have more
            blank = [""] * (len(letters) - len(row))
            table.writerow([question["id"], letters[best], *(f"{p:.6f}" for p in row), *blank])
            line = {
                **question,
                "answer": letters[best],
                "option": question["options"][best],
                "answer_text": question["options"][best],  # the old name
                "probabilities": row.tolist(),
            }
            jsonl.write(json.dumps(line, ensure_ascii=False) + "\n")
    return [str(folder / TSV_FILE), str(folder / JSONL_FILE)]


def mistakes(questions, labels: np.ndarray, probabilities: np.ndarray) -> Iterator[Mistake]:
    """Yields questions with a wrong answer; for the arguments see `write_files`, labels are [questions]."""
    for question, label, row in zip(questions, labels, probabilities, strict=True):
        if (best := int(np.argmax(row))) != label:
            yield Mistake(question["question"], question["options"][label], question["options"][best])
