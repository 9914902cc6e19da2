"""Sends rows to a model in TensorFlow Serving: `run_scripts.predict --server`."""

import functools
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from run_scripts.common import answers as answers_lib
from run_scripts.common.predicting.options import PredictOptions
from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.serving.answers.signatures import TensorInfo, plain, printable, without_padding
from xlnet_tf.serving.client import Client, connect


def predict(options: PredictOptions):
    """Sends the options' rows to the server; prints the answers or writes them to --output_dir."""
    if not options.model or bool(options.input) == bool(options.data):
        raise UserError("--server asks for --model=NAME, and for either --input=NAME=VALUE or --data=FILE")
    client = connect(options.server, options.model, options.signature)
    inputs = client.signature.inputs
    if options.input:
        rows = answers_lib.rows_of_flags(options.input, inputs)
        print("\n\n".join(map(answers_lib.describe, ask(client, rows, options.batch_size))))
        return
    columns = answers_lib.chosen_columns(options.column, inputs)
    answer = functools.partial(ask, client, batch_size=options.batch_size, columns=columns)
    lines = answers_lib.answered_lines(options.data, answer, inputs)
    if not options.output_dir:
        sys.stdout.writelines(lines)
        return
    folder = files.make_folder(options.output_dir)
    with files.replacing(folder / answers_lib.LINES_FILE) as file:
        file.writelines(lines)
    print(f"  {folder / answers_lib.LINES_FILE}")


def ask(
    client: Client,
    rows: Iterable[Mapping[str, Any]],
    batch_size: int,
    columns: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yields the answers to rows, in their order; rows whose lists differ in length are asked separately.

    `columns` has the column of each input, if not its own name; others are ignored.
    """
    names, outputs = client.signature.inputs, client.signature.outputs
    if single := [name for name, output in outputs.items() if output.rank == 0]:
        raise UserError(
            f"the model's output {printable(single[0])} is one value for all rows; expected one for each"
        )
    if not names or not outputs:
        raise UserError(
            "the model's signature has no inputs or no outputs: it cannot answer rows. See --signature"
        )
    columns = columns or {name: name for name in names}
    inputs_of_rows = (_inputs(number, row, names, columns) for number, row in enumerate(rows, 1))
    for _, alike in itertools.groupby(inputs_of_rows, _shapes):
        while batch := list(itertools.islice(alike, batch_size)):
            inputs = {name: [row[name] for row in batch] for name in batch[0]}
            answers = {name: plain(values) for name, values in client.predict(inputs).items()}
            for row in zip(*answers.values(), strict=True):
                yield without_padding(dict(zip(answers, row)))


def _inputs(
    number: int, row: Mapping[str, Any], infos: Mapping[str, TensorInfo], columns: Mapping[str, str]
) -> dict[str, Any]:
    """Returns a row's values by the names of the inputs."""
    answers_lib.check_columns(row, infos, columns, f"row {number}")
    return {
        name: row[columns[name]] if info.is_text else answers_lib.parsed(row[columns[name]])
        for name, info in infos.items()
    }


def _shapes(row: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: np.shape(np.array(value, object)) for name, value in row.items()}
