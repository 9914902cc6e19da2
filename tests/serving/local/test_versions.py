"""Which versions of which models a server has."""

import gc
import shutil
import threading
import time
import weakref

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest

from tests.helpers.serving.requests import ask
from xlnet_tf.errors import UserError
from xlnet_tf.serving.local import server, versions
from xlnet_tf.serving.local.saved_model import LoadedModel
from xlnet_tf.serving.warmup import BUCKETS_FILE


def test_status_metadata_versions_and_labels(running):
    status, found = ask(running, "GET", "/v1/models/classification")
    assert status == 200
    assert found == {
        "model_version_status": [
            {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ]
    }
    status, found = ask(running, "GET", "/v1/models/classification/versions/1/metadata")
    assert found["model_spec"]["version"] == "1" and found["model_spec"]["name"] == "classification"
    signatures = found["metadata"]["signature_def"]["signature_def"]
    assert signatures["classify"]["method_name"] == "tensorflow/serving/classify"
    body = {"instances": ["ba ne"]}
    for path in ("", "/versions/1", "/labels/stable"):
        status, found = ask(running, "POST", f"/v1/models/classification{path}:predict", body)
        assert status == 200 and found["predictions"][0]["label"] in ("bad", "fair", "good")
    assert ask(running, "GET", "/healthz") == (200, {"status": "SERVING"})
    stub = model_service_pb2_grpc.ModelServiceStub(grpc.insecure_channel(running.grpc))
    request = GetModelStatusRequest()
    request.model_spec.name = "classification"
    assert stub.GetModelStatus(request, timeout=60).model_version_status[0].state == 30


def test_a_closed_model_leaves_memory_without_a_garbage_collection(exports, tmp_path):
    damaged = tmp_path / "1"
    shutil.copytree(exports["classification"] / "1", damaged)
    (damaged / BUCKETS_FILE).write_text("{")
    graphs, new = [], tf.Graph

    def graph():
        graphs.append(weakref.ref(found := new()))
        return found

    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(tf, "Graph", graph)
            model = LoadedModel(str(exports["classification"] / "1"))
            model.warm_up()
            model.close()
            del model
            with pytest.raises(UserError, match="damaged"):
                LoadedModel(str(damaged))
        assert [found() for found in graphs] == [None, None]
    finally:
        gc.enable()


def test_a_version_that_is_loaded_after_the_end_starts_no_threads(toy):
    served = versions.Models([versions.ModelConfig("late", str(toy))])
    served.close()
    before = threading.active_count()
    served.refresh()
    assert not list(served.available()) and threading.active_count() == before


@pytest.mark.integration
def test_versions_are_loaded_and_unloaded_while_requests_run(exports, tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "POLL_SECONDS", 0.05)
    folder = tmp_path / "reviews"
    shutil.copytree(exports["classification"], folder)
    with server.serving([versions.of_folder(str(folder))]) as running:
        failures, done = [], threading.Event()

        def client():
            while not done.is_set():
                status, answer = ask(running, "POST", "/v1/models/reviews:predict", {"instances": ["ba"]})
                if status != 200:
                    failures.append(answer)
                time.sleep(0.01)

        def state():
            found = ask(running, "GET", "/v1/models/reviews")[1]["model_version_status"]
            return {one["version"]: one["state"] for one in found}

        def wait_for(expected):
            deadline = time.monotonic() + 120
            while state() != expected and time.monotonic() < deadline:
                time.sleep(0.05)
            assert state() == expected

        threads = [threading.Thread(target=client) for _ in range(3)]
        for thread in threads:
            thread.start()
        shutil.copytree(folder / "1", tmp_path / "two")
        (tmp_path / "two").rename(folder / "2")
        wait_for({"2": "AVAILABLE"})
        (folder / "3").mkdir()  # a broken version: the server keeps the one before
        (folder / "3" / "saved_model.pb").write_bytes(b"torn")
        wait_for({"3": "END", "2": "AVAILABLE"})
        done.set()
        for thread in threads:
            thread.join()
        assert not failures
        assert "not found" in ask(running, "POST", "/v1/models/reviews/versions/1:predict", {})[1]["error"]


@pytest.mark.parametrize(
    ("asked", "statuses"),
    [
        (("GET", "/v1/models/toy/metadata"), [200, 404]),
        (("POST", "/v1/models/toy:predict", {"instances": ["ba"]}), [404, 404]),
    ],
)
def test_a_version_is_unloaded_just_after_a_request_found_it(toy, monkeypatch, asked, statuses):
    with server.serving([versions.of_folder(str(toy))]) as running:
        served = running.service.models
        find = served.find

        def find_and_unload(spec):
            version = find(spec)
            served.close()
            return version

        monkeypatch.setattr(served, "find", find_and_unload)
        assert [ask(running, *asked)[0] for _ in statuses] == statuses


MODELS_CONFIG, OF_MODEL = "model_config_list {{ config {{ {} }} }}", 'name: "a" base_path: "MODEL"'


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("", "has no models"),
        (MODELS_CONFIG.format('name: "a" base_path: "/models/a"'), "there is no folder /models/a or"),
        (MODELS_CONFIG.format(f"{OF_MODEL} model_version_policy {{ specific {{ versions: 9 }} }}"),
         "model 'a' has no version 9"),
        (MODELS_CONFIG.format(f'{OF_MODEL} version_labels {{ key: "stable" value: 9 }}'),
         "the label 'stable' of model 'a' stands for version 9, which is not served"),
        (MODELS_CONFIG.format('name: "a" base_path: "MODEL/1"'), "base_path of .*/1, is one version"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_served(exports, tmp_path, config, message):
    (tmp_path / "models.config").write_text(config.replace("MODEL", str(exports["regression"])))
    with pytest.raises(UserError, match=message):
        versions.of_config_file(str(tmp_path / "models.config"))


def test_models_are_found_from_their_settings(exports, tmp_path):
    """Also by another name than the folder's, and from settings that were written for a container."""
    with pytest.raises(UserError, match="is not there"):
        versions.of_config_file(str(tmp_path / "models.config"))
    for name, message in (("no", "is not a folder"), ("", "no exported model: .*xlnet-tf export")):
        with pytest.raises(UserError, match=message):
            versions.of_folder(str(tmp_path / name))
    shutil.copytree(exports["regression"], tmp_path / "my model")
    settings = MODELS_CONFIG.format('name: "a" base_path: "my model/"')
    (tmp_path / "models.config").write_text(settings)
    expected = versions.ModelConfig("a", str(tmp_path / "my model"))
    assert versions.of_config_file(str(tmp_path / "models.config")) == [expected]
    assert versions.of_folder(str(exports["regression"] / "1")).only == (1,)
    [config] = versions.of_config_file(str(exports["regression"] / "models.config"))
    assert (config.name, config.folder) == ("regression", str(exports["regression"]))


def test_a_damaged_version_is_named(exports, tmp_path):
    version = tmp_path / "model" / "1"
    shutil.copytree(exports["regression"], tmp_path / "model")
    for flaw, message in (
        (lambda: (version / BUCKETS_FILE).write_text("[32, 6"), "assets.extra/buckets.json is damaged"),
        (lambda: (version / "saved_model.pb").write_text("torn"), ""),
        (lambda: tf.saved_model.save(tf.Module(), str(version)), "it has no signatures"),
    ):
        flaw()
        with (
            pytest.raises(UserError, match=f"model/1 cannot be loaded: {message}"),
            server.serving([versions.of_folder(str(tmp_path / "model"))]),
        ):
            pass
