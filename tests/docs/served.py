"""Stands in for TensorFlow Serving on a page: python -m tests.docs.served served/NAME.

It is the local server of `xlnet-tf serve`, on ports 8501 (REST) and 8500 (gRPC). Returns once that answers,
and ends with the page.
"""

import contextlib
import os
import pathlib
import signal
import sys
import time

from xlnet_tf.errors import UserError
from xlnet_tf.serving.local import server, versions

REST, GRPC = 8501, 8500
PATIENCE = 240  # seconds to wait for another page to give the ports back


def main():
    folder = pathlib.Path(sys.argv[1])
    ready, started = os.pipe()
    if os.fork():
        os.close(started)
        sys.exit(os.read(ready, 1) != b"1")
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.ExitStack() as servers:
            try:
                servers.enter_context(
                    server.serving([versions.of_folder(str(folder))], rest_port=REST, grpc_port=GRPC)
                )
            except UserError:  # the ports are taken
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
                continue
            os.write(started, b"1")
            signal.pause()


if __name__ == "__main__":
    main()
