"""Sweeps: which points they try, what becomes of them, and that a second start repeats nothing."""

import json
import math
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run_scripts.common import dry_run
from tests.helpers.training import toy_finetuning
from xlnet_tf.errors import UserError
from xlnet_tf.tasks import seeds, sweep
from xlnet_tf.tasks.example_data import ExampleBatching
from xlnet_tf.tasks.seeds import Result
from xlnet_tf.tasks.sweep import Axis, Trial, points
from xlnet_tf.training.runtime import prepare


def test_points_are_all_combinations_of_values_as_in_yaml():
    axes = [Axis.parse("learning_rate:1e-5,2e-5"), Axis.parse("task.model.summary:mean,last")]
    values = [(rate, summary) for rate in (1e-5, 2e-5) for summary in ("mean", "last")]
    assert [tuple(point.values()) for point in points(axes)] == values
    assert sweep.label(points(axes)[0]) == "learning_rate=1e-05,task.model.summary=mean"
    assert Axis.parse("lengths:[8, 16],[32]").values == ([8, 16], [32])
    assert Axis.parse("recompute:no,yes").values == (False, True)
    is_text = lambda name: name in ("alert_label", "weights")  # noqa: E731
    assert Axis.parse("alert_label:no,yes,1", is_text).values == ("no", "yes", "1")
    assert Axis.parse('weights:1:5,"1:5,2:3"', is_text).values == ("1:5", "1:5,2:3")


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
        (["a:[1],[1]"], 0, "there twice"),
        (["a:1e-3,"], 0, "a value is missing"),
        (["a:[1,2"], 0, r"\[1,2 is not a list of values: quote those with special characters"),
        (["a:false..true"], 1, "expected two numbers"),
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
    drawn = (tmp_path / "sweep.svg").read_text()
    assert [f">{count} failed<" in drawn for count in (1, 2, 3)] == [True, True, False]
    failed = [trial("a", 0.5, 0.5), trial("b", -math.inf, 0.5)]
    assert sweep.best(failed) is None
    printed = sweep.table(failed)
    assert "<-" not in printed and "Every run has diverged or learned nothing, so none is the best" in printed
    sweep.draw_picture(failed, tmp_path / "sweep.svg")


@pytest.fixture
def settings(tmp_path, small_tokenizer):
    """Returns settings with some of the optimizer's changed, and a strategy."""
    for name in ("train", "dev"):
        toy_finetuning.make_examples(tmp_path / name, small_tokenizer, 32)

    def changed(**optimizer):
        params = toy_finetuning.experiment()
        params.override({"task": {"train_data": {"input_path": str(tmp_path / "train")},
                                  "validation_data": {"input_path": str(tmp_path / "dev")}},
                         "trainer": {"optimizer_config": optimizer}})  # fmt: skip
        return params

    return changed


def assert_refused(folder, variants, message, dry_run_message):
    """Before anything is written."""
    with pytest.raises(UserError, match=message):
        sweep.sweep(variants, toy_finetuning.ToyTask, prepare(variants[0][1].runtime), str(folder))
    planned = sweep.trainings(variants, toy_finetuning.ToyTask, str(folder))
    with pytest.raises(UserError, match=dry_run_message):
        dry_run.check_and_print_all(planned, None)
    assert not folder.exists()


def test_a_variant_that_cannot_be_trained_is_found_before_the_first_is(tmp_path, settings, monkeypatch):
    def variants(name, *changed):
        return [({name: 0}, settings()), ({name: 1}, *changed)]

    for name, value, message in (
        ("warmup_steps", 500, "warmup_steps=1: warmup_steps is 500 and train_steps is 32: expected"),
        ("beta_2", 1.0, "beta_2=1: beta_2 is 1.0: expected a number between 0 and 1"),
    ):
        assert_refused(tmp_path / "sweep", variants(name, settings(**{name: value})), message, message)

    large = settings()
    large.task.model.d_model = 1024
    with monkeypatch.context() as patch:
        patch.setattr(os, "sysconf", lambda name: 2000)  # 4 MB; the two need 0.2 and 14
        needed = "d_model=1: a step of .* tokens needs about 0 GB and this machine"
        assert_refused(tmp_path / "sweep", variants("d_model", large), needed, "d_model=1: .*What fits: --ba")

    def refuse(batching, context=None, start_step=0):
        if batching.batches.batch_size == 16:
            raise UserError("batches of 16 cannot be read")
        return read(batching, context, start_step)

    read, other = ExampleBatching.dataset, settings()
    other.task.train_data.global_batch_size = 16
    monkeypatch.setattr(ExampleBatching, "dataset", refuse)
    message = "batch_size=1: batches of 16 cannot be read"
    assert_refused(tmp_path / "sweep", variants("batch_size", other), message, message)


