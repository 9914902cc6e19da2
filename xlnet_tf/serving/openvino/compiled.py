"""Runs a graph in OpenVINO's format on this machine's CPU; nothing here imports TensorFlow."""

import contextlib
import contextvars
import math
import queue
import time
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from xlnet_tf import errors
from xlnet_tf.errors import UserError

OLDEST = (2026, 4)  # the release that the graphs are made for and tested with
# Numbers that share a scale where products with integer weights round activations to integers, too; with
# OpenVINO's own 32 a step of generation takes longer.
_GROUP = 64
FLOAT32, BFLOAT16, INT8, INT4 = WEIGHTS = ("float32", "bfloat16", "int8", "int4")
# The time.monotonic() after which nobody waits for what this thread computes.
_deadline: contextvars.ContextVar[float] = contextvars.ContextVar("deadline", default=math.inf)


@contextlib.contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Has graphs that run in this context end with TimeoutError after `seconds`; None: they take any time."""
    token = _deadline.set(math.inf if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


def import_openvino() -> types.ModuleType:
    """Returns the module; raises UserError if it is missing or too old."""
    try:
        import openvino
    except ImportError as error:
        raise UserError(
            f"OpenVINO is not installed ({error}): {errors.install_command('openvino')}"
        ) from error
    version = openvino.__version__.partition("-")[0]
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        raise UserError(
            f"OpenVINO is {version}; expected {'.'.join(map(str, OLDEST))} or later: "
            f"{errors.install_command('openvino')}"
        )
    return openvino


class CompiledGraph:
    """A graph that is compiled for this machine's CPU, and may be called by several threads.

    It computes in the type that it was exported for: OpenVINO by itself would take bfloat16 where it can.

    Args:
        graph: its .xml file, the .bin file next to it; or the openvino.Model itself.
        weights: what it was exported with: "float32", "bfloat16", "int8" or "int4"; the last two compute in
            bfloat16 what is not in integers, if the processor can.
        threads: of the processor that it computes with; 0: one for each core.
        streams: calls that are computed at the same time, each with its share of the threads.

    Attributes:
        inputs, outputs: their names.
    """

    def __init__(self, graph: Any, weights: str, *, threads: int = 0, streams: int = 1):
        openvino = import_openvino()
        core = openvino.Core()
        settings = {
            "INFERENCE_PRECISION_HINT": "bf16" if computes_in_bfloat16(core, weights) else "f32",
            "NUM_STREAMS": streams,
            "INFERENCE_NUM_THREADS": threads,
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": _GROUP,
        }
        try:
            compiled = core.compile_model(graph, "CPU", settings)
        except RuntimeError as error:
            raise _unreadable(graph, error) from error
        self.inputs = [port.any_name for port in compiled.inputs]
        self.outputs = [port.any_name for port in compiled.outputs]
        self._idle: queue.SimpleQueue = queue.SimpleQueue()
        for _ in range(streams):
            self._idle.put(compiled.create_infer_request())

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Computes the outputs by name; waits while as many calls as there are streams are being computed.

        Raises TimeoutError where `within` says so, and computes no further.
        """
        request = self._idle.get()
        try:
            _infer(request, {name: inputs[name] for name in self.inputs})
            return {name: request.get_tensor(name).data.copy() for name in self.outputs}
        finally:
            self._idle.put(request)


def _infer(request: Any, inputs: Mapping[str, np.ndarray]) -> None:
    if (deadline := _deadline.get()) == math.inf:
        request.infer(inputs, share_inputs=True)
        return
    request.start_async(inputs, share_inputs=True)
    if not request.wait_for(max(0, math.ceil(1000 * (deadline - time.monotonic())))):
        request.cancel()
        with contextlib.suppress(RuntimeError):  # that it was cancelled
            request.wait()
        raise TimeoutError("the time for an answer is over")


class GraphParts:
    """A file of several graphs that share their weights, see conversion.merge: each is compiled on its own.

    For weights and threads see CompiledGraph. `of_few_rows` are parts that compute in float32 where weights
    are integers: for a row or two, bringing the weights to bfloat16 takes longer than it saves.
    """

    def __init__(self, path: str, weights: str, *, threads: int = 0, of_few_rows: Collection[str] = ()):
        self._openvino = import_openvino()
        self._weights, self._threads, self._of_few_rows = weights, threads, of_few_rows
        try:
            self._model = self._openvino.Core().read_model(path)
        except RuntimeError as error:
            raise _unreadable(path, error) from error

    def shapes(self, part: str) -> dict[str, list[int | None]]:
        """Returns the shapes of a part's inputs and outputs; None: any size."""
        ports = [*self._model.inputs, *self._model.outputs]
        return {
            name.removeprefix(f"{part}/"): [None if size.is_dynamic else size.get_length() for size in shape]
            for name, shape in ((port.any_name, port.partial_shape) for port in ports)
            if name.startswith(f"{part}/")
        }

    def compile(self, part: str, outputs: Sequence[str] = ()) -> CompiledGraph:
        """Compiles what a part needs for some of its outputs; none are all."""
        model = self._model.clone()
        parameters, results = (
            [each for each in nodes if each.get_friendly_name().startswith(f"{part}/")]
            for nodes in (model.get_parameters(), model.get_results())
        )
        wanted = {f"{part}/{name}" for name in outputs}
        results = [each for each in results if not wanted or each.get_friendly_name() in wanted]
        chosen = self._openvino.Model(results, parameters, part)
        for port in (*chosen.inputs, *chosen.outputs):
            port.set_names({port.any_name.removeprefix(f"{part}/")})
        in_float32 = part in self._of_few_rows and self._weights != BFLOAT16
        return CompiledGraph(chosen, FLOAT32 if in_float32 else self._weights, threads=self._threads)


def _unreadable(graph: Any, error: RuntimeError) -> UserError:
    reason = str(error).strip().rpartition("\n")[2]
    return UserError(f"{graph} cannot be read by OpenVINO ({reason}): export the model again")


def computes_in_bfloat16(core, weights: str) -> bool:
    """Returns whether what is not in integers is computed in bfloat16; logs what this processor lacks."""
    if weights == FLOAT32:
        return False
    known = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if weights == INT8 and "INT8" not in known:
        logging.warning("this processor has no 8-bit instructions: the int8 model computes more slowly here")
    if "BF16" in known:
        return True
    if weights == BFLOAT16:
        logging.warning("this processor has no bfloat16 instructions: the model computes in float32 here")
    return False
