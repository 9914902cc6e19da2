"""Answers texts with a fine-tuned model: `run_scripts.predict` with --input, or with a file as --data."""

import functools
import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from absl import flags

from run_scripts.common import training_flags
from run_scripts.common.answers import (
    LINES_FILE,
    answered_lines,
    check_columns,
    chosen_columns,
    describe,
    inputs_of_row,
    rows_of_file,
    rows_of_flags,
)
from run_scripts.common.sharded.options import ShardOptions
from xlnet_tf import files, ownership
from xlnet_tf.errors import UserError, reason
from xlnet_tf.flags import from_flags
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.serving.graph.signatures import TensorInfo

_BAR = {"desc": "predict", "unit": "text"}
_LINES_KEPT = 10_000  # in a piece
_MOST_EAGER = 64  # rows that are answered before a graph, which is faster then, has been traced


def define_flags():
    """Defines the flags that only texts need."""
    flags.DEFINE_multi_string(
        "column",
        [],
        "INPUT=COLUMN: the column of a file of texts that has another name than the model's input.",
    )


def main(values: flags.FlagValues):
    """Prints the answers, or writes them to --output_dir."""
    refuse_devices(values)
    import tensorflow as tf

    from run_scripts.common.sharded import job
    from xlnet_tf.serving.graph.text_answers import answer_texts
    from xlnet_tf.serving.models import find_source

    if values.input:
        named = [pair.partition("=")[0] for pair in values.input]
    else:  # before anything that takes time
        first = next(rows_of_file(values.data))
        named = [*first, *(pair.partition("=")[0] for pair in values.column)]
    source = find_source(values.model_dir, values.checkpoint, named)
    weights = _kind_of_weights(values, source)
    columns = {name: TensorInfo(np.dtype(object), rank) for name, rank in source.ranks.items()}
    chosen = chosen_columns(values.column, columns)
    where = f"{values.data}, row 1"
    given = rows_of_flags(values.input, columns) if values.input else []
    for row in given or [first]:
        inputs_of_row(row, source.ranks, chosen, "--input" if given else where)

    def answer(rows: Iterator[Mapping[str, Any]], first: int = 0) -> Iterator[dict[str, Any]]:
        texts = (
            inputs_of_row(row, source.ranks, chosen, f"{values.data or '--input'}, row {number}")
            for number, row in enumerate(rows, first + 1)
        )
        try:
            yield from answer_texts(served(), texts, values.batch_size)
        except tf.errors.InvalidArgumentError as error:  # such as a question without options
            raise UserError(f"the model refuses a row: {reason(error)}") from error

    served = functools.cache(lambda: source.load(weights))
    if values.input:
        tf.config.run_functions_eagerly(len(given) <= _MOST_EAGER)
        print("\n\n".join(map(describe, answer(iter(given)))))
        return
    if not values.output_dir:
        with ProgressBar(answered_lines(values.data, answer, columns), **_BAR) as lines:
            sys.stdout.writelines(lines)
        return
    fingerprint = {
        "data": job.fingerprint(values.data),
        "columns": chosen,
        "weights": [weights, *job.fingerprint(source.file)],
    }
    _write(values, source.path, fingerprint, answer, columns)


def refuse_devices(values: flags.FlagValues):
    """Raises UserError if a flag asks for other devices than texts are answered on."""
    devices = [setting.flag for setting in training_flags.DEVICES if setting.flag != "dtype"]
    if given := [f"--{flag}" for flag in devices if values[flag].present]:
        raise UserError(
            f"{', '.join(given)}: texts are answered on one CPU or GPU. For other devices, build a set of "
            "examples from the texts and give its folder as --data"
        )


def answer_corpus(values: flags.FlagValues):
    """Answers the rows of a corpus into shards in --output_dir."""
    refuse_devices(values)
    from run_scripts.common.sharded import job, models
    from xlnet_tf.serving.models import find_source

    options = from_flags(ShardOptions).resolved()
    pairs = [pair.partition("=")[::2] for pair in values.column]
    # The column with a text by which parquet files are cut; which inputs the model has is not known yet.
    source = options.corpus(values.data or "", pairs[0][1] if pairs else "text")
    rows = job.first_rows(source, options)
    named = (*rows[0].values, *(name for name, _ in pairs))
    found = find_source(values.model_dir, values.checkpoint, named)
    chosen = chosen_columns(values.column, found.ranks)
    if not any(set(chosen.values()) <= set(row.values) for row in rows):
        check_columns(rows[0].values, found.ranks, chosen, f"{rows[0].source}, row 1")
    weights = _kind_of_weights(values, found)
    job.run(
        "predictions",
        models.Predicting(values.model_dir, values.checkpoint, named, weights, tuple(chosen.items())),
        source,
        options,
        output_dir=values.output_dir,
        batch_size=values.batch_size,
        settings={"inputs": chosen, "weights": [weights, *job.fingerprint(found.file)]},
        columns=tuple(rows[0].values),
    )
    print(f"weights: {found.path}")


def _kind_of_weights(values: flags.FlagValues, source) -> str:
    from xlnet_tf.serving.models import BFLOAT16, FLOAT32

    return BFLOAT16 if (values.dtype or source.dtype) == BFLOAT16 else FLOAT32


def _write(values, weights: str, fingerprint: dict, answer, columns):
    """Writes the answers to a file in --output_dir, after those that an interrupted prediction has kept."""
    from xlnet_tf.tasks.pieces import Pieces

    folder = files.make_folder(values.output_dir)
    with ownership.owning(folder, "predicting", "--output_dir") as owner:
        pieces = Pieces(folder / "unfinished_answers", fingerprint, suffix=".jsonl")
        done = sum(1 for _ in pieces.read_lines())
        answered = answered_lines(values.data, functools.partial(answer, first=done), columns, done)
        with ProgressBar(answered, initial=done, **_BAR) as bar:
            lines = iter(bar)
            while piece := [*itertools.islice(lines, _LINES_KEPT)]:
                files.write(pieces.rows(done), "".join(piece))
                done += len(piece)
        owner.check()
        with files.replacing(folder / LINES_FILE, "wb") as file:
            file.writelines(pieces.read_lines())
        pieces.remove()
    print(f"weights: {weights}\n  {folder / LINES_FILE}")
