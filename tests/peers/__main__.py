"""Prints how other libraries read our files and texts, and this project reads those of others.

    python -m tests.peers tokens --model=spiece.model --texts=reviews.txt
    python -m tests.peers cost --model=spiece.model --labelled=reviews.csv
    python -m tests.peers models

It installs the newest packages by pip: minutes, and gigabytes in a temporary folder. Outside CI.
"""

import argparse
import pathlib
import random
import tempfile
from collections.abc import Iterable

from tests.peers import cost, models, tokens
from tests.text.test_ties import hostile_texts
from xlnet_tf.text.tokenizer import XLNetTokenizer


def print_table(rows: Iterable[list[str]]) -> None:
    for number, row in enumerate(rows):
        print(f"| {' | '.join(map(str, row))} |", flush=True)
        if not number:
            print("|---" * len(row) + "|", flush=True)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("table", choices=("tokens", "cost", "models"))
    parser.add_argument("--model", help="a SentencePiece model, for tokens and cost")
    parser.add_argument("--texts", type=pathlib.Path, help="a file of texts, one a line, for tokens")
    parser.add_argument("--labelled", help="a csv file with the columns text and label, for cost")
    parser.add_argument("--only", default="", help="part of a library's name")
    parser.add_argument("--environments", default="", help="folder to keep the environments of models in")
    options = parser.parse_args()
    if options.table == "models":
        for rows in models.tables(options.only, options.environments):
            print_table(rows)
        return
    tokenizer = XLNetTokenizer(options.model)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if options.table == "cost":
            print_table(cost.table(tokenizer, options.labelled, folder, options.only))
            return
        sets = {"hostile": random.Random(0).sample(hostile_texts(tokenizer.pieces), 1600)}
        if options.texts:
            sets["real"] = options.texts.read_text().splitlines()
        print_table(tokens.count(tokenizer, sets, folder, options.only))


if __name__ == "__main__":
    main()
