"""What is found before anything is created."""

import json
import pathlib
import re
import types

import pytest

from run_scripts.common import dry_run
from run_scripts.launch import checks
from tests.helpers.cloud.harness import GKE, World
from xlnet_tf import ownership
from xlnet_tf.errors import UserError
from xlnet_tf.tasks import sweep
from xlnet_tf.tpu.report import CompiledBatch
from xlnet_tf.tpu.topologies import TOPOLOGIES


def failing(world):
    """Returns the message of failing checks, after which nothing may have been created."""
    with pytest.raises(UserError) as caught:
        world.check()
    assert not world.cloud.left() and not world.called("create")
    return str(caught.value)


@pytest.mark.parametrize("place", [{}, GKE], ids=["queued-resource", "gke"])
def test_what_fits_passes_and_hours_are_estimated(tmp_path, capsys, place):
    world = World(tmp_path, **place)
    assert world.check() == pytest.approx(1.0)
    assert "FAILED" not in capsys.readouterr().out
    assert not [name for name in world.cloud.state["objects"] if "launch-may-write" in name]


@pytest.mark.parametrize(("flags", "hours"), [
    ("--num_seeds=3", 3.0), ("--num_seeds 2 --sweep=learning_rate:1e-5,2e-5", 4.0), ("--sweep=seed:1,2", 2.0),
    ("--sweep=epochs:1,2", 3.0),
])  # fmt: skip
def test_the_hours_are_those_of_all_seeds_and_variants(tmp_path, flags, hours):
    world = World(tmp_path, command=f"finetune --data=gs://b/train {flags}")
    if "--sweep" in flags:
        first, second = "learning_rate=1e-05:\n", "learning_rate=2e-05,task.model.summary=mean:\n"
        differs = "  steps  7,200, 100 in a loop\n" if "epochs" in flags else "as the first\n"
        world.dry_run = (0, first + world.dry_run[1] + second + differs, "")
    assert world.check() == pytest.approx(hours)


def test_all_failures_are_reported_at_once(tmp_path):
    wrong = {"accelerator": "v5e-4", "budget": {"hours": 0.5}, "package": "x.whl"}
    world = World(tmp_path, {"region": "EUROPE-WEST4"}, **wrong)
    message = failing(world)
    assert len(re.findall(r"^(accelerator|package|buckets|budget): ", message, re.MULTILINE)) == 4


@pytest.mark.parametrize(("settings", "scenario", "message"), [
    ({"zone": "us-east1-d"}, {}, "us-east1-d has no TPUs that your account may use in my-project"),
    ({"accelerator": "v5e-4"}, {}, "has no v5litepod-4; it has of this kind v5litepod-1, v5litepod-16"),
    ({"accelerator": "v3-32"}, {}, "no runtime tpu-vm-tf-2.20.0-pod-se; it has .*tpu-vm-tf-2.20.0-pod-pjrt"),
    ({"package": "dist/none.whl"}, {}, r"dist/none.whl does not exist: make it \(make wheel\)"),
    ({"package": "."}, {}, r"package is \., of this machine: expected a wheel \(make wheel\), or"),
    ({}, {"region": "EUROPE-WEST4"}, "gs://b is in europe-west4, and the TPU in us-west4"),
    ({"zone": "europe-west12-a"}, {"region": "EUROPE-WEST1"}, "europe-west1, and the TPU in europe-west12"),
    ({}, {"no_bucket": ["gs://b"]}, "gs://b does not exist"),
    ({}, {"denied": ["gs://b/train"]}, "data: your account may not read gs://b/train"),
    ({}, {"denied": ["gs://b/runs/base/launch"]}, "rights: your account may not write to gs://b/runs/base"),
    ({"command": "pretrain --train_data=gs://b/nothing"}, {}, "gs://b/nothing does not exist"),
    ({"budget": {"hours": 0.5}}, {}, "takes about 1.00 h, and 0.50 of 0.50 h are left: raise the budget"),
    ({"steps_per_second": 0.01}, {}, "takes about 100.00 h"),
    (GKE, {"no_image": [GKE["image"]]}, "us-docker.pkg.dev/p/r/xlnet-tf does not exist: build and push it"),
    (GKE | {"accelerator": "v5e-32"}, {}, "tpus has no node pool of v5e and topology 4x8, only"),
    (GKE | {"accelerator": "v6e-8"}, {}, "tpus has no node pool of v6e, only of ct5lp-hightpu-8t: create"),
])  # fmt: skip
def test_a_mistake_is_found_before_it_costs(tmp_path, settings, scenario, message):
    assert re.search(message, failing(World(tmp_path, scenario, **settings)))


