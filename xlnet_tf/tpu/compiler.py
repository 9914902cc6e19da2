"""Compiles one program for one TPU core with libtpu, in a process of its own.

    python -m xlnet_tf.tpu.compiler FILE.hlo SLICE_NAME '{"option": "value"}' [FOLDER]

The last line that it prints is json: "memory" and "cost" as the compiler gives them and "seconds", or
"error", the compiler's own text, and "arguments", their bytes, or "unavailable", what is missing here. With
an empty FOLDER for the compiler's reports it ends once the memory is planned, before code is made, and prints
"planned", bytes of memory. The process imports jax and libtpu, which take over much of it, and no TensorFlow.
All private names of jaxlib are in this file.
"""

import json
import math
import os
import pathlib
import re
import sys
import threading
import time

_MEMORY = {
    "arguments": "argument_size_in_bytes",
    "outputs": "output_size_in_bytes",
    "temporaries": "temp_size_in_bytes",
    "aliased": "alias_size_in_bytes",
    "code": "generated_code_size_in_bytes",
}
# Unless this is off, libtpu 0.0.42.1 crashes for v4 and newer where it fuses a feed-forward gradient.
# For v3 it changes no figure. On a TPU itself: LIBTPU_INIT_ARGS=--xla_tpu_rwb_fusion=false.
_FLAGS = {"xla_tpu_rwb_fusion": "false"}
# What joins and splits 64-bit counters, as that of steps: the compiler has no time for it and counts -1 s.
_WITHOUT_COST = 'custom_call_target="X64'


class Unavailable(Exception):
    """Something that compiling needs is missing."""


def main(hlo_path: str, slice_name: str, options: str, reports: str = "") -> None:
    """Compiles a file and prints the result."""
    os.environ["JAX_PLATFORMS"] = "cpu"  # topologies need no device
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # there is no metadata server to ask
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # others may compile as well
    if reports:
        threading.Thread(target=_end_when_planned, args=(pathlib.Path(reports),), daemon=True).start()
    try:
        with open(hlo_path, "rb") as file:
            result = _compile(file.read(), slice_name, json.loads(options), reports)
    except Unavailable as error:
        result = {"unavailable": str(error)}
    print(json.dumps(result))


def parse_hlo(hlo: bytes):
    """Returns a program in MLIR, the compilers' input."""
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax, xla_client
    from jax._src.lib.mlir import ir

    text = _jax.mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(hlo))
    with mlir.make_ir_context():
        return ir.Module.parse(text)


def parameter_shapes(hlo: bytes) -> list:
    """Returns the shapes of a program's parameters, each with numpy_dtype() and dimensions()."""
    from jax._src.lib import xla_client

    return xla_client.XlaComputation(hlo).program_shape().parameter_shapes()


def for_one(device) -> tuple:
    """Returns a client's arguments to compile for one device: options, and the list of devices."""
    import numpy as np
    from jax._src.lib import xla_client

    options = xla_client.CompileOptions()
    build = options.executable_build_options
    for settings in (options, build):
        settings.num_replicas = settings.num_partitions = 1
    build.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id]]))
    return options, xla_client.DeviceList((device,))


def _end_when_planned(reports: pathlib.Path) -> None:
    """Waits for the memory's plan, prints it and ends the process: compiling cannot be interrupted."""
    while True:
        # Written after the report, which therefore is whole.
        if list(reports.glob("*after_buffer_assignment.txt")):
            (report,) = reports.glob("*memory-usage-report.txt")
            # The first of the memory spaces is the HBM.
            print(json.dumps({"planned": int(re.search(r"Total bytes: (\d+)", report.read_text())[1])}))
            sys.stdout.flush()
            os._exit(0)
        time.sleep(0.1)


def _compile(hlo: bytes, slice_name: str, options: dict[str, str], reports: str) -> dict:
    try:
        import libtpu  # noqa: F401
        import numpy as np
        from jax.experimental import topologies

        module = parse_hlo(hlo)
        device = topologies.get_topology_desc(platform="tpu", topology_name=slice_name, **options).devices[0]
        compile_options, devices = for_one(device)
        overrides = _FLAGS | ({"xla_dump_to": reports, "xla_dump_hlo_as_text": True} if reports else {})
        compile_options.env_option_overrides = list(overrides.items())
    except (ImportError, AttributeError, TypeError) as error:
        raise Unavailable(f"{type(error).__name__}: {error}") from error

    start = time.perf_counter()
    try:
        executable = device.client.compile(module, devices, compile_options)
    except Exception as error:  # of a type that moves between releases
        sizes = (
            np.dtype(s.numpy_dtype()).itemsize * math.prod(s.dimensions()) for s in parameter_shapes(hlo)
        )
        return {"error": str(error), "arguments": sum(sizes)}
    seconds = time.perf_counter() - start
    try:
        return _figures(executable, seconds)
    except (AttributeError, KeyError, TypeError) as error:
        raise Unavailable(f"{type(error).__name__}: {error}") from error


def _figures(executable, seconds: float) -> dict:
    memory, cost = executable.get_compiled_memory_stats(), executable.cost_analysis()
    return {
        "memory": {name: getattr(memory, field) for name, field in _MEMORY.items()},
        "cost": {
            "flops": cost["flops"],
            "bytes_accessed": cost["bytes accessed"],
            "seconds": cost["optimal_seconds"] + _uncounted(executable),
        },
        "seconds": seconds,
    }


def _uncounted(executable) -> int:
    """Counts operations without a time estimate; 0 if libtpu 0.0.52 cannot show them (v5p, v6e, tpu7x)."""
    try:
        return executable.hlo_modules()[0].to_string().count(_WITHOUT_COST)
    except Exception:  # of a type that moves between releases
        return 0


if __name__ == "__main__":
    main(*sys.argv[1:])
