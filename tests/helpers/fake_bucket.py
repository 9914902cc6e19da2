"""Cloud Storage on this machine, as far as TensorFlow's gs:// file system asks it.

TensorFlow asks fixed addresses, but its HTTP client takes a proxy and a file of certificates from
the environment. So this is a proxy that answers itself. Set `FakeBucket.environment` before a process loads
TensorFlow, which reads it then.
"""

import collections
import collections.abc
import contextlib
import dataclasses
import datetime
import json
import pathlib
import random
import re
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator

from tests.helpers import http_server

HOSTS = ("www.googleapis.com", "storage.googleapis.com")


class FolderObjects(collections.abc.MutableMapping):
    """Objects as files of a folder, which other processes can look at."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder

    def __getitem__(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            raise KeyError(name) from None

    def __setitem__(self, name: str, content: bytes):
        (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_bytes(content)

    def __delitem__(self, name: str):
        (self._folder / name).unlink()
        with contextlib.suppress(OSError):  # buckets have no empty folders
            (self._folder / name).parent.rmdir()

    def __iter__(self) -> Iterator[str]:
        return (str(path.relative_to(self._folder)) for path in self._folder.rglob("*") if path.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclasses.dataclass
class FakeBucket:
    """What the buckets hold, and how the storage misbehaves.

    Attributes:
        objects: "BUCKET/NAME" -> content.
        seconds: that each answer takes.
        failing: share of the requests answered with status 503, half of these after they were carried out.
        requests: (stat, list, read, upload, copy or delete; object), in order.
        environment: variables for a process whose gs:// is this.
    """

    objects: collections.abc.MutableMapping[str, bytes] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    failing: float = 0.0
    requests: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    failures: int = 0
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    _uploads: dict[str, str] = dataclasses.field(default_factory=dict)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    _rng: random.Random = dataclasses.field(default_factory=lambda: random.Random(0))

    def put(self, folder: pathlib.Path, name: str):
        """Copies a folder into the buckets, as "BUCKET/NAME"."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.objects[f"{name}/{path.relative_to(folder)}"] = path.read_bytes()

    def count(self, prefix: str = "") -> collections.Counter:
        """Returns how often each kind was asked of objects whose names begin so."""
        return collections.Counter(kind for kind, name in self.requests if name.startswith(prefix))

    def answer(self, method: str, url: str, headers, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        """Carries a request out; returns status, content and headers."""
        time.sleep(self.seconds)
        with self._lock:
            fails, late = self._rng.random() < self.failing, self._rng.random() < 0.5
            self.failures += fails
            if fails and not late:
                return 503, b"try again", {}
            answered = self._answered(method, url, headers, body)
            return (503, b"try again", {}) if fails else answered

    def _answered(self, method, url, headers, body):
        parts = urllib.parse.urlsplit(url)
        query = dict(urllib.parse.parse_qsl(parts.query))
        unquote = urllib.parse.unquote
        if found := re.fullmatch(
            r"/storage/v1/b/([^/]+)/o/([^/]+)/rewriteTo/b/([^/]+)/o/([^/]+)", parts.path
        ):
            source, target = f"{found[1]}/{unquote(found[2])}", f"{found[3]}/{unquote(found[4])}"
            self.requests.append(("copy", target))
            if source not in self.objects:
                return 404, b"", {}
            self.objects[target] = self.objects[source]
            return self._json({"done": True})
        if found := re.fullmatch(r"/storage/v1/b/([^/]+)/o/([^/]+)", parts.path):
            name = f"{found[1]}/{unquote(found[2])}"
            self.requests.append(("delete" if method == "DELETE" else "stat", name))
            if name not in self.objects:
                return 404, b"", {}
            if method == "DELETE":
                del self.objects[name]
                return 204, b"", {}
            updated = "2026-01-01T00:00:00.000Z"
            return self._json({"size": str(len(self.objects[name])), "generation": "1", "updated": updated})
        if found := re.fullmatch(r"/storage/v1/b/([^/]+)/o/?", parts.path):
            return self._listed(found[1], query)
        if found := re.fullmatch(r"/storage/v1/b/([^/]+)/?", parts.path):
            return self._json({"name": found[1], "location": "NOWHERE"})
        if found := re.fullmatch(r"/upload/storage/v1/b/([^/]+)/o", parts.path):
            session = f"/upload/storage/v1/session/{len(self._uploads)}"
            self._uploads[session] = f"{found[1]}/{query['name']}"
            return 200, b"", {"Location": f"https://{HOSTS[0]}{session}"}
        if name := self._uploads.get(parts.path):
            if headers.get("Content-Range", "").startswith("bytes */"):  # how much has come?
                size = int(headers["Content-Range"].rpartition("/")[2])
                done = len(self.objects.get(name, b"")) == size and ("upload", name) in self.requests
                return (200, b"", {}) if done else (308, b"", {})
            self.requests.append(("upload", name))
            self.objects[name] = body
            return self._json({"name": name})
        name = unquote(parts.path[1:])
        self.requests.append(("read", name))
        if name not in self.objects:
            return 404, b"", {}
        content = self.objects[name]
        first, last = re.fullmatch(r"bytes=(\d+)-(\d+)", headers["Range"]).groups()
        if int(first) >= len(content):
            return 416, b"", {}
        return 206, content[int(first) : int(last) + 1], {}

    def _listed(self, bucket: str, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        self.requests.append(("list", f"{bucket}/{prefix}"))
        names, prefixes = [], set()
        for name in sorted(self.objects):
            if name.startswith(f"{bucket}/{prefix}"):
                rest = name[len(f"{bucket}/{prefix}") :]
                if delimiter and delimiter in rest:
                    prefixes.add(prefix + rest.partition(delimiter)[0] + delimiter)
                else:
                    names.append({"name": prefix + rest})
        most = int(query.get("maxResults", 1000))
        return self._json({"items": names[:most], "prefixes": sorted(prefixes)[:most]})

    @staticmethod
    def _json(value) -> tuple[int, bytes, dict[str, str]]:
        return 200, json.dumps(value).encode(), {"Content-Type": "application/json"}


@contextlib.contextmanager
def serving(folder: pathlib.Path, **options) -> Iterator[FakeBucket]:
    """Runs the storage in a thread; `folder` gets its certificate, `options` are of FakeBucket."""
    bucket = FakeBucket(**options)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(folder))

    class Handler(http_server.Handler):
        def do_CONNECT(self):
            self.send_response(200)
            self.end_headers()
            self.connection = context.wrap_socket(self.connection, server_side=True)
            self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb")
            self.close_connection = False

        def do_GET(self):
            self.send(*bucket.answer(self.command, self.path, self.headers, self.body()))

        do_POST = do_PUT = do_DELETE = do_GET

        def handle_expect_100(self):
            super().handle_expect_100()
            self.wfile.flush()  # else the client waits for a second
            return True

    with http_server.serving(Handler) as port:
        bucket.environment = {
            "https_proxy": f"http://localhost:{port}",
            "no_proxy": "localhost",
            "CURL_CA_BUNDLE": str(folder / "certificate.pem"),
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
            "NO_GCE_CHECK": "true",
            "GCS_RETRY_CONFIG_INIT_DELAY_TIME_US": "1000",
        }
        yield bucket


def _certificate(folder: pathlib.Path) -> pathlib.Path:
    """Writes a certificate of HOSTS with its key, which whoever trusts it takes for theirs."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a bucket for tests")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    path = folder / "certificate.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )
    return path
