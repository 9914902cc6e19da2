"""Converts words to pieces: each word of a sentence has pieces, characters and a tag of its own."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfrecord_builders.tagging.data import AnnotatedText, TaggedWords
from tfrecord_builders.tagging.schemes import TAGS, to_bio
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleWriter
from xlnet_tf.text.special_tokens import UNK_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.word_finder import WordFinder
from xlnet_tf.text.words import OUTSIDE


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence of words."""

    id: str  # the data's own, or file and line
    document: str  # sentences of one document follow one another and have the same
    text: str  # what the offsets count in; words that came without one have a space between them, as a rule
    offsets: list[tuple[int, int]]  # of each word: its first character, and the one after its last
    pieces: list[list[int]]  # ids of each word, one at least
    tags: list[str] | None  # BIO, or as they are (TAGS); None: not known


class SentenceEncoder:
    """Converts rows of data to sentences, with tags of one of SCHEMES or TAGS.

    Tags that the scheme does not allow at their position are repaired, or else are an error.
    """

    def __init__(self, tokenizer: XLNetTokenizer, scheme: str = "bio", repair: bool = True):
        self._words_of = WordFinder(tokenizer)
        self._scheme = scheme
        self._repair = repair

    def encode(self, row: TaggedWords | AnnotatedText, writer: ExampleWriter) -> Sentence:
        """Encodes a row to a sentence, perhaps without words; the writer counts what is repaired or left out.

        A word given as such is encoded by itself, after a space if there is one, as in running text; one
        without a piece (only control characters) becomes `<unk>`. Those of a text are found as word_finder
        says, and an entity that ends within a word is extended to the word's border.
        """
        return self._text(row, writer) if isinstance(row, AnnotatedText) else self._words(row, writer)

    def _words(self, row: TaggedWords, writer: ExampleWriter) -> Sentence:
        follows = [True, *row.spaces[:-1]] if row.spaces else [True] * len(row.words)  # a space
        finder = self._words_of
        pieces = [finder.encode(w) if after else finder.unspaced(w) for w, after in zip(row.words, follows)]
        writer.count("words without a piece (now <unk>)", pieces.count([]))
        words = [" " * after + word for word, after in zip(row.words, follows)]
        stops = np.cumsum([*map(len, words)]) - 1  # the text has no space before its first word
        offsets = [(int(stop) - len(word), int(stop)) for stop, word in zip(stops, row.words)]
        tags = row.tags if row.tags is None or self._scheme == TAGS else self._bio(row, writer)
        text = "".join(words)[1:]
        return Sentence(row.id, row.document, text, offsets, [word or [UNK_ID] for word in pieces], tags)

    def _bio(self, row: TaggedWords, writer: ExampleWriter) -> list[str]:
        try:
            tags, broken = to_bio(row.tags, self._scheme)
        except ValueError as error:
            word, reason = error.args
            raise UserError(f"{row.location_of(word)}: {reason}") from None
        if broken and not self._repair:
            word = broken[0]
            raise UserError(
                f"{row.location_of(word)}: {row.tags[word]} is not allowed here by --scheme={self._scheme} "
                f"(before it: {row.tags[word - 1] if word else 'nothing'}): correct it, or give another "
                "--scheme or --repair"
            )
        writer.count(f"tags repaired (not allowed by {self._scheme})", len(broken))
        return tags

    def _text(self, row: AnnotatedText, writer: ExampleWriter) -> Sentence:
        offsets, pieces = self._words_of.find(row.text)
        tags = None if row.entities is None else _tag(row, offsets, writer)
        return Sentence(row.id, row.document, row.text, offsets, pieces, tags)


def _tag(row: AnnotatedText, offsets: Sequence[tuple[int, int]], writer: ExampleWriter) -> list[str]:
    """Returns BIO tags of words at the offsets."""
    tags = [OUTSIDE] * len(offsets)
    begins, ends = np.array(offsets).reshape(-1, 2).T
    for entity in row.entities:
        location = f"{row.location} characters {entity.start}-{entity.end}"
        first = int(np.searchsorted(ends, entity.start, side="right"))
        stop = int(np.searchsorted(begins, entity.end))
        if first >= stop:
            writer.skip("entity without a word", location)
        elif set(tags[first:stop]) != {OUTSIDE}:
            writer.skip("entity that overlaps the one before", location)
        else:
            tags[first:stop] = [f"B-{entity.label}"] + [f"I-{entity.label}"] * (stop - first - 1)
            if row.text[begins[first] : ends[stop - 1]] != row.text[entity.start : entity.end].strip():
                writer.count("entities with a border within a word (moved to the word's)")
    return tags
