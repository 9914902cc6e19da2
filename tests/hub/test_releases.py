"""The original's archives, from a server on this machine."""

import contextlib
import dataclasses
import hashlib
import io
import os
import zipfile

import pytest

from tests.helpers import http_server
from xlnet_tf import hub
from xlnet_tf.errors import UserError
from xlnet_tf.hub import releases

NAME = "xlnet_cased_L-12_H-768_A-12"
FILES = {
    "xlnet_config.json": b"{}",
    "spiece.model": b"pieces",
    "xlnet_model.ckpt.index": b"index",
    "xlnet_model.ckpt.data-00000-of-00001": bytes(range(256)) * 1000,
}


def zipped(files, folder="xlnet/"):
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in files.items():
                archive.writestr(folder + name, content)
        return buffer.getvalue()


class Server:
    """Sends one file; `cuts` ends the next answers after so many bytes, `busy` of them ask to wait first."""

    def __init__(self):
        self.content, self.cuts, self.ranges, self.busy = zipped(FILES), [], [], 0
        self.url = ""

    @contextlib.contextmanager
    def running(self):
        server = self

        class Handler(http_server.Handler):
            def do_GET(self):
                asked = self.headers.get("Range")
                if server.busy:
                    server.busy -= 1
                    return self.send(503, b"", {"Retry-After": "3"})
                server.ranges.append(asked)
                begin = int(asked[6:-1]) if asked else 0
                if begin and begin >= len(server.content):
                    return self.send(416, b"", {})
                cut = server.cuts.pop(0) if server.cuts else None
                self.close_connection = cut is not None
                body = server.content[begin:]
                return self.send(206 if asked else 200, body[:cut], {}, length=len(body))

        with http_server.serving(Handler) as port:
            self.url = f"http://127.0.0.1:{port}/model.zip"
            yield self


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with Server().running() as running:
        others = [release for release in releases.RELEASES if release.name != NAME]
        ours = dataclasses.replace(releases.archive_of(NAME), address=running.url)
        monkeypatch.setattr(releases, "RELEASES", (ours, *others))
        yield running


def contents(folder):
    return {name: open(f"{folder}/{name}", "rb").read() for name in os.listdir(folder)}


def test_an_archive_becomes_a_folder_once(server):
    located = hub.locate(NAME)
    assert located.source == f"{server.url}#sha256={hashlib.sha256(server.content).hexdigest()}"
    assert contents(located.folder) == FILES
    assert hub.locate(NAME) == hub.locate(located.source) == located
    assert server.ranges == [None]
    assert not [name for name in os.listdir(os.path.dirname(located.folder)) if name.endswith(".zip")]
    # What params.yaml notes is that archive and no other; a folder of the same name goes first.
    with pytest.raises(UserError, match="unpacked from an archive with the sha256 .*expected 000"):
        hub.locate(located.source.partition("=")[0] + "=" + "0" * 64)
    os.makedirs(NAME)
    assert hub.locate(NAME) == (NAME, NAME)


def test_a_broken_download_resumes(server):
    server.cuts = [1000]
    with pytest.raises(UserError, match="broke off after 1,000 of|cannot be fetched"):
        hub.locate(NAME)
    assert contents(hub.locate(NAME).folder) == FILES
    assert server.ranges == [None, "bytes=1000-"]


def test_a_busy_server_is_asked_again_after_the_time_that_it_names(server, monkeypatch):
    waited, server.busy = [], 2
    monkeypatch.setattr("time.sleep", waited.append)
    assert contents(hub.locate(NAME).folder) == FILES
    assert waited == [3, 3]


def test_a_login_page_does_not_count_as_the_first_archive(server):
    archive, server.content = server.content, b"<html>Log in</html>"
    with pytest.raises(UserError, match=f"{NAME}.zip is damaged .*: remove it and start again"):
        hub.locate(NAME)
    os.remove(f"{os.environ['XDG_CACHE_HOME']}/xlnet_tf/{NAME}.zip")
    server.content = archive
    assert contents(hub.locate(NAME).folder) == FILES


@pytest.mark.parametrize("more", [b"", b"of another file"])
def test_a_download_that_ended_before_it_was_renamed_starts_again(server, more):
    cache = f"{os.environ['XDG_CACHE_HOME']}/xlnet_tf"
    os.makedirs(cache)
    with open(f"{cache}/{NAME}.part", "wb") as file:
        file.write(server.content + more)
    assert contents(hub.locate(NAME).folder) == FILES
    assert server.ranges == [f"bytes={len(server.content + more)}-", None]


def test_another_archive_than_the_first_is_refused(server):
    folder = hub.locate(NAME).folder
    for name in os.listdir(folder):
        os.remove(f"{folder}/{name}")
    os.rmdir(folder)
    server.content = zipped(FILES | {"spiece.model": b"others"})
    with pytest.raises(UserError, match="has the sha256 .* expected"):
        hub.locate(NAME)
    assert not os.path.exists(folder)


def test_a_known_checksum_counts_from_the_first_download_and_a_server_must_be_there(server):
    for change, message in (
        ({"sha256": "0" * 64}, "expected 000"),
        ({"address": "http://127.0.0.1:9/model.zip"}, r"cannot be fetched \(Connection refused\)"),
    ):
        with pytest.raises(UserError, match=message):
            releases.fetch(dataclasses.replace(releases.archive_of(NAME), **change))


@pytest.mark.parametrize("folder", ["../../", "/", "a/b/../../../"])
def test_no_file_leaves_the_folder(server, folder, tmp_path):
    server.content = zipped(FILES | {"evil.py": b"evil"}, folder)
    located = hub.locate(NAME)
    assert contents(located.folder) == FILES
    assert not list(tmp_path.parent.rglob("evil.py"))


def damaged():
    content = zipped(FILES)
    weights = content.index(b"-of-00001") + len("-of-00001")
    return content[:weights] + b"\xff" * 8 + content[weights + 8 :]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (zipped(FILES)[:-100], "is damaged"),
        (damaged(), r"is damaged \(.*: remove it and start again"),
        (zipped({"xlnet_config.json": b"{}"}), "is not a released XLNet: it lacks spiece.model"),
    ],
    ids=["torn", "stored", "other"],
)
def test_what_is_no_release_is_refused_and_leaves_no_folder(server, content, message):
    server.content = content
    with pytest.raises(UserError, match=message):
        hub.locate(NAME)
    assert not os.path.isdir(f"{os.environ['XDG_CACHE_HOME']}/xlnet_tf/{NAME}")
