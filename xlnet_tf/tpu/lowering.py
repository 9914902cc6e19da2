"""Lowers a TensorFlow function to XLA's HLO, the program that a compiler takes."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

_PRODUCTS = ("dot", "convolution")
_STATE_WORDS = 2  # 64-bit words in the state of a TPU's random number generator


@dataclasses.dataclass(frozen=True)
class Program:
    """A computation of one core.

    Its parameters are the function's arguments, then the variables that it reads; its outputs are the
    function's results, then the variables that it writes.
    """

    hlo: bytes  # a serialized HloModuleProto, not optimized yet
    # The sizes that it was made for, by name (seq_len T, ...); empty if unknown.
    lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def module(self) -> hlo_pb2.HloModuleProto:
        return hlo_pb2.HloModuleProto.FromString(self.hlo)

    def loops_with_products(self) -> int:
        """Counts the loops that multiply matrices: XLA's counts of work see their bodies once."""
        computations = {computation.id: computation for computation in self.module.computations}

        @functools.cache
        def multiplies(number: int) -> bool:
            return any(
                instruction.opcode in _PRODUCTS or any(map(multiplies, instruction.called_computation_ids))
                for instruction in computations[number].instructions
            )

        return sum(
            instruction.opcode == "while" and any(map(multiplies, instruction.called_computation_ids))
            for computation in self.module.computations
            for instruction in computation.instructions
        )


def lower(
    function: Callable[[dict[str, tf.Tensor]], Any],
    inputs: Mapping[str, tf.TensorSpec],
    lengths: Mapping[str, int] | None = None,
) -> Program:
    """Lowers a function with all its effects on variables, which reuse their parameters' memory.

    The lowering is that of this machine's TensorFlow for its own kind of device: the HLO equals a TPU's
    except for operations that have another form under layers.device.assume. `inputs` have static shapes.
    """
    names = sorted(inputs)

    def positional(*values):
        return function(dict(zip(names, values)))

    compiled = tf.function(positional, jit_compile=True, autograph=False)
    stages = compiled.experimental_get_compiler_ir(*(inputs[name] for name in names))
    module = hlo_pb2.HloModuleProto.FromString(stages(stage="hlo_serialized"))
    _take_out_copies(module)
    _choose_generators(module)
    return Program(module.SerializeToString(), dict(lengths or {}))


def _choose_generators(module: hlo_pb2.HloModuleProto):
    """Lets each device draw random numbers with its own generator, as TensorFlow does where it lowers for it.

    A lowering for a CPU uses Philox, which a TPU would have to compute step by step. Philox has a state of
    three words; a TPU's generator takes the first two, key and counter.
    """
    number = max(i.id for computation in module.computations for i in computation.instructions)
    for computation in module.computations:
        _take_out_unused(computation)  # such as each generator's next state, whose size would be wrong
        instructions = []
        for instruction in computation.instructions:
            if instruction.opcode == "rng-bit-generator":
                number += 1
                state = hlo_pb2.HloInstructionProto(
                    name=f"state.{number}", opcode="slice", id=number, operand_ids=instruction.operand_ids
                )
                state.slice_dimensions.add(start=0, limit=_STATE_WORDS, stride=1)
                state.shape.CopyFrom(instruction.shape.tuple_shapes[0])
                state.shape.dimensions[:] = [_STATE_WORDS]
                instructions.append(state)
                instruction.operand_ids[:] = [number]
                instruction.shape.tuple_shapes[0].CopyFrom(state.shape)
                instruction.rng_algorithm = xla_data_pb2.RNG_DEFAULT
            instructions.append(instruction)
        _replace(computation, instructions)


def _take_out_unused(computation: hlo_pb2.HloComputationProto):
    """Removes instructions that the result does not need, other than parameters."""
    operands = {i.id: [*i.operand_ids, *i.control_predecessor_ids] for i in computation.instructions}
    needed, reached = set(), [computation.root_id]
    while reached:
        number = reached.pop()
        if number not in needed:
            needed.add(number)
            reached += operands[number]
    _replace(computation, [i for i in computation.instructions if i.id in needed or i.opcode == "parameter"])


def _take_out_copies(module: hlo_pb2.HloModuleProto):
    """Removes copies of values written to variables, which TensorFlow's runtime needs but not the step.

    The TPU's compiler would refuse them; aliasing is decided later.
    """
    for computation in module.computations:
        copies = {i.id: i.operand_ids[0] for i in computation.instructions if i.opcode == "copy"}

        def original(number: int, copies=copies) -> int:
            return original(copies[number]) if number in copies else number

        instructions = [each for each in computation.instructions if each.id not in copies]
        for instruction in instructions:
            instruction.operand_ids[:] = map(original, instruction.operand_ids)
        computation.root_id = original(computation.root_id)
        _replace(computation, instructions)


def _replace(computation: hlo_pb2.HloComputationProto, instructions: list[hlo_pb2.HloInstructionProto]):
    del computation.instructions[:]
    computation.instructions.extend(instructions)
