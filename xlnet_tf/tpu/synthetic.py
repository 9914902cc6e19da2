"""Synthetic data sets of given sizes, to trace a training step without real data."""

import numpy as np
from etils import epath

from xlnet_tf import files, task_registry
from xlnet_tf.records.examples import ExampleLayout, ExampleSet, ExampleShard, sequence_columns
from xlnet_tf.records.layout import Layout
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.shards import ShardWriter
from xlnet_tf.records.spans import default_num_predict
from xlnet_tf.records.spec import RecordSpec
from xlnet_tf.task_registry import Sizes
from xlnet_tf.text.cleaning import CleaningConfig

_SHARD = "shard-00000.tfrecord"


def pretraining_records(
    folder: str, *, rows: int, seq_len: int, num_predict: int | None, vocab_size: int
) -> None:
    """Writes a set of pretraining records, one in each of `rows` streams."""
    num_predict = default_num_predict(seq_len) if num_predict is None else num_predict
    spec = RecordSpec(seq_len, seq_len // 2, num_predict, vocab_size)
    writer = _write_zeros(folder, spec, rows)
    shard = Shard(
        _SHARD, 0, 0, writer.records, 0, writer.num_bytes, writer.sha256, text_sha256="", statistics={}
    )
    Manifest.create(
        spec,
        shards=(shard,),
        statistics={"tokens_in": 0, "tokens_written": 0, "tokens_dropped": {}},
        folder=epath.Path(folder),
    ).save()


def examples(
    folder: str,
    task: str,
    *,
    seq_len: int,
    vocab_size: int,
    num_labels: int,
    sequences: int,
    segment_len: int = 0,
) -> None:
    """Writes a set of one fine-tuning example.

    `num_labels` counts classes or tags, `sequences` options or candidates; segment_len 0 reads texts at once.
    """
    entry = task_registry.find(task)
    sequences = entry.sequences or sequences
    own, settings = entry.load("synthetic")(Sizes(seq_len, num_labels, sequences, segment_len))
    columns = (*sequence_columns(sequences * seq_len, vocab_size), *own)
    writer = _write_zeros(folder, ExampleLayout(columns), 1)
    ExampleSet(
        task=entry.examples or entry.name,
        split="train",
        seq_len=seq_len,
        sequences=sequences,
        columns=[[column.name, column.dtype, column.length] for column in columns],
        settings=settings,
        tokenizer={"sha256": "", "vocab_size": vocab_size},
        cleaning=CleaningConfig().to_dict(),
        shards=(ExampleShard(_SHARD, writer.records, writer.num_bytes, writer.sha256),),
        statistics={},
        skipped={},
        folder=epath.Path(folder),
    ).save()


def _write_zeros(folder: str, layout: Layout, records: int) -> ShardWriter:
    with ShardWriter(files.make_folder(folder) / _SHARD, layout) as writer:
        writer.write(
            {
                column.name: np.zeros((records, column.length) if column.length else records, column.dtype)
                for column in layout.columns
            }
        )
    return writer
