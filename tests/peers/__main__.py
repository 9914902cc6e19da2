"""Prints tables of how other libraries read our files, and we theirs, in environments of their own.

    python -m tests.peers tokens --model=spiece.model --texts=reviews.txt
    python -m tests.peers cost --model=spiece.model --train=train.tsv --dev=dev.tsv

It installs the newest packages by pip: minutes, and gigabytes in a temporary folder. Outside CI.
"""

import argparse
import pathlib
import random
import tempfile

from tests.peers import cost, tokens
from tests.text.test_ties import hostile_texts
from xlnet_tf.text.tokenizer import XLNetTokenizer


def print_table(rows) -> None:
    for number, row in enumerate(rows):
        print(f"| {' | '.join(map(str, row))} |", flush=True)
        if not number:
            print("|---" * len(row) + "|", flush=True)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("table", choices=("tokens", "cost"))
    parser.add_argument("--model", help="a SentencePiece model")
    parser.add_argument("--texts", type=pathlib.Path, help="a file of texts, one a line")
    parser.add_argument("--only", default="", help="part of a library's name")
    parser.add_argument("--train", type=pathlib.Path, help="`sentence<tab>label` lines after a header")
    parser.add_argument("--dev", type=pathlib.Path)
    options = parser.parse_args()
    tokenizer = XLNetTokenizer(options.model)
    with tempfile.TemporaryDirectory() as folder:
        if options.table == "cost":
            model = cost.train(tokenizer, *cost.read_rows(options.train, 20_000))
            texts, labels = cost.read_rows(options.dev, 100_000)
            rows = tokens.split(tokenizer, texts, pathlib.Path(folder))
            print_table(cost.evaluate(model, labels, {"this project": tokenizer.encode(texts), **rows}))
            return
        sets = {"hostile": random.Random(0).sample(hostile_texts(tokenizer.pieces), 1600)}
        if options.texts:
            sets["real"] = options.texts.read_text().splitlines()
        print_table(tokens.count(tokenizer, sets, pathlib.Path(folder), options.only))


if __name__ == "__main__":
    main()
