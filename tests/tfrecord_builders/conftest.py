"""A made-up language, small enough to tokenize in no time, and a tokenizer for it."""

import io

import numpy as np
import pytest
import sentencepiece

from tfrecord_builders.pretraining.build import PretrainingOptions, build_pretraining_records
from xlnet_tf.text.tokenizer import XLNetTokenizer


def make_text(num_documents, seed=0):
    """Returns a corpus: sentences of made-up words, one a line, a blank line between documents."""
    rng = np.random.default_rng(seed)
    syllables = ["ka", "to", "mi", "ren", "sol", "du", "ve", "lan", "qui", "bor"]
    words = ["".join(rng.choice(syllables, rng.integers(1, 4))) for _ in range(150)]
    documents = []
    for _ in range(num_documents):
        lines = []
        for _ in range(rng.integers(1, 9)):
            line = " ".join(rng.choice(words, rng.integers(3, 15)))
            lines.append(line.capitalize() + rng.choice([".", "?", ", 5,000.", ".<eop>"]))
        documents.append("\n".join(lines))
    return "\n\n".join(documents) + "\n"


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(make_text(150, seed=1).split("\n")),
        model_writer=model,
        vocab_size=200,
        model_type="unigram",
        control_symbols="<cls>,<sep>,<pad>,<mask>,<eod>",
        user_defined_symbols="<eop>",
        minloglevel=2,
    )
    path = tmp_path_factory.mktemp("tokenizer") / "spiece.model"
    path.write_bytes(model.getvalue())
    return path


@pytest.fixture(scope="session")
def tokenizer(tokenizer_file):
    return XLNetTokenizer(tokenizer_file)


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text(make_text(300))
    return path


@pytest.fixture(scope="session")
def options(corpus_file, tokenizer_file):
    """Returns a function that makes options for a small set in a folder."""
    settings = {"input": [str(corpus_file)], "tokenizer": str(tokenizer_file)}
    settings |= {"seq_len": 32, "stream_segments": 5, "slice_mb": 0.02, "num_workers": 1}
    return lambda folder, **changes: PretrainingOptions(**{"output_dir": str(folder)} | settings | changes)


@pytest.fixture(scope="session")
def build(options):
    """Returns a function that builds a small set in a folder."""

    def run(folder, progress=False, **changes):
        return build_pretraining_records(
            options(folder, **{"stream_segments": 6, "slice_mb": 0.03} | changes), progress
        )

    return run


@pytest.fixture(scope="session")
def small_records(build, tmp_path_factory):
    """A set of two passes, both directions, with several slices and streams."""
    return build(tmp_path_factory.mktemp("records"), num_passes=2)
