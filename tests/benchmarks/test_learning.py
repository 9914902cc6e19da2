"""Both models are trained alike at tiny sizes; nothing is asserted about who learns more."""

import dataclasses

import numpy as np
import pytest
import yaml

from benchmarks import learning as learning
from tfrecord_builders.pretraining import build as builder
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError

TINY = XLNetConfig(n_token=50, n_layer=1, d_model=16, n_head=2, d_head=8, d_inner=20)
PLAN = learning.TrainingSettings(
    steps=30, eval_interval=20, batch_size=4, learning_rate=5e-3, warmup_steps=5, dropout=0.0, seed=1
)


@pytest.fixture
def records(corpus_file, tokenizer_file, tmp_path):
    """Returns a function that builds records, of one direction unless told otherwise."""

    def build(name, **options):
        given = {"input": [str(corpus_file)], "tokenizer": str(tokenizer_file), "seq_len": 32}
        given |= {"output_dir": str(tmp_path / name), "num_workers": 1, "stream_segments": 4}
        options = {"bidirectional": False, **given, **options}
        return builder.build_pretraining_records(builder.PretrainingOptions(**options))

    return build


@pytest.mark.integration
def test_both_learn_from_the_same_and_a_recipe_by_itself(records, tmp_path):
    train, dev = records("train"), records("dev", seed=1)
    fields = {name: value for name, value in TINY.to_dict().items() if name[:2] in ("d_", "n_")}
    recipe = {
        "task": {"model": fields | {"n_token": None, "dropout": 0.0}, "train_data": {"global_batch_size": 2}},
        "trainer": {"train_steps": 45, "optimizer_config": {"learning_rate": 5e-3, "warmup_steps": 5}},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe))
    report = learning.train_both(TINY, train, dev, PLAN, tpu_form=True, recipe=str(tmp_path / "mine.yaml"))
    assert [point["step"] for point in report["curve"]] == [0, 2, 5, 10, 20, 30]
    for who in ("ours", "ours_on_tpus", "model_garden", "recipe"):
        losses = [point[who] for point in report["curve"]]
        assert losses[0] == pytest.approx(np.log(train.tokenizer["vocab_size"]), abs=0.7)
        assert losses[-1] < losses[0] - 0.2
        assert report["seconds_per_step"][who] > 0
    last = report["curve"][-1]
    assert report["difference"] == last["ours"] - last["model_garden"]
    assert report["recipe"]["loss"] == last["recipe"] and report["recipe"]["steps"] == 45
    times = report["seconds_per_step"]
    assert report["recipe"]["time_share"] == 45 * times["recipe"] / (30 * times["model_garden"])
    learning.draw(report | {"unigram_entropy": 2.5}, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").stat().st_size > 1000
    both = records("both", bidirectional=True)
    with pytest.raises(UserError, match="directions forward, backward: expected forward.*--nobidirectional"):
        learning.train_both(TINY, both, both, PLAN)
    curve, total, by_recipe = learning.tables(report).values()
    assert curve == report["curve"] and by_recipe[0]["loss"] == last["recipe"]
    assert {row[""]: row["last dev loss"] for row in total} == {name: last[name] for name in times}


@pytest.mark.integration
def test_evaluation_counts_every_target_once(records):
    """Filler rows and empty slots count for nothing, whatever the batch size."""
    from xlnet_tf.records.reader import pretraining_dataset

    dev = records("dev")
    config = dataclasses.replace(TINY, n_token=dev.tokenizer["vocab_size"])
    for rows in (3, 4):
        batches = list(pretraining_dataset(dev, rows, repeat=False).as_numpy_iterator())
        assert sum(learning.target_weights(batch).sum() for batch in batches) == dev.records * dev.num_predict
    ours = learning.make_ours(config, PLAN)
    theirs = learning.make_model_garden(config, PLAN, batches[0])
    for one in (ours, theirs):
        assert one.evaluate(batches) == pytest.approx(np.log(config.n_token), abs=0.7)
