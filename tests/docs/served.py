"""Stands in for TensorFlow Serving on a page: python -m tests.docs.served served/NAME.

Answers on ports 8501 (REST) and 8500 (gRPC); returns once it does, and ends with the page.
"""

import contextlib
import os
import pathlib
import signal
import sys
import time

from tests.helpers.serving.fake_server import grpc_server, rest_server

REST, GRPC = 8501, 8500
PATIENCE = 240  # seconds to wait for another page to give the ports back


def main():
    folder = pathlib.Path(sys.argv[1])
    version = max((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    ready, started = os.pipe()
    if os.fork():
        os.close(started)
        sys.exit(os.read(ready, 1) != b"1")
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.ExitStack() as servers:
            try:
                servers.enter_context(rest_server(str(version), folder.name, REST))
                servers.enter_context(grpc_server(str(version), folder.name, GRPC))
            except (OSError, RuntimeError):  # the ports are taken
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
                continue
            os.write(started, b"1")
            signal.pause()


if __name__ == "__main__":
    main()
