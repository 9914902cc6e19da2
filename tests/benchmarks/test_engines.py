"""Engines are measured at tiny sizes; nothing is asserted about time."""

import pytest

from benchmarks import engines
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError

SIZES = {"rows": 4, "seq_len": 32, "num_predict": 4}


@pytest.mark.integration
def test_builder_and_embeddings_are_measured_on_every_engine(corpus_file, tokenizer_file):
    pytest.importorskip("apache_beam", reason="requirements-beam.txt")
    config = XLNetConfig.preset("micro")
    found = engines.measure_engines(
        corpus_file, str(tokenizer_file), config, engines=["local", "beam"], workers=[2], **SIZES
    )
    assert [title.split(",")[0] for title in found] == ["Builder", "Embeddings"]
    for rows in found.values():
        assert [row[""] for row in rows] == ["local, 2 workers", "beam, 2 workers"]
        assert set(rows[0]) == {"", "per s", "s to start", "per CPU s", "CPU s to start"}


def test_what_the_start_hides_is_no_rate():
    """A larger run that happens to take no longer once gave a negative rate."""
    assert engines._rate_and_start(600, "s", 17.0, 23.0) == {"per s": 200.0, "s to start": 14.0}
    assert engines._rate_and_start(600, "s", 17.0, 16.0) == {"per s": None, "s to start": None}


def test_an_engine_that_is_not_installed_is_named(corpus_file, tokenizer_file, monkeypatch):
    monkeypatch.setitem(engines.ENGINES, "dask", ("apache_beam_of_nobody",))
    with pytest.raises(UserError, match="dask needs apache_beam_of_nobody: install it or change --engines"):
        options = {"engines": ["dask"], "workers": [1], **SIZES}
        engines.measure_engines(corpus_file, str(tokenizer_file), XLNetConfig.preset("micro"), **options)
