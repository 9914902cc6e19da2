"""Trains SentencePiece models that carry XLNet's special symbols."""

import contextlib
import functools
import itertools
import math
import pickle
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from xlnet_tf.cli import signals
from xlnet_tf.errors import UserError
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.text import sentencepiece_process, special_tokens
from xlnet_tf.text.cleaning import DEFAULT_CLEANING, CleaningConfig, clean_text
from xlnet_tf.text.tokenizer import XLNetTokenizer

CONTROL_SYMBOLS = ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"]
# Always pieces of their own, as in the released models.
USER_DEFINED_SYMBOLS = ["<eop>", ".", "(", ")", '"', "-", "–", "£", "€"]

# SentencePiece skips longer sentences without a word, so that they are cut before.
_MAX_SENTENCE_BYTES = 4000
# It also skips those with its own mark for an unknown character, which becomes a space.
_UNKNOWN_MARK = "\u2585"

LEAST_SENTENCES = 101  # of a sample: SentencePiece draws no smaller one
NUM_THREADS = 16  # of the trainer, whatever the machine: with another number it chooses other pieces

# What SentencePiece logs as it begins a phase; only the number of the last one's rounds can be estimated.
_PHASES = {
    "Normalizing sentences": ("normalizing (1 of 3)", {"bar_format": "{desc}: {elapsed}"}),
    "Making suffix array": ("finding candidate pieces (2 of 3)", {"bar_format": "{desc}: {elapsed}"}),
    "for EM training": ("selecting pieces (3 of 3)", {"unit": "round"}),
}
_ROUND = re.compile(r"EM sub_iter=(\d) size=(\d+)")  # the last of these is the second one of a size
_SHRINKING_FACTOR = 0.75  # from one size to the next, unless a setting says otherwise
_LAST_SIZE = 1.1  # of the vocabulary; the rest is removed without another round


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    *,
    cleaning: CleaningConfig = DEFAULT_CLEANING,
    character_coverage: float = 0.99995,
    max_sentences: int = 10_000_000,
    seed: int = 0,
    show_progress: bool = False,
) -> XLNetTokenizer:
    """Trains a unigram SentencePiece model on texts, cleaned as for encoding.

    SentencePiece trains in another process, as Python cannot handle Ctrl-C or SIGTERM meanwhile. That process
    ends with this one. The result's `model_proto` is the file to save.

    Args:
        vocab_size: number of pieces V, special symbols included; the released models have 32,000.
        character_coverage: share of the text's characters that get a piece; the rest becomes `<unk>`.
        max_sentences: sentences kept in memory, a random sample of more; above 100, or 0 to keep all.

    Source: the README of the original, section on SentencePiece.
    """
    if 0 < max_sentences < LEAST_SENTENCES:
        raise UserError(
            f"max_sentences is {max_sentences}, expected more than {LEAST_SENTENCES - 1}, as SentencePiece "
            "takes no smaller sample, or 0 to keep all sentences"
        )
    settings = {
        "vocab_size": vocab_size,
        "model_type": "unigram",
        "character_coverage": character_coverage,
        "input_sentence_size": max_sentences,
        "shuffle_input_sentence": True,
        "num_threads": NUM_THREADS,
        "control_symbols": CONTROL_SYMBOLS,
        "user_defined_symbols": USER_DEFINED_SYMBOLS,
        "unk_id": special_tokens.UNK_ID,
        "bos_id": special_tokens.BOS_ID,
        "eos_id": special_tokens.EOS_ID,
    }
    samples = itertools.chain([(seed, settings)], _sentences(texts, cleaning))
    status, answer, last_line = _train(samples, vocab_size, show_progress)
    if status == sentencepiece_process.REFUSED:
        raise UserError(_explain(answer.decode(errors="replace"), vocab_size, character_coverage))
    if status:
        raise UserError(
            f"the process of SentencePiece ended with status {status}; the last line of its log is "
            f"{last_line!r}. If it was killed, memory may be short: train on fewer sentences"
        )
    return XLNetTokenizer(model_proto=answer, cleaning=cleaning)


