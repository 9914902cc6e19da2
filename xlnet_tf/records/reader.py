"""Reads pretraining records as batches whose rows are streams.

Row b of step n+1 continues row b of step n, for any batch size, host count and replica count; a row that ends
a stream starts its next one and marks it (`stream_start`). The position of a row at step n follows from the
manifest alone, so a run resumes exactly by giving the step.
"""

import numpy as np
import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.records import shards as shards_lib
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.online import OnlineSampler
from xlnet_tf.records.spec import RecordSpec, stream_id
from xlnet_tf.records.splitmix64 import hashed
from xlnet_tf.text import special_tokens

PERMUTATIONS = ("precomputed", "online")

_READ_BUFFER_BYTES = 1 << 16  # per row: a host reads from as many files at once as it has rows
_REQUESTS_AT_ONCE = 16  # to remote storage, where each request waits
_NO_STREAM = -1  # stream id of filler records
_ROUNDS = 4


@tf.autograph.experimental.do_not_convert
def pretraining_dataset(
    manifest: Manifest,
    batch_size: int,
    *,
    num_hosts: int = 1,
    host: int = 0,
    rows_per_batch: int | None = None,
    start_step: int = 0,
    seed: int = 0,
    repeat: bool = True,
    permutation: str = "precomputed",
) -> tf.data.Dataset:
    """Reads a record set as batches whose rows are streams.

    With `repeat`, epoch e reads pass e modulo `num_passes`; its streams are shuffled by (seed, e) and dealt
    to the rows in turn. Rows do not wait for each other between epochs. Without `repeat`, every record of
    every pass comes once, in the set's order; rows that have ended give filler (no targets) until all have.

    Args:
        batch_size: rows of a step over all hosts; each host gets batch_size / num_hosts consecutive rows.
        rows_per_batch: rows of one element of the dataset. A step of a host is (batch_size / num_hosts) /
            rows_per_batch consecutive elements, one per replica. None: all rows of the host.
        start_step: steps that have already been read.
        permutation: "precomputed" uses the records' targets and orders; "online" draws them anew in every
            epoch, by the same rules (needs `repeat`).

    Returns:
        A dataset of dicts, B = rows_per_batch: input_word_ids int32 [B, T], input_type_ids uint8 [B, T],
        permutation_rank int16 [B, T], target_positions int16 [B, P] (-1: empty), direction int8 [B]
        (1 forward, -1 backward), next_sentence int8 [B] (1: B continues A, 0: it does not, -1: filler),
        stream_start bool [B] (memory must not reach back), document_offset int32 [B].
    """
    rows = _host_rows(batch_size, num_hosts, host)
    if rows_per_batch is None:
        rows_per_batch = len(rows)
    if rows_per_batch < 1 or len(rows) % rows_per_batch:
        raise UserError(
            f"rows_per_batch is {rows_per_batch}, expected a divisor of the host's {len(rows)} rows"
        )
    sampler = online_sampler(manifest, permutation, seed)
    if sampler and not repeat:
        raise UserError("permutation is online, but every record is read once: evaluate precomputed ones")
    manifest.check_files_once()  # once: one process builds the readers of all hosts of a slice, in turn
    streams = _Streams(manifest)
    if repeat:
        records = _endless_rows(streams, rows, batch_size, start_step, seed)
    else:
        records = _rows_once(streams, rows, batch_size, start_step)
    batches = records.batch(rows_per_batch, drop_remainder=True)
    return prefetched(batches.map(_features(streams, sampler), tf.data.AUTOTUNE, deterministic=True))


def _features(streams: "_Streams", sampler: OnlineSampler | None):
    files = [str(streams.folder / shard.file) for shard in streams.shards]

    def features(serialized, segment, stream, shard, epoch):
        """Parses a batch and checks that each record is the one that the manifest lists there."""
        columns = streams.spec.parse(serialized)
        expected = (columns["stream"] == stream) & (columns["segment"] == tf.cast(segment, tf.int32))
        tf.debugging.Assert(
            tf.reduce_all(expected),
            [
                "not the records that the manifest lists (was a shard replaced?):",
                tf.gather(files, tf.boolean_mask(shard, ~expected)[:1]),
            ],
        )
        ids = tf.cast(columns["input_ids"], tf.int32)
        targets, rank = columns["target_positions"], columns["permutation_rank"]
        if sampler:
            targets, rank = sampler(ids, columns["direction"], epoch, stream, segment)
        return {
            "input_word_ids": ids,
            "input_type_ids": columns["segment_ids"],
            "permutation_rank": rank,
            "target_positions": targets,
            "direction": columns["direction"],
            "next_sentence": columns["next_sentence"],
            "stream_start": tf.equal(columns["segment"], 0),
            "document_offset": columns["document_offset"],
        }

    return features


