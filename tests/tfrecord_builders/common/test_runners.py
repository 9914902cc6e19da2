"""Jobs in local processes: all results come back, whatever happens to a worker."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tfrecord_builders.common import runners
from xlnet_tf.errors import UserError

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]


def square(job):
    return job * job


def squares(count, **settings):
    return sorted(runners.run_jobs(square, iter(range(count)), **settings))


def square_unless_killed(job):
    """The worker of job 3 is killed as often as its folder says, while job 2 is under way."""
    folder, number = job
    (folder.parent / f"{number}-{time.monotonic_ns()}").touch()
    if number == 2:
        time.sleep(1)
    if number == 3 and len(os.listdir(folder)) < int(folder.name):
        (folder / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def refuse(job):
    raise UserError(f"job {job} is bad")


def test_all_results_and_errors_come_back():
    expected = [(n, n * n) for n in range(23)]
    assert squares(23) == expected
    assert squares(23, num_workers=2) == expected
    assert squares(0, num_workers=2) == []
    for workers in (1, 2):  # an error of a unit is not tried again
        with pytest.raises(UserError, match="job 0 is bad"):
            list(runners.run_jobs(refuse, [0], num_workers=workers))


def test_units_are_taken_as_needed():
    taken = []
    jobs = (taken.append(n) or n for n in range(1000))
    results = runners.run_jobs(square, jobs, num_workers=2)
    next(results)
    results.close()
    assert len(taken) < 20


@pytest.mark.integration
@pytest.mark.parametrize("deaths", [2, 3])
def test_units_of_a_dead_worker_are_run_again(tmp_path, deaths, caplog):
    folder = tmp_path / str(deaths)
    folder.mkdir()
    jobs = [(folder, number) for number in range(12)]
    results = runners.run_jobs(square_unless_killed, jobs, num_workers=2)
    if deaths < runners.MAX_TRIES:
        assert sorted(results) == [((folder, n), n * n) for n in range(12)]
    else:
        with pytest.raises(UserError, match="a worker process died .*3 times .*finished shards are kept"):
            list(results)
    assert len(os.listdir(folder)) == deaths
    started = [name.split("-")[0] for name in os.listdir(tmp_path) if "-" in name]
    assert started.count("3") == min(deaths + 1, runners.MAX_TRIES)
    assert {started.count(number) for number in set(started) - {"3"}} == {1}


def sleep(job):
    folder, number = job
    (folder / f"{os.getpid()}.{number}").touch()
    time.sleep(60)


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_workers_end_with_a_killed_parent(tmp_path):
    program = (
        "import pathlib, sys\n"
        "from tests.tfrecord_builders.common import test_runners\n"
        "if __name__ == '__main__':\n"
        f"    jobs = [(pathlib.Path({str(tmp_path)!r}), n) for n in range(2)]\n"
        "    list(test_runners.runners.run_jobs(test_runners.sleep, jobs, num_workers=2))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY)
    deadline = time.monotonic() + 60
    while len(os.listdir(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = {int(name.split(".")[0]) for name in os.listdir(tmp_path)}
    parent.kill()
    parent.wait()
    assert len(workers) == 2
    while any(map(is_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, workers))
