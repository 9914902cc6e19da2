"""The kind of device that the graph being traced is for: each runs some operations fast in another form."""

import contextlib
import contextvars
from collections.abc import Iterator

import tensorflow as tf

HARDWARE = ("cpu", "gpu", "tpu")
OPENVINO = "openvino"  # a compiler for CPUs, which takes whole graphs

_assumed: contextvars.ContextVar[str | None] = contextvars.ContextVar("hardware", default=None)


def hardware() -> str:
    """Returns what the graph is for: "tpu" under a TPUStrategy, else "gpu" where there is one, else "cpu"."""
    if assumed := _assumed.get():
        return assumed
    if isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy):
        return "tpu"
    return "gpu" if tf.config.list_logical_devices("GPU") else "cpu"


def assumed() -> str | None:
    """Returns what `assume` says that the graph is for; None outside it."""
    return _assumed.get()


def length_multiple() -> int | None:
    """Returns the multiple that rows of any length are padded to; None: a graph must know their length."""
    return {"cpu": 1, "gpu": 8, "tpu": None}[hardware()]


def steps_at_once() -> int:
    """Returns how many forward passes to run at once: a single one leaves a CPU partly idle."""
    return 2 if hardware() == "cpu" else 1


def is_compiled() -> bool:
    """Returns whether XLA compiles everything, requested or not, as on TPUs."""
    return hardware() == "tpu"


@contextlib.contextmanager
def assume(hardware: str | None) -> Iterator[None]:
    """Traces the block for one of HARDWARE or OPENVINO, to compile it ahead; None: for this machine's."""
    known = (*HARDWARE, OPENVINO)
    if hardware not in (None, *known):
        raise ValueError(f"hardware is {hardware!r}: expected one of {', '.join(known)}")
    token = _assumed.set(hardware)
    try:
        yield
    finally:
        _assumed.reset(token)
