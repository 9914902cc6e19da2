"""Whatever the cloud does, a launch ends clearly and leaves nothing that costs money."""

import json
import pathlib
import re
import tempfile

import hypothesis
import pytest
from hypothesis import strategies as st

from run_scripts.launch import cloud_tpu, job
from run_scripts.launch.supervise import STOP_SECONDS
from tests.helpers.cloud.harness import GKE, POLL, Killed, World
from xlnet_tf.errors import UserError

QUEUED, VM = {"backend": "queued-resource"}, {"backend": "tpu-vm"}


@pytest.mark.parametrize("place", [QUEUED, VM, GKE], ids=lambda place: place["backend"])
def test_a_training_runs_to_its_end(tmp_path, place):
    world = World(tmp_path, **place)
    shown = world.launch()
    assert shown.count("step ") >= 3 and "used 0." in shown
    world.assert_nothing_left()
    assert world.cloud.state["runs"] == 1


def test_lines_of_the_log_are_shown_once(tmp_path):
    shown = World(tmp_path, {"run": [{"looks": 6}]}).launch()
    lines = [line for line in shown.splitlines() if line.startswith("step")]
    assert len(lines) == len(set(lines)) == 6


@pytest.mark.parametrize("place", [QUEUED, VM], ids=lambda place: place["backend"])
def test_a_preempted_tpu_is_replaced_and_the_training_resumed(tmp_path, place):
    # Connections: two looks at a new VM, copying, starting, a look; then it is taken away.
    world = World(tmp_path, {"ssh": ["ok"] * 4 + ["preempt"]}, **place)
    shown = world.launch()
    assert "the TPU is lost" in shown and "again" in shown
    assert world.cloud.state["runs"] == 2
    world.assert_nothing_left()


def test_a_resource_that_is_suspended_before_use_is_asked_for_again(tmp_path):
    world = World(tmp_path, {"states": [["WAITING_FOR_RESOURCES", "SUSPENDING", "SUSPENDED"]]})
    world.launch()
    assert world.state().created_times == 2
    world.assert_nothing_left()


@pytest.mark.parametrize("place", [QUEUED, VM], ids=lambda place: place["backend"])
def test_status_75_on_a_living_tpu_resumes_there(tmp_path, place):
    world = World(tmp_path, {"run": [{"status": 75}, {"status": 75}]}, **place)
    assert "resuming" in world.launch()
    assert world.cloud.state["runs"] == 3 and world.state().created_times == 1 and world.state().resumed == 2
    world.assert_nothing_left()


def test_a_jobset_that_gave_up_with_status_75_is_created_again(tmp_path):
    world = World(tmp_path, {"run": [{"status": 75}]}, **GKE)
    world.launch()
    assert world.cloud.state["runs"] == 2
    world.assert_nothing_left()


@pytest.mark.parametrize("place", [QUEUED, VM, GKE], ids=lambda place: place["backend"])
def test_an_error_of_the_training_ends_the_launch_with_its_last_lines(tmp_path, place):
    world = World(tmp_path, {"run": [{"status": 1}]}, **place)
    with pytest.raises(UserError, match=r"status 1, which a restart does not fix(.|\n)*step"):
        world.launch()
    assert world.cloud.state["runs"] == 1
    world.assert_nothing_left()


def test_a_lost_connection_does_not_disturb_the_training(tmp_path):
    world = World(tmp_path, {"ssh": ["ok"] * 4 + ["lost"] * 5, "run": [{"looks": 5}]})
    assert "does not answer" in world.launch()
    assert world.cloud.state["runs"] == 1 and world.state().created_times == 1


def test_a_tpu_that_never_answers_is_replaced(tmp_path):
    world = World(tmp_path, {"ssh": ["lost"] * 33})
    assert "no answer for 15 minutes" in world.launch()
    assert world.state().created_times == 2
    world.assert_nothing_left()


@pytest.mark.parametrize("place", [QUEUED, VM], ids=lambda place: place["backend"])
def test_tpus_that_never_answer_do_not_use_up_the_budget(tmp_path, place):
    world = World(tmp_path, {"ssh": ["lost"] * 5000}, **place, budget={"hours": 20})
    with pytest.raises(UserError, match=r"3 TPUs in a row did not answer \(.*255.*\): .*tpus tpu-vm ssh"):
        world.launch()
    world.assert_nothing_left()
    assert world.state().created_times == 3 and world.state().used_seconds < 3600


