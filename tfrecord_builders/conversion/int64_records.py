"""Pretraining records of other programs: TFRecords of int64 features, whose rows are streams by position.

Record k of a file is row k modulo B of step k // B; row b of step n + 1 continues row b of step n.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from etils import epath

from xlnet_tf.errors import UserError
from xlnet_tf.records.shards import masked_checksums
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID

CHUNK_RECORDS = 4096  # read at once


@dataclasses.dataclass(frozen=True)
class ExternalFile:
    """One file of rows B, which cores share, each equally many consecutive ones."""

    path: epath.Path
    batch_size: int
    num_cores: int
    bidirectional: bool  # whether the second half of each core's rows is read backward
    num_steps: int | None  # None: not known

    def __post_init__(self):
        halves = 2 if self.bidirectional else 1
        if min(self.batch_size, self.num_cores) < 1 or self.batch_size % (halves * self.num_cores):
            raise UserError(
                f"{self.path} has {self.batch_size} rows for {self.num_cores} cores"
                f"{', half of them read backward' if self.bidirectional else ''}: expected a multiple of "
                f"{halves * self.num_cores}. Give --num_cores as the records were built; to write some, give "
                "another --num_cores or --batch_size"
            )

    @property
    def backward(self) -> np.ndarray:
        """Bool [B]: which rows are read backward."""
        rows_of_core = self.batch_size // self.num_cores
        return self.bidirectional & (np.arange(self.batch_size) % rows_of_core >= rows_of_core // 2)

    def where(self, record: int) -> str:
        return f"{self.path}, record {record} (step {record // self.batch_size}, row "\
            f"{record % self.batch_size})"  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ExternalSet:
    """Files with the same settings."""

    files: tuple[ExternalFile, ...]
    seq_len: int
    reuse_len: int
    lower: bool
    # Tokens picked in every record; None: their number varies, or none are picked yet
    num_predict: int | None
    # alpha, beta: about beta of each alpha tokens were picked
    alpha: int
    beta: int
    split: str


def joined(sets: Sequence[ExternalSet]) -> ExternalSet:
    """Joins sets; raises UserError if they differ in more than their files."""
    first, *others = sets
    for other in others:
        for field in dataclasses.fields(first):
            each, another = getattr(first, field.name), getattr(other, field.name)
            if field.name != "files" and each != another:
                raise UserError(
                    f"{field.name} is {each} of {first.files[0].path} and {another} of "
                    f"{other.files[0].path}: give --input one kind of records, by a glob if need be"
                )
    return dataclasses.replace(first, files=tuple(file for each in sets for file in each.files))


def read_frames(path: epath.Path) -> Iterator[bytes]:
    """Yields the records of a TFRecord file; a truncated or damaged record is a UserError with its number."""
    try:
        with path.open("rb") as file:
            record = 0
            while header := file.read(12):
                length = int.from_bytes(header[:8], "little")
                if len(header) == 12 and masked_checksums([header[:8]]).tobytes() != header[8:]:
                    raise UserError(
                        f"{path} is damaged in record {record}: its length. Copy or build it again"
                    )
                data = file.read(length + 4) if len(header) == 12 else b""
                if len(header) < 12 or len(data) < length + 4:
                    raise UserError(
                        f"{path} ends inside record {record}: it is truncated. Copy or build it again"
                    )
                if masked_checksums([data[:-4]]).tobytes() != data[-4:]:
                    raise UserError(
                        f"{path} is damaged in record {record}: its bytes. Copy or build it again"
                    )
                yield data[:-4]
                record += 1
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def read_steps(
    file: ExternalFile,
    lengths: Mapping[str, int | None],
    on_rest: Callable[[ExternalFile, int], None] | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """Reads a file, many steps at a time: name -> int64 [S, B, length], padded with -1 if the length varies.

    `lengths` has each feature's numbers; `on_rest` is called with the records of an incomplete last step.
    """
    chunk = max(1, CHUNK_RECORDS // file.batch_size) * file.batch_size
    frames, count, records = [], 0, 0
    for frame in read_frames(file.path):
        frames.append(frame)
        records += 1
        if len(frames) == chunk:
            yield _parse(file, frames, count, lengths)
            count, frames = records, []
    expected = None if file.num_steps is None else file.num_steps * file.batch_size
    if expected not in (None, records):
        raise UserError(
            f"{file.path} has {records} records, expected {expected}: {file.num_steps} steps (num_batch) of "
            f"{file.batch_size} rows. It is truncated or another file's: copy or build it again"
        )
    if rest := len(frames) % file.batch_size:
        assert on_rest, f"{file.path} does not know its number of steps"
        on_rest(file, rest)
    if frames := frames[: len(frames) - rest]:
        yield _parse(file, frames, count, lengths)


def check_segments(
    file: ExternalFile,
    first_step: int,
    ids: np.ndarray,
    segment_ids: np.ndarray,
    reuse_len: int,
    vocab_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Checks that records are [reused | A SEP B SEP CLS] of known pieces.

    Returns special, bool [S, B, T]: SEP and CLS; and a_len, int [S, B]: tokens of A.
    """
    seq_len = ids.shape[-1]
    special = (ids == SEP_ID) | (ids == CLS_ID)
    a_len = np.argmax(ids[..., reuse_len:] == SEP_ID, axis=-1)
    column, separator = np.arange(seq_len), reuse_len + a_len[..., None]
    expected = (column == separator) | (column >= seq_len - 2)
    layout = (special == expected).all(axis=-1) & (ids[..., -2] == SEP_ID) & (ids[..., -1] == CLS_ID)
    expected_segments = (column > separator).astype(np.int64) + (column == seq_len - 1)
    rules = {
        f"has ids from {ids.min()} to {ids.max()}, expected 0 to {vocab_size - 1}: give the tokenizer that "
        "the records were made with": ((ids >= 0) & (ids < vocab_size)).all(axis=-1),
        f"is not [{reuse_len} tokens of reused text | A SEP B SEP CLS] with SEP {SEP_ID} and CLS {CLS_ID}: "
        "is reuse_len right?": layout & (a_len > 0) & (separator[..., 0] < seq_len - 3),
        "has other segment ids than 0 for the reused text and A, 1 for B, 2 for CLS":
            (segment_ids == expected_segments).all(axis=-1),
    }  # fmt: skip
    for what, holds in rules.items():
        check(file, first_step, holds, what)
    return special, a_len


