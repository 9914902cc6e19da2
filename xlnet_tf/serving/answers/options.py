"""The options that a model is exported with: lengths, buckets and temperatures, checked."""

from collections.abc import Sequence

import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.records.batching import choose_lengths
from xlnet_tf.records.examples import ExampleSet

FLOAT32, BFLOAT16, INT8 = WEIGHTS = ("float32", "bfloat16", "int8")  # kinds of weights
_SEQ_LEN = 512  # of the released models
_SHORTEST_BUCKET = 32
_MULTIPLE = 8


def check_room(name: str, most: int, seq_len: int):
    """Raises UserError unless seq_len tokens have room for `most` pieces of one text and for another."""
    room = seq_len - 3
    if not 0 < most < room:
        raise UserError(
            f"{name} is {most}; expected 1 to {room - 1}, so that sequences of {seq_len} tokens have room "
            f"for another text, or a seq_len of at least {max(most, 1) + 4}"
        )


def check_temperature(temperature: Sequence[float] | None, number: int) -> list[float]:
    """Returns the temperatures, [number], by default 1, after checking their number and sign."""
    if temperature is None:
        return [1.0] * number
    numbers = all(isinstance(v, int | float | np.floating) and 0 < v < np.inf for v in temperature)
    if len(temperature) != number or not numbers:
        raise UserError(f"temperature is {temperature}; expected {number}, each above 0")
    return [float(value) for value in temperature]


def buckets_for(data: str, seq_len: int) -> list[int]:
    """Returns the buckets that pad least for requests as long as the texts of the set in a folder."""
    examples = ExampleSet.load(data)
    if not examples.records:
        raise UserError(f"{data} holds no examples: expected some, for buckets that fit their lengths")
    lengths = np.clip(examples.lengths(), 4, seq_len)
    return choose_lengths(lengths, seq_len)


def default_seq_len(segment_len: int) -> int:
    """Returns the default sequence length in tokens: whole segments, if the model reads in segments."""
    return max(segment_len, _SEQ_LEN - _SEQ_LEN % (segment_len or 1))


def exact_buckets(seq_len: int, segment_len: int) -> list[int] | None:
    """Returns many buckets, to pad little; None if the model reads in segments.

    Without a compiler, many buckets cost no more than few.
    """
    return None if segment_len else [*range(_MULTIPLE, seq_len, _MULTIPLE)]


def check_buckets(seq_len: int, buckets: Sequence[int] | None, segment_len: int) -> tuple[int, ...]:
    """Returns the buckets with seq_len as the last one."""
    if segment_len and seq_len % segment_len:
        raise UserError(
            f"seq_len is {seq_len}; expected a multiple of {segment_len}, the tokens of the segments that "
            "the model reads"
        )
    if segment_len:
        if buckets:
            raise UserError(
                f"buckets are {', '.join(map(str, buckets))}, but the model reads in segments of "
                f"{segment_len}: its sequences are always of {seq_len} tokens; expected no buckets"
            )
        return (seq_len,)
    if buckets is None:
        buckets = []
        while (length := _SHORTEST_BUCKET << len(buckets)) < seq_len:
            buckets.append(length)
    if list(buckets) != sorted(set(buckets)) or any(not 4 <= length <= seq_len for length in buckets):
        raise UserError(
            f"buckets are {', '.join(map(str, buckets))}; expected ascending numbers from 4 to seq_len "
            f"({seq_len})"
        )
    return tuple(dict.fromkeys([*buckets, seq_len]))
