"""Weights as 8-bit integers: a quarter of the size; the model computes in float32."""

import contextlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
import tf_keras

from xlnet_tf.checkpoints import names

_LARGEST = 127


class Int8Weights(tf.Module):
    """A model's kernels and embeddings as 8-bit integers, with one scale for each output."""

    def __init__(self, model: tf_keras.Model):
        super().__init__()
        self.tables: dict[str, _Table] = {}
        locations = []
        for layer in model.submodules:
            for attribute, value in vars(layer).items():
                if isinstance(value, tf.Variable) and _is_quantized(name := names.canonical(value.name)):
                    if name not in self.tables:
                        self.tables[name] = _Table(value.numpy(), _input_axes(name))
                    locations.append((layer, attribute, self.tables[name]))
        self._locations = lambda: locations  # a function: the layers are not to become part of this module

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Makes the layers compute with the integers while a graph is traced."""
        own = [vars(layer)[attribute] for layer, attribute, _ in self._locations()]
        try:
            for layer, attribute, table in self._locations():
                vars(layer)[attribute] = table
            yield
        finally:
            for (layer, attribute, _), value in zip(self._locations(), own, strict=True):
                vars(layer)[attribute] = value


class _Table(tf.Module):
    """A weight as integers and scales, which TensorFlow accepts as a tensor."""

    def __init__(self, values: np.ndarray, input_axes: tuple[int, ...]):
        super().__init__()
        largest = np.abs(values).max(axis=input_axes, keepdims=True)
        scales = np.where(largest > 0, largest / _LARGEST, 1).astype(np.float32)
        self.integers = tf.Variable(np.round(values / scales).astype(np.int8), trainable=False)
        self.scales = tf.Variable(scales, trainable=False)

    @property
    def shape(self) -> tf.TensorShape:
        return self.integers.shape

    @property
    def dtype(self) -> tf.DType:
        return tf.float32

    def __tf_tensor__(self, dtype=None, name=None):
        values = tf.cast(self.integers, tf.float32) * self.scales
        return tf.convert_to_tensor(values, dtype, name=name)

    def sparse_read(self, indices, name=None):
        """Serves tf.gather without converting the whole vocabulary to floats."""
        rows = tf.cast(tf.gather(self.integers, indices), tf.float32)
        return tf.multiply(rows, tf.gather(self.scales, indices), name=name)


def _is_quantized(name: str) -> bool:
    return name.endswith(("/kernel", "/embeddings")) and "/logits/" not in name


def _input_axes(name: str) -> tuple[int, ...]:
    """Returns the axes that a matrix product with the weight sums over."""
    if name.endswith("/embeddings"):
        return (1,)  # [V, D], read by rows
    if name.endswith("output/kernel"):
        return (1, 2)  # [D, N, H], from the heads to D
    return (0,)
