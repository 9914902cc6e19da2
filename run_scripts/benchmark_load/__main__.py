"""Keeps an exported model under load: clients all at once, texts of all lengths, for minutes.

    python -m run_scripts.benchmark_load --model=exports/sst2/1 --texts=reviews.txt --seconds=600 --clients=8

    python -m run_scripts.benchmark_load --server=localhost:8501 --model=sst2 --texts=reviews.txt

Each client asks the signature again and again: one row or several, pieces of the texts, from a letter to
--longest characters. Now and then it asks what was asked before the load, alone, and compares the answers.
The model is loaded as TensorFlow Serving loads it, in this process, or asked at a server. Reported are
requests, errors, times and memory of the process with the model, which should not grow after the first
quarter of the time. The exit status is 1 if a request failed, an answer was another one than alone, or a
client ended early.
"""

import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from run_scripts.benchmark import timing
from run_scripts.benchmark_load.measure import Load, measure, table
from xlnet_tf import errors
from xlnet_tf import flags as options


def main(_: Sequence[str]) -> None:
    values = flags.FLAGS
    texts = pathlib.Path(values.texts).read_text(encoding="utf-8")
    load = options.from_flags(Load)
    report = {"machine": timing.machine()} | measure(
        values.model, texts, load, values.signature, values.server
    )
    timing.write(report, table(report), values.output)
    if report["errors"]:
        sys.exit(1)


if __name__ == "__main__":
    flags.DEFINE_string(
        "model", None, "folder of one version of an exported model; with --server its name", required=True
    )
    flags.DEFINE_string("server", "", "address of a server, HOST:PORT or grpc://HOST:PORT")
    flags.DEFINE_string("texts", None, "a file of text; the clients ask with pieces of it", required=True)
    flags.DEFINE_string("signature", "serving_default", "which to ask; all its inputs are texts")
    options.define_flags(Load)
    flags.DEFINE_string("output", None, "json file for the report")
    errors.run(main)
