"""Prints how many texts other libraries split differently, in environments of their own.

    python -m tests.peers tokens --model=spiece.model --texts=reviews.txt

It installs the newest packages by pip: minutes, and gigabytes in a temporary folder. Outside CI.
"""

import argparse
import pathlib
import random
import tempfile

from tests.peers import tokens
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
    parser.add_argument("table", choices=("tokens",))
    parser.add_argument("--model", help="a SentencePiece model")
    parser.add_argument("--texts", type=pathlib.Path, help="a file of texts, one a line")
    parser.add_argument("--only", default="", help="part of a library's name")
    options = parser.parse_args()
    tokenizer = XLNetTokenizer(options.model)
    sets = {"hostile": random.Random(0).sample(hostile_texts(tokenizer.pieces), 1600)}
    if options.texts:
        sets["real"] = options.texts.read_text().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        print_table(tokens.count(tokenizer, sets, pathlib.Path(folder), options.only))


if __name__ == "__main__":
    main()
