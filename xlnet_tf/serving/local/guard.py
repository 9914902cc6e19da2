"""Guards the application: who may send requests, how large, how slow, and how many at a time.

A web page that is open in a browser can send requests to a server on the same machine. Browsers say where a
request comes from (`Origin`, `Sec-Fetch-Site`), and which name the server was addressed by (`Host`): a name
that is not this machine's is an attacker's, made to resolve to it (DNS rebinding).
"""

import asyncio
import ipaddress
import json
import re
import urllib.parse
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

import anyio
import h11
from absl import logging
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from xlnet_tf.errors import reason
from xlnet_tf.serving.config_files import METRICS_PATH
from xlnet_tf.serving.local.rest import BODY, HEALTH, error_response

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_ABSOLUTE = re.compile(rb"https?://([^/]*)(.*)", re.IGNORECASE)
_GZIP = ("gzip", "x-gzip")
_WATCHED = (HEALTH, METRICS_PATH)  # answered however busy the server is, which else would look dead
_HEADER_SECONDS = 10.0  # in which the head of a request must have come
_LINGER_SECONDS = 2.0
_STALL_SECONDS = 30.0  # in which a client must have read something of what waits for it


class Limits(NamedTuple):
    """A server's limits."""

    hosts: tuple[str, ...] = ()  # accepted host names besides localhost and addresses
    max_bytes: int = 16 << 20  # most bytes of a body
    timeout: float = 60.0  # seconds from the head of a request to the end of its answer
    concurrency: int = 64  # most requests at a time, besides those for health and metrics


