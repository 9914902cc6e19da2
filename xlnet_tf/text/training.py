"""Trains SentencePiece models that carry XLNet's special symbols."""

import io
import re
from collections.abc import Iterable, Iterator

import sentencepiece

from xlnet_tf.errors import UserError
from xlnet_tf.text import special_tokens
from xlnet_tf.text.cleaning import DEFAULT_CLEANING, CleaningConfig, clean_text
from xlnet_tf.text.tokenizer import XLNetTokenizer

CONTROL_SYMBOLS = ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"]
# Always pieces of their own, as in the released models.
USER_DEFINED_SYMBOLS = ["<eop>", ".", "(", ")", '"', "-", "–", "£", "€"]

# SentencePiece skips longer sentences without a word, so that they are cut before.
_MAX_SENTENCE_BYTES = 4000


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    *,
    cleaning: CleaningConfig = DEFAULT_CLEANING,
    character_coverage: float = 0.99995,
    max_sentences: int = 10_000_000,
    seed: int = 0,
) -> XLNetTokenizer:
    """Trains a unigram SentencePiece model on texts, cleaned as they will be cleaned for encoding.

    Args:
        texts: sentences or paragraphs; empty ones are skipped.
        vocab_size: number of pieces V, special symbols included; the released models have 32,000.
        cleaning: how texts are cleaned before.
        character_coverage: share of the text's characters that get a piece; the rest becomes `<unk>`.
        max_sentences: sentences kept in memory, a random sample where there are more.
        seed: of that sample.

    Returns:
        The tokenizer, with the special symbols at their fixed ids; its `model_proto` is the file to save.

    Raises:
        UserError: there is no text, or the vocabulary size does not fit it.

    Source: the README of the original, section on SentencePiece.
    """
    errors: list[Exception] = []
    model = io.BytesIO()
    sentencepiece.set_random_generator_seed(seed)
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=_sentences(texts, cleaning, errors),
            model_writer=model,
            vocab_size=vocab_size,
            model_type="unigram",
            character_coverage=character_coverage,
            input_sentence_size=max_sentences,
            shuffle_input_sentence=True,
            control_symbols=CONTROL_SYMBOLS,
            user_defined_symbols=USER_DEFINED_SYMBOLS,
            unk_id=special_tokens.UNK_ID,
            bos_id=special_tokens.BOS_ID,
            eos_id=special_tokens.EOS_ID,
            minloglevel=1,
        )
    except RuntimeError as error:
        if not errors:
            raise UserError(_explain(str(error), vocab_size, character_coverage)) from error
    if errors:
        raise errors[0]
    return XLNetTokenizer(model_proto=model.getvalue(), cleaning=cleaning)


def vocabulary_lines(tokenizer: XLNetTokenizer) -> Iterator[str]:
    """Yields each piece and its log probability, as in SentencePiece's .vocab files."""
    for piece_id, piece in enumerate(tokenizer.pieces):
        yield f"{piece}\t{tokenizer.score(piece_id):g}\n"


def _sentences(texts: Iterable[str], cleaning: CleaningConfig, errors: list[Exception]) -> Iterator[str]:
    """Yields cleaned sentences; SentencePiece loses the iterator's own errors, so that they are noted."""
    try:
        for text in texts:
            encoded = clean_text(text, cleaning).encode()
            begin = 0
            while len(encoded) - begin > _MAX_SENTENCE_BYTES:
                head = encoded[begin : begin + _MAX_SENTENCE_BYTES].decode(errors="ignore")
                sentence = head[: head.rfind(" ") + 1 or len(head)]
                yield sentence
                begin += len(sentence.encode())
            if begin < len(encoded):
                yield encoded[begin:].decode()
    except Exception as error:  # noqa: BLE001 (raised again once SentencePiece has returned)
        errors.append(error)


def _explain(message: str, vocab_size: int, character_coverage: float) -> str:
    """Says what SentencePiece's error means for the caller."""
    if largest := re.search(r"Vocabulary size too high.*?<= (\d+)", message):
        return (
            f"the text is too small for {vocab_size} pieces: set the vocabulary size to at most "
            f"{largest[1]}, or train on more text"
        )
    if needed := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return (
            f"{vocab_size} pieces are fewer than the characters and special symbols that must have one: set "
            f"the vocabulary size to more than {needed[1]}, or lower the character coverage "
            f"({character_coverage})"
        )
    if "!sentences_.empty()" in message:
        return "there is no text to train a tokenizer on"
    return f"SentencePiece could not train a model of {vocab_size} pieces: {message}"