def check(file: ExternalFile, first_step: int, holds: np.ndarray, what: str) -> None:
    """Raises UserError for the first record for which `holds`, bool [S, B], is False."""
    if not holds.all():
        record = first_step * file.batch_size + int(np.argmin(holds.reshape(-1)))
        raise UserError(f"{file.where(record)} {what}")


def continues(before: np.ndarray, ids: np.ndarray, a_len: np.ndarray, reuse_len: int) -> np.ndarray:
    """Returns bool [S, B]: which ids [S, B, T] continue the step before, where A has a_len [S, B] tokens."""
    width = min(reuse_len, ids.shape[-1] - reuse_len)
    same = before[..., reuse_len : reuse_len + width] == ids[..., :width]
    return (same | (np.arange(width) >= a_len[..., None])).all(axis=-1)


def glob(pattern: str) -> list[epath.Path]:
    """Returns the files that match a path or glob, sorted."""
    path = epath.Path(pattern)
    return [path] if path.exists() else sorted(epath.Path(name) for name in tf.io.gfile.glob(pattern))


def _parse(
    file: ExternalFile, frames: Sequence[bytes], first: int, lengths: Mapping[str, int | None]
) -> dict[str, np.ndarray]:
    """Parses records into name -> int64 [S, B, length]."""
    spec = {
        name: tf.io.VarLenFeature(tf.int64) if length is None else tf.io.FixedLenFeature([length], tf.int64)
        for name, length in lengths.items()
    }
    try:
        parsed = tf.io.parse_example(tf.constant(frames), spec)
    except tf.errors.InvalidArgumentError as error:
        for number, frame in enumerate(frames):
            _check_features(file.where(first + number), frame, lengths)
        raise UserError(f"{file.path}: {error.message}") from error
    columns = {
        name: tf.sparse.to_dense(value, -1).numpy() if lengths[name] is None else value.numpy()
        for name, value in parsed.items()
    }
    return {name: value.reshape(-1, file.batch_size, value.shape[1]) for name, value in columns.items()}


def _check_features(where: str, frame: bytes, lengths: Mapping[str, int | None]) -> None:
    """Raises UserError unless a record has these int64 features."""
    try:
        features = tf.train.Example.FromString(frame).features.feature
    except Exception as error:  # protobuf's own, of which there are several
        raise UserError(f"{where} is not a tf.train.Example") from error
    for name, length in lengths.items():
        if name not in features:
            raise UserError(f"{where} has no feature {name}; it has {', '.join(sorted(features)) or 'none'}")
        kind = features[name].WhichOneof("kind")
        count = len(getattr(features[name], kind).value) if kind else 0
        if kind != "int64_list" or length not in (None, count):
            wanted = "any number of" if length is None else length
            raise UserError(f"{where}: feature {name} is {kind} of {count}, expected int64_list of {wanted}")
