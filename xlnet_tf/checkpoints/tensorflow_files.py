"""TensorFlow checkpoints: reads and writes the original's, and reads those of our runs (object-based)."""

import math
import os
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from xlnet_tf import files
from xlnet_tf.checkpoints import names
from xlnet_tf.checkpoints.arrays import Arrays, Entry, float32
from xlnet_tf.checkpoints.checkpoint import CONFIG_FILE, Checkpoint
from xlnet_tf.checkpoints.of_runs import check_name
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError

ORIGINAL_FILE = "xlnet_model.ckpt"

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SHARD_BYTES = 1 << 28
_READ_ERRORS = (tf.errors.OpError, RuntimeError, ValueError, IndexError)
_COUNTER = re.compile(r"(global_step|beta[12]_power(_\d+)?|save_counter)")


def is_tensorflow(prefix: str) -> bool:
    """Returns whether there is a TensorFlow checkpoint with this prefix, such as `.../xlnet_model.ckpt`."""
    return tf.io.gfile.exists(f"{prefix}.index")


def read_tensorflow(prefix: str, config: XLNetConfig | None) -> Checkpoint:
    """Opens a checkpoint of the original or of a run, by the path without `.index` and `.data-...`."""
    check_name(prefix)
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        graph = reader.get_tensor(_OBJECT_GRAPH) if _OBJECT_GRAPH in shapes else None
    except _READ_ERRORS as error:
        raise _damaged(prefix, error) from error

    def entry(key: str) -> Entry:
        def read() -> np.ndarray:
            try:
                array = reader.get_tensor(key)
            except _READ_ERRORS as error:
                raise _damaged(prefix, error) from error
            return float32(array, key, prefix)

        return Entry(tuple(shapes[key]), read)

    if graph is None:
        weights = [  # no counters, and no optimizer slots, which are named after their variables
            name
            for name in sorted(shapes)
            if not _COUNTER.fullmatch(name) and name.rpartition("/")[0] not in shapes
        ]
        arrays = names.to_canonical(
            Arrays({name: entry(name) for name in weights}).checked(_files(prefix)), names.ORIGINAL
        )
        return Checkpoint(prefix, "original", arrays, config, tuple(sorted(set(shapes) - set(weights))))
    keys = _model_variables(graph)
    arrays = Arrays({names.canonical(name): entry(key) for name, key in keys.items()}).checked(_files(prefix))
    stripped = tuple(sorted(set(shapes) - set(keys.values()) - {_OBJECT_GRAPH}))
    return Checkpoint(prefix, "ours", arrays, config, stripped)


def write_original(arrays: Arrays, config: XLNetConfig, folder: str) -> list[str]:
    """Writes weights and architecture as the original released them; returns the files' names.

    The original has only the tanh form of gelu, so both forms become "gelu".
    """
    external = names.from_canonical(arrays, names.ORIGINAL)
    prefix, shards = f"{folder}/{ORIGINAL_FILE}", []
    try:
        with files.writing(prefix):
            for group in _groups(external.shapes):
                shards.append(f"{prefix}.part-{len(shards)}")
                tf.raw_ops.SaveV2(
                    prefix=shards[-1],
                    tensor_names=group,
                    shape_and_slices=[""] * len(group),
                    tensors=[tf.constant(external[name]) for name in group],
                )
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=shards, destination_prefix=prefix, delete_old_dirs=False
            )
    finally:
        for leftover in files.beginning_with(f"{prefix}.part-"):  # left by a full disk
            tf.io.gfile.remove(leftover)
    values = config.to_dict()
    values["ff_activation"] = values["ff_activation"].removesuffix("_erf")
    files.write(f"{folder}/{CONFIG_FILE}", XLNetConfig.from_dict(values).to_json())
    return [CONFIG_FILE, *map(os.path.basename, _files(f"{folder}/{ORIGINAL_FILE}"))]


def _files(prefix: str) -> list[str]:
    return [*files.beginning_with(f"{prefix}.data-"), *files.beginning_with(f"{prefix}.index")]


def _groups(shapes: Mapping[str, tuple[int, ...]]) -> list[list[str]]:
    """Splits names into groups of arrays that are small enough to be in memory together."""
    groups, size = [[]], 0
    for name in sorted(shapes):
        size += 4 * math.prod(shapes[name])
        if groups[-1] and size > _SHARD_BYTES:
            groups.append([])
            size = 4 * math.prod(shapes[name])
        groups[-1].append(name)
    return groups


def _model_variables(graph: bytes) -> dict[str, str]:
    """Returns the keys of a model's variables by their names; a run's optimizer and memory are left out."""
    objects = trackable_object_graph_pb2.TrackableObjectGraph.FromString(graph)
    is_run = any(child.local_name == "model" for child in objects.nodes[0].children)
    return {
        variable.full_name: variable.checkpoint_key
        for node in objects.nodes
        for variable in node.attributes
        if variable.full_name and _is_model(variable.checkpoint_key.split("/"), is_run)
    }


def _is_model(key: list[str], is_run: bool) -> bool:
    """Returns whether a path is of a model's variable; a compiled model also holds its optimizer."""
    return (key[0] == "model" or not is_run) and not {"optimizer", ".OPTIMIZER_SLOT"} & set(key)


def _damaged(prefix: str, error: Exception) -> UserError:
    return UserError(
        f"{prefix} is not a TensorFlow checkpoint, or is damaged or cut off: {str(error).splitlines()[0]}"
    )
