"""Killed at random moments, writing of checkpoints included, a run ends as if nothing had been."""

import numpy as np
import pytest

from tests.helpers.training import toy
from tests.helpers.training.alone import run_alone
from tests.helpers.training.killing import FINETUNING
from xlnet_tf.checkpoints.of_runs import newest
from xlnet_tf.training.progress import read_history


def evaluations(model_dir) -> list[dict]:
    """The dev metrics by step; a resumed run evaluates its first step once more."""
    lines = [line for line in read_history(str(model_dir / "history.jsonl")) if line["kind"] == "dev"]
    return [
        {k: v for k, v in line.items() if k != "steps_per_second"} for line in lines if line["step"] % 8 == 0
    ]


def assert_equal_runs(folder, layout, kills):
    result = run_alone("-m", "tests.helpers.training.killing", folder, layout, kills)
    assert result.returncode == 0, (folder / "log").read_text()[-3000:] + result.stderr[-1000:]
    assert len(result.stdout.splitlines()) == kills, result.stdout
    expected = toy.tensors(newest(str(folder / "undisturbed")))
    assert len(expected) > 30
    assert any(name.startswith("memory") for name in expected) or layout in FINETUNING
    for run in folder.glob("killed-*"):
        found = toy.tensors(newest(str(run)))
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=f"{run.name}: {name}")
        assert evaluations(run) == evaluations(folder / "undisturbed")


@pytest.mark.long
@pytest.mark.parametrize("layout", ["one", "two", "accumulated", "finetuning", "packed"])
def test_a_run_killed_20_times_ends_bit_equal(tmp_path, layout):
    assert_equal_runs(tmp_path, layout, 20)
