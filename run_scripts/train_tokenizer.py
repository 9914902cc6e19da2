r"""Trains a tokenizer: SentencePiece's, with XLNet's special symbols.

    python -m run_scripts.train_tokenizer --input='corpus/*.txt' --output_prefix=runs/spiece --vocab_size=8000

The corpus is whatever the pretraining builder reads: text, jsonl, parquet, compressed or not, data sets. It
writes PREFIX.model, which the record builders read; PREFIX.vocab, its pieces for people to read; and
PREFIX.json, how it was trained. The pieces depend on the texts and their order, on these options, on the
release of SentencePiece and on the number of its threads, which is fixed.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sentencepiece
from absl import logging
from etils import epath

from tfrecord_builders import corpus
from xlnet_tf import errors, files, folders
from xlnet_tf.cli import command_line
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.text.cleaning import DEFAULT_CLEANING, CleaningConfig
from xlnet_tf.text.marks import warn_of_dropped_marks
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.training import LEAST_SENTENCES, NUM_THREADS, train_tokenizer, vocabulary_lines

_SLICE_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerOptions:
    """The tokenizer's properties, and where it is written."""

    output_prefix: str = option(
        "Where to write: PREFIX of PREFIX.model, PREFIX.vocab and PREFIX.json.", group="output"
    )
    vocab_size: int = option("Number of pieces, special symbols included.", 32_000, least=1, group="model")
    character_coverage: float = option(
        "Share of the text's characters that get a piece. The rest becomes <unk>. "
        "0.9995 suits scripts of thousands of characters, such as Chinese.",
        0.99995,
        least=0.98,
        most=1.0,
    )
    max_sentences: int = option(
        "Lines kept in memory: a random sample of more.", 10_000_000, least=LEAST_SENTENCES
    )
    lower: bool = option("Lower-case all text.", False)
    keep_accents: bool = option("Keep accents and other combining marks.", False)
    seed: int = option("Random seed of the sample.", 0, least=0)
    overwrite: bool = option("Replace an existing tokenizer.", False)


def train(
    corpus_options: corpus.CorpusOptions,
    output_prefix: str | os.PathLike,
    vocab_size: int,
    *,
    overwrite: bool = False,
    **options,
) -> XLNetTokenizer:
    """Trains a tokenizer on a corpus and writes its files; for options see text.training."""
    prefix = os.fspath(output_prefix)
    if not os.path.basename(prefix):
        raise errors.UserError(
            f"output_prefix is {prefix!r}, expected the beginning of the files' names, too: {prefix}spiece"
        )
    model_path = epath.Path(f"{prefix}.model")
    for written in (model_path, epath.Path(f"{prefix}.json")):
        if written.exists() and not overwrite:
            raise errors.UserError(f"{written} exists: give another --output_prefix, or --overwrite")
    if model_path.exists():
        folders.claim(model_path.parent, folders.FOREIGN, flag="--output_prefix")
    for path in corpus_options.input:
        if corpus.is_part(model_path, path):
            raise errors.UserError(
                f"output_prefix {prefix} is in {path}, the corpus: the tokenizer would be part of it. Choose "
                "another --output_prefix"
            )
    files.check_writable(files.make_folder(model_path.parent))  # now, not after minutes of training
    sources = corpus.find_sources(corpus_options)
    warn_of_dropped_marks(corpus.sample_lines(sources), options.get("cleaning", DEFAULT_CLEANING))
    with contextlib.closing(read_texts(sources)) as texts:
        tokenizer = train_tokenizer(texts, vocab_size, show_progress=True, **options)
    save(tokenizer, prefix, {"vocab_size": vocab_size, **options})
    print(f"{model_path}: {tokenizer.vocab_size} pieces, sha256 {tokenizer.fingerprint}")
    if tokenizer.commas.unknown_may_end_in_comma:
        logging.warning(
            "%s has no piece ',': models with it can be trained, but neither exported nor asked for answers "
            "in Python. Train a tokenizer on text with commas",
            model_path,
        )
    return tokenizer


def read_texts(sources: Sequence[corpus.Source]) -> Iterator[str]:
    """Yields the lines of a corpus, with a progress bar over its bytes."""
    total = sum(source.num_bytes for source in sources)
    with ProgressBar(total=total, unit="B", unit_scale=True, desc="reading") as progress:
        for corpus_shard in corpus.plan_shards(sources, _SLICE_BYTES):
            yield from corpus.read_lines(corpus_shard).lines
            progress.update(corpus_shard.source_bytes)


def save(tokenizer: XLNetTokenizer, prefix: str, options: Mapping[str, Any]) -> None:
    """Writes a tokenizer's files, all or none; the model is renamed last."""
    model_path = epath.Path(f"{prefix}.model")
    files.make_folder(model_path.parent)
    how = {
        "sentencepiece": sentencepiece.__version__,
        "num_threads": NUM_THREADS,
        **options,
        "cleaning": tokenizer.cleaning.to_dict(),
        "sha256": tokenizer.fingerprint,
    }
    with files.replacing(model_path, "wb") as model:
        model.write(tokenizer.model_proto)
        model.flush()  # a full disk shows before there is a vocabulary
        files.write(f"{prefix}.vocab", "".join(vocabulary_lines(tokenizer)))
        files.write(f"{prefix}.json", json.dumps(how, indent=1) + "\n")


def main(_) -> None:
    options = from_flags(TokenizerOptions)
    train(
        from_flags(corpus.CorpusOptions),
        options.output_prefix,
        options.vocab_size,
        overwrite=options.overwrite,
        cleaning=CleaningConfig(lower=options.lower, keep_accents=options.keep_accents),
        character_coverage=options.character_coverage,
        max_sentences=options.max_sentences,
        seed=options.seed,
    )


if __name__ == "__main__":
    define_flags(corpus.CorpusOptions, TokenizerOptions)
    command_line.require_one_of("input", "tfds_name")
    errors.run(main)
