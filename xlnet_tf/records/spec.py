"""The columns of one pretraining record."""

import dataclasses
import functools

from xlnet_tf.errors import UserError
from xlnet_tf.records.layout import Column, Layout, ids_dtype

FORWARD, BACKWARD = 1, -1  # of `direction`
MAX_SEQ_LEN = 16384  # ranks and positions are int16
MAX_STREAMS_PER_SHARD = 1 << 20
MAX_SLICES = 1 << 24
MAX_PASSES = 1 << 15
MAX_VOCAB_SIZE = 1 << 24  # far above any tokenizer's: a wrong number asks for no terabytes


def stream_id(pass_index: int, slice_index: int, number: int = 0) -> int:
    """Returns the id, unique in a record set, of the shard's stream `number` (forward streams come first)."""
    return (pass_index * MAX_SLICES + slice_index) * MAX_STREAMS_PER_SHARD + number


def stream_name(stream: int, direction: int) -> str:
    """Returns a readable name for a stream's id, see `stream_id`."""
    shard, number = divmod(stream, MAX_STREAMS_PER_SHARD)
    pass_index, slice_index = divmod(shard, MAX_SLICES)
    reading = "forward" if direction == FORWARD else "backward"
    return f"pass {pass_index}, {reading}, number {number} of slice {slice_index}"


@dataclasses.dataclass(frozen=True)
class RecordSpec(Layout):
    """Shapes and types of a set of pretraining records, and their bytes."""

    seq_len: int  # T, tokens of a segment
    reuse_len: int  # R, leading tokens, which the next segment of the stream continues after
    num_predict: int  # P, slots for targets
    vocab_size: int  # V, pieces of the tokenizer

    def __post_init__(self):
        if not 4 < self.seq_len <= MAX_SEQ_LEN:
            raise UserError(f"seq_len is {self.seq_len}, expected 5 to {MAX_SEQ_LEN}")
        if not 1 <= self.vocab_size <= MAX_VOCAB_SIZE:
            raise UserError(f"vocab_size is {self.vocab_size}, expected at least 1, at most {MAX_VOCAB_SIZE}")
        if not 0 < self.num_predict <= self.seq_len:
            raise UserError(f"num_predict is {self.num_predict}, expected 1 to seq_len ({self.seq_len})")
        if not 0 < self.reuse_len < self.seq_len:
            raise UserError(f"reuse_len is {self.reuse_len}, expected 1 to seq_len - 1 ({self.seq_len - 1})")

    @functools.cached_property
    def columns(self) -> tuple[Column, ...]:
        """The features, in the order of a record's bytes."""
        return (
            Column("input_ids", ids_dtype(self.vocab_size), self.seq_len),
            Column("segment_ids", "uint8", self.seq_len),
            Column("permutation_rank", "int16", self.seq_len),
            Column("target_positions", "int16", self.num_predict),  # ascending, then -1 for empty slots
            Column("direction", "int8", None),  # FORWARD or BACKWARD
            Column("next_sentence", "int8", None),  # 1: B continues A, 0: B is from elsewhere
            Column("stream", "int64", None),
            Column("segment", "int32", None),  # index in the stream
            Column("document_offset", "int32", None),  # tokens of this document before, within the stream
        )
