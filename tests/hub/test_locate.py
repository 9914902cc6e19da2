"""Models by name, from a hub on this machine."""

import datetime
import os
import sys
import urllib.error

import pytest

from tests.helpers import fake_hub
from tests.helpers.full_disk import files_of_at_most
from xlnet_tf import hub
from xlnet_tf.checkpoints import open_checkpoint
from xlnet_tf.errors import UserError
from xlnet_tf.hub.cache import asked_to_wait
from xlnet_tf.tasks.prediction import Run
from xlnet_tf.text.locating import find_file

filelock = pytest.importorskip("filelock", reason="needs the extra hub")
constants = pytest.importorskip("huggingface_hub.constants", reason="needs the extra hub")

NAME = "xlnet/tiny"
COMMIT = fake_hub.COMMIT.encode()
FILES = {
    "config.json": b"{}",
    "model.safetensors": bytes(range(256)) * 4000,
    "spiece.model": b"pieces",
    "pytorch_model.bin": b"not asked for",
    "README.md": b"not asked for",
}


@pytest.fixture
def server(model_hub):
    """A hub with a model, and an empty cache."""
    model_hub.models[NAME] = dict(FILES)
    return model_hub


@pytest.fixture
def offline(monkeypatch):
    return lambda: monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def contents(folder):
    return {name: open(f"{folder}/{name}", "rb").read() for name in os.listdir(folder)}


@pytest.mark.parametrize("path", [f"hf://{NAME}", NAME, f"hf://{NAME}@v1", f"hf://{NAME}@{fake_hub.COMMIT}"])
def test_a_name_becomes_a_folder_with_the_needed_files(server, path):
    located = hub.locate(path)
    assert located.source == f"hf://{NAME}@{fake_hub.COMMIT}"
    needed = {"config.json", "model.safetensors", "spiece.model"}
    assert contents(located.folder) == {name: FILES[name] for name in needed}


def fetched(path, **options):
    return set(contents(hub.locate(path, **options).folder))


def test_a_tokenizer_comes_without_weights_also_that_of_transformers_5(server):
    assert fetched(NAME, tokenizer_only=True) == {"config.json", "spiece.model"}
    server.models["people/new"] = {**server.models[NAME], "tokenizer.json": b"{}"}
    assert fetched("people/new", tokenizer_only=True) == {"config.json", "spiece.model"}
    del server.models["people/new"]["spiece.model"]
    server.models["people/other"] = server.models["people/new"]
    assert fetched("people/other", tokenizer_only=True) == {"config.json", "tokenizer.json"}
    assert "tokenizer.json" in fetched("people/other")
    server.models["people/third"] = {"unigram.model": b"", "model.safetensors": b""}
    with pytest.raises(UserError, match="third has no spiece.model, and unigram.model is not read: give as"):
        hub.locate("people/third", tokenizer_only=True)


def test_only_paths_of_this_machine_are_required_to_be_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckpt-5.index").touch()
    for there in (None, "", "hf:/a/b", "HF://a/b", "gs://b/model", "ckpt-5", "ckpt-5/"):
        hub.require(there)
    for absent in ("ckpt-6", "./a", "/a/b/c", "a/b/c", "runs/a"):
        with pytest.raises(FileNotFoundError, match=f"^init: there is no checkpoint at {absent}"):
            hub.require(absent, "init: ")


def test_what_the_cache_has_is_not_fetched_again(server, offline):
    hub.locate(NAME)
    assert not [path for _, path in server.requested[1:] if fake_hub.COMMIT not in path]  # of one commit
    server.requested.clear()
    first = hub.locate(NAME)
    assert not server.fetched()
    server.requested.clear()
    offline()
    assert hub.locate(NAME) == hub.locate(f"{NAME}@main") == first
    assert not server.requested


def test_shards_come_with_their_index_and_the_originals_files_as_push_writes_them(server):
    shards = {f"model-0000{n}-of-00002.safetensors": bytes([n]) for n in (1, 2)}
    server.models[NAME] = {"config.json": b"{}", "model.safetensors.index.json": b"{}", **shards}
    server.models[NAME] |= {"pytorch_model-00001-of-00001.bin": b"", "pytorch_model.bin.index.json": b""}
    assert fetched(NAME) == {"config.json", "model.safetensors.index.json", *shards}
    files = {"xlnet_config.json", "xlnet_model.ckpt.index", "xlnet_model.ckpt.data-00000-of-00001"}
    server.models["people/original"] = dict.fromkeys((*files, "xlnet_model.ckpt.meta"), b"{}")
    assert fetched("people/original") == files


