"""TFRecord Examples of fixed size: every feature is a bytes feature of fixed length.

All records of a set share one byte template: they are written by filling an array, and found by arithmetic.
"""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from xlnet_tf.errors import UserError


@dataclasses.dataclass(frozen=True)
class Column:
    """One feature: `length` little-endian numbers of type `dtype` (length None: a scalar)."""

    name: str
    dtype: str
    length: int | None

    @property
    def num_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * (self.length or 1)


def ids_dtype(vocab_size: int) -> str:
    """Returns the smallest type of a column that holds all piece ids."""
    return "uint16" if vocab_size <= 65536 else "int32"


class Layout:
    """How the columns of a record are placed in its bytes. Subclasses define the columns."""

    columns: tuple[Column, ...]

    @property
    def dtypes(self) -> dict[str, str]:
        return {column.name: column.dtype for column in self.columns}

    @property
    def record_bytes(self) -> int:
        """Bytes of one serialised Example."""
        return len(self._template[0])

    @functools.cached_property
    def _template(self) -> tuple[np.ndarray, dict[str, slice]]:
        """Returns a record of zeros (uint8 [record_bytes]) and the byte range of each value."""
        features, offsets = b"", {}
        for column in self.columns:
            value = _field(1, _field(1, bytes(column.num_bytes)))  # Feature{bytes_list: BytesList{value}}
            # A map entry {key, value}.
            features += _field(1, _field(1, column.name.encode()) + _field(2, value))
            offsets[column.name] = len(features)
        example = _field(1, features)
        header = len(example) - len(features)
        ends = {name: header + end for name, end in offsets.items()}
        return np.frombuffer(example, np.uint8), {
            column.name: slice(ends[column.name] - column.num_bytes, ends[column.name])
            for column in self.columns
        }

    def encode(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Serialises S records: uint8 [S, record_bytes], each row one tf.train.Example.

        Columns are name -> [S, length] or, for scalars, [S], of any type whose values fit. Raises ValueError
        for missing or unknown columns, wrong shapes, and values that do not fit.
        """
        if set(columns) != set(self.dtypes):
            raise ValueError(f"columns are {sorted(columns)}, expected {sorted(self.dtypes)}")
        template, offsets = self._template
        count = len(columns[self.columns[0].name])
        rows = np.tile(template, (count, 1))
        for column in self.columns:
            values = np.asarray(columns[column.name])
            expected = (count,) if column.length is None else (count, column.length)
            if values.shape != expected:
                raise ValueError(f"{column.name} has shape {values.shape}, expected {expected}")
            if np.dtype(column.dtype).kind != "f":
                limits = np.iinfo(column.dtype)
                if values.size and (values.min() < limits.min or values.max() > limits.max):
                    raise ValueError(f"{column.name} has values outside of {column.dtype}")
            values = np.ascontiguousarray(values, np.dtype(column.dtype).newbyteorder("<"))
            rows[:, offsets[column.name]] = values.reshape(count, column.length or 1).view(np.uint8)
        return rows

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Returns which rows (uint8 [S, record_bytes]) are records of this layout: bool [S]."""
        template, offsets = self._template
        fixed = np.ones(len(template), bool)
        for offset in offsets.values():
            fixed[offset] = False
        return (rows[:, fixed] == template[fixed]).all(axis=1)

    def decode(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Parses serialised records, uint8 [S, record_bytes]: name -> [S, length] or, for scalars, [S]."""
        _, offsets = self._template
        if rows.shape[1] != self.record_bytes:
            raise UserError(f"records have {rows.shape[1]} bytes, expected {self.record_bytes}")
        if not self.fits(rows).all():
            raise UserError(f"not records of this layout: {self}")
        columns = {}
        for column in self.columns:
            values = np.ascontiguousarray(rows[:, offsets[column.name]]).view(
                np.dtype(column.dtype).newbyteorder("<")
            )
            columns[column.name] = values[:, 0] if column.length is None else values
        return columns

    def parse(self, serialized):
        """Parses serialised records, string [B], in a TensorFlow graph; returns what `decode` does."""
        import tensorflow as tf

        parsed = tf.io.parse_example(
            serialized, {column.name: tf.io.FixedLenFeature([], tf.string) for column in self.columns}
        )
        result = {}
        for column in self.columns:
            values = tf.io.decode_raw(parsed[column.name], tf.as_dtype(column.dtype), little_endian=True)
            values = tf.ensure_shape(values, [serialized.shape[0], column.length or 1])
            result[column.name] = values[:, 0] if column.length is None else values
        return result


def _varint(value: int) -> bytes:
    """Protocol buffers' variable-length integer."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(groups + [value])


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload
