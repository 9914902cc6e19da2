"""The operations of the model that have a separate fast form on each kind of device.

Layers state the equations with the operations of one `Kernels` object. Begin with `reference.py`, which
computes each of them plainly: it runs without a graph, and is what tests compare the others with.
`graph.py` has the forms of any graph, GPUs' among them; `cpu_graph.py`, `openvino.py` and `tpu.py` replace
what their device or compiler is slow at. The other files hold the forms that they are made of. Nothing
outside this package asks which kind of device a graph is for.
"""

from typing import Any, Protocol

import tensorflow as tf

from xlnet_tf import errors
from xlnet_tf.layers.base import NormWeights
from xlnet_tf.layers.kernels.cpu_graph import CpuGraphKernels
from xlnet_tf.layers.kernels.device import HARDWARE, OPENVINO, assume, assumed, hardware
from xlnet_tf.layers.kernels.graph import GraphKernels
from xlnet_tf.layers.kernels.matmul import control_dependency_zero
from xlnet_tf.layers.kernels.openvino import OpenVinoKernels
from xlnet_tf.layers.kernels.reference import ReferenceKernels
from xlnet_tf.layers.kernels.tpu import TpuKernels

__all__ = [
    "HARDWARE",
    "OPENVINO",
    "Kernels",
    "assume",
    "assumed",
    "control_dependency_zero",
    "current",
    "dropout",
    "hardware",
]

errors.quiet_abseil()  # before XLA compiles one


class Kernels(Protocol):
    """What a layer asks of a device.

    Shapes: as in attention.py, with D = d_model, T = query_len and K = key_len; R rows or relative positions,
    F columns. What `encode_positions`, `project_positions` and `position_scores` return is for the same
    object's other methods alone: a table of distances is shifted late on CPUs, and there is none on TPUs.

    Attributes:
        shares_trace: whether layers are traced once for all (see models/one_trace.py).
    """

    shares_trace: bool

    def matmul(self, rows: tf.Tensor, weights: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
        """Multiplies rows [R, D] by weights [D, F], in the rows' type; with transpose_b [F, D]."""

    def dense(self, rows: tf.Tensor, weights: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Multiplies rows [R, D] by weights [D, F] and adds a bias [F], in the rows' type."""

    def project_heads(self, stream: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Projects vectors [B, Q, D] by weights [D, N, H] to heads [B, N, Q, H]."""

    def merge_heads(self, heads: tf.Tensor, weights: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Projects heads [B, N, Q, H] of softmax_sum by weights [D, N, H] back to [B, Q, D] in a type."""

    def add_biases(self, queries: tf.Tensor, biases: list[tf.Tensor]) -> list[tf.Tensor]:
        """Adds each bias [N, H] to the queries [B, N, Q, H]: one result for each bias."""

    def encode_positions(
        self,
        d_model: int,
        query_len: int | tf.Tensor,
        key_len: int | tf.Tensor,
        *,
        attention_type: str,
        clamp_len: int,
        direction: tf.Tensor | None,
        rate: float,
        seed: tf.Tensor | None,
    ) -> Any:
        """Encodes a step's relative positions, with dropout, once for all layers.

        Args:
            direction: [B], +1 forward and -1 backward, or None when all rows are read forward.
            seed: [2] int32, or None outside training.
        """

    def with_positions(self, context, positions: Any):
        """Adds what position_scores needs of the queries to their AttentionContext, once for all layers."""

    def project_positions(self, positions: Any, weights: tf.Tensor, dtype: tf.DType) -> Any:
        """Projects encoded positions by weights [D, N, H], once for both streams."""

    def position_scores(self, queries: tf.Tensor, position_keys: Any, context) -> tf.Tensor:
        """Scores keys by their distance from queries [B, N, Q, H]."""

    def combine_scores(self, content, position, segment, context) -> tf.Tensor:
        """Adds the terms of the scores and the bias that hides keys: [B, N, Q, K] float32.

        The segment term [B, N, Q, 1] is the score of keys in another segment; None without segments.
        """

    def softmax_sum(self, scores, values, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
        """Sums values [B, N, K, H] by the softmax of scores [B, N, Q, K], with dropout of the weights.

        The result [B, N, Q, H] is in the values' type or float32.
        """

    def keep_mask(self, shape, rate: float, seed: tf.Tensor) -> tf.Tensor:
        """Draws which elements of a shape dropout keeps: bool, false with probability `rate`."""

    def dropout(self, x: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
        """Zeroes elements with probability `rate` and scales the others; the identity without a seed."""

    def normalize_sum(self, a: tf.Tensor, b: tf.Tensor, norm: NormWeights) -> tf.Tensor:
        """Adds vectors [B, Q, D] and normalizes the sum in float32.

        The result is in their type.
        """

    def activate(self, rows: tf.Tensor, activation, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
        """Applies an activation function, then dropout."""


def current(training: bool) -> Kernels:
    """Returns the kernels of what is being traced; a model's call asks once and passes them down.

    In training, a gradient will be taken. What is compiled by XLA is for training alone: servers need not
    have XLA.
    """
    device = hardware()
    if device == "tpu":
        return TpuKernels(training)
    if device == OPENVINO:
        return OpenVinoKernels(training)
    if not tf.inside_function():
        return ReferenceKernels()
    return CpuGraphKernels(training) if device == "cpu" else GraphKernels(training)


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Drops out by the current kernels (see Kernels.dropout), where none are passed down: in heads."""
    return current(training=seed is not None).dropout(x, rate, seed)
