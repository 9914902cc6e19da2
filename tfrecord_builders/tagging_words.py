"""From words to pieces: each word of a sentence has pieces, characters and a tag of its own."""

import dataclasses
import unicodedata
from collections.abc import Sequence

import numpy as np

from tfrecord_builders.tagging_data import AnnotatedText, Entity, TaggedWords
from tfrecord_builders.tagging_schemes import OUTSIDE, to_bio
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleWriter
from xlnet_tf.text.offsets import encode_with_offsets
from xlnet_tf.text.special_tokens import UNK_ID
from xlnet_tf.text.tokenizer import UNSPACED_SCRIPTS, XLNetTokenizer


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence of W words.

    Attributes:
        id: the data's own, or file and line.
        document: sentences of one document follow one another and have the same.
        text: what the offsets count in; words that came without a text have one space between them.
        offsets: first character of each word and the one after its last.
        pieces: ids of each word, one at least.
        tags: BIO; None: not known.
    """

    id: str
    document: str
    text: str
    offsets: list[tuple[int, int]]
    pieces: list[list[int]]
    tags: list[str] | None


def encode_words(
    tokenizer: XLNetTokenizer, row: TaggedWords, scheme: str, repair: bool, writer: ExampleWriter
) -> Sentence:
    """Encodes each word by itself, with a space before it, as it has in running text.

    Args:
        tokenizer: any.
        row: one word or more.
        scheme: of the tags, one of SCHEMES.
        repair: whether to repair tags that the scheme does not allow where they are.
        writer: counts what is repaired.

    Returns:
        The sentence. A word that has no piece (of control characters only) gets `<unk>`.

    Raises:
        UserError: a tag is none of the scheme, or is not allowed where it is and not to be repaired.
    """
    ids, lengths = tokenizer.encode_batch(row.words)
    pieces = [part.tolist() or [UNK_ID] for part in np.split(ids, np.cumsum(lengths)[:-1])]
    stops = np.cumsum([len(word) + 1 for word in row.words]) - 1
    offsets = [(int(stop) - len(word), int(stop)) for stop, word in zip(stops, row.words)]
    writer.count("words without a piece (now <unk>)", int((lengths == 0).sum()))
    tags = None if row.tags is None else _bio(row, scheme, repair, writer)
    return Sentence(row.id, row.document, " ".join(row.words), offsets, pieces, tags)


def _bio(row: TaggedWords, scheme: str, repair: bool, writer: ExampleWriter) -> list[str]:
    try:
        tags, broken = to_bio(row.tags, scheme)
    except ValueError as error:
        word, reason = error.args
        raise UserError(f"{row.place_of(word)}: {reason}") from None
    if broken and not repair:
        word = broken[0]
        raise UserError(
            f"{row.place_of(word)}: {row.tags[word]} is not allowed here by --scheme={scheme} (before it: "
            f"{row.tags[word - 1] if word else 'nothing'}): correct it, or give another --scheme or --repair"
        )
    writer.count(f"tags repaired (not allowed by {scheme})", len(broken))
    return tags


def encode_text(tokenizer: XLNetTokenizer, row: AnnotatedText, writer: ExampleWriter) -> Sentence:
    """Encodes a text as it is and finds words in it.

    A word begins where both the text and a piece begin one: in the text letters after spaces or punctuation,
    every punctuation mark, and every character of scripts that put no spaces between words.

    Args:
        tokenizer: any.
        row: the text.
        writer: counts entities that cannot be tagged, or not exactly.

    Returns:
        The sentence; without words if the text has no pieces. Entities that begin or end within a word are
        tagged to the word's begin and end.
    """
    ids, begins, ends = encode_with_offsets(tokenizer, row.text)
    borders = word_borders(row.text)
    # A piece that is whitespace alone lies where the next one begins, which then goes on with its word.
    before = [-1, *begins[:-1].tolist()]
    first = [
        i for i, begin in enumerate(begins.tolist()) if i == 0 or (begin in borders and begin > before[i])
    ]
    bounds = list(zip(first, [*first[1:], len(ids)]))
    offsets = [(int(begins[start]), int(ends[start:stop].max())) for start, stop in bounds]
    tags = None if row.entities is None else _tag(row, offsets, writer)
    pieces = [list(ids[start:stop]) for start, stop in bounds]
    return Sentence(row.id, row.document, row.text, offsets, pieces, tags)


def word_borders(text: str) -> set[int]:
    """Returns the characters of a text where a word may begin."""
    borders = set()
    before = ""
    for index, character in enumerate(text):
        category = unicodedata.category(character)[0]
        kind = category if category in "MZC" else "word" if category in "LN" else "mark"
        if kind == "word" and not character.isascii():
            kind = "alone" if unicodedata.name(character, "").split(" ")[0] in UNSPACED_SCRIPTS else kind
        if kind == "M":  # belongs to the character before it
            continue
        if not character.isspace() and (kind != before or kind in ("mark", "alone")):
            borders.add(index)
        before = kind
    return borders


def _tag(row: AnnotatedText, offsets: Sequence[tuple[int, int]], writer: ExampleWriter) -> list[str]:
    """Returns BIO tags of words at the offsets."""
    tags = [OUTSIDE] * len(offsets)
    begins, ends = np.array(offsets).reshape(-1, 2).T
    for entity in row.entities:
        first = int(np.searchsorted(ends, entity.start, side="right"))
        stop = int(np.searchsorted(begins, entity.end))
        if first >= stop:
            writer.skip("entity without a word", _place(row, entity))
        elif set(tags[first:stop]) != {OUTSIDE}:
            writer.skip("entity that overlaps the one before", _place(row, entity))
        else:
            tags[first:stop] = [f"B-{entity.label}"] + [f"I-{entity.label}"] * (stop - first - 1)
            if row.text[begins[first] : ends[stop - 1]] != row.text[entity.start : entity.end].strip():
                writer.skip("entity border within a word (tagged to the word's border)", _place(row, entity))
    return tags


def _place(row: AnnotatedText, entity: Entity) -> str:
    return f"{row.place} characters {entity.start}-{entity.end}"
