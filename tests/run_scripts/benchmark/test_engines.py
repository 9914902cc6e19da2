"""Engines are measured at tiny sizes; nothing is asserted about time."""

import pytest

from run_scripts.benchmark import engines, report
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
    for what in ("builder", "embed"):
        measured = [(one["engine"], one["workers"]) for one in found[what]]
        assert measured == [("local", 2), ("beam", 2)]
        assert all(min(one["cpu_seconds"]) > 0 for one in found[what])
    assert found["rows"] == 4 and found["text_bytes"] == corpus_file.stat().st_size


def test_what_the_start_hides_is_no_rate():
    """A larger run that happens to take no longer once gave a negative rate."""
    assert engines._rate_and_start(600, 17.0, 23.0) == {"rate": 200.0, "start": 14.0}
    assert engines._rate_and_start(600, 17.0, 16.0) == {"rate": None, "start": None}
    hidden = {"engine": "dask", "workers": 1, "rate": None, "start": None, "cpu_rate": 5e6, "cpu_start": 30.0}
    found = {"engine": "dask", "workers": 2, "rate": 4e6, "start": 14.0, "cpu_rate": None, "cpu_start": None}
    measured = [hidden, found]
    part = {"text_bytes": 4e6, "rows": 9, "row_bytes": 80.0, "builder": measured, "embed": measured}
    (_, builder), (_, embed) = report._engines(part)
    assert [*map(str.strip, builder["dask, 1 workers"].split(";"))] == [
        "hidden by the start: give more --text_mb",
        "5.00 MB/CPU s, 30.0 CPU s to start",
    ]
    assert builder["dask, 2 workers"].strip().startswith("4.00 MB/s, 14.0 s to start;")
    assert embed["dask, 2 workers"].endswith("hidden by the start: give more --rows")


def test_an_engine_that_is_not_installed_is_named(corpus_file, tokenizer_file, monkeypatch):
    monkeypatch.setitem(engines.ENGINES, "dask", ("apache_beam_of_nobody",))
    with pytest.raises(UserError, match="dask needs apache_beam_of_nobody: install it or change --engines"):
        engines.measure_engines(
            corpus_file,
            str(tokenizer_file),
            XLNetConfig.preset("micro"),
            engines=["dask"],
            workers=[1],
            **SIZES,
        )