class Guard:
    """ASGI middleware that answers requests beyond an application's limits with a JSON error."""

    def __init__(self, application: Callable, limits: Limits):
        self._application, self._limits = application, limits
        self._running = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        begun = False

        async def reply(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        scope, hosts = _origin_form(scope)
        refused = self._refusal(scope["method"], scope["path"], hosts, headers)
        self._running += 1
        try:
            with anyio.fail_after(self._limits.timeout):  # asyncio.timeout is not in Python 3.10
                body = b"" if refused and b"expect" in headers else await self._body(receive, bool(refused))
            if body and not refused and headers.get(b"content-encoding", "").lower() in _GZIP:
                body = await run_in_threadpool(_unpacked, body, self._limits.max_bytes)
            refused = refused or (body is None and self._too_large())
            with anyio.fail_after(2 * self._limits.timeout):  # the model's own limit, and a slow reader's
                await (refused or self._application)({**scope, BODY: body}, receive, reply)
        except TimeoutError:
            if not begun:
                late = error_response(
                    408, f"the request took more than {self._limits.timeout:g} s", {"connection": "close"}
                )
                await late(scope, receive, reply)
        except zlib.error:
            await error_response(400, "the body is not whole gzip data")(scope, receive, reply)
        except _Disconnected:
            return
        except Exception as error:
            logging.error("%s %s failed: %r", scope["method"], scope["path"][:200], error)
            if not begun:
                await error_response(500, f"the server failed: {reason(error)}")(scope, receive, reply)
        finally:
            self._running -= 1

    def _refusal(
        self, method: str, path: str, hosts: list[str], headers: dict[bytes, str]
    ) -> Response | None:
        host, origin = next(iter(hosts), ""), headers.get(b"origin")
        site, mode = headers.get(b"sec-fetch-site", "none"), headers.get(b"sec-fetch-mode")
        if unknown := [name.rpartition("@")[2] for name in hosts if not self._knows(name)]:
            return error_response(
                403,
                f"this server is not called {json.dumps(unknown[0][:100])}: ask it as localhost, or start it "
                "with --allowed_hosts=NAME",
            )
        same = origin is None or origin in (f"http://{host}", f"https://{host}")
        link = method == "GET" and mode == "navigate"  # somebody follows a link to the page
        if not same or (site not in ("none", "same-origin") and not link):
            return error_response(403, "requests from other web sites are refused")
        if self._running >= self._limits.concurrency and path not in _WATCHED:
            return error_response(
                503, f"{self._running} requests are being answered: ask again later", {"retry-after": "1"}
            )
        try:
            length = int(headers.get(b"content-length", 0))
        except ValueError:
            return error_response(400, "the Content-Length is not a number", {"connection": "close"})
        if (encoding := headers.get(b"content-encoding", "identity").lower()) not in ("identity", *_GZIP):
            return error_response(
                415, f"the body's Content-Encoding is {encoding[:100]!r}; expected gzip, or none"
            )
        return self._too_large() if length > self._limits.max_bytes else None

    def _too_large(self) -> Response:
        return error_response(
            413, f"the request has more than {self._limits.max_bytes:,} bytes", {"connection": "close"}
        )

    def _knows(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if name.lower().rstrip(".") in ("localhost", *self._limits.hosts):
            return True
        try:  # no name, so nobody can make it point elsewhere
            return bool(ipaddress.ip_address(name.strip("[]")))
        except ValueError:
            return False

    async def _body(self, receive: Receive, discard: bool) -> bytes | None:
        """Reads a whole body, None if it is too large.

        A refused body is read to its end and discarded; otherwise the client, still sending, would see a
        broken connection instead of the answer.
        """
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Disconnected
            size += len(message.get("body", b""))
            if size <= self._limits.max_bytes and not discard:
                parts.append(message.get("body", b""))
            else:
                parts.clear()
            if not message.get("more_body"):
                return b"".join(parts) if size <= self._limits.max_bytes else None


class _Disconnected(Exception):
    """The client has gone."""


def _origin_form(scope: Message) -> tuple[Message, list[str]]:
    """Returns a request with its path alone, and the names that it addresses this server by."""
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"host"]
    if not hosts and scope["http_version"] != "1.0":
        hosts = [""]
    if whole := _ABSOLUTE.fullmatch(scope["raw_path"]):
        hosts.insert(0, whole[1].decode("latin-1"))
        path = whole[2] or b"/"
        scope = {**scope, "raw_path": path, "path": urllib.parse.unquote(path.decode("latin-1"))}
    return scope, hosts


def _unpacked(body: bytes, most: int) -> bytes | None:
    """Decompresses a gzip body; None if it is too large."""
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)  # with gzip's header
    unpacked = unpacking.decompress(body, most + 1)
    if len(unpacked) > most:
        return None
    if not unpacking.eof or unpacking.unused_data:
        raise zlib.error
    return unpacked


class Protocol(H11Protocol):
    """An HTTP connection that ends if a request's head is late, or the client stops reading."""

    _refused = False
    _stall: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._wait_for_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_again()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall:
            self._stall.cancel()

    def _look_again(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(_STALL_SECONDS, self._end_if_stalled, left)

    def _end_if_stalled(self, before: int) -> None:
        if self.transport.get_write_buffer_size() == before:
            self.transport.abort()
        else:
            self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._stall:
            self._stall.cancel()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        self.loop.call_later(_HEADER_SECONDS, self._end_if_slow, self.cycle)

    def _end_if_slow(self, cycle: Any) -> None:
        if self.cycle is cycle and not self.transport.is_closing() and self.conn.their_state is h11.IDLE:
            self._refuse(408, f"the head of the request did not come within {_HEADER_SECONDS:g} s")

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not HTTP, or its head is too long")

    def _refuse(self, status: int, message: str) -> None:
        if self.conn.our_state is not h11.IDLE and self.conn.our_state is not h11.SEND_RESPONSE:
            self.transport.close()  # an answer is under way
            return
        response = error_response(status, message, {"connection": "close"})
        head = h11.Response(status_code=status, headers=response.raw_headers)
        for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            if data := self.conn.send(event):
                self.transport.write(data)
        # To close while the client still sends would break the connection before it has read the answer.
        self._refused = True
        self.transport.write_eof()
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)
