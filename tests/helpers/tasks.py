"""Tasks of the registry for as long as a test runs."""

import contextlib
from collections.abc import Iterator

from xlnet_tf import task_registry
from xlnet_tf.checkpoints import names


@contextlib.contextmanager
def registered(*tasks: task_registry.TaskEntry) -> Iterator[None]:
    """Adds tasks to the registry."""
    before = task_registry.own_tasks
    task_registry.own_tasks = lambda: (*before(), *tasks)
    _forget()
    try:
        yield
    finally:
        task_registry.own_tasks = before
        _forget()


def _forget() -> None:
    for cached in (task_registry.tasks, names._row, names._head_rows, names._all_rows):
        cached.cache_clear()
