"""Smaller weights for graphs in OpenVINO's format: bfloat16, integers of 8 bits, and of 4 for generation."""

import os
import types
from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from xlnet_tf import errors, task_registry
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.serving.graph.exported_model import ExportableModel
from xlnet_tf.serving.openvino.compiled import INT4, INT8, import_openvino
from xlnet_tf.text.packing import PAD_SEGMENT
from xlnet_tf.text.special_tokens import PAD_ID

LEAST_EXAMPLES, MOST_ROWS = 32, 300
_ROWS_AT_ONCE = 4
_SMALLEST = 256  # numbers of a constant that is worth storing in fewer bits
_GROUP = 64  # weights that share a scale in 4 bits: a divisor of all preset widths

Rows = Mapping[str, np.ndarray]


def import_nncf() -> types.ModuleType:
    """Returns the module; raises UserError if it is missing."""
    os.environ.setdefault("NNCF_CI", "1")  # it tells its makers over the network otherwise
    try:
        import nncf
    except ImportError as error:
        raise UserError(f"NNCF is not installed ({error}): {errors.install_command('openvino')}") from error
    return nncf


def to_bfloat16(model: Any) -> None:
    """Stores matrices and tables of a graph as bfloat16; it computes in whatever it is compiled for."""
    openvino = import_openvino()
    wide, narrow = openvino.Type.f32, openvino.Type.bf16
    for node in model.get_ops():
        if node.get_type_name() != "Constant" or node.get_element_type() != wide:
            continue
        values = node.data
        if sum(size > 1 for size in values.shape) > 1 and values.size >= _SMALLEST:  # no scales
            tensor = openvino.Tensor(narrow, openvino.Shape(values.shape))  # owns its memory
            tensor.data.view(np.uint16)[...] = values.astype(ml_dtypes.bfloat16).view(np.uint16)
            users = node.output(0).get_target_inputs()
            stored = openvino.opset13.convert(openvino.op.Constant(tensor), "f32")
            for user in users:
                user.replace_source_output(stored.output(0))


def quantize(model: Any, batches: list[Rows]) -> Any:
    """Returns a graph whose products multiply 8-bit integers, with ranges as found on batches of rows.

    Other tables are stored as bfloat16.
    """
    nncf = import_nncf()
    quantized = nncf.quantize(
        model, nncf.Dataset(batches), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(batches)
    )
    to_bfloat16(quantized)
    return quantized


def compress_weights(model: Any, weights: str) -> Any:
    """Returns a graph whose weights alone are integers, "int8" or "int4"; for generation, row by row.

    In int4, embeddings and the last layer keep 8 bits.
    """
    nncf = import_nncf()
    if weights == INT8:
        # Asymmetric: a step of generation then takes less time than with INT8_SYM, see docs/benchmarks.md.
        return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
    if weights == INT4:
        # Where _GROUP divides no rows, as in small models, groups are smaller, or a row has 8 bits.
        adjusted = nncf.AdvancedCompressionParameters(
            group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
        )
        return nncf.compress_weights(
            model,
            mode=nncf.CompressWeightsMode.INT4_SYM,
            group_size=_GROUP,
            ratio=1.0,
            advanced_parameters=adjusted,
        )
    raise ValueError(f"weights are {weights!r}; expected {INT8} or {INT4}")


def calibration_batches(module: ExportableModel, data: str) -> list[Rows]:
    """Returns up to MOST_ROWS sequences of a set of examples, spread over it, as a served model packs them.

    Raises UserError for examples of another task or tokenizer, longer than the model's, or too few.
    """
    examples = ExampleSet.load(data)
    task = task_registry.entry_for_set(examples).name
    if task != module.card.task:
        raise UserError(f"{data} has examples for {task}, the model is for {module.card.task}: give others")
    if examples.tokenizer["sha256"] != module.tokenizer.fingerprint:
        raise UserError(
            f"{data} was built with another tokenizer than the model's: build the examples with it"
        )
    if examples.records < LEAST_EXAMPLES:
        raise UserError(
            f"{data} has {examples.records} examples; expected at least {LEAST_EXAMPLES}, such as a dev set, "
            "to find the ranges of activations"
        )
    if examples.seq_len > module.seq_len:
        raise UserError(
            f"{data} has sequences of {examples.seq_len} tokens, the model takes {module.seq_len}: build "
            "shorter examples, or give a longer --seq_len"
        )
    arrays = examples.arrays()
    number = min(examples.records, max(1, MOST_ROWS // examples.sequences))
    chosen = np.linspace(0, examples.records - 1, number).astype(int)
    ids, segments = (
        arrays[name][chosen].astype(np.int32).reshape(-1, examples.seq_len)
        for name in ("input_ids", "segment_ids")
    )
    return [*_batches(ids, segments, module.seq_len if len(module.buckets) == 1 else None)]


def _batches(ids: np.ndarray, segments: np.ndarray, length: int | None) -> Iterator[Rows]:
    """Yields rows of similar length together, without the padding that they share; or of a fixed length."""
    is_token = ids != PAD_ID
    order = np.argsort(is_token.sum(axis=1), kind="stable")
    for begin in range(0, len(order), _ROWS_AT_ONCE):
        rows = order[begin : begin + _ROWS_AT_ONCE]
        if length is None:
            columns = np.flatnonzero(is_token[rows].any(axis=0))
            if not columns.size:
                continue
            cut = slice(columns[0], columns[-1] + 1)
            kept = ids[rows, cut], is_token[rows, cut], segments[rows, cut]
        else:
            pad = ((0, 0), (length - ids.shape[1], 0))
            kept = tuple(
                np.pad(values[rows], pad, constant_values=filler)
                for values, filler in ((ids, PAD_ID), (is_token, 0), (segments, PAD_SEGMENT))
            )
        names = ("input_word_ids", "input_mask", "input_type_ids")
        yield {name: np.ascontiguousarray(values, np.int32) for name, values in zip(names, kept)}
