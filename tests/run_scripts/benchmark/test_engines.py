"""Engines are measured at tiny sizes; nothing is asserted about time."""

import pytest

from run_scripts.benchmark import engines
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError

SIZES = {"rows": 4, "seq_len": 32, "num_predict": 4}


@pytest.mark.integration
def test_builder_and_embeddings_are_measured_on_every_engine(corpus_file, tokenizer_file):
    pytest.importorskip("apache_beam", reason="requirements-beam.txt")
    config = XLNetConfig.preset("micro")
    found = engines.measure_engines(
        corpus_file, str(tokenizer_file), config, engines=["local", "beam"], workers=[1, 2], **SIZES
    )
    for what in ("builder", "embed"):
        measured = [(one["engine"], one["workers"]) for one in found[what]]
        assert measured == [("local", 1), ("local", 2), ("beam", 1), ("beam", 2)]
    assert found["rows"] == 4 and found["text_bytes"] == corpus_file.stat().st_size


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
