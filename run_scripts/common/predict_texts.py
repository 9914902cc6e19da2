"""Answers texts with a fine-tuned model: `run_scripts.predict` with --input, or with a file as --data."""

import contextlib
import functools
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags
from etils import epath

from run_scripts.common import training_flags
from run_scripts.common.answers import (
    LINES_FILE,
    answered_lines,
    describe,
    rows_of_file,
    rows_of_flags,
)
from xlnet_tf import files, ownership
from xlnet_tf.errors import UserError, shown
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.serving.signatures import TensorInfo

_LINES_KEPT = 10_000  # in a piece


def define_flags():
    """Defines the flags that only texts need."""
    flags.DEFINE_multi_string(
        "column",
        [],
        "INPUT=COLUMN: the column of a file of texts that has another name than the model's input.",
    )


def main(values: flags.FlagValues):
    """Prints the answers, or writes them to --output_dir."""
    devices = [setting.flag for setting in training_flags.DEVICES if setting.flag != "dtype"]
    if given := [f"--{flag}" for flag in devices if values[flag].present]:
        raise UserError(
            f"{', '.join(given)}: texts are answered on one CPU or GPU. For other devices, build a set of "
            "examples from the texts and give its folder as --data"
        )
    from xlnet_tf.serving.models import BFLOAT16, FLOAT32, find_source
    from xlnet_tf.serving.text_answers import answer_texts

    if values.input:
        named = [pair.partition("=")[0] for pair in values.input]
    else:  # before anything that takes time
        first = next(rows_of_file(values.data), {})
        named = [*first, *(pair.partition("=")[0] for pair in values.column)]
    source = find_source(values.model_dir, values.checkpoint, named)
    weights = BFLOAT16 if (values.dtype or source.dtype) == BFLOAT16 else FLOAT32
    columns = {name: TensorInfo(np.dtype(object), rank) for name, rank in source.ranks.items()}
    chosen = _chosen_columns(values.column, columns)
    where = f"{values.data}, row 1"
    given = rows_of_flags(values.input, columns) if values.input else []
    for row in given or ([first] if first else []):
        _inputs(row, columns, chosen, "--input" if given else where)

    def answer(rows: Iterator[Mapping[str, Any]], first: int = 0) -> Iterator[dict[str, Any]]:
        texts = (
            _inputs(row, columns, chosen, f"{values.data or '--input'}, row {number}")
            for number, row in enumerate(rows, first + 1)
        )
        return answer_texts(served(), texts, values.batch_size)

    served = functools.cache(lambda: source.load(weights))
    if values.input:
        print("\n\n".join(map(describe, answer(iter(given)))))
        return
    with ProgressBar(desc="predict", unit="text") as bar:
        if not values.output_dir:
            for line in answered_lines(values.data, answer, columns):
                sys.stdout.write(line)
                bar.update()
            return
        stats = [epath.Path(path).stat() for path in (values.data, source.file)]
        fingerprint = {
            "data": [values.data, stats[0].length, stats[0].mtime],
            "columns": chosen,
            "weights": [source.path, weights, stats[1].length, stats[1].mtime],
        }
        _write(values, source.path, fingerprint, answer, columns, bar)


def _write(values, weights: str, fingerprint: dict, answer, columns, bar: ProgressBar):
    """Writes the answers to a file in --output_dir, after those that an interrupted prediction has kept."""
    from xlnet_tf.tasks.pieces import Pieces, remove_pieces

    folder = files.make_folder(values.output_dir)
    with ownership.owning(folder, "predicting", "--output_dir") as owner:
        pieces = Pieces(folder / "unfinished_answers", fingerprint, suffix=".jsonl")
        done = pieces.count_lines()
        bar.update(done)
        lines = answered_lines(values.data, functools.partial(answer, first=done), columns, done)
        while piece := [*itertools.islice(_counted(lines, bar), _LINES_KEPT)]:
            files.write(pieces.path(done), "".join(piece))
            done += len(piece)
        owner.check()
        with files.replacing(folder / LINES_FILE, "wb") as file:
            file.writelines(pieces.read_lines())
        remove_pieces(pieces.folder)
    print(f"weights: {weights}\n  {folder / LINES_FILE}")


def _counted(lines: Iterator[str], bar: ProgressBar) -> Iterator[str]:
    for line in lines:
        bar.update()
        yield line


def _chosen_columns(pairs: Sequence[str], columns: Mapping[str, TensorInfo]) -> dict[str, str]:
    """Reads --column: the column of each input."""
    chosen = {name: name for name in columns}
    for pair in pairs:
        name, equals, column = pair.partition("=")
        if not equals or name not in columns:
            raise UserError(f"--column={pair}: expected INPUT=COLUMN with the inputs {', '.join(columns)}")
        chosen[name] = column
    return chosen


def _inputs(
    row: Mapping[str, Any], columns: Mapping[str, TensorInfo], chosen: Mapping[str, str], where: str
) -> dict[str, str | list[str]]:
    """Returns a row's texts by the names of the inputs.

    Raises:
        UserError: a column is missing, or is not a text or list of texts, as the input needs.
    """
    if missing := [name for name in columns if chosen[name] not in row]:
        wanted = " ".join(f"--column={name}=COLUMN" for name in missing)
        raise UserError(
            f"{where}: {', '.join(chosen[name] for name in missing)} missing; there is {', '.join(row)}. "
            f"Name the right column with {wanted}"
        )
    found = {name: row[chosen[name]] for name in columns}
    for name, value in found.items():
        if columns[name].rank == 1:
            if not isinstance(value, str):
                raise UserError(f"{where}: {chosen[name]} is {shown(json.dumps(value))}; expected a text")
            continue
        if isinstance(value, str):  # of a csv or tsv file
            with contextlib.suppress(ValueError):
                found[name] = value = json.loads(value)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise UserError(
                f"{where}: {chosen[name]} is {shown(str(row[chosen[name]]))}; expected a list, such as "
                '["a", "b"]'
            )
    return found
