"""The settings are what TensorFlow Serving parses, by its protos; once written they are left alone."""

import errno
import json
import os
import re
import shlex

import numpy as np
import pytest
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2

from xlnet_tf.errors import UserError
from xlnet_tf.serving import config_files
from xlnet_tf.serving.local.metrics import Metrics
from xlnet_tf.serving.warmup import MAX_RECORDS, write_warmup


@pytest.fixture(scope="module")
def batching_parameters():
    """The message BatchingParameters, which tensorflow-serving-api does not carry.

    Source: tensorflow_serving/servables/tensorflow/session_bundle_config.proto
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="batching.proto", package="test", syntax="proto3", dependency=["google/protobuf/wrappers.proto"]
    )
    message, kinds = file.message_type.add(name="BatchingParameters"), descriptor_pb2.FieldDescriptorProto
    wrapped = ("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads")
    for number, name in enumerate(wrapped, 1):
        kind = {"type": kinds.TYPE_MESSAGE, "type_name": ".google.protobuf.Int64Value"}
        message.field.add(name=name, number=number, label=kinds.LABEL_OPTIONAL, **kind)
    sizes = {"type": kinds.TYPE_INT64, "label": kinds.LABEL_REPEATED}
    message.field.add(name="allowed_batch_sizes", number=6, **sizes)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.BatchingParameters"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my models" / "reviews").mkdir(parents=True)
    return tmp_path / "my models" / "reviews"


@pytest.mark.parametrize("sizes, allowed", [((1, 8), [1, 8, 32]), ((1, 64), [1, 64]), ((32,), [1, 32])])
def test_batches_are_as_large_as_those_of_the_warm_up(batching_parameters, folder, sizes, allowed):
    config_files.write(str(folder), sizes)
    text = (folder / "batching.config").read_text()
    parameters = text_format.Parse(text, batching_parameters())
    assert list(parameters.allowed_batch_sizes) == allowed
    assert parameters.max_batch_size.value == allowed[-1]  # else a server stops at once
    for field in ("batch_timeout_micros", "num_batch_threads", "max_enqueued_batches"):
        assert getattr(parameters, field).value > 0


def test_edited_files_are_kept(folder):
    for name in ("models.config", "batching.config"):
        (folder / name).write_text("max_batch_size {value: 4} # mine")
    config_files.write(str(folder), (1, 4))
    assert {path.read_text() for path in folder.iterdir()} == {"max_batch_size {value: 4} # mine"}
    with pytest.raises(UserError, match=r"max_batch_size 4, but the model warms up with 8 rows"):
        config_files.check_limit(str(folder), 8)


def test_files_that_break_off_are_written_anew(folder):
    config_files.write(str(folder), (1, 8))
    whole = {path.name: path.read_text() for path in folder.iterdir()}
    for length in (0, 10, -1):
        for name, text in whole.items():
            (folder / name).write_text(text[:length])
        config_files.write(str(folder), (1, 8))
        assert {path.name: path.read_text() for path in folder.iterdir()} == whole


def test_a_full_disk_leaves_no_file(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*models.config: No space left on device"):
        config_files.write(str(folder), (1, 8))
    assert not list(folder.iterdir())


def test_the_command_serves_the_folder(folder):
    config_files.write(str(folder), (1, 8), batching=False)
    assert not (folder / "batching.config").exists()
    assert "batching" not in config_files.docker_command(str(folder))
    config_files.write(str(folder), (1, 8))
    words = shlex.split(config_files.docker_command(str(folder)).replace("\\\n", ""))
    assert words[words.index("-v") + 1] == f"{folder}:/models/reviews:ro"
    assert "--model_config_file=/models/reviews/models.config" in words
    assert "--batching_parameters_file=/models/reviews/batching.config" in words


def test_the_dashboard_asks_for_metrics_that_the_local_server_has(folder):
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


def test_the_compose_file_starts_the_server_with_the_written_settings(folder):
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


def test_a_name_is_the_last_part_of_the_folder_and_can_stand_in_an_address(tmp_path, monkeypatch):
    assert config_files.model_name("served/sst-2.v1/") == "sst-2.v1"
    assert config_files.model_name("gs://bucket/served/sst-2/") == "sst-2"
    (tmp_path / "reviews" / "1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "reviews" / "1")
    assert config_files.model_name("..") == "reviews"
    for folder in ("served/my model", "served/a:b", "/"):
        with pytest.raises(UserError, match="a model is served under the last part of its folder"):
            config_files.write(folder, (1,))


def test_no_more_requests_than_a_server_takes(tmp_path):
    rows = {name: {"text": np.array(["ba"], object)} for name in "abcd"}
    write_warmup(str(tmp_path), rows, {}, range(1, MAX_RECORDS // 4 + 1))
    with pytest.raises(UserError, match="4 signatures with 251 batch sizes .* TensorFlow Serving takes 1000"):
        write_warmup(str(tmp_path), rows, {}, range(1, MAX_RECORDS // 4 + 2))
