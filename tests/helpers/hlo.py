"""What a lowered program reads, writes and needs."""

from collections.abc import Iterator

from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

from xlnet_tf.tpu.lowering import Program

HOST_OPCODES = ("infeed", "outfeed", "send", "recv", "custom-call")


def parameters(program: Program) -> list[tuple[str, tuple[int, ...]]]:
    """Returns type and shape of each parameter."""
    return [
        (xla_data_pb2.PrimitiveType.Name(shape.element_type).lower(), tuple(shape.dimensions))
        for shape in program.module.host_program_shape.parameters
    ]


def donated(program: Program) -> list[tuple[str, tuple[int, ...]]]:
    """Returns type and shape of the parameters whose memory an output takes over."""
    numbers = {entry.parameter_number for entry in program.module.input_output_alias.entries}
    return [parameters(program)[number] for number in sorted(numbers)]


def host_operations(program: Program) -> list[str]:
    """Returns the operations that a device cannot do without its host."""
    needed = (i for i in _instructions(program) if i.opcode in HOST_OPCODES)
    return sorted({instruction.custom_call_target or instruction.opcode for instruction in needed})


def dynamic_shapes(program: Program) -> list[str]:
    """Returns the instructions whose shape is not known before they run."""
    return [
        instruction.name
        for instruction in _instructions(program)
        if any(instruction.shape.is_dynamic_dimension) or instruction.opcode == "set-dimension-size"
    ]


def _instructions(program: Program) -> Iterator[hlo_pb2.HloInstructionProto]:
    for computation in program.module.computations:
        yield from computation.instructions
