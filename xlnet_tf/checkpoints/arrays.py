"""Arrays by name, each read only when it is asked for: a checkpoint costs one array of memory, not all."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import ml_dtypes
import numpy as np

from xlnet_tf.errors import UserError

_FLOATS = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


class Entry(NamedTuple):
    """One array that has not been read yet.

    Attributes:
        shape: of the array.
        read: reads it.
    """

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


class Arrays(Mapping[str, np.ndarray]):
    """A read-only mapping from names to arrays that are read when asked for, and not kept.

    Args:
        entries: by name.
    """

    def __init__(self, entries: Mapping[str, Entry]):
        self._entries = dict(entries)

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> "Arrays":
        """Wraps arrays that are in memory."""
        return cls({name: Entry(array.shape, lambda array=array: array) for name, array in arrays.items()})

    def __getitem__(self, name: str) -> np.ndarray:
        return self._entries[name].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # Mapping's own would read the array

    @property
    def entries(self) -> dict[str, Entry]:
        """The arrays' entries by name."""
        return dict(self._entries)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The arrays' shapes by name; reads nothing."""
        return {name: entry.shape for name, entry in self._entries.items()}


def float32(array: np.ndarray, name: str, path: str) -> np.ndarray:
    """Widens an array to float32, which loses nothing.

    Args:
        array: of weights.
        name: of the array, for the error message.
        path: of the file it comes from, for the error message.

    Raises:
        UserError: the array is of a type that does not fit into float32.
    """
    if array.dtype not in _FLOATS:
        raise UserError(
            f"{path}: {name} is of type {array.dtype}; expected float32, float16 or bfloat16 weights."
        )
    return array.astype(np.float32, copy=False)
