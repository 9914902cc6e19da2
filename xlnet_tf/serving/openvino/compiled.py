"""Runs a graph in OpenVINO's format on this machine's CPU; nothing here imports TensorFlow."""

import queue
import types
from collections.abc import Mapping

import numpy as np
from absl import logging

from xlnet_tf import errors
from xlnet_tf.errors import UserError

OLDEST = (2026, 4)  # the release that the graphs are made for and tested with
FLOAT32, BFLOAT16, INT8 = "float32", "bfloat16", "int8"


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

    It computes in the type that it was exported for: OpenVINO by itself would take bfloat16 for float32 where
    the processor can.

    Args:
        path: the graph's .xml file, its .bin file next to it.
        weights: what it was exported with: "float32", "bfloat16", "int8" or "int4"; the last two compute in
            bfloat16 what is not in integers, if the processor can.
        threads: of the processor that it computes with; 0: one for each core.
        streams: calls that are computed at the same time, each with its share of the threads.

    Attributes:
        inputs, outputs: their names.
    """

    def __init__(self, path: str, weights: str, *, threads: int = 0, streams: int = 1):
        openvino = import_openvino()
        core = openvino.Core()
        settings = {
            "INFERENCE_PRECISION_HINT": "bf16" if computes_in_bfloat16(core, weights) else "f32",
            "NUM_STREAMS": streams,
            "INFERENCE_NUM_THREADS": threads,
        }
        try:
            compiled = core.compile_model(path, "CPU", settings)
        except RuntimeError as error:
            reason = str(error).strip().rpartition("\n")[2]
            raise UserError(
                f"{path} cannot be read by OpenVINO ({reason}): export the model again"
            ) from error
        self.inputs = [port.any_name for port in compiled.inputs]
        self.outputs = [port.any_name for port in compiled.outputs]
        self._idle: queue.SimpleQueue = queue.SimpleQueue()
        for _ in range(streams):
            self._idle.put(compiled.create_infer_request())

    @staticmethod
    def names(path: str) -> tuple[list[str], list[str]]:
        """Returns the names of a graph's inputs and outputs, without compiling it."""
        model = import_openvino().Core().read_model(path)
        return [port.any_name for port in model.inputs], [port.any_name for port in model.outputs]

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Computes the outputs by name; waits while as many calls as there are streams are being computed."""
        request = self._idle.get()
        try:
            request.infer({name: inputs[name] for name in self.inputs})
            return {name: request.get_tensor(name).data.copy() for name in self.outputs}
        finally:
            self._idle.put(request)


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