@pytest.mark.parametrize(
    ("event", "advice"),
    [("quota", "ask for more quota"), ("denied", "the role TPU Admin"), ("login", "gcloud auth login")],
)
def test_a_refusal_says_what_to_do(tmp_path, event, advice):
    world = World(tmp_path, {"create": [event]})
    with pytest.raises(UserError, match=f"v5e-8 in us-west4-a is refused: .*{advice}"):
        world.launch()
    world.assert_nothing_left()


@pytest.mark.parametrize("place", [QUEUED, VM], ids=lambda place: place["backend"])
def test_after_preemption_a_lack_of_capacity_is_waited_out(tmp_path, place):
    scenario = {"ssh": ["ok"] * 4 + ["preempt"], "create": ["ok"] + ["quota"] * 20}
    world = World(tmp_path, scenario, **place)
    assert world.launch().count("trying again: v5e-8 in us-west4-a is refused") == 20
    assert world.cloud.state["runs"] == 2
    world.assert_nothing_left()
    (tmp_path / "short").mkdir()
    world = World(tmp_path / "short", scenario, **place, wait_hours=0.1)
    with pytest.raises(UserError, match="is refused"):
        world.launch()
    world.assert_nothing_left()


def test_a_request_that_expires_ends_the_launch(tmp_path):
    world = World(tmp_path, {"states": [["WAITING_FOR_RESOURCES", "FAILED"]]})
    with pytest.raises(UserError, match="there is no TPU: FAILED: no capacity before valid-until"):
        world.launch()
    world.assert_nothing_left()


def test_pods_that_find_no_node_are_given_up_after_wait_hours(tmp_path):
    world = World(tmp_path, {"pending": 10**6}, **GKE, wait_hours=2)
    with pytest.raises(UserError, match="there is no TPU: Pending: 0/3 nodes are available"):
        world.launch()
    world.assert_nothing_left()
    assert world.clock.now - 1_000_000 == pytest.approx(2 * 3600, abs=900)


def test_half_of_a_resource_is_deleted_and_asked_for_again(tmp_path):
    world = World(tmp_path, {"states": [["HALF"]]})
    assert "ACTIVE without a node" in world.launch()
    assert world.state().created_times == 2
    world.assert_nothing_left()


def test_a_request_whose_answer_was_lost_is_not_made_twice(tmp_path):
    for event in ("lost", "late"):
        folder = tmp_path / event
        folder.mkdir()
        world = World(folder, {"create": [event]})
        world.launch()
        assert world.cloud.state["runs"] == 1
        world.assert_nothing_left()


@pytest.mark.parametrize("place", [QUEUED, VM, GKE], ids=lambda place: place["backend"])
def test_a_spent_budget_saves_and_deletes(tmp_path, place):
    world = World(tmp_path, {"run": [{"looks": 10_000}]}, **place, budget={"money": 4, "price_per_hour": 8})
    with pytest.raises(UserError, match=r"the budget is spent: 0\.\d+ of 0\.50 h, \d\.\d+ of 4\.00 used"):
        world.launch()
    world.assert_nothing_left()
    used = world.state().used_seconds
    assert 1800 - STOP_SECONDS - 1 <= used <= 1800 + POLL
    with pytest.raises(UserError, match="the budget is spent"):  # at once, without creating anything
        world.launch()
    assert world.cloud.state["runs"] == 1
    world.write(**place, budget={"hours": 200})
    world.launch()
    world.assert_nothing_left()


def test_waiting_costs_nothing(tmp_path):
    world = World(tmp_path, {"states": [["WAITING_FOR_RESOURCES"] * 400 + ["ACTIVE"]]}, budget={"hours": 1})
    world.launch()
    assert world.state().used_seconds < 600


@pytest.mark.parametrize("at", range(0, 12, 2))
def test_ctrl_c_saves_and_deletes_everything(tmp_path, at):
    def interrupt(count):
        if count == at:
            raise KeyboardInterrupt

    world = World(tmp_path, {"run": [{"looks": 50}]})
    world.clock.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        world.launch()
    world.assert_nothing_left()
    if at > 6:
        assert any("tpu_vm.sh stop" in word for call in world.cloud.state["calls"] for word in call)


def test_a_killed_launch_is_continued_by_the_next(tmp_path):
    world = World(tmp_path, {"run": [{"looks": 20}]})
    world.calls_left = 20
    with pytest.raises(Killed):
        world.launch()
    assert world.cloud.left() and world.state().created
    world.calls_left = None
    world.clock.now += 3600
    world.launch()
    assert world.cloud.state["runs"] == 1
    assert world.state().used_seconds > 3600  # the TPU existed all the time
    world.assert_nothing_left()