def _train(samples: Iterable[Any], vocab_size: int, show_progress: bool) -> tuple[int, bytes, str]:
    """Runs sentencepiece_process.py; returns its exit status, what it wrote, and its log's last line."""
    # Not to take this folder's modules for others of their names; no such option, and no such name, in 3.10.
    safe_path = ["-P"] if sys.version_info >= (3, 11) else []
    command = [sys.executable, *safe_path, sentencepiece_process.__file__]
    with tempfile.TemporaryFile() as answer:
        start = functools.partial(
            subprocess.Popen, command, stdin=subprocess.PIPE, stdout=answer, stderr=subprocess.PIPE
        )
        with signals.blocked(start) as process:
            log = queue.SimpleQueue()
            reader = threading.Thread(target=_read_lines, args=(process.stderr, log))
            try:
                reader.start()
                _send(samples, process.stdin)
                last_line = _follow(log, vocab_size, show_progress)
                process.wait()
            finally:
                process.kill()
                reader.join()
        answer.seek(0)
        return process.returncode, answer.read(), last_line


def _send(values: Iterable[Any], stdin: BinaryIO) -> None:
    """Sends pickles to a process and closes its stdin; one that has ended gets no more."""
    try:
        for value in values:
            try:
                pickle.dump(value, stdin)
            except BrokenPipeError:
                break
    finally:
        with contextlib.suppress(BrokenPipeError):
            stdin.close()


def _read_lines(stream: BinaryIO, log: queue.SimpleQueue) -> None:
    """Reads what a process logs, which must never wait for a reader; None follows the last line."""
    for line in stream:
        log.put(line.decode(errors="replace").strip())
    log.put(None)


def _follow(log: queue.SimpleQueue, vocab_size: int, show_progress: bool) -> str:
    """Shows SentencePiece's progress until its log ends with None; returns the last line."""
    line, last_line, bar = "", "", ProgressBar(disable=True)
    try:
        while line is not None:
            last_line = line or last_line
            for text, (phase, options) in _PHASES.items():
                if text in line:
                    bar.close()
                    bar = ProgressBar(desc=phase, disable=not show_progress, smoothing=0, **options)
            if match := _ROUND.search(line):
                bar.n += 1
                sizes = math.log(_LAST_SIZE * vocab_size / int(match[2])) / math.log(_SHRINKING_FACTOR)
                bar.total = bar.n + 2 * max(0, math.ceil(sizes)) + (match[1] == "0")
            bar.refresh()
            try:
                line = log.get(timeout=1)
            except queue.Empty:
                line = ""  # the bar shows the time
    finally:
        bar.close()
    return last_line


def vocabulary_lines(tokenizer: XLNetTokenizer) -> Iterator[str]:
    """Yields each piece and its log probability, as in SentencePiece's .vocab files."""
    for piece_id, piece in enumerate(tokenizer.pieces):
        yield f"{piece}\t{tokenizer.score(piece_id):g}\n"


def _sentences(texts: Iterable[str], cleaning: CleaningConfig) -> Iterator[str]:
    """Yields cleaned sentences of at most _MAX_SENTENCE_BYTES."""
    for text in texts:
        text = clean_text(text.replace(_UNKNOWN_MARK, " "), cleaning)
        encoded = text.encode() if text.strip() else b""
        begin = 0
        while len(encoded) - begin > _MAX_SENTENCE_BYTES:
            head = encoded[begin : begin + _MAX_SENTENCE_BYTES].decode(errors="ignore")
            sentence = head[: head.rfind(" ") + 1 or len(head)]
            yield sentence
            begin += len(sentence.encode())
        if begin < len(encoded):
            yield encoded[begin:].decode()


def _explain(message: str, vocab_size: int, character_coverage: float) -> str:
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
