"""Reads and writes safetensors files, one array in memory at a time."""

import json
import math

import numpy as np
from safetensors import SafetensorError, safe_open

from xlnet_tf import files
from xlnet_tf.checkpoints.arrays import MAX_RANK, Arrays, Entry, float32
from xlnet_tf.errors import UserError, short_repr


def read_safetensors(path: str) -> Arrays:
    """Opens a safetensors file; its arrays are read as float32."""
    try:
        with files.local(path) as here:
            with open(here, "rb"):  # safe_open calls a file that may not be read a missing one
                pass
            file = safe_open(here, framework="numpy")  # maps it into memory: its name may go
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise UserError(
            f"{path} is not a safetensors file, or is damaged ({error}); expected a whole one."
        ) from error
    for name, shape in shapes.items():
        if len(shape) > MAX_RANK:
            raise UserError(
                f"{path}: {short_repr(name)} has {len(shape):,} dimensions; expected at most {MAX_RANK}. The "
                "file is damaged, or not of a model."
            )

    def read(name: str) -> np.ndarray:
        try:
            array = file.get_tensor(name)
        except (SafetensorError, TypeError, AttributeError) as error:  # of a type that NumPy lacks
            raise UserError(f"{path}: {name} cannot be read ({error}); expected float weights.") from error
        return float32(array, name, path)

    return Arrays({name: Entry(shape, lambda name=name: read(name)) for name, shape in shapes.items()})


def write_safetensors(arrays: Arrays, path: str) -> None:
    """Writes float32 arrays as a safetensors file; the package's own writer holds all in memory, twice.

    Source: the format's description in the safetensors repository (length, JSON header, data).
    """
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}  # transformers insists on it
    end = 0
    for name, shape in sorted(arrays.shapes.items()):
        start, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data is aligned
    with files.replacing(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(arrays):
            file.write(arrays[name].astype("<f4", copy=False).tobytes())
