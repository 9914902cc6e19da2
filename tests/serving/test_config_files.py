"""The settings are what TensorFlow Serving parses, by its protos; once written they are left alone."""

import errno
import json
import os
import re
import shlex

import pytest
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from xlnet_tf.errors import UserError
from xlnet_tf.serving import config_files
from xlnet_tf.serving.local.metrics import Metrics

INT, MESSAGE = (
    descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
)
ONE, MANY = (
    descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
)


@pytest.fixture(scope="module")
def batching_parameters():
    """The message BatchingParameters, which tensorflow-serving-api does not carry.

    Source: tensorflow_serving/servables/tensorflow/session_bundle_config.proto
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="batching.proto", package="test", syntax="proto3", dependency=["google/protobuf/wrappers.proto"]
    )
    message = file.message_type.add(name="BatchingParameters")
    wrapped = ("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads")
    for number, name in enumerate(wrapped, 1):
        message.field.add(
            name=name, number=number, type=MESSAGE, label=ONE, type_name=".google.protobuf.Int64Value"
        )
    message.field.add(name="allowed_batch_sizes", number=6, type=INT, label=MANY)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.BatchingParameters"))


def test_the_newest_version_of_the_model_is_served():
    [model] = text_format.Parse(
        config_files.models_config("reviews"), ModelServerConfig()
    ).model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ("reviews", "/models/reviews", "tensorflow")
    assert model.model_version_policy.latest.num_versions == 1


@pytest.mark.parametrize("sizes, allowed", [((1, 8), [1, 8, 32]), ((1, 64), [1, 64]), ((32,), [1, 32])])
def test_batches_are_as_large_as_those_of_the_warm_up(batching_parameters, tmp_path, sizes, allowed):
    folder = tmp_path / "reviews"
    folder.mkdir()
    config_files.write(str(folder), sizes)
    text = (folder / "batching.config").read_text()
    parameters = text_format.Parse(text, batching_parameters())
    assert list(parameters.allowed_batch_sizes) == allowed
    assert parameters.max_batch_size.value == allowed[-1]  # else a server stops at once
    for field in ("batch_timeout_micros", "num_batch_threads", "max_enqueued_batches"):
        assert getattr(parameters, field).value > 0


def test_edited_files_are_kept(tmp_path):
    folder = tmp_path / "reviews"
    folder.mkdir()
    for name in ("models.config", "batching.config"):
        (folder / name).write_text("max_batch_size {value: 4} # mine")
    config_files.write(str(folder), (1, 4))
    assert {path.read_text() for path in folder.iterdir()} == {"max_batch_size {value: 4} # mine"}
    with pytest.raises(UserError, match=r"max_batch_size 4, but the model warms up with 8 rows"):
        config_files.check_limit(str(folder), 8)


@pytest.mark.parametrize("length", [0, 10, -1])
def test_files_that_break_off_are_written_anew(tmp_path, length):
    folder = tmp_path / "reviews"
    folder.mkdir()
    config_files.write(str(folder), (1, 8))
    whole = {path.name: path.read_text() for path in folder.iterdir()}
    for name, text in whole.items():
        (folder / name).write_text(text[:length])
    config_files.write(str(folder), (1, 8))
    assert {path.name: path.read_text() for path in folder.iterdir()} == whole


def test_a_full_disk_leaves_no_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = tmp_path / "reviews"
    folder.mkdir()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*models.config: No space left on device"):
        config_files.write(str(folder), (1, 8))
    assert not list(folder.iterdir())


def test_the_command_serves_the_folder(tmp_path):
    folder = tmp_path / "my models" / "reviews"
    folder.mkdir(parents=True)
    config_files.write(str(folder), (1, 8), batching=False)
    assert not (folder / "batching.config").exists()
    assert "batching" not in config_files.docker_command(str(folder))
    config_files.write(str(folder), (1, 8))
    words = shlex.split(config_files.docker_command(str(folder)).replace("\\\n", ""))
    assert words[words.index("-v") + 1] == f"{folder}:/models/reviews:ro"
    assert "--model_config_file=/models/reviews/models.config" in words
    assert "--batching_parameters_file=/models/reviews/batching.config" in words


def test_the_dashboard_asks_for_metrics_that_the_local_server_has(tmp_path):
    folder = tmp_path / "reviews"
    folder.mkdir()
    config_files.write(str(folder), (1, 8))
    config_files.write_monitoring(str(folder))
    board = json.loads((folder / "monitoring" / "dashboard.json").read_text())
    metrics = Metrics()
    metrics.add("reviews", "REST", "OK", 0.01, 2)
    served = set(re.findall(r"^(:[\w:]+)", metrics.text().decode(), re.MULTILINE))
    queries = " ".join(panel["targets"][0]["expr"] for panel in board["panels"])
    asked = set(re.findall(r":[a-z][\w:]+", queries))
    only_there = {":tensorflow:serving:batching_session:queuing_latency_bucket"}
    assert asked - served == only_there and len(asked) == 3
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_the_compose_file_starts_the_server_with_the_written_settings(tmp_path):
    folder = tmp_path / "reviews"
    folder.mkdir()
    config_files.write(str(folder), (1, 8))
    config_files.write_monitoring(str(folder))
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    for service in services.values():
        for volume in service["volumes"]:
            assert (folder / volume.split(":")[0]).exists(), volume
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    for flag in services["serving"]["command"]:
        _, _, path = flag.partition("=/models/reviews/")
        assert not path or (folder / path).is_file()
    scrape = yaml.safe_load((folder / "monitoring" / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scrape["metrics_path"] in (folder / "monitoring.config").read_text()
    (folder / "compose.yaml").write_text("mine")
    config_files.write_monitoring(str(folder))
    assert (folder / "compose.yaml").read_text() == "mine"
    command = config_files.docker_command(str(folder))
    assert "--monitoring_config_file=/models/reviews/monitoring.config" in command


@pytest.mark.parametrize("folder", ["served/my model", "served/a:b", "/"])
def test_a_model_has_a_name_that_can_stand_in_an_address(folder):
    with pytest.raises(UserError, match="a model is served under the last part of its folder"):
        config_files.write(folder, (1,))


def test_a_name_is_the_last_part_of_the_folder(tmp_path, monkeypatch):
    assert config_files.model_name("served/sst-2.v1/") == "sst-2.v1"
    assert config_files.model_name("gs://bucket/served/sst-2/") == "sst-2"
    (tmp_path / "reviews" / "1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "reviews" / "1")
    assert config_files.model_name("..") == "reviews"
