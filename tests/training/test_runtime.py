"""The machine that a run finds: a TPU and its hosts, a GPU, a CPU."""

import pytest
import tensorflow as tf

from tests.helpers.commands import run_in_fork
from tests.helpers.training import synthetic_tpu
from tests.helpers.training.worker import settings
from xlnet_tf.errors import UserError
from xlnet_tf.training import runtime
from xlnet_tf.training.checks import check_remote_paths
from xlnet_tf.training.config import RuntimeConfig
from xlnet_tf.training.tpu_slice import TpuSlice


@pytest.mark.parametrize("newer", [False, True])
def test_a_tpu_is_started_and_described(capsys, newer):
    strategy = synthetic_tpu.strategy(chips=(2, 2, 1), cores=2, newer=newer)
    assert runtime.describe(strategy) == "8 replicas on the TPU of this machine"
    pod = runtime.tpu_table("pod", synthetic_tpu.topology(chips=(4, 4, 1), cores=2, hosts=4))
    for printed, chips, devices, hosts in (
        (capsys.readouterr().err, "2 x 2 x 1", 8, 1),
        (pod, "4 x 4 x 1", 32, 4),
    ):
        assert printed.splitlines()[1:] == [
            f"     chips  {chips}  x, y and z",
            f"   devices  {devices:9}  2 in each chip",
            f"     hosts  {hosts:9}  8 devices each; each reads its own rows",
        ]


@pytest.mark.parametrize(
    ("name", "chips", "replicas", "hosts"),
    [
        ("v3-8", 4, 8, 1),
        ("v3-512", 256, 512, 64),
        ("v4-8", 4, 4, 1),
        ("v4-32", 16, 16, 4),
        ("v5litepod-8", 8, 8, 1),
        ("v5e-16", 16, 16, 4),
        ("v5p-16", 8, 8, 2),
        ("v6e-1", 1, 1, 1),
    ],
)
def test_slices_are_known_by_name(name, chips, replicas, hosts):
    found = TpuSlice.named(name)
    assert (found.chips, found.replicas, found.hosts) == (chips, replicas, hosts)


@pytest.mark.parametrize("name", ["v3", "v3-", "v3-7", "v9-8", "v3-0", "gpu"])
def test_unknown_slices_are_named(name):
    with pytest.raises(UserError, match="v3-8, v4-32, v5e-16"):
        TpuSlice.named(name)


def test_a_tpu_reached_by_name_needs_paths_that_its_hosts_see(folder):
    params = settings(folder, "tpu")
    for not_by_name in (None, "local"):
        params.runtime.tpu = not_by_name
        check_remote_paths(params, str(folder))
    params.runtime.tpu = "pod"
    with pytest.raises(UserError, match=f"do not see {folder}/records, {folder}/dev: expected.*gs://"):
        check_remote_paths(params, "gs://bucket/model")


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="this machine has a GPU")
@pytest.mark.parametrize("name", ["off", "one_device"])
def test_a_lone_cpu_reads_the_pipeline_itself(name):
    """Iterators of a strategy's own are tuned by tf.data, and their end waits up to a minute for that."""
    strategy = runtime.prepare(RuntimeConfig(distribution_strategy=name))
    data = tf.data.Dataset.range(2)
    assert strategy.distribute_datasets_from_function(lambda _: data) is data
    assert runtime.describe(strategy) == "1 replica on CPU:0"


@pytest.mark.parametrize("name", ["off", "one_device"])
def test_a_gpu_that_is_not_wanted_is_not_used(name, monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"{kind}:0"])
    strategy = runtime.prepare(RuntimeConfig(distribution_strategy=name, num_gpus=0))
    assert runtime.describe(strategy) == "1 replica on CPU:0"
    # TensorFlow's default strategy would take the GPU.
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)


def test_hosts_of_a_named_tpu_are_remote(monkeypatch):
    strategy = synthetic_tpu.strategy()
    assert not runtime.has_remote_hosts(strategy)
    monkeypatch.setattr(type(strategy.cluster_resolver), "master", lambda resolver: "grpc://10.0.0.2:8470")
    assert runtime.has_remote_hosts(strategy)
    assert not runtime.has_remote_hosts(tf.distribute.OneDeviceStrategy("CPU:0"))


@pytest.mark.integration
def test_a_missing_tpu_is_one_line(folder):
    flags = (f"--train_data={folder}/records", f"--model_dir={folder}/none", "--strategy=tpu", "--tpu=local")
    result = run_in_fork("run_scripts.pretrain", *flags)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "no TPU at --tpu=local" in result.stderr.splitlines()[-1] and not (folder / "none").exists()
