"""Where the time of a training step goes: by kind of operation, and by part of the model.

TensorFlow's profiler records when each operation of the graph begins and ends on its thread. An operation
that runs within another counts for the outer one, so no moment of a thread counts twice. Operations that XLA
fused have no names of their own: they are `FUSED`. Those that TensorFlow leaves to oneDNN count as what they
compute: `_MklFusedMatMul` is a `MatMul`.
"""

import collections
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

FUSED = "fused by XLA"
PRODUCTS = ("MatMul", "BatchMatMulV2", "BatchMatMulV3")
# The first pattern found in an operation's scope gives its part. Operations of custom gradients have none.
PARTS = (
    (r"layer_\d+/attention_norm|layer_\d+/feed_forward_norm", "normalization"),
    (r"layer_\d+/attention", "attention"),
    (r"layer_\d+/feed_forward", "feed-forward network"),
    (r"AdamW", "optimizer"),
    (r"/encoder/", "embeddings, masks, positions"),
    (r"pretrainer|SparseSoftmaxCrossEntropy", "vocabulary and loss"),
)
LEAST_SHARE = 0.01  # of an operation that has a row of its own
UNNAMED = "custom gradients and others"
BACKWARD = "gradient_tape/"
# The profiler's name of one: scope, type. Types of TensorFlow's own rewriting begin with an underscore.
_OPERATION = re.compile(r"([^:]*):(?:_(?:Mkl)?(?:Native)?(?:Fused)?)?([A-Z]\w*)")
_FUSED_CALL = "call"


class Operation(NamedTuple):
    """One run of an operation on a thread, in picoseconds."""

    begin: int
    end: int
    scope: str
    kind: str


def outermost(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Yields the operations of a thread that do not run within another one."""
    until = -1
    for operation in sorted(operations, key=lambda one: (one.begin, -one.end)):
        if operation.begin >= until:
            until = operation.end
            yield operation


def part_of(scope: str) -> str:
    """Returns the part of the model that a scope belongs to, of PARTS, or UNNAMED."""
    return next((part for pattern, part in PARTS if re.search(pattern, scope)), UNNAMED)


def shares(operations: Iterable[Operation]) -> dict[str, Any]:
    """Adds up operations.

    Returns:
        busy: their seconds; products: the share that is matrix products; operations: kind -> share; parts:
        part -> {forward, backward}, shares. Largest first.
    """
    kinds: collections.Counter[str] = collections.Counter()
    parts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for operation in operations:
        kinds[operation.kind] += operation.end - operation.begin
        backward = operation.scope.startswith(BACKWARD) or part_of(operation.scope) == UNNAMED
        parts[part_of(operation.scope)]["backward" if backward else "forward"] += (
            operation.end - operation.begin
        )
    total = kinds.total() or 1
    return {
        "busy": kinds.total() / 1e12,
        "products": sum(kinds[kind] for kind in PRODUCTS) / total,
        "operations": {kind: spent / total for kind, spent in kinds.most_common()},
        "parts": {
            part: {way: both[way] / total for way in ("forward", "backward")}
            for part, both in sorted(parts.items(), key=lambda item: -item[1].total())
        },
    }


def parse_name(name: str) -> tuple[str, str] | None:
    """Returns scope and kind of an operation from its name in the profile; None if it is not one."""
    if name == _FUSED_CALL:
        return "", FUSED
    match = _OPERATION.fullmatch(name)
    return match and (match[1], match[2])


def read_trace(folder: str) -> list[Operation]:
    """Returns the outermost operations of a trace that `tf.profiler.experimental` wrote to a folder."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    operations = []
    for path in pathlib.Path(folder).rglob("*.xplane.pb"):
        for plane in xplane_pb2.XSpace.FromString(path.read_bytes()).planes:
            for line in plane.lines:
                thread = []
                for event in line.events:
                    if parsed := parse_name(plane.event_metadata[event.metadata_id].name):
                        end = event.offset_ps + event.duration_ps
                        thread.append(Operation(event.offset_ps, end, *parsed))
                operations.extend(outermost(thread))
    return operations


def measure_profile(steps: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Any]:
    """Profiles steps without XLA, whose operations are invisible; returns two tables of shares per mode."""
    import tensorflow as tf

    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    tables: dict[str, Any] = {}
    for mode, step in steps.items():
        for _ in range(2):
            step()
        with tempfile.TemporaryDirectory() as folder:
            with tf.profiler.experimental.Profile(folder, options):
                for _ in range(repeats):
                    step()
            profile = shares(read_trace(folder))
        kinds = {kind: share for kind, share in profile["operations"].items() if share >= LEAST_SHARE}
        kinds["others"] = 1 - sum(kinds.values())
        title = f"Profile of a step, {mode}"
        tables[f"{title}, by part: {profile['busy'] / repeats:.3f} s of operations"] = [
            {"": part, **both} for part, both in profile["parts"].items()
        ]
        tables[f"{title}, by operation: {profile['products']:.0%} are matrix products"] = [
            {"": kind, "share": share} for kind, share in kinds.items()
        ]
    return tables
