"""Starts the server: models, REST, gRPC, and a clean end.

    versions.serving -> service.Service -> rest.application behind guard.Guard, grpc_service

saved_model.py runs a SavedModel, openvino_model.py a model for OpenVINO; batching.py puts requests together,
json_tensors.py reads and writes JSON.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import uvicorn
from starlette.routing import BaseRoute

from xlnet_tf.errors import UserError, reason
from xlnet_tf.serving.local import grpc_service, guard, rest, versions
from xlnet_tf.serving.local.batching import MAX_BATCH
from xlnet_tf.serving.local.metrics import Metrics
from xlnet_tf.serving.local.service import Service

_MOST_CONNECTIONS = 512
_STOP_SECONDS = 10
_LIMITS = guard.Limits()


class Server(NamedTuple):
    """A running server; addresses are HOST:PORT."""

    service: Service
    rest: str
    grpc: str


@contextlib.contextmanager
def serving(
    configs: Sequence[versions.ModelConfig],
    *,
    host: str = "localhost",
    rest_port: int = 0,
    grpc_port: int = 0,
    limits: guard.Limits = _LIMITS,
    batching: bool = True,
    max_batch: int = MAX_BATCH,
    pages: Callable[[Service], Sequence[BaseRoute]] = lambda service: (),
) -> Iterator[Server]:
    """Serves models while the block runs, on any free ports if these are 0.

    `pages` makes further routes, such as a page at `/`, matched after the API's and behind the same guard.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(found) for found in _listen(host, rest_port)]
        port = sockets[0].getsockname()[1]
        loaded = versions.Models(configs, together=batching, max_batch=max_batch)
        stack.enter_context(versions.serving(loaded))
        service = Service(loaded, Metrics(), limits.timeout)
        shown = f"[{host}]" if ":" in host else host
        grpc_port = stack.enter_context(grpc_service.serving(service, f"{shown}:{grpc_port}", limits))
        application = guard.Guard(rest.application(service, pages(service)), limits)
        stack.enter_context(_answering_http(application, sockets))
        yield Server(service, f"{shown}:{port}", f"{shown}:{grpc_port}")


def _listen(host: str, port: int) -> list[socket.socket]:
    """Returns sockets on all addresses of a host, IPv4 and IPv6, at one port."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UserError(f"--host={host}: {reason(error)}") from error
    sockets: list[socket.socket] = []
    for family, *_, address in sorted(addresses):  # IPv4 first
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((address[0], port, *address[2:]))
            made.listen(128)
        except OSError as error:
            made.close()
            if sockets:
                continue  # a machine without IPv6
            raise UserError(
                f"{host}:{port} cannot be listened on: {reason(error)}. Give another --rest_port, or --host"
            ) from error
        port = made.getsockname()[1]
        sockets.append(made)
    return sockets


@contextlib.contextmanager
def _answering_http(application: Callable, sockets: Sequence[socket.socket]) -> Iterator[None]:
    """Answers HTTP in a thread, as the main one waits for signals."""
    config = uvicorn.Config(
        application,
        http=guard.Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": list(sockets)}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
