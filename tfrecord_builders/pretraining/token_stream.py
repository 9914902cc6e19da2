"""Converts lines of text to a stream of tokens with its borders, and counts its contents."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfrecord_builders.corpus.sentences import split_sentences
from xlnet_tf.records import segments
from xlnet_tf.text.special_tokens import EOD_ID, UNK_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer


@dataclasses.dataclass(frozen=True)
class TokenStream:
    """The tokens of a slice, in one reading direction."""

    tokens: np.ndarray  # int32 [N]
    sentence_ends: np.ndarray  # int64 [...], ascending exclusive end positions; the last is N
    document_starts: np.ndarray  # int64 [...], ascending; the first is 0
    word_start: np.ndarray  # bool [N], in reading direction

    def reversed(self) -> "TokenStream":
        """Returns the same text read backward."""
        count = len(self.tokens)
        return TokenStream(
            np.ascontiguousarray(self.tokens[::-1]),
            segments.mirror_ends(self.sentence_ends, count),
            segments.mirror_starts(self.document_starts, count),
            segments.mirror_word_start(self.word_start),
        )


def tokenize(
    tokenizer: XLNetTokenizer, lines: Sequence[str], use_eod: bool, sentence_split: str
) -> tuple[TokenStream, dict[str, Any]]:
    """Converts lines to one stream of tokens, read forward; also returns statistics of the text.

    A line is a sentence or, with the language sentence_split, a paragraph; "" ends a document, and with
    use_eod an <eod> that belongs to its last sentence.
    """
    if sentence_split:
        lines = split_sentences(sentence_split, lines)
    is_text = np.fromiter(map(bool, lines), bool, len(lines))
    texts = [line for line in lines if line]
    pieces, text_lengths = tokenizer.encode_batch(texts)
    lengths = np.zeros(len(lines), np.int64)
    lengths[is_text] = text_lengths
    document_ends = np.cumsum(lengths)[~is_text]  # in tokens, without <eod>
    document_ends = np.unique(document_ends[document_ends > 0])  # documents without a token leave no trace
    tokens, sentence_ends = pieces, np.cumsum(text_lengths, dtype=np.int64)
    if use_eod:
        tokens = np.insert(pieces, document_ends, EOD_ID)
        sentence_ends += np.searchsorted(document_ends, sentence_ends, side="right")
        document_ends = document_ends + np.arange(1, len(document_ends) + 1)
    is_end = np.zeros(len(tokens) + 1, bool)
    is_end[sentence_ends] = True
    is_end[0], is_end[-1] = False, len(tokens) > 0
    borders = np.concatenate([[0], document_ends, [len(tokens)]])
    document_lengths = np.diff(np.unique(borders))
    stream = TokenStream(
        tokens, np.flatnonzero(is_end), np.unique(borders)[:-1], tokenizer.word_starts[tokens]
    )
    statistics = {
        "documents": len(document_lengths),
        "sentences": len(texts),
        "characters": sum(map(len, texts)),
        "tokens": len(tokens),
        "unknown": int(np.count_nonzero(tokens == UNK_ID)),
        "word_starts": int(np.count_nonzero(stream.word_start)),
        "document_lengths": _power_of_two_histogram(document_lengths),
    }
    return stream, statistics


def _power_of_two_histogram(lengths: np.ndarray) -> dict[str, int]:
    """Counts lengths by the largest power of two that is not above them."""
    exponents, counts = np.unique(np.log2(lengths).astype(int), return_counts=True)
    return {str(2**exponent): int(count) for exponent, count in zip(exponents.tolist(), counts)}
