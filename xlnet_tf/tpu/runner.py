"""Runs a lowered program on a device of JAX, a CPU or a GPU, without TensorFlow.

Only this file and tpu.compiler use private names of jaxlib.
"""

import contextlib
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.tpu import compiler

PLATFORMS = ("cpu", "gpu")
_SPREAD = 0.02  # spread of synthetic numbers, like initial weights


def save(path: str, hlo: bytes, *, batch_size: int, seq_len: int, flops: int, hardware: str) -> None:
    """Writes a training step to run elsewhere, with its description as json."""
    files.make_folder(pathlib.Path(path).parent)
    files.write(path, hlo)
    sizes = {"batch_size": batch_size, "seq_len": seq_len, "flops": flops, "hardware": hardware}
    files.write_json(f"{path}.json", sizes)


def load(path: str) -> tuple[bytes, dict[str, Any]]:
    """Reads what `save` wrote: the program and its sizes."""
    for file in (path, f"{path}.json"):
        if not pathlib.Path(file).exists():
            raise UserError(f"{file} does not exist: write it with xlnet-tf tpu-compile --save_hlo={path}")
    return pathlib.Path(path).read_bytes(), files.read_json(f"{path}.json")


class Runner:
    """A compiled program on a device, with synthetic parameters: only its time means anything.

    JAX looks for all kinds of devices unless its environment (JAX_PLATFORMS) names some. `values` are the
    parameters', for the next run; `temporaries` the bytes needed besides parameters and outputs, as planned.
    """

    def __init__(self, hlo: bytes, platform: str):
        self._platform = platform
        with _named_errors(platform):
            self._load(hlo)

    def _load(self, hlo: bytes):
        try:
            import jax

            [*_, device] = jax.devices(self._platform)[:1]
            module = compiler.parse_hlo(hlo)
            options, devices = compiler.for_one(device)
            start = time.perf_counter()
            self._executable = device.client.compile_and_load(module, devices, options)
            self.compile_seconds = time.perf_counter() - start
            self.temporaries = self._executable.get_compiled_memory_stats().temp_size_in_bytes
            self._carried = _carried(module)
            with jax.enable_x64(True):  # or 64-bit counters would become 32-bit ones
                self.values = [jax.device_put(value, device) for value in _synthetic_values(hlo)]
        except (ImportError, AttributeError, TypeError) as error:
            raise UserError(
                f"JAX is not here, or not in the release expected ({type(error).__name__}: {error}): install "
                "jax==0.10.2, for a GPU jax[cuda13]==0.10.2"
            ) from error

    def step(self) -> float:
        """Runs the program once, and returns its seconds; the next run reads the variables that it writes."""
        start = time.perf_counter()
        with _named_errors(self._platform):
            outputs = self._executable.execute_sharded(self.values).disassemble_into_single_device_arrays()
            for [output] in outputs:
                output.block_until_ready()
        seconds = time.perf_counter() - start
        for parameter, output in self._carried.items():
            [self.values[parameter]] = outputs[output]
        return seconds


@contextlib.contextmanager
def _named_errors(platform: str) -> Iterator[None]:
    """Turns JAX's errors about a device, inside of a `with` block, into helpful ones."""
    try:
        yield
    except RuntimeError as error:
        advice = (
            "\nIt does not fit into the device's memory: save it with fewer rows (xlnet-tf tpu-compile "
            "--batch_per_core), with --recompute=cheap, --recompute or --accumulation_steps"
        )
        too_large = "RESOURCE_EXHAUSTED" in str(error)
        raise UserError(
            f"JAX cannot run the program on a {platform}: {error}{advice if too_large else ''}"
        ) from error


def _carried(module) -> dict[int, int]:
    """Returns parameter -> the output that reuses its memory."""
    entries = module.operation.attributes["mhlo.input_output_alias"]
    return {entry["alias"]["parameter_number"].value: entry["output_index"][0] for entry in entries}


def _synthetic_values(hlo: bytes) -> list[np.ndarray]:
    """Returns a synthetic value for each parameter: small positive numbers, 0 and 1; none is negative."""
    rng = np.random.default_rng(0)

    def value(shape) -> np.ndarray:
        dtype, dimensions = np.dtype(shape.numpy_dtype()), shape.dimensions()
        if dtype.kind in "iub":
            return rng.integers(0, 2, dimensions).astype(dtype)
        return (_SPREAD * rng.random(dimensions, np.float32)).astype(dtype)

    return [value(shape) for shape in compiler.parameter_shapes(hlo)]
