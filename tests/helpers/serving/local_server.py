"""The local server over exported folders, for tests that ask any server."""

import contextlib
import os
from collections.abc import Iterator

from xlnet_tf.serving.local import models, server


@contextlib.contextmanager
def local_server(folder: str, name: str, **options) -> Iterator[server.Server]:
    """Serves one version, a folder NUMBER, by a name; yields the running server."""
    base, number = os.path.split(folder)
    config = models.ModelConfig(name, base, only=(int(number),))
    with server.serving([config], **options) as running:
        yield running
