"""The local server over exported folders, for tests that ask any server."""

import contextlib
import os
from collections.abc import Iterator

from xlnet_tf.serving.local import server, versions


@contextlib.contextmanager
def local_server(folder: str, name: str, **options) -> Iterator[server.Server]:
    """Serves one version, a folder NUMBER, by a name; yields the running server."""
    base, number = os.path.split(folder)
    config = versions.ModelConfig(name, base, only=(int(number),))
    with server.serving([config], **options) as running:
        yield running
