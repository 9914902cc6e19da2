"""A disk that is full, without mounting one."""

import contextlib
import resource


@contextlib.contextmanager
def files_of_at_most(size):
    """Writing more bytes to a file fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
