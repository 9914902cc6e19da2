"""Sweeps: which points they try, what becomes of them, and that a second start repeats nothing."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.training import toy_finetuning
from xlnet_tf.errors import UserError
from xlnet_tf.tasks import sweep
from xlnet_tf.tasks.seeds import Result
from xlnet_tf.tasks.sweep import Axis, Trial, points
from xlnet_tf.training.runtime import prepare


def test_points_are_all_combinations():
    axes = [Axis.parse("learning_rate:1e-5,2e-5"), Axis.parse("task.model.summary:mean,last")]
    assert points(axes) == [
        {"learning_rate": rate, "task.model.summary": summary}
        for rate in (1e-5, 2e-5)
        for summary in ("mean", "last")
    ]
    assert sweep.label(points(axes)[0]) == "learning_rate=1e-05,task.model.summary=mean"


@given(samples=st.integers(1, 40), seed=st.integers(0, 9))
def test_drawn_points_are_within_their_ranges_and_repeat(samples, seed):
    axes = [Axis.parse("rate:1e-5..1e-3"), Axis.parse("steps:3..5"), Axis.parse("shift:-1..1")]
    drawn = points(axes, samples, seed)
    assert drawn == points(axes, samples, seed) and 1 <= len(drawn) <= samples
    for point in drawn:
        assert 1e-5 <= point["rate"] <= 1e-3 and -1 <= point["shift"] <= 1
        assert type(point["steps"]) is int and 3 <= point["steps"] <= 5
    assert len({json.dumps(point) for point in drawn}) == len(drawn)


@pytest.mark.parametrize(
    ("texts", "samples", "message"),
    [
        (["learning_rate"], 0, "expected NAME:VALUE,VALUE,... or NAME:LOW..HIGH"),
        (["a:1,,2"], 0, "a value is missing, or there twice"),
        (["a:1,1"], 0, "there twice"),
        (["a:3..2"], 1, "the lower one first"),
        (["a:x..y"], 1, "expected two numbers"),
        (["a:1", "a:2"], 0, "names a setting twice"),
        (["a:1..2"], 0, "say how many to draw, --sweep_samples=N"),
        ([], 3, "give one"),
    ],
)
def test_what_is_no_sweep_is_refused(texts, samples, message):
    with pytest.raises(UserError, match=message):
        points([Axis.parse(text) for text in texts], samples)


def trial(name, *values):
    problems = {-math.inf: "diverged: x", 0.5: "learned nothing: y"}
    results = [
        Result(seed, "f1", {}, {} if value == -math.inf else {"f1": value}, problems.get(value, ""))
        for seed, value in enumerate(values)
    ]
    return Trial({"rate": name}, f"runs/{name}", results)


def test_the_best_is_that_of_the_median_and_failures_count(tmp_path):
    trials = [trial("a", 0.9, 0.5, 0.6), trial("b", 0.7, -math.inf, 0.8), trial("c", -math.inf, -math.inf, 1)]
    assert sweep.best(trials).point == {"rate": "b"}
    lines = sweep.table(trials).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["rate=a", "0.6000"], ["rate=b", "0.7000"], ["rate=c", "-inf"],
    ]  # fmt: skip
    assert [line for line in lines if "best" in line] == [lines[2]] and "2 of 3" in lines[3]
    sweep.draw_picture(trials, tmp_path / "sweep.svg")
    drawn = (tmp_path / "sweep.svg").read_text()  # its texts are comments beside their outlines
    assert [f"<!-- {count} failed -->" in drawn for count in (1, 2, 3)] == [True, True, False]


@pytest.mark.integration
def test_a_sweep_is_run_and_resumed(tmp_path, small_tokenizer):
    for name in ("train", "dev"):
        toy_finetuning.make_examples(tmp_path / name, small_tokenizer, 32)
    variants = []
    for rate in (1e-9, 0.02):
        params = toy_finetuning.experiment()
        params.override({"task": {"train_data": {"input_path": str(tmp_path / "train")},
                                  "validation_data": {"input_path": str(tmp_path / "dev")}},
                         "trainer": {"optimizer_config": {"learning_rate": rate}}})  # fmt: skip
        variants.append(({"learning_rate": rate}, params))
    strategy = prepare(params.runtime)
    folder = tmp_path / "sweep"

    def run(variants, seeds):
        return sweep.sweep(variants, toy_finetuning.ToyTask, strategy, str(folder), seeds)

    first = run(variants[:1], 2)
    checkpoints = {path: path.stat().st_mtime_ns for path in folder.rglob("ckpt-*")}
    trials = run(variants, 2)
    assert {path: path.stat().st_mtime_ns for path in checkpoints} == checkpoints
    assert trials[0].values == first[0].values and sweep.best(trials) is trials[1]
    assert trials[1].median > trials[0].median
    saved = json.loads((folder / "sweep.json").read_text())
    assert [each["median"] for each in saved] == [each.median for each in trials]
    assert (folder / "learning_rate=0.02" / "seed-1" / "best").is_dir()
