"""Tables to try `finetune --train` on after the demo: was it said before 1860, or after 1960?"""

import csv
import pathlib

import numpy as np

from examples.demo import corpus
from xlnet_tf import files

PASSAGES = {"train": 1000, "test": 500}  # of each label
PASSAGE_WORDS = 30
TEST_SPEECHES = 5  # one of this many speeches is for testing
EARLY, LATE = "before 1860", "after 1960"


def write(corpora: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes train.csv and test.csv: passages of State of the Union speeches, half of them with each label.

    They have neither capitals nor punctuation. No speech is in both tables.
    """
    found: dict[tuple[str, str], list[str]] = {
        (split, label): [] for split in PASSAGES for label in (EARLY, LATE)
    }
    speeches: dict[str, int] = {EARLY: 0, LATE: 0}
    for name, paragraphs in corpus.read_speeches(corpora).items():
        year = int(name[:4])
        if 1860 <= year <= 1960:
            continue
        label = EARLY if year < 1860 else LATE
        split = "train" if speeches[label] % TEST_SPEECHES else "test"
        speeches[label] += 1
        words = corpus.words(" ".join(paragraphs).lower())
        for begin in range(0, len(words) - PASSAGE_WORDS + 1, PASSAGE_WORDS):
            found[split, label].append(" ".join(words[begin : begin + PASSAGE_WORDS]))
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for split, count in PASSAGES.items():
        rows = []
        for label in (EARLY, LATE):
            chosen = generator.permutation(len(found[split, label]))[:count]
            rows += [(found[split, label][number], label) for number in chosen]
        with files.replacing(folder / f"{split}.csv") as file:
            csv.writer(file).writerows(
                [("text", "label"), *(rows[n] for n in generator.permutation(len(rows)))]
            )
