"""Runs that no longer become better end, and end at the same step however often they are resumed."""

import json
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.training import toy_finetuning
from xlnet_tf.errors import UserError
from xlnet_tf.tasks import finetuning
from xlnet_tf.training.early_stopping import BEST, Hours, Patience
from xlnet_tf.training.progress import HISTORY, read_history
from xlnet_tf.training.runtime import prepare

INTERVAL = 4


class Score:
    data = types.SimpleNamespace(dev_set=lambda: "this one")

    def dev_score(self, metrics):
        return metrics["f1"]


@given(
    values=st.lists(st.sampled_from([0.1, 0.2, 0.3, float("nan")]), min_size=1, max_size=12),
    most=st.integers(0, 4),
    resumed_at=st.integers(0, 50),
)
def test_a_resumed_run_ends_where_an_undisturbed_one_does(tmp_path_factory, values, most, resumed_at):
    steps = range(INTERVAL, INTERVAL * (len(values) + 1), INTERVAL)
    evaluations = dict(zip(steps, values))

    def end(patience, begin):
        return next((s for s in steps if s >= begin and patience.lost({"f1": evaluations[s]}, s)), None)

    folder = tmp_path_factory.mktemp("run")
    undisturbed = end(Patience(Score(), str(folder), 0, INTERVAL, most), 0)
    best, since = -1.0, 0
    expected = None
    for step, value in evaluations.items():
        best, since = (value, 0) if value > best else (best, since + 1)
        if expected is None and most and since >= most:
            expected = step
    assert undisturbed == expected
    if undisturbed is None or resumed_at <= undisturbed:
        # Where a run resumes between two evaluations it evaluates, too, and history has that one.
        seen = {**evaluations, 0: 0.9, resumed_at // INTERVAL * INTERVAL + 1: 0.9}
        lines = [{"step": s, "kind": "dev", "f1": seen[s]} for s in sorted(seen) if s <= resumed_at]
        (folder / HISTORY).write_text("".join(json.dumps(line) + "\n" for line in lines))
        resumed = Patience(Score(), str(folder), resumed_at, INTERVAL, most)
        assert end(resumed, resumed_at) == undisturbed


@pytest.mark.parametrize(
    ("best", "counts"),
    [
        ({}, True),
        ({"dev_set": "this one"}, True),
        ({"dev_set": "another"}, False),
        ({"dev_set": "this one", "dev_set_since": INTERVAL}, True),
        ({"dev_set": "this one", "dev_set_since": 2 * INTERVAL}, False),
    ],
)
def test_evaluations_of_another_dev_set_do_not_count(tmp_path, best, counts):
    (tmp_path / HISTORY).write_text(json.dumps({"step": INTERVAL, "kind": "dev", "f1": 0.9}) + "\n")
    (tmp_path / BEST).mkdir()
    (tmp_path / BEST / "metrics.json").write_text(json.dumps({"step": INTERVAL, "f1": 0.9, **best}))
    patience = Patience(Score(), str(tmp_path), 2 * INTERVAL, INTERVAL, most=1)
    assert patience.lost({"f1": 0.8}, 2 * INTERVAL) == counts


def settings(folder, **trainer):
    params = toy_finetuning.experiment()
    params.override({"task": {"train_data": {"input_path": str(folder / "train")},
                              "validation_data": {"input_path": str(folder / "dev")}},
                     "trainer": {"optimizer_config": {"learning_rate": 1e-12}, "validation_interval": 2,
                                 "steps_per_loop": 2, **trainer}})  # fmt: skip
    return params


@pytest.mark.integration
def test_a_run_that_learns_nothing_ends_and_stays_ended(tmp_path, small_tokenizer):
    for name in ("train", "dev"):
        toy_finetuning.make_examples(tmp_path / name, small_tokenizer, 16)
    for _ in range(2):
        params = settings(tmp_path, patience=2, train_steps=20)
        strategy = prepare(params.runtime)
        finetuning.finetune(params, toy_finetuning.ToyTask, strategy, str(tmp_path / "run"))
        history = read_history(str(tmp_path / "run" / HISTORY))
        assert [line["step"] for line in history if line["kind"] == "dev"] == [0, 2, 4, 6]
        assert (tmp_path / "run" / "ckpt-6.index").exists()
    params = settings(tmp_path, patience=2)
    params.task.validation_data.input_path = ""
    with pytest.raises(UserError, match="--patience.* counts evaluations, and there are no dev examples"):
        finetuning.finetune(params, toy_finetuning.ToyTask, strategy, str(tmp_path / "other"))


def test_hours_count_over_all_starts(tmp_path):
    clock = types.SimpleNamespace(monotonic=lambda: seconds)
    seconds = 1000.0
    first = Hours(str(tmp_path), 2.0, write=True, clock=clock)
    seconds += 3600
    assert not first.are_used()
    seconds += 30  # lost: a kill before the next minute
    resumed = Hours(str(tmp_path), 2.0, write=True, clock=clock)
    seconds += 3599
    assert not resumed.are_used()
    seconds += 1
    assert resumed.are_used() and "2 h, its --max_hours: it ends at step 1,200" in resumed.reason(1200)
    assert Hours(str(tmp_path), 2.0, write=False, clock=clock).are_used()
    assert not Hours(str(tmp_path), 0.0, write=False, clock=clock).are_used()
