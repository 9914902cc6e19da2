"""The benchmark of fine-tuning runs end to end at tiny sizes; nothing is asserted about time."""

import dataclasses

import numpy as np
import pytest

from benchmarks import finetune as benchmark
from tests.helpers.records import labelled
from xlnet_tf.config import XLNetConfig
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.text.special_tokens import PAD_ID

TINY = XLNetConfig(n_token=7, n_layer=1, d_model=16, n_head=2, d_head=8, d_inner=10)


@pytest.fixture(scope="module")
def data(tmp_path_factory, tokenizer_file):
    folder = tmp_path_factory.mktemp("finetune")
    rows = [("a film " * (1 + row % 3), row % 2) for row in range(13)]
    train = labelled.table(folder / "train.csv", ("text", "label"), *rows)
    labelled.builder(folder, tokenizer_file)(train=train)
    return str(folder / "records/train")


@pytest.mark.integration
def test_measure(data):
    sizes = {"examples": 11, "batch_size": 4, "peer_steps": 1}
    plan = benchmark.Plan(data=data, modes=("length", "fixed"), dtypes=benchmark.DTYPES, **sizes)
    report = benchmark.measure(TINY, plan)
    [(title, rows)] = report.items()
    assert "11 examples" in title
    rows = {row[""]: row for row in rows}
    ours = {"length", "fixed", "predict length"}
    assert set(rows) == {*ours, *(f"{name} bfloat16" for name in ours), "model_garden"}
    assert rows["length bfloat16"]["length's / this"] == rows["length"]["length's / this"] == 1
    assert 0 < rows["length"]["positions"] < rows["fixed"]["positions"] == 1
    assert min(row["ms an example"] for row in rows.values()) > 0


@pytest.mark.integration
def test_model_garden_does_not_see_the_padding(data, monkeypatch):
    monkeypatch.setattr(benchmark, "TrainingStep", lambda _, model, __, batch, **___: (model, batch))
    plan = benchmark.Plan(data=data, batch_size=3, dropout=0.0)
    config = dataclasses.replace(TINY, n_token=300)
    model, batch = benchmark.model_garden_step(config, plan, ExampleSet.load(data))
    ids = batch["input_word_ids"]
    assert (ids == PAD_ID).any(axis=1).all()
    expected = model(batch, training=False)
    other_padding = np.where(ids == PAD_ID, 50, ids)
    np.testing.assert_allclose(model(batch | {"input_word_ids": other_padding}), expected, atol=1e-6)
    other_text = np.where(ids == PAD_ID, ids, 50)
    assert np.abs(model(batch | {"input_word_ids": other_text}) - expected).max() > 1e-5
