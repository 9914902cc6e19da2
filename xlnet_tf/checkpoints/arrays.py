"""Arrays by name, each read on demand: a checkpoint takes the memory of one array, not of all."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import ml_dtypes
import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums

MAX_RANK = 8  # of any array in a checkpoint
_FLOATS = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


class Entry(NamedTuple):
    """One array that has not been read yet."""

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


class Arrays(Mapping[str, np.ndarray]):
    """A read-only mapping from names to arrays that are read when asked for, and not kept."""

    def __init__(self, entries: Mapping[str, Entry]):
        self._entries = dict(entries)

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> "Arrays":
        return cls({name: Entry(array.shape, lambda array=array: array) for name, array in arrays.items()})

    def checked(self, files: Iterable[str]) -> "Arrays":
        """Returns the same arrays; before the first is read, `files` are compared with their SHA256SUMS."""
        files = list(files)

        @functools.cache
        def check():
            for file in files:
                checksums.check(file)

        def entry(unchecked: Entry) -> Entry:
            def read() -> np.ndarray:
                check()
                return unchecked.read()

            return Entry(unchecked.shape, read)

        return Arrays({name: entry(unchecked) for name, unchecked in self._entries.items()})

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
        return dict(self._entries)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The arrays' shapes by name; reads nothing."""
        return {name: entry.shape for name, entry in self._entries.items()}


def float32(array: np.ndarray, name: str, path: str) -> np.ndarray:
    """Widens weights to float32, which loses nothing."""
    if array.dtype not in _FLOATS:
        raise UserError(
            f"{path}: {name} is of type {array.dtype}; expected float32, float16 or bfloat16 weights."
        )
    array = array.astype(np.float32, copy=False)
    if bad := array.size - np.count_nonzero(np.isfinite(array)):
        raise UserError(
            f"{path}: {bad:,} of the {array.size:,} weights of {name} are infinite or NaN; expected "
            "those of a training that went well."
        )
    return array