def test_two_variants_of_one_folder_are_refused(tmp_path, settings):
    variants = [({"name": "a/b"}, settings()), ({"name": "a_b"}, settings())]
    with pytest.raises(UserError, match="would both have the folder name=a_b"):
        list(sweep.trainings(variants, toy_finetuning.ToyTask, str(tmp_path)))


def begun(folder, batching):
    folder.mkdir(parents=True)
    (folder / "params.yaml").write_text(f"task: {{batching: {batching}}}\n")


def test_seeds_that_are_added_have_the_batches_of_the_others(tmp_path, settings):
    begun(tmp_path / "run" / "seed-1", "fixed")
    assert [params.task.batching for params, _ in seeds.runs(settings(), str(tmp_path / "run"), 3)] == [
        "fixed"
    ] * 3
    [planned] = sweep.trainings([({}, settings())], toy_finetuning.ToyTask, str(tmp_path / "run"), 3)
    assert [params.task.batching for params, _ in planned.runs] == ["fixed"] * 3
    given = settings()
    given.task.batching = "packed"  # which the run with seed 1 refuses
    assert {params.task.batching for params, _ in seeds.runs(given, str(tmp_path / "run"), 3)} == {"packed"}


@pytest.mark.parametrize(
    ("there", "num_seeds", "said"),
    [
        (["seed-0", "seed-1"], 1, "has runs of several seeds, which --num_seeds=1 does not resume"),
        (["."], 2, "has a run of one seed, which --num_seeds=2 does not resume: seed 0 is trained again, in"),
        (["."], 1, ""),
        (["seed-0"], 3, ""),
        ([".", "seed-0"], 2, ""),
        ([], 2, ""),
    ],
)
def test_a_seed_that_is_trained_again_is_said(
    tmp_path, settings, caplog, monkeypatch, there, num_seeds, said
):
    for name in there:
        (tmp_path / "run" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name / "params.yaml").write_text("{task: {}, trainer: {}}")
    monkeypatch.setattr(seeds, "runs", lambda *_: [])
    params = settings()
    seeds.finetune_seeds(
        params, toy_finetuning.ToyTask, prepare(params.runtime), str(tmp_path / "run"), num_seeds
    )
    assert said in caplog.text and bool(said) == ("trained again" in caplog.text)


@pytest.mark.parametrize("rates", [(0.1, 0.2), (0.2, 0.1)])
def test_points_that_are_added_without_the_batching_of_the_others_are_refused(tmp_path, settings, rates):
    begun(tmp_path / "rate=0.1" / "seed-0", "fixed")
    variants = [({"rate": rate}, settings(learning_rate=rate)) for rate in rates]
    with pytest.raises(UserError, match="fixed for rate=0.1.* add --batching=fixed"):
        list(sweep.trainings(variants, toy_finetuning.ToyTask, str(tmp_path), 2))
    for _, params in variants:
        params.task.batching = "fixed"
    assert len(list(sweep.trainings(variants, toy_finetuning.ToyTask, str(tmp_path), 2))) == 2


def test_a_dry_run_prints_of_each_variant_in_what_it_differs(tmp_path, settings, capsys):
    variants = [({"rate": rate}, settings(learning_rate=rate)) for rate in (0.1, 0.2)]
    variants.append(({"rate": 0.3}, settings()))
    variants[2][1].trainer.train_steps = 7
    dry_run.check_and_print_all(sweep.trainings(variants, toy_finetuning.ToyTask, str(tmp_path)), None)
    first, second, third = re.split(r"rate=0\.\d:\n", capsys.readouterr().out)[1:]
    assert "32 records of 10 tokens" in first and second == "as the first\n"
    assert "steps  7, 4 in a loop" in third and "records" not in third and "Everything fits." in third


@pytest.mark.integration
def test_a_sweep_is_run_and_resumed(tmp_path, settings):
    variants = [({"learning_rate": rate}, settings(learning_rate=rate)) for rate in (1e-9, 0.02)]
    strategy = prepare(variants[0][1].runtime)
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
