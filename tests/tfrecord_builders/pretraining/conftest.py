"""Options for a small set of pretraining records, and such a set."""

import pytest

from tfrecord_builders.pretraining.build import PretrainingOptions, build_pretraining_records


@pytest.fixture(scope="session")
def options(corpus_file, tokenizer_file):
    """Returns a function that makes options for a small set in a folder."""

    def make(folder, **changes):
        settings = {
            "input": [str(corpus_file)],
            "tokenizer": str(tokenizer_file),
            "output_dir": str(folder),
            "seq_len": 32,
            "stream_segments": 5,
            "slice_mb": 0.02,
            "num_workers": 1,
            "num_passes": 2,
            "seed": 3,
        }
        return PretrainingOptions(**{**settings, **changes})

    return make


@pytest.fixture(scope="session")
def records(options, tmp_path_factory):
    return build_pretraining_records(options(tmp_path_factory.mktemp("records")))
