"""The first half of the demos: from text to a pretrained model. Results of an earlier run are kept."""

import pathlib

import numpy as np

from run_scripts import train_tokenizer
from run_scripts.common import experiment
from tfrecord_builders.corpus import CorpusOptions
from tfrecord_builders.pretraining import build as builder
from tfrecord_builders.pretraining import report
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.shards import read_shard
from xlnet_tf.text.cleaning import CleaningConfig

VOCAB_SIZE = 8000
CLEANING = CleaningConfig(lower=True)
TOKENIZER_SENTENCES = 60_000  # enough for 8000 pieces, and trained in seconds


def make_tokenizer(text: pathlib.Path, path: pathlib.Path) -> None:
    """Trains the tokenizer on the corpus, unless an earlier run has."""
    if not path.exists():
        options = CorpusOptions(input=[str(text)])
        train_tokenizer.train(
            options, path.with_suffix(""), VOCAB_SIZE, cleaning=CLEANING, max_sentences=TOKENIZER_SENTENCES
        )


def make_records(text: pathlib.Path, tokenizer: pathlib.Path, folder: pathlib.Path, split: str) -> Manifest:
    """Builds records of 128 tokens, 32 of them targets: single pieces, which teach most in a few minutes."""
    options = builder.PretrainingOptions(
        input=[str(text)],
        tokenizer=str(tokenizer),
        output_dir=str(folder),
        split=split,
        seq_len=128,
        mask_alpha=4,
        span_mode="single",
        sentence_split="en",
        stream_segments=32,
        slice_mb=1.0,
        lower=CLEANING.lower,
    )
    manifest = builder.build_pretraining_records(options, progress=True)
    print(report.summary(manifest))
    return manifest


def unigram_entropy(manifest: Manifest) -> float:
    """Returns the entropy in nats of a set's targets: the loss of the best guess that ignores the context."""
    counts = np.zeros(manifest.tokenizer["vocab_size"], np.int64)
    for shard in manifest.shards:
        columns = read_shard(manifest.path(shard), manifest.spec)
        positions = columns["target_positions"].astype(np.int64)
        targets = np.take_along_axis(columns["input_ids"], np.maximum(positions, 0), axis=1)[positions >= 0]
        counts += np.bincount(targets, minlength=len(counts))
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def make_model(recipe: str, train: Manifest, dev: Manifest, folder: pathlib.Path) -> list[dict]:
    """Pretrains the model, or resumes where an earlier run stopped; returns the history of its losses."""
    from official.core import exp_factory

    from xlnet_tf.tasks.pretraining import task as pretraining
    from xlnet_tf.training.config import override
    from xlnet_tf.training.progress import HISTORY, read_history

    params = exp_factory.get_exp_config(pretraining.EXPERIMENT)
    override(params, str(experiment.RECIPES / recipe), "the demo's recipe")
    params.task.train_data.input_path = str(train.folder)
    params.task.validation_data.input_path = str(dev.folder)
    pretraining.pretrain(params, str(folder))
    return read_history(str(folder / HISTORY))
