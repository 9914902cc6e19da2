"""HTTP servers in threads of this process, which play somebody else's."""

import contextlib
import http.server
import threading
from collections.abc import Iterator, Mapping


class Handler(http.server.BaseHTTPRequestHandler):
    """Keeps connections open and writes no log."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self) -> bytes:
        """Reads what a request brings, whole or in chunks."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def send(self, status: int, content: bytes, headers: Mapping[str, str], length: int | None = None):
        """Answers; `length` is promised instead of the content's own."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextlib.contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler], port: int = 0) -> Iterator[int]:
    """Serves for a `with` block, at any free port by default; yields the port."""
    with http.server.ThreadingHTTPServer(("localhost", port), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
