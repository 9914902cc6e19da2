"""Asks a model in TensorFlow Serving: what `run_scripts.predict --server` does."""

import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags
from etils import epath

from xlnet_tf import files
from xlnet_tf.errors import UserError, shown
from xlnet_tf.serving.client import Client, connect
from xlnet_tf.serving.signatures import TensorInfo, printable

LINES_FILE = "predictions.jsonl"
_SHOWN = 8  # values of a list
_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}  # those that JSON leaves as they are


def define_flags():
    """Defines the flags that only a server needs."""
    flags.DEFINE_string(
        "server", "", "Ask TensorFlow Serving: HOST:8501 for REST, grpc://HOST:8500 for gRPC."
    )
    flags.DEFINE_string("model", "", "Name of the served model.")
    flags.DEFINE_string("signature", "serving_default", "What to ask of the served model.")
    flags.DEFINE_multi_string(
        "input", [], "NAME=VALUE for the served model, lists as JSON; repeat it for other inputs and rows."
    )


def main(values: flags.FlagValues):
    """Asks the server; prints the answers or writes them to --output_dir."""
    if not values.model or bool(values.input) == bool(values.data):
        raise UserError(
            "--server asks for --model=NAME, and for either --input=NAME=VALUE or --data=FILE of JSON lines"
        )
    client = connect(values.server, values.model, values.signature)
    if values.input:
        rows = rows_of_flags(values.input, client.signature.inputs)
        print("\n\n".join(describe(answer) for answer in ask(client, rows, values.batch_size)))
    elif values.output_dir:
        folder = files.make_folder(values.output_dir)
        with files.replacing(folder / LINES_FILE) as file:
            file.writelines(answered_lines(client, values.data, values.batch_size))
        print(f"  {folder / LINES_FILE}")
    else:
        sys.stdout.writelines(answered_lines(client, values.data, values.batch_size))


def rows_of_flags(pairs: Sequence[str], columns: Mapping[str, TensorInfo]) -> list[dict[str, Any]]:
    """Reads rows from flags.

    Args:
        pairs: NAME=VALUE; the second VALUE of a NAME is for the second row.
        columns: the inputs of the model; single strings stand for themselves, the rest is JSON.

    Raises:
        UserError: a pair is malformed, names no input or is not JSON, or rows have different inputs.
    """
    values: dict[str, list[Any]] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in columns:
            raise UserError(
                f"--input={pair}: expected NAME=VALUE with the names {', '.join(sorted(columns))}"
            )
        if columns[name].dtype != object or columns[name].rank > 1:
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                raise UserError(f'--input={pair}: expected JSON, such as {name}=["a", "b"]') from None
        values.setdefault(name, []).append(value)
    if len({len(column) for column in values.values()}) > 1:
        counts = ", ".join(f"{len(column)} of {name}" for name, column in values.items())
        raise UserError(f"--input is given for {counts}: expected as many of each, one a row")
    return [dict(zip(values, row)) for row in zip(*values.values())]


def rows_of_file(path: str) -> Iterator[dict[str, Any]]:
    """Yields rows from a file of JSON objects, one a line.

    Raises:
        UserError: it is a folder, or a line is not a JSON object; the message has its number.
    """
    if epath.Path(path).is_dir():
        raise UserError(
            f"--data={path} is a folder; with --server expected a file of JSON lines, the model's inputs by "
            "name. A set of examples is for --model_dir, without --server"
        )
    with epath.Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line.decode())
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise UserError(
                    f"{path}, line {number}: expected a JSON object with the model's inputs by name, such as "
                    f'{{"text": "A fine film."}}; found {shown(line.decode(errors="replace").rstrip())}'
                )
            yield row


def answered_lines(client: Client, path: str, batch_size: int) -> Iterator[str]:
    """Yields the rows of a file with their answers, as JSON lines.

    Raises:
        UserError: an answer would replace what a row holds, as the label it is compared with.
    """
    rows, copies = itertools.tee(rows_of_file(path))
    for number, (row, answer) in enumerate(zip(rows, ask(client, copies, batch_size)), 1):
        if taken := sorted(set(row) & set(answer) - set(client.signature.inputs)):
            raise UserError(
                f"{path}, row {number}: {', '.join(taken)} would be replaced by the model's answer of that "
                "name. Rename the field"
            )
        yield json.dumps(row | answer, ensure_ascii=False).translate(_CONTROLS) + "\n"


def ask(client: Client, rows: Iterable[Mapping[str, Any]], batch_size: int) -> Iterator[dict[str, Any]]:
    """Yields the answers to rows, in their order.

    Args:
        rows: inputs by name; what the model does not take is left out.
        batch_size: most rows of a request. Rows whose lists have other lengths go into requests of their own.
    """
    names = client.signature.inputs
    inputs_of_rows = ({name: row[name] for name in names if name in row} for row in rows)
    for _, alike in itertools.groupby(inputs_of_rows, _shapes):
        while batch := list(itertools.islice(alike, batch_size)):
            inputs = {name: [row[name] for row in batch] for name in batch[0]}
            answers = {name: _plain(values) for name, values in client.predict(inputs).items()}
            for row in zip(*answers.values(), strict=True):
                yield dict(zip(answers, row))


def _shapes(row: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: np.shape(np.array(value, object)) for name, value in row.items()}


def _plain(values: np.ndarray) -> list[Any]:
    """Returns an array as lists of str, float, int or bool."""
    if values.dtype == object:
        return np.frompyfunc(lambda text: text.decode(errors="replace"), 1, 1)(values).tolist()
    if values.dtype.kind == "f":
        values = values.astype(str).astype(float)  # 0.1 as float32 is to be 0.1, not 0.10000000149011612
    return values.tolist()


def describe(answer: Mapping[str, Any]) -> str:
    """Returns an answer as a table, one output a line."""
    width = max(map(len, answer))
    return "\n".join(f"{printable(name):<{width}}  {_show(value)}" for name, value in answer.items())


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    if not isinstance(value, list):
        return printable(value, limit=10_000)
    if any(isinstance(item, list) for item in value):
        return printable(json.dumps(value, ensure_ascii=False), limit=10_000)
    more = f"  ... {len(value)} in all" if len(value) > _SHOWN else ""
    return "  ".join(map(_show, value[:_SHOWN])) + more