def killed(folder, **settings):
    """Returns the world of a launch that was killed while its training ran."""
    world = World(folder, {"run": [{"looks": 20}]}, **settings)
    world.calls_left = 20
    with pytest.raises(Killed):
        world.launch()
    world.calls_left = None
    return world


@pytest.mark.parametrize("place", [QUEUED, VM, GKE], ids=lambda place: place["backend"])
@pytest.mark.parametrize("left", ["nothing", "remains"])
def test_a_tpu_that_was_lost_while_no_launch_ran_is_counted_aloud_and_waited_for(tmp_path, place, left):
    """The hours may be too many, but the cloud does not say when it took the TPU away."""
    world = killed(tmp_path, **place, budget={"hours": 9})
    seen_at, asked = world.state().ready_at, world.cloud.state["used"]["create"]
    if left == "nothing":
        world.cloud.state["resources"].clear(), world.cloud.state["jobsets"].clear()
    elif place is GKE:
        world.cloud.scenario["pending"] = 3
        world.cloud.state["jobsets"]["base"]["looks"] = 0
    else:
        lost = {"queued-resource": "SUSPENDED", "tpu-vm": "PREEMPTED"}[place["backend"]]
        world.cloud.state["resources"]["base"]["states"] = [lost]
    world.cloud.scenario["create"] = ["ok"] * asked + ["quota"] * 3
    world.clock.now += 3600
    hours = (world.clock.now - seen_at) / 3600
    shown = world.launch()
    assert f"no longer ready: the {hours:.2f} h since it was last seen ready count as used" in shown
    assert world.state().used_seconds > 3600
    if left == "nothing":
        assert shown.count("trying again") == 3
    world.assert_nothing_left()


def test_a_cloud_that_is_asked_too_often_is_asked_again_later(tmp_path):
    world = killed(tmp_path)
    world.cloud.scenario["describe"] = ["ok"] * (world.cloud.state["used"]["describe"] + 2) + ["often"]
    assert "no answer" in world.launch()
    assert world.cloud.state["runs"] == 1
    world.assert_nothing_left()


def test_the_last_second_of_a_budget_is_not_without_end(tmp_path):
    """For `timeout` on the VM, 0 s are no limit."""
    world = killed(tmp_path)
    tpu = cloud_tpu.CloudTpu(job.load(str(world.file)), world.tools(), world.state().token)
    tpu.start(0.3)
    assert "tpu_vm.sh start 1 " in " ".join(world.cloud.state["calls"][-1])


def test_tools_that_do_not_work_do_not_mean_that_nothing_is_left(tmp_path):
    world = killed(tmp_path)
    world.cloud.scenario["describe"] = ["broken"] * 1000
    with pytest.raises(UserError, match="exec: python: not found"):
        world.launch()
    assert world.cloud.left() == ["base"] and world.state().created


def test_answers_that_cannot_be_read_do_not_hide_that_something_is_left(tmp_path):
    world = killed(tmp_path)
    world.cloud.scenario["describe"] = ["garbled"] * 1000
    with pytest.raises(UserError, match="could not be deleted and may cost money: it printed .<html>., e"):
        world.launch()
    assert world.cloud.left() == ["base"] and world.state().created


@pytest.mark.parametrize("calls", [8, 12, 20])
@pytest.mark.parametrize("place", [QUEUED, VM], ids=lambda place: place["backend"])
def test_a_tpu_whose_launch_is_killed_for_good_deletes_itself_after_the_budget(tmp_path, place, calls):
    world = World(tmp_path, {"run": [{"looks": 10_000}]}, **place, budget={"hours": 3})
    world.calls_left = calls
    with pytest.raises(Killed):
        world.launch()
    assert world.cloud.left() == ["base"]
    for hours, left in ((2.9, ["base"]), (0.4, [])):
        world.clock.now += hours * 3600
        world.cloud.delete_by_guards()
        assert world.cloud.left() == left


def test_a_tpu_that_is_asked_for_again_gets_the_rest_of_the_budget(tmp_path):
    world = World(tmp_path, {"ssh": ["ok"] * 9 + ["preempt"], "run": [{"looks": 9}]}, budget={"hours": 3})
    world.launch()
    asked = [int(re.search(r"guard-seconds=(\d+)", " ".join(call))[1]) for call in world.called("create")]
    assert len(asked) == 2 and 60 < asked[0] - asked[1] < 3600