def online_sampler(manifest: Manifest, permutation: str, seed: int) -> OnlineSampler | None:
    """Returns the sampler of a set's targets and orders; None for "precomputed", the records' own."""
    if permutation not in PERMUTATIONS:
        raise UserError(f"permutation is {permutation!r}, expected one of {', '.join(PERMUTATIONS)}")
    if permutation == "precomputed":
        return None
    return OnlineSampler(manifest, manifest.load_tokenizer().word_starts, seed)


def records_of_step(manifest: Manifest, batch_size: int, step: int, seed: int) -> list[tuple[str, int]]:
    """Returns the (shard file, number of the record in it) that each row of a training step reads."""
    streams = _Streams(manifest)
    starts = _row_positions(streams, range(batch_size), batch_size, step, seed)
    found = []
    for epoch, position, segment in zip(*starts):
        number = streams.at(tf.constant(epoch, tf.int64), tf.constant([position], tf.int64), seed)
        shard, first, _, _ = (int(value[0]) for value in streams.locate(number))
        found.append((streams.shards[shard].file, first + int(segment)))
    return found


def num_eval_steps(manifest: Manifest, batch_size: int) -> int:
    """Returns the steps of `pretraining_dataset(..., repeat=False)`: the records of its longest row."""
    return int(_row_lengths(_Streams(manifest), batch_size).max())


