"""A run whose records and checkpoints are in a bucket that is slow, fails and is counted.

TensorFlow's own gs:// file system asks a stand-in for Cloud Storage, in processes of their own.
"""

import re
import signal
import subprocess
import time

import pytest

from run_scripts.common.estimates import training
from tests.conftest import REPOSITORY
from tests.helpers import fake_bucket
from tests.helpers.training import toy
from tests.helpers.training.alone import run_alone, start_alone
from tests.helpers.training.worker import settings
from xlnet_tf.tasks.pretraining import task as pretraining

pytest.importorskip("cryptography", reason="the stand-in needs a certificate")
STEPS = 12
# A killed owner's lease ends soon.
_TRAIN = f"""
import tensorflow as tf
from etils import epath
from tests.helpers.training.worker import settings
from xlnet_tf import errors, ownership
from xlnet_tf.tasks.pretraining import task as pretraining

tf.config.optimizer.set_experimental_options({{"disable_meta_optimizer": True}})
ownership.BEAT_SECONDS, ownership.LEASE_SECONDS, ownership._SETTLE_SECONDS = 0.5, 4.0, 0.1
params = settings(epath.Path("gs://bucket"), train_steps={STEPS})
errors.run(lambda _: pretraining.pretrain(params, "gs://bucket/run"))
"""


def start(bucket) -> subprocess.Popen:
    return start_alone("-c", _TRAIN, **bucket.environment)


def ended_well(process: subprocess.Popen):
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said[-3000:]


def checkpoint(bucket, step: int) -> dict[str, bytes]:
    prefix = f"bucket/run/ckpt-{step}."
    return {name[len(prefix) :]: data for name, data in bucket.objects.items() if name.startswith(prefix)}


@pytest.fixture(scope="module")
def here(folder):
    """The last checkpoint of the same run on a disk."""
    pretraining.pretrain(settings(folder), str(folder / "here"))
    prefix = f"ckpt-{STEPS}."
    return {path.name[len(prefix) :]: path.read_bytes() for path in (folder / "here").glob(f"{prefix}*")}


@pytest.fixture
def bucket(folder, tmp_path, request):
    options = getattr(request, "param", {})
    with fake_bucket.serving(tmp_path, **options) as bucket:
        for name in ("records", "dev"):
            bucket.put(folder / name, f"bucket/{name}")
        yield bucket


@pytest.mark.long
@pytest.mark.integration
@pytest.mark.parametrize("bucket", [{"seconds": 0.002, "failing": 0.1}], indirect=True)
def test_nothing_is_lost_in_a_bucket_that_is_slow_and_fails(bucket, here):
    process = start(bucket)
    while process.poll() is None and not checkpoint(bucket, 4).get("index"):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    ended_well(start(bucket))
    assert bucket.failures > 20
    assert len(here) == 2 and checkpoint(bucket, STEPS) == here
    assert not [name for name in bucket.objects if "temp" in name or ".tmp" in name]


KINDS = ("upload", "copy", "delete", "read", "stat")


def page_counts(what: str) -> tuple[int, ...]:
    """Returns the requests that the page has for something; of a checkpoint without those for sizes."""
    page = (REPOSITORY / "docs" / "how-to" / "sizing.md").read_text(encoding="utf-8")
    (cells,) = re.findall(rf"^\| {what} \| (.*) \|$", page, re.M)
    return tuple(int(cell) for cell in cells.split("|") if cell.strip())


@pytest.mark.integration
def test_the_page_has_the_requests_of_a_checkpoint(bucket):
    ended_well(start(bucket))
    middle = bucket.count("bucket/run/ckpt-8")
    assert page_counts("a checkpoint") == tuple(middle[kind] for kind in KINDS[:4])


_READ = """
import os, sys
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.reader import pretraining_dataset
batches = iter(pretraining_dataset(Manifest.load("gs://bucket/records"), int(sys.argv[1])))
for _ in range(int(sys.argv[2])):
    next(batches)
os._exit(0)
"""


@pytest.mark.integration
def test_the_page_and_sizing_have_the_requests_of_a_reader(tmp_path):
    """Four rows read 61 records each, of streams of 10: 28 streams are begun."""
    rows, steps, length = 4, 61, 10
    manifest = toy.make_records(tmp_path / "records", ((200, 180), (100, 90)), stream_segments=length)
    with fake_bucket.serving(tmp_path) as bucket:
        bucket.put(tmp_path / "records", "bucket/records")
        run_alone("-c", _READ, rows, steps, **bucket.environment).check_returncode()
    streams = rows * -(-steps // length)
    shards = bucket.count("bucket/records/train-")
    assert streams * page_counts("a stream of records")[3] == shards["read"]
    assert len(manifest.shards) * page_counts("a shard, once")[4] == shards["stat"]
    of_manifest = bucket.count("bucket/records/manifest.json")
    assert page_counts("the manifest") == tuple(of_manifest[kind] for kind in KINDS)
    assert shards.total() + of_manifest.total() == len(bucket.requests)
    run = training.PretrainingRun(batch_size=rows, cores=8, stream_segments=length, step_seconds=1.0)
    per_second = training.size(run)["input of a host"]["requests to storage, 1/s"]
    assert per_second * 60 == shards["read"] - rows  # the last streams have just begun