def test_another_launch_of_the_same_name_is_left_alone(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    first = World(tmp_path / "a", {"run": [{"looks": 500}]})
    first.calls_left = 20
    with pytest.raises(Killed):
        first.launch()
    second = World(tmp_path / "b")
    second.cloud = first.cloud
    with pytest.raises(UserError, match="exists already, and this launch did not create it"):
        second.launch()
    assert first.cloud.left() == ["base"] and not second.state().created
    assert first.cloud.state["runs"] == 1 and not first.called("delete")


def test_a_moved_job_does_not_forget_what_it_created(tmp_path):
    world = World(tmp_path)
    world.calls_left = 6
    with pytest.raises(Killed):
        world.launch()
    world.calls_left = None
    world.write(zone="us-west4-b")
    with pytest.raises(UserError, match="zone: us-west4-a, and the file says us-west4-b now"):
        world.launch()
    world.write(accelerator="v5e-16")
    with pytest.raises(UserError, match="accelerator: v5e-8, and the file says v5e-16 now"):
        world.launch()


def test_what_cannot_be_deleted_is_said_loudly(tmp_path):
    world = World(tmp_path, {"delete": ["denied"] * 50})
    with pytest.raises(UserError, match="could not be deleted and may cost money: .*PERMISSION_DENIED"):
        world.launch()
    assert world.state().created
    world.cloud.scenario = {}
    world.launch()  # what is there still has its ended training
    world.assert_nothing_left()


EVENTS = {
    "create": st.sampled_from(["ok", "ok", "lost", "late", "unavailable", "quota", "denied"]),
    "describe": st.sampled_from(["ok"] * 6 + ["unavailable"]),
    "states": st.sampled_from([
        ["ACTIVE"], ["WAITING_FOR_RESOURCES", "ACTIVE"], ["ACCEPTED", "SUSPENDED"], ["HALF"], ["FAILED"],
        ["CREATING", "PROVISIONING", "ACTIVE", "ACTIVE", "ACTIVE", "ACTIVE", "SUSPENDING", "SUSPENDED"],
    ]),
    "ssh": st.sampled_from(["ok"] * 6 + ["lost", "preempt", "reboot"]),
    "run": st.fixed_dictionaries({"looks": st.integers(0, 6), "status": st.sampled_from([0, 75, 75, 1])}),
    "delete": st.sampled_from(["ok", "ok", "unavailable", "slow"]),
}  # fmt: skip
SCENARIOS = st.fixed_dictionaries({name: st.lists(events, max_size=8) for name, events in EVENTS.items()})


@pytest.mark.integration
@hypothesis.settings(deadline=None)
@hypothesis.given(
    scenario=SCENARIOS,
    place=st.sampled_from([QUEUED, VM, GKE]),
    interrupts=st.lists(st.integers(0, 25), max_size=1),
    kills=st.lists(st.integers(1, 40), max_size=3),
    hours=st.sampled_from([0.2, 10]),
)
def test_whatever_happens_nothing_is_left(scenario, place, interrupts, kills, hours):
    scenario = dict(scenario)
    if place is VM:
        names = {
            "ACTIVE": "READY",
            "SUSPENDED": "PREEMPTED",
            "SUSPENDING": "STOPPING",
            "FAILED": "TERMINATED",
        }
        waiting = ("WAITING_FOR_RESOURCES", "ACCEPTED", "PROVISIONING")
        scenario["states"] = [
            [names.get(name, "CREATING" if name in waiting else name) for name in states if name != "HALF"]
            or ["READY"]
            for states in scenario["states"]
        ]

    def interrupt(count):
        if count in interrupts:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        world = World(pathlib.Path(folder), scenario, **place, budget={"hours": hours})
        world.clock.before = interrupt
        ending = "killed"
        for calls in [*kills, None]:
            world.calls_left = calls
            try:
                world.launch()
                ending = "done"
            except Killed:
                continue
            except KeyboardInterrupt:
                ending = "interrupted"
            except UserError as error:
                ending = str(error)
            break
        assert ending in ("done", "interrupted") or len(ending) > 20
        assert "could not be deleted" not in ending
        world.assert_nothing_left()
        assert ending != "done" or world.cloud.state["runs"] >= 1
        assert world.state().used_seconds <= hours * 3600 + 10 * POLL
        json.dumps(world.cloud.state)
