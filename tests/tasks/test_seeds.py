"""Runs of several seeds: their table, and what is said of those that failed or learned nothing."""

import dataclasses
import json

import numpy as np
import pytest

from tests.helpers.training import toy_finetuning as toy
from xlnet_tf.tasks import seeds


@pytest.mark.integration
def test_the_median_over_seeds_counts_a_failed_seed_as_worst_and_what_learns_nothing_is_flagged(
    data, tmp_path
):
    still = toy.settings(data, trainer={"optimizer_config": {"learning_rate": 0.0}}, task={"epochs": 2.0})
    results = seeds.finetune_seeds(still, toy.ToyTask, toy.strategy(), str(tmp_path / "runs"), num_seeds=2)
    assert [result.seed for result in results] == [0, 1]
    assert {result.problem for result in results} == {"learned nothing: the loss did not fall"}
    losses = [result.last["loss"] for result in results]
    assert len(set(losses)) == 2
    assert f"{np.median(losses):.4f}" in seeds.table(results)
    assert json.loads((tmp_path / "runs" / "seeds.json").read_text())[1]["last"]["loss"] == losses[1]

    failed = [seeds.Result(seed, "accuracy", {}, {}, "diverged") for seed in (3, 4, 5)]
    results = [dataclasses.replace(result, problem="", advice="") for result in results]
    header, *_, medians, _, _, problem = seeds.table(failed + results).splitlines()
    assert header.split()[1:] == ["best", "accuracy", "accuracy", "loss"]
    assert medians.split() == ["median", "-inf", "-inf", "nan"]  # -inf would be the best loss
    assert problem == "seed 5: diverged"

    class Constant(toy.ToyTask):
        """The best that one answer for all texts gets is more than this run will."""

        def constant_score(self, examples):
            return 1.0

    (result,) = seeds.finetune_seeds(
        toy.settings(data, task={"epochs": 3.0}), Constant, toy.strategy(), str(tmp_path / "other")
    )
    assert result.problem == "learned nothing: the same answer for every text scores 1.0000"
    assert seeds.table([result]).splitlines()[-2:] == [
        "seed 0: learned nothing: the same answer for every text scores 1.0000",
        "Try a lower --learning_rate, more --epochs, a longer --warmup_fraction or another --seed, with a "
        "new --model_dir: rates from 0.0003 to 0.003 suit tiny models, and this run had 0.02",
    ]


@pytest.mark.parametrize(
    ("rate", "d_model", "said"),
    [
        (2e-5, 16, "Try a higher --learning_rate, more"),
        (1e-3, 16, "Try more --epochs"),
        (0.1, 16, "Try a lower --learning_rate, more"),
        (1e-3, 1024, "Try a lower --learning_rate, more"),
        (2e-5, 1024, "Try more --epochs"),
    ],
)
def test_advice_does_not_name_the_rate_that_was_given(data, rate, d_model, said):
    task = toy.ToyTask(toy.settings(data, task={"model": {"d_model": d_model}}).task)
    assert seeds._advice(rate, task).startswith(said)


def test_a_table_of_seeds_fits_into_a_terminal():
    """80 columns, no word broken; counts are whole numbers, the median's, too."""
    names = ["map", "mrr", "mrr_at_10", "ndcg_at_10", "queries_left_out", "a_metric_of_a_long_name", "loss"]
    results = [
        seeds.Result(seed, "map", {**dict.fromkeys(names, 0.5), "queries": 18}, {"map": 0.75})
        for seed in (3, 4)
    ]
    printed = seeds.table(results)
    assert max(map(len, printed.splitlines())) <= 80
    blocks = [[line.split() for line in block.splitlines()] for block in printed.split("\n\n")]
    assert {tuple(row[0] for row in block) for block in blocks} == {("seed", "3", "4", "median")}
    columns = [dict(zip(block[0], row)) for block in blocks[1:] for row in block[1:]]
    assert {name for row in columns for name in row} >= {*names[5:], "queries"}
    assert {row["queries"] for row in columns if "queries" in row} == {"18"}
    assert {row["loss"] for row in columns if "loss" in row} == {"0.5000"}
