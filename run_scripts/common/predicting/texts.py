"""Answers texts with a fine-tuned model: `run_scripts.predict` with --input, or with a file as --data."""

import functools
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from etils import epath

from run_scripts.common import answers as answers_lib
from run_scripts.common import computing
from run_scripts.common.predicting.options import PredictOptions
from run_scripts.common.sharded.options import ShardOptions
from xlnet_tf import files, ownership
from xlnet_tf.errors import UserError
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.serving.answers.signatures import TensorInfo

_BAR = {"desc": "predict", "unit": "text"}
_LINES_KEPT = 10_000  # in a piece
_MOST_EAGER = 64  # rows that are answered before a graph, which is faster then, has been traced


def answer(options: PredictOptions, dtype: str | None):
    """Answers --input or the rows of a file: prints the answers, or writes them to --output_dir.

    dtype is the weights' type; None: as in the model's run.
    """
    from run_scripts.common.sharded import job
    from xlnet_tf.serving.answers.text_answers import answer_texts
    from xlnet_tf.serving.sources import open_served

    if options.input:
        first, named = None, [pair.partition("=")[0] for pair in options.input]
    else:  # before anything that takes time
        first = next(answers_lib.rows_of_file(options.data))
        named = [*first, *(pair.partition("=")[0] for pair in options.column)]
    source = open_served(options.model_dir, checkpoint=options.checkpoint, inputs=named)
    weights = _kind_of_weights(dtype, source)
    columns = {name: TensorInfo(np.dtype(object), rank) for name, rank in source.ranks.items()}
    chosen = answers_lib.chosen_columns(options.column, columns)
    rows = answers_lib.rows_of_flags(options.input, columns) if options.input else [first]
    for row in rows:
        answers_lib.inputs_of_row(
            row, source.ranks, chosen, "--input" if options.input else f"{options.data}, row 1"
        )

    def answers(rows: Iterator[Mapping[str, Any]], first: int = 0) -> Iterator[dict[str, Any]]:
        texts = (
            answers_lib.inputs_of_row(row, source.ranks, chosen, f"{options.data or '--input'}, row {number}")
            for number, row in enumerate(rows, first + 1)
        )
        yield from answer_texts(served(), texts, options.batch_size)

    served = functools.cache(lambda: source.load(weights))
    if options.input:
        computing.run_eagerly(options.model_dir, len(rows) <= _MOST_EAGER)
        print("\n\n".join(map(answers_lib.describe, answers(iter(rows)))))
        return
    if not options.output_dir:
        with ProgressBar(answers_lib.answered_lines(options.data, answers, columns), **_BAR) as lines:
            sys.stdout.writelines(lines)
        return
    fingerprint = {
        "data": job.fingerprint(options.data),
        "columns": chosen,
        "weights": [weights, *job.fingerprint(source.file)],
    }
    path = _write(options, fingerprint, answers, columns)
    print(f"weights: {source.path}\n  {path}")


def refuse_devices(devices: Iterable[str]):
    """Raises UserError if a flag asks for devices that do not answer texts."""
    if others := [f"--{flag}" for flag in devices if flag != "dtype"]:
        raise UserError(
            f"{', '.join(others)}: texts are answered on one CPU or GPU. For other devices, build a set of "
            "examples from the texts and give its folder as --data"
        )


def answer_corpus(options: PredictOptions, dtype: str | None, shards: ShardOptions):
    """Answers the rows of a corpus into shards in --output_dir."""
    from run_scripts.common.sharded import job, models
    from xlnet_tf.serving.sources import open_served

    pairs = [pair.partition("=")[::2] for pair in options.column]
    # The column with a text by which parquet files are cut; which inputs the model has is not known yet.
    source = shards.corpus(options.data or "", pairs[0][1] if pairs else "text")
    rows = job.first_rows(source, shards)
    named = (*rows[0].values, *(name for name, _ in pairs))
    model = open_served(options.model_dir, checkpoint=options.checkpoint, inputs=named)
    chosen = answers_lib.chosen_columns(options.column, model.ranks)
    if not any(set(chosen.values()) <= set(row.values) for row in rows):
        answers_lib.check_columns(rows[0].values, model.ranks, chosen, f"{rows[0].source}, row 1")
    weights = _kind_of_weights(dtype, model)
    predicting = models.Predicting(
        path=options.model_dir,
        checkpoint=options.checkpoint,
        inputs=named,
        weights=weights,
        columns=tuple(chosen.items()),
    )
    job.run(
        "predictions",
        predicting.of_version(),
        source,
        shards,
        output_dir=options.output_dir,
        batch_size=options.batch_size,
        settings={"inputs": chosen, "weights": [weights, *job.fingerprint(model.file)]},
        columns=tuple(rows[0].values),
    )
    print(f"weights: {model.path}")


def _kind_of_weights(dtype: str | None, source) -> str:
    from xlnet_tf.serving.answers.options import BFLOAT16, FLOAT32

    return BFLOAT16 if (dtype or source.dtype) == BFLOAT16 else FLOAT32


def _write(options: PredictOptions, fingerprint: dict, answers, columns) -> epath.Path:
    """Writes the answers to a file in --output_dir, resuming an interrupted prediction."""
    from xlnet_tf.tasks.pieces import Pieces

    folder = files.make_folder(options.output_dir)
    with ownership.folder_lease(folder, "predicting", "--output_dir") as owner:
        pieces = Pieces(folder / "unfinished_answers", fingerprint, suffix=".jsonl")
        done = sum(1 for _ in pieces.read_lines())
        answered = answers_lib.answered_lines(
            options.data, functools.partial(answers, first=done), columns, done
        )
        with ProgressBar(answered, initial=done, **_BAR) as bar:
            lines = iter(bar)
            while piece := [*itertools.islice(lines, _LINES_KEPT)]:
                files.write(pieces.rows(done), "".join(piece))
                done += len(piece)
        owner.check()
        with files.replacing(folder / answers_lib.LINES_FILE, "wb") as file:
            file.writelines(pieces.read_lines())
        pieces.remove()
    return folder / answers_lib.LINES_FILE