class _Streams:
    """All streams of a record set, by pass, then by shard; computed from shards, as there may be millions."""

    def __init__(self, manifest: Manifest):
        self.spec = manifest.spec
        self.folder = manifest.folder
        self.stream_segments = manifest.stream_segments
        self.num_passes = manifest.num_passes
        self.shards = sorted(manifest.shards, key=lambda shard: (shard.pass_index, shard.slice_index))
        self.segments = np.array(
            [[shard.forward_segments, shard.backward_segments] for shard in self.shards], np.int64
        ).reshape(-1, 2)  # by direction
        self.counts = -(-self.segments // self.stream_segments)
        self.ends = np.cumsum(self.counts.sum(axis=1))  # of each shard's stream numbers
        self.first_ids = np.array([stream_id(s.pass_index, s.slice_index) for s in self.shards], np.int64)
        self.pass_counts = np.zeros(self.num_passes, np.int64)
        np.add.at(self.pass_counts, [shard.pass_index for shard in self.shards], self.counts.sum(axis=1))
        self.pass_starts = np.cumsum(self.pass_counts) - self.pass_counts

    def locate(self, number):
        """Finds streams [N] in the dataset's graph: shard, first record, number of segments and id, [N]."""
        shard = tf.searchsorted(self.ends, number, side="right", out_type=tf.int64)
        local = number - tf.gather(self.ends - self.counts.sum(axis=1), shard)
        forward, backward = tf.unstack(tf.gather(self.segments, shard), axis=1)
        forward_streams = tf.gather(self.counts[:, 0], shard)
        is_forward = local < forward_streams
        first = self.stream_segments * tf.where(is_forward, local, local - forward_streams)
        left = tf.where(is_forward, forward, backward) - first
        length = tf.minimum(left, tf.constant(self.stream_segments, tf.int64))
        record = tf.where(is_forward, first, forward + first)
        return shard, record, length, tf.gather(self.first_ids, shard) + local

    def at(self, epoch, position, seed: int):
        """Returns the numbers of the streams at int64 [N] `position` in the shuffled order of an epoch."""
        index = epoch % self.num_passes
        number = shuffled(position, tf.gather(self.pass_counts, index), tf.constant(seed, tf.int64), epoch)
        return number + tf.gather(self.pass_starts, index)

    def read(self, number, skip, epoch) -> tf.data.Dataset:
        """Reads stream `number` from segment `skip` on; each record comes with what it must be, to check."""
        shard, record, length, stream = (value[0] for value in self.locate(number[None]))
        file = tf.gather([str(self.folder / shard.file) for shard in self.shards], shard)
        records = tf.raw_ops.TFRecordDatasetV2(
            filenames=[file],
            compression_type="",
            buffer_size=tf.constant(_READ_BUFFER_BYTES, tf.int64),
            byte_offsets=[(record + skip) * shards_lib.framed_bytes(self.spec)],
        )
        records = tf.data.experimental.from_variant(records, tf.TensorSpec([], tf.string))
        # A shard that ends too early must give an error, not a shorter stream: b"" is not a record.
        records = records.concatenate(tf.data.Dataset.from_tensors(b"").repeat())
        segments = tf.data.Dataset.range(skip, length)  # the shorter one: it ends the stream
        where = tf.data.Dataset.from_tensors((stream, shard, epoch)).repeat()
        return tf.data.Dataset.zip(records, segments, where).map(lambda *e: (e[0], e[1], *e[2]))


def _endless_rows(streams: _Streams, rows: range, batch_size: int, start_step: int, seed: int):
    """Interleaves a host's rows: in an epoch, row b reads the shuffled streams b, b + batch_size, ..."""
    for index, count in enumerate(streams.pass_counts):
        if count < batch_size:
            raise UserError(
                f"pass {index} in {streams.folder} has {count} streams, too few for a batch of {batch_size} "
                f"rows: use a batch_size of at most {min(streams.pass_counts)}, or build with a smaller "
                f"--stream_segments (now {streams.stream_segments}) or --slice_mb, or with more text"
            )

    def row_dataset(row, start_epoch, start_position, start_segment):
        def epoch_streams(epoch):
            resumed = tf.equal(epoch, start_epoch)
            first = tf.where(resumed, start_position, row)
            count = tf.gather(streams.pass_counts, epoch % streams.num_passes)
            positions = tf.data.Dataset.range(first, count, batch_size)
            return positions.map(
                lambda position: (
                    streams.at(epoch, position[None], seed)[0],
                    tf.where(resumed & tf.equal(position, start_position), start_segment, np.int64(0)),
                    epoch,
                )
            )

        epochs = tf.data.Dataset.range(start_epoch, np.iinfo(np.int64).max)
        return epochs.flat_map(epoch_streams).flat_map(streams.read)

    starts = _row_positions(streams, rows, batch_size, start_step, seed)
    dataset = tf.data.Dataset.from_tensor_slices((np.array(rows, np.int64), *starts))
    return _interleaved(dataset, row_dataset, len(rows), streams.folder)


def _row_positions(streams: _Streams, rows: range, batch_size: int, step: int, seed: int):
    """Returns each row's position after `step` steps: epoch, position in its order, segment, int64 [rows]."""
    epochs, segments = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    positions = np.array(rows, np.int64)
    left = np.full(len(rows), step, np.int64)
    searching = left > 0
    epoch = 0
    while searching.any():
        positions_of_epoch = tf.range(streams.pass_counts[epoch % streams.num_passes])
        order = streams.at(tf.constant(epoch, tf.int64), positions_of_epoch, seed)
        lengths = streams.locate(order)[2].numpy()
        lengths = np.pad(lengths, (0, -len(lengths) % batch_size)).reshape(-1, batch_size)
        ends = np.cumsum(lengths[:, rows.start : rows.stop], axis=0)  # [streams of a row, rows]
        found = searching & (left < ends[-1])
        column = np.flatnonzero(found)
        stream = (ends <= left)[:, column].sum(axis=0)
        begun = np.where(stream > 0, ends[stream - 1, column], 0)
        epochs[column] = epoch
        positions[column] = np.array(rows)[column] + stream * batch_size
        segments[column] = left[column] - begun
        searching &= ~found
        left -= ends[-1]
        epoch += 1
    return epochs, positions, segments


def _rows_once(streams: _Streams, rows: range, batch_size: int, start_step: int):
    """Interleaves the rows of a host: each reads its share of all streams, then filler."""
    total = int(streams.pass_counts.sum())
    lengths = _row_lengths(streams, batch_size)
    filler = tf.data.Dataset.from_tensors(
        (_filler_record(streams.spec), np.int64(0), np.int64(_NO_STREAM), np.int64(0), np.int64(0))
    )

    def row_dataset(row, length):
        numbers = tf.data.Dataset.range(row, total, batch_size)
        records = numbers.flat_map(lambda number: streams.read(number, np.int64(0), np.int64(0)))
        return records.concatenate(filler.repeat(lengths.max() - length)).skip(start_step)

    dataset = tf.data.Dataset.from_tensor_slices((np.array(rows, np.int64), lengths[rows.start : rows.stop]))
    return _interleaved(dataset, row_dataset, len(rows), streams.folder)


def _interleaved(dataset: tf.data.Dataset, row_dataset, rows: int, folder) -> tf.data.Dataset:
    """Takes a record of each row in turn, in the same order whether rows are read at once or not."""
    options = {}
    if _is_remote(folder):  # threads would cost local files more than they gain
        options = {"num_parallel_calls": min(_REQUESTS_AT_ONCE, rows), "deterministic": True}
    return dataset.interleave(row_dataset, cycle_length=rows, block_length=1, **options)


def _is_remote(folder) -> bool:
    return "://" in str(folder)


def _row_lengths(streams: _Streams, batch_size: int) -> np.ndarray:
    """Returns the records of each row of the batch when all streams are read once: int64 [batch_size]."""
    lengths = streams.locate(tf.range(streams.pass_counts.sum()))[2].numpy()
    return np.pad(lengths, (0, -len(lengths) % batch_size)).reshape(-1, batch_size).sum(axis=0)


def _filler_record(spec: RecordSpec) -> bytes:
    """Returns a serialized record without targets that starts a stream."""
    columns = {c.name: np.zeros((1, c.length) if c.length else 1, np.int64) for c in spec.columns}
    columns["input_ids"] += special_tokens.PAD_ID
    columns["target_positions"] -= 1
    columns["direction"] += 1
    columns["next_sentence"] -= 1
    columns["stream"] += _NO_STREAM
    return spec.encode(columns)[0].tobytes()


def _host_rows(batch_size: int, num_hosts: int, host: int) -> range:
    """Returns the global rows that a host reads."""
    if batch_size < 1 or num_hosts < 1 or batch_size % num_hosts:
        raise UserError(f"batch_size is {batch_size}, expected a positive multiple of the {num_hosts} hosts")
    if not 0 <= host < num_hosts:
        raise UserError(f"host is {host}, expected 0 to {num_hosts - 1}")
    count = batch_size // num_hosts
    return range(host * count, (host + 1) * count)


@tf.function(
    input_signature=[tf.TensorSpec([None], tf.int64)] + [tf.TensorSpec([], tf.int64) for _ in range(3)]
)
def shuffled(position, size, seed, epoch):
    """Returns what is at `position` in a pseudo-random order of 0 .. size - 1, without building the order.

    A generalised Feistel network on a grid of a x b >= size cells: each round shifts one coordinate by a hash
    of the other, which is invertible, so cells map one to one; results outside of the range are mapped again.
    (tf.random.experimental.index_shuffle is not a permutation for some sizes, 65537 among them.)
    """
    width = tf.cast(tf.math.ceil(tf.sqrt(tf.cast(size, tf.float64))), tf.uint64)
    size = tf.cast(size, tf.uint64)
    height = (size + width - 1) // width
    key = hashed(hashed(tf.cast(seed, tf.uint64)) ^ tf.cast(epoch, tf.uint64))

    def outside(cell, todo):
        return tf.reduce_any(todo)

    def once(cell, todo):
        row, column = cell // width, cell % width
        for number in range(_ROUNDS):
            row = (row + hashed((column ^ key) + tf.constant(2 * number, tf.uint64)) % height) % height
            column = (column + hashed((row ^ key) + tf.constant(2 * number + 1, tf.uint64)) % width) % width
        cell = tf.where(todo, row * width + column, cell)
        return cell, todo & (cell >= size)

    cell = tf.cast(position, tf.uint64)
    return tf.cast(tf.while_loop(outside, once, [cell, tf.ones_like(position, tf.bool)])[0], tf.int64)


def prefetched(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Prefetches a dataset, with tf.data's autotuning off.

    Autotuning is a thread that sleeps for ever longer, up to a minute. An iterator's end waits for it, and
    TensorFlow does not always wake it: a run then hangs at the end of an evaluation. Without it, AUTOTUNE
    parallel calls are one per core, at most 16.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)