def test_a_broken_download_resumes(server, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    server.cut_after = 100_000
    assert contents(hub.locate(NAME).folder)["model.safetensors"] == FILES["model.safetensors"]
    assert server.cut_after is None  # it did break


def test_a_file_with_a_wrong_checksum_is_refused_and_fetched_again(server):
    server.wrong_sums.add("model.safetensors")
    for _ in range(2):
        with pytest.raises(UserError, match="model.safetensors .*1,024,000 bytes .* says .* 000"):
            hub.locate(NAME)
    server.wrong_sums.clear()
    server.models["xlnet/good"] = dict(FILES)
    assert contents(hub.locate("xlnet/good").folder)["model.safetensors"] == FILES["model.safetensors"]


LOGIN = (200, b"<!DOCTYPE html><title>Log in</title>", {"Content-Type": "text/html"})


@pytest.mark.parametrize(
    ("body", "is_data_set"),
    [
        (LOGIN[1], False),
        (b"{}", False),
        (b'{"id": "a", "sha": "../x", "siblings": []}', False),
        (b'{"id": "a", "sha": "%s"}' % COMMIT, True),
        (b'{"id": "a", "sha": "%s", "siblings": [{"rfilename": "x"}]}' % COMMIT, True),
    ],
)
def test_what_is_not_a_hub_is_called_so(server, body, is_data_set):
    server.instead = lambda method, path: (200, body, {})
    asked = (hub.locate,) if is_data_set else (hub.locate, hub.commit_of_data_set)
    for ask in asked:
        with pytest.raises(UserError, match="not answer as a Hugging Face hub does .*a login page: open"):
            ask(NAME)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: content + b"+", None])
def test_a_file_of_another_length_is_not_called_a_full_disk(server, name, change):
    answer = LOGIN if change is None else (200, change(FILES[name]), {})
    server.instead = lambda method, path: answer if path.endswith(name) else None
    with pytest.raises(UserError, match=f"{name} came with .* bytes and the digest .* proxy or a login page"):
        hub.locate(NAME)
    server.instead = lambda method, path: None
    assert contents(hub.locate(NAME).folder)[name] == FILES[name]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("where", ["/api/models/", "/resolve/"])
def test_a_busy_hub_is_asked_again_after_the_time_that_it_names(server, status, where, monkeypatch):
    waited, busy = [], [(status, b"", {"Retry-After": "7"})] * 2
    monkeypatch.setattr("time.sleep", waited.append)
    server.instead = lambda method, path: busy.pop() if busy and where in path else None
    assert contents(hub.locate(NAME).folder)["model.safetensors"] == FILES["model.safetensors"]
    assert waited == [7, 7]
    for after, expected in (("3600", []), ("1", [1] * 4), ("", [])):
        server.instead = lambda *_, after=after: (status, b"", {"Retry-After": after})
        waited.clear()
        with pytest.raises(UserError, match=f"The hub is busy: start again {after and f'after {after} sec'}"):
            hub.locate(f"hf://{NAME}")
        assert waited == expected


def test_a_busy_hub_may_name_a_date(monkeypatch):
    now = datetime.datetime(2026, 11, 28, 5, tzinfo=datetime.timezone.utc)
    monkeypatch.setattr("time.time", now.timestamp)
    for after, expected in (
        ("Sat, 28 Nov 2026 05:00:09 GMT", "9"),
        ("Sat Nov 28 05:00:09 2026", "9"),
        ("Sat, 28 Nov 2026 04:59:00 GMT", "0"),
        ("Sat, 31 Feb 2026 05:00:09 GMT", ""),
        ("soon", ""),
        (" 12 ", "12"),
    ):
        busy = urllib.error.HTTPError("http://hub", 429, "busy", {"Retry-After": after}, None)
        assert asked_to_wait(busy) == expected


def test_a_new_process_resumes_the_weights_and_removes_what_nobody_fetches(server, tmp_path):
    server.cut_after = 100_000
    weights = f"/{NAME}/resolve/{fake_hub.COMMIT}/model.safetensors"
    server.instead = lambda _, path: (500, b"", {}) if path == weights and server.cut_after is None else None
    with pytest.raises(UserError, match="500.*start again, which resumes a download that has begun"):
        hub.locate(f"hf://{NAME}")
    [blobs] = tmp_path.glob("cache/models--*/blobs")
    [part] = blobs.glob("*.incomplete")
    assert part.stat().st_size == 100_000
    locks = tmp_path / "cache" / ".locks" / blobs.parent.name
    (blobs / "abandoned.0a1b2c3d.incomplete").touch()
    (blobs / "fetched.0a1b2c3d.incomplete").touch()
    server.instead, server.cut_after = lambda *_: None, None
    server.ranges.clear()
    with filelock.FileLock(locks / "fetched.lock"):  # as another process holds it
        assert contents(hub.locate(NAME).folder)["model.safetensors"] == FILES["model.safetensors"]
    assert "bytes=100000-" in server.ranges
    assert [path.name for path in blobs.glob("*.incomplete")] == ["fetched.0a1b2c3d.incomplete"]


def test_a_file_that_changed_in_the_cache_is_fetched_again(server, monkeypatch):
    located = hub.locate(NAME)
    weights = os.path.realpath(f"{located.folder}/model.safetensors")
    os.truncate(weights, 1000)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="model.safetensors of hf://xlnet/tiny changed in the cache"):
        hub.locate(NAME)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert contents(hub.locate(NAME).folder)["model.safetensors"] == FILES["model.safetensors"]
    os.utime(weights)  # the same content needs no download
    server.requested.clear()
    assert hub.locate(NAME) == located
    assert not server.fetched()


