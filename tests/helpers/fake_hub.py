"""A Hugging Face hub on this machine, as far as huggingface_hub asks one."""

import base64
import contextlib
import dataclasses
import hashlib
import json
import urllib.parse
from collections.abc import Callable, Iterator, Mapping

from tests.helpers import http_server

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secret"


@dataclasses.dataclass
class FakeHub:
    """What the hub holds, and how it misbehaves.

    Attributes:
        models: name -> file -> content, of the revision "main" and its commit; a data set is datasets/NAME.
        private: names that ask for TOKEN.
        wrong_sums: files whose sha256 the hub gives wrong.
        cut_after: bytes of a file after which the connection ends, once.
        refused: whether TOKEN may not write.
        refused_metadata: why it does not take a README.md.
        stored: content that was uploaded and not yet committed, by its sha256.
        requested: (method, path), in order.
        ranges: the Range of each request for a file's content.
        instead: the answer to a method and a path, if not the usual one: status, body and headers.
    """

    models: dict[str, dict[str, bytes]] = dataclasses.field(default_factory=dict)
    private: set[str] = dataclasses.field(default_factory=set)
    wrong_sums: set[str] = dataclasses.field(default_factory=set)
    cut_after: int | None = None
    refused: bool = False
    refused_metadata: str = ""
    stored: dict[str, bytes] = dataclasses.field(default_factory=dict)
    requested: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    ranges: list[str | None] = dataclasses.field(default_factory=list)
    instead: Callable[[str, str], tuple[int, bytes, dict[str, str]] | None] = lambda method, path: None
    url: str = ""

    def fetched(self) -> set[str]:
        """Returns the files whose content was asked for."""
        return {
            path.rpartition("/")[2]
            for method, path in self.requested
            if method == "GET" and "/resolve/" in path
        }


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _git_sha(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _mode(file: str) -> str:
    return "lfs" if file.endswith((".safetensors", ".model", ".parquet")) else "regular"


def _children(entries: list[dict], folder: str) -> list[dict]:
    """Returns what lies in a folder of a data set: files, and folders."""
    begin = f"{folder}/" if folder else ""
    inside = {
        entry["path"].removeprefix(begin): entry for entry in entries if entry["path"].startswith(begin)
    }
    folders = {name.partition("/")[0] for name in inside if "/" in name}
    return [entry for name, entry in inside.items() if "/" not in name] + [
        {"type": "directory", "path": begin + name, "oid": "0" * 40, "size": 0} for name in sorted(folders)
    ]


class _Handler(http_server.Handler):
    hub: FakeHub

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def do_PUT(self):
        content = self.body()
        self.hub.stored[_sha256(content)] = content
        self._send(200, b"{}")

    def do_POST(self):
        path, body = self.path.partition("?")[0], self.body()
        self.hub.requested.append(("POST", path))
        if instead := self.hub.instead("POST", path):
            return self._send(*instead)
        if "/paths-info/" in path:
            return self._paths_info(path, body)
        if path == "/api/validate-yaml" and self.hub.refused_metadata:
            return self._send(400, self.hub.refused_metadata.encode())
        if path == "/api/validate-yaml":
            return self._send(200, b'{"errors": [], "warnings": []}')
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(401, b'{"error": "Invalid credentials"}')
        if self.hub.refused:
            return self._send(403, b'{"error": "You may not write here"}')
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            if name in self.hub.models:
                exists = {"error": "You already created this model", "url": f"{self.hub.url}/{name}"}
                return self._send(409, json.dumps(exists).encode())
            self.hub.models[name] = {}
            self.hub.private |= (
                {name} if asked.get("private") or asked.get("visibility") == "private" else set()
            )
            return self._send(200, json.dumps({"url": f"{self.hub.url}/{name}"}).encode())
        if "/preupload/" in path:
            modes = [
                {"path": file["path"], "uploadMode": _mode(file["path"]), "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            return self._send(200, json.dumps({"files": modes}).encode())
        if path.endswith("/info/lfs/objects/batch"):
            upload = {"upload": {"href": f"{self.hub.url}/upload"}}
            objects = [{**each, "actions": upload} for each in json.loads(body)["objects"]]
            return self._send(200, json.dumps({"transfer": "basic", "objects": objects}).encode())
        return self._commit(path, map(json.loads, body.splitlines()))

    def _paths_info(self, path: str, body: bytes):
        name = path.removeprefix("/api/").removeprefix("models/").partition("/paths-info/")[0]
        is_json = body.startswith(b"{")
        asked = json.loads(body)["paths"] if is_json else urllib.parse.parse_qs(body.decode())["paths"]
        described = self._described(name, ["tree"], self.hub.models.get(name, {}))
        found = [entry for entry in described if entry["path"] in asked]
        self._send(200, json.dumps(found).encode())

    def _commit(self, path, lines):
        name = path.removeprefix("/api/models/").rpartition("/commit/")[0]
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.hub.models[name][value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.hub.models[name][value["path"]] = self.hub.stored[value["oid"]]
        url = f"{self.hub.url}/{name}/commit/{COMMIT}"
        self._send(200, json.dumps({"commitUrl": url, "commitOid": COMMIT}).encode())

    def _answer(self):
        path = self.path.partition("?")[0]
        self.hub.requested.append((self.command, path))
        if instead := self.hub.instead(self.command, path):
            return self._send(*instead)
        parts = path.strip("/").split("/")
        is_api = parts[0] == "api"
        prefix = "datasets/" if "datasets" in parts[:2] else ""
        parts = parts[1:] if prefix and not is_api else parts
        name = prefix + "/".join(parts[2:4] if is_api else parts[:2])
        if name not in self.hub.models:
            return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        if name in self.hub.private and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        files = self.hub.models[name]
        revision = parts[3] if not is_api else parts[5] if len(parts) > 5 else "main"
        if revision not in ("main", "v1", COMMIT):
            return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        if is_api:
            described = self._described(name, parts[4:5], files)
            if prefix and parts[4:5] == ["tree"]:
                described = _children(described, "/".join(parts[6:]))
            return self._send(200, json.dumps(described).encode())
        file = "/".join(parts[4:])
        if file not in files:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        return self._send_file(file, files[file])

    def _described(self, name: str, what: list[str], files: dict[str, bytes]):
        entries = []
        for file, content in files.items():
            digest = "0" * 64 if file in self.hub.wrong_sums else _sha256(content)
            lfs = {"sha256": digest, "oid": digest, "size": len(content), "pointerSize": 134}
            entries.append((file, content, lfs if _mode(file) == "lfs" else None))
        if what == ["tree"]:
            return [
                {"type": "file", "path": file, "size": len(content), "oid": _git_sha(content), "lfs": lfs}
                for file, content, lfs in entries
            ]
        siblings = [
            {"rfilename": file, "size": len(content), "blobId": _git_sha(content), "lfs": lfs}
            for file, content, lfs in entries
        ]
        return {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings}

    def _send_file(self, file: str, content: bytes):
        begin, size = 0, len(content)
        tag = _sha256(content) if _mode(file) == "lfs" else _git_sha(content)
        if self.command == "GET":
            self.hub.ranges.append(self.headers.get("Range"))
        if asked := self.headers.get("Range"):
            begin = int(asked.removeprefix("bytes=").partition("-")[0] or 0)
        headers = {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        headers |= {"X-Linked-Etag": f'"{tag}"', "X-Linked-Size": str(size)}
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{size - 1}/{size}"
        cut = self.hub.cut_after
        if cut is not None and self.command == "GET" and size - begin > cut:
            self.hub.cut_after = None
            self._send(206 if begin else 200, content[begin : begin + cut], headers, length=size - begin)
            self.close_connection = True
            return
        self._send(206 if begin else 200, content[begin:], headers)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None, **options):
        self.send(status, body, {"Content-Type": "application/json", **(headers or {})}, **options)


@contextlib.contextmanager
def serving() -> Iterator[FakeHub]:
    """Runs an empty hub for a `with` block."""
    hub = FakeHub()
    with http_server.serving(type("Handler", (_Handler,), {"hub": hub})) as port:
        hub.url = f"http://127.0.0.1:{port}"
        yield hub
