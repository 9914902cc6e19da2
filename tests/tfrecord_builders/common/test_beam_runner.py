"""Jobs on Apache Beam, with real worker processes."""

import time
import types

import pytest

from tests.helpers.records.builders import contents
from tests.tfrecord_builders.common.test_runners import refuse, square, squares
from tfrecord_builders.common import runners
from xlnet_tf.errors import UserError

# What --runner=DirectRunner is on a machine that cannot fetch Beam's Prism runner from the internet.
TWO_PROCESSES = "--runner=FnApiRunner --direct_num_workers=2 --direct_running_mode=multi_processing"
ONE_THREAD = "--runner=FnApiRunner"


@pytest.fixture
def beam_runner():
    return pytest.importorskip("tfrecord_builders.common.beam_runner", reason="requirements-beam.txt")


def test_all_results_come_back(beam_runner, tmp_path, monkeypatch):
    monkeypatch.setattr(beam_runner, "BLOCK_BYTES", 20)  # several blocks
    settings = {"runner": "beam", "beam_options": ONE_THREAD, "scratch": tmp_path}
    assert squares(23, **settings) == squares(23)
    assert squares(0, **settings) == []
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def job_service(tmp_path):
    """Beam's own job service: it is given pipelines as those of Flink and Spark are, and runs them here."""
    service = pytest.importorskip("apache_beam.runners.portability.local_job_service")
    servicer = service.LocalJobServicer(str(tmp_path / "staging"))
    port = servicer.start_grpc_server(0)
    yield f"--runner=PortableRunner --job_endpoint=localhost:{port} --environment_type=LOOPBACK"
    servicer.stop()


@pytest.mark.integration
def test_a_runner_that_works_in_the_background(job_service, tmp_path, monkeypatch):
    monkeypatch.setattr("tfrecord_builders.common.beam_runner.POLL_SECONDS", 0.2)
    settings = {"runner": "beam", "beam_options": job_service, "scratch": tmp_path / "scratch"}
    assert squares(5, **settings) == squares(5)
    with pytest.raises(UserError, match="^job 7 is bad$"):
        list(runners.run_jobs(refuse, [7], **settings))
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_pipeline_that_nobody_waits_for_is_cancelled(beam_runner, tmp_path, monkeypatch):
    cancelled = []

    def run(_pipeline):
        (folder,) = tmp_path.iterdir()
        (folder / "0.result").write_text("25")
        running = {"wait_until_finish": lambda: time.sleep(60), "cancel": lambda: cancelled.append(folder)}
        return types.SimpleNamespace(**running)

    monkeypatch.setattr(beam_runner, "POLL_SECONDS", 0)
    monkeypatch.setattr(beam_runner.beam.Pipeline, "run", run)
    results = runners.run_jobs(square, [5, 6], runner="beam", beam_options=ONE_THREAD, scratch=tmp_path)
    assert next(results) == (5, 25)
    results.close()
    assert len(cancelled) == 1 and list(tmp_path.iterdir()) == []


def test_an_error_keeps_its_message(beam_runner, tmp_path, monkeypatch):
    """Also that of a job that cannot write it, as the disk is full."""
    settings = {"runner": "beam", "scratch": tmp_path}
    with pytest.raises(UserError, match="^job 7 is bad$"):
        list(runners.run_jobs(refuse, [7], beam_options=ONE_THREAD, **settings))
    for wrong in ("--runner=NoSuchRunner", "--direct_num_workers=many"):
        with pytest.raises(UserError, match=f"Beam does not take --beam_options='{wrong}': .*"):
            squares(3, beam_options=wrong, **settings)
    assert list(tmp_path.iterdir()) == []

    def full(path, content, write=beam_runner.files.write):
        if str(path).endswith(".error"):
            raise UserError(f"cannot write {path}")
        write(path, content)

    monkeypatch.setattr(beam_runner.files, "write", full)
    with pytest.raises(UserError, match="^the Beam pipeline failed: job 7 is bad"):
        list(runners.run_jobs(refuse, [7], beam_options=ONE_THREAD, **settings))


@pytest.mark.integration
def test_records_are_those_of_local_processes(beam_runner, build, tmp_path):
    build(tmp_path / "local")
    beam = {"runner": "beam", "beam_options": TWO_PROCESSES}
    build(tmp_path / "beam", **beam)
    assert contents(tmp_path / "beam") == contents(tmp_path / "local")
    # Again, after a shard was lost: the others are kept.
    shards = sorted((tmp_path / "beam").glob("*.tfrecord"))
    times = {path: path.stat().st_mtime_ns for path in shards}
    shards[1].unlink()
    build(tmp_path / "beam", **{**beam, "beam_options": ONE_THREAD})
    assert contents(tmp_path / "beam") == contents(tmp_path / "local")
    changed = [path for path in shards if path.stat().st_mtime_ns != times[path]]
    assert changed == [shards[1]]