def test_a_private_model_needs_a_token(server, monkeypatch):
    server.private.add(NAME)
    with pytest.raises(UserError, match="no model xlnet/tiny, or it is private.*HF_TOKEN"):
        hub.locate(f"hf://{NAME}")
    monkeypatch.setenv("HF_TOKEN", fake_hub.TOKEN)
    assert hub.locate(f"hf://{NAME}").source.startswith("hf://")


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("hf://xlnet/none", UserError, "the Hugging Face hub has no model xlnet/none"),
        ("xlnet/none", FileNotFoundError, "nothing at xlnet/none .*, and the Hugging Face hub has no"),
        (f"hf://{NAME}@v7", UserError, "hf://xlnet/tiny has no revision v7: give a branch"),
        ("hf://tiny", UserError, "hf://tiny is not the name of a model: expected hf://OWNER/NAME"),
        ("hf:/xlnet/tiny", UserError, "hf:/xlnet/tiny is not the name of a model: expected hf://xlnet/tiny"),
        ("https://huggingface.co/xlnet/tiny", UserError, "not the name of a model: expected hf://xlnet/tiny"),
        ("hf://xlnet/other", UserError, "hf://xlnet/other has no weights: expected one of .*tf_model.h5"),
    ],
)
def test_what_cannot_be_fetched_is_one_clear_error(server, path, error, message):
    server.models["xlnet/other"] = {"tf_model.h5": b""}
    with pytest.raises(error, match=message):
        hub.locate(path)


def test_offline_without_the_files_says_what_to_do(server, offline):
    for name in ("xlnet/no", "hf://xlnet/no"):
        with pytest.raises(
            (UserError, FileNotFoundError), match="the Hugging Face hub has no model xlnet/no"
        ):
            hub.require(name)
    hub.locate(NAME, tokenizer_only=True)
    offline()
    assert hub.locate(NAME, tokenizer_only=True).folder
    with pytest.raises(UserError, match="^the cache lacks files of hf://xlnet/no@v1.*HF_HUB_OFFLINE"):
        hub.locate("hf://xlnet/no@v1")
    for ask in (hub.locate, hub.require):
        with pytest.raises(UserError, match="the cache lacks the weights of hf://xlnet/tiny.*HF_HUB_OFFLINE"):
            ask(f"hf://{NAME}")


def test_a_full_disk_under_the_cache_is_not_called_the_networks(server):
    with files_of_at_most(1000), pytest.raises(UserError, match=r"\(File too large.*Make room for the cache"):
        hub.locate(f"hf://{NAME}")
    assert contents(hub.locate(NAME).folder)["model.safetensors"] == FILES["model.safetensors"]


def test_a_misspelt_folder_is_not_taken_for_a_name(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/micro", "runs/base", "weights"):
        os.makedirs(folder)
    for path in ("runs/mikro", "weights/base", "weights/model.ckpt-7"):
        assert hub.locate(path) == (path, path)
    assert not server.requested
    for path, similar in (
        ("runs/mikro", "runs/micro; a model of the Hugging Face hub is written hf://runs/mikro"),
        ("xlnet-base-cased", "hf://xlnet/xlnet-base-cased"),
        ("xlnet", ""),
    ):
        assert hub.did_you_mean(path) == (similar and f" (similar: {similar})")
    for ask in (open_checkpoint, lambda path: Run.open(path, "records"), find_file):
        with pytest.raises(FileNotFoundError, match=r"runs/mikro.*similar: runs/micro;"):
            ask("runs/mikro")


def test_a_name_that_the_hub_lacks_or_that_cannot_be_asked_is_also_a_path(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.makedirs("xlnet-base")
    written = r"\(a model of the Hugging Face hub is written hf://xlnet-bass/x\)"
    expected = f"^there is nothing at xlnet-bass/x {written}, and "
    with pytest.raises(FileNotFoundError, match=f"{expected}the Hugging Face hub has no model xlnet-bass/x"):
        hub.locate("xlnet-bass/x")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=f"{expected}hf://xlnet-bass/x cannot be fetched"):
        hub.locate("xlnet-bass/x")
    with pytest.raises(UserError, match=r"cannot be fetched \(Connection refused\). Check the network and"):
        hub.locate(f"hf://{NAME}")


def test_without_its_library_a_name_is_answered_at_once_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for path, error in ((f"hf://{NAME}", UserError), (NAME, FileNotFoundError)):
        with pytest.raises(error, match=r"is not installed: pip install '.*\[hub\]'"):
            hub.locate(path)


def test_paths_stay_paths_and_a_folder_goes_before_a_name(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.makedirs(NAME)
    for path in (NAME, "/absent/x", "a/b/c", "name", "gs://bucket/x", "runs/demo/", "", "../a/b"):
        assert hub.locate(path) == (path, path)
    assert not server.requested