def test_what_costs_more_can_be_accepted(tmp_path):
    world = World(tmp_path, {"region": "EU"}, other_region=True, until_budget=True, budget={"hours": 0.5})
    assert world.check() == pytest.approx(1.0)


def test_a_dry_run_that_fails_is_the_reason(tmp_path):
    world = World(tmp_path)
    world.dry_run = (
        1,
        "",
        "ERROR: the step of 64 rows does not fit into the memory of a core of v5e-8\nmore",
    )
    assert "dry run: the step of 64 rows does not fit into the memory" in failing(world)


def test_the_dry_run_is_that_of_the_command(tmp_path):
    world = World(tmp_path, accelerator="v5e-16")
    world.check()
    (command,) = world.called("--dry_run")
    assert command[1:3] == ["-m", "run_scripts.pretrain"]
    assert {"--topology=v5e-16", "--tpu=base", "--strategy=tpu", "--model_dir=gs://b/runs/base"} <= set(
        command
    )


def test_the_estimate_is_read_from_what_a_dry_run_prints():
    """In the formats of run_scripts/common/dry_run.py."""
    row = dry_run._ROW.format("steps", "12,000, 100 in a loop")
    assert checks._STEPS.search(f"x\n{row}")[1] == "12,000"
    assert checks._VARIANT.search(f"{row}\n{sweep.label({'rate': 1e-5, 'task.data': 'a b'})}:\n")
    source = pathlib.Path(dry_run.__file__).read_text()
    assert '"steps": f"{steps:,}, {trainer.steps_per_loop} in a loop"' in source


@pytest.mark.parametrize("is_at_peak", [False, True])
def test_the_budget_is_checked_by_an_estimate_which_says_what_it_is(tmp_path, is_at_peak):
    """As of v5e-8, for which the compiler gives no time."""
    outcome = types.SimpleNamespace(estimated_seconds=0.5, is_at_peak=is_at_peak)
    data = types.SimpleNamespace(global_batch_size=8)
    params = types.SimpleNamespace(task=types.SimpleNamespace(train_data=data))
    task = types.SimpleNamespace(
        train_manifest=types.SimpleNamespace(records=800),
        step_lengths=lambda first, steps, training: [None] * steps,
    )
    line = dry_run._epoch(params, task, [CompiledBatch(TOPOLOGIES["v5e"], 1, outcome)])
    world = World(tmp_path, budget={"hours": 0.5})
    world.dry_run = (0, f"  steps  7,200, 100 in a loop\n{line}\n", "")
    by = " at the chip's peak rates" * is_at_peak
    assert f"takes about 1.00 h{by}, and 0.50 of 0.50 h are left: raise the budget" in failing(world)


@pytest.mark.parametrize("beats", [True, False])
def test_a_model_dir_in_use_is_refused_and_a_dead_lease_is_not(tmp_path, beats):
    world = World(tmp_path, {"lease_beats": beats})
    lease = {
        "what": "training",
        "host": "t1v-n-1-w-0",
        "pid": 7,
        "started": "2026-01-01 00:00:00 UTC",
        "beat": 1,
    }
    world.cloud.state["objects"][f"gs://b/runs/base/{ownership.FILE}"] = json.dumps(lease)
    if beats:
        assert "gs://b/runs/base is in use by process 7 on t1v-n-1-w-0 (training, started" in failing(world)
    else:
        begun = world.clock.now
        world.check()
        assert world.clock.now - begun == pytest.approx(ownership.LEASE_SECONDS, abs=2)
