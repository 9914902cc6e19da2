"""Data sets of given sizes and no content: what a training step reads, without having data."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath

from xlnet_tf import files
from xlnet_tf.records.examples import ExampleLayout, ExampleSet, sequence_columns
from xlnet_tf.records.layout import Column, Layout
from xlnet_tf.records.manifest import KIND, SCHEMA_VERSION, Manifest, Shard
from xlnet_tf.records.shards import ShardWriter
from xlnet_tf.records.spec import RecordSpec
from xlnet_tf.text import special_tokens
from xlnet_tf.text.cleaning import CleaningConfig

_SHARD = "shard-00000.tfrecord"
_TARGETS = {"alpha": 6, "beta": 1, "span_mode": "words", "max_words": 5}  # the builder's defaults


def pretraining_records(
    folder: str, *, rows: int, seq_len: int, num_predict: int | None, vocab_size: int
) -> None:
    """Writes a set of pretraining records.

    Args:
        rows: streams, each of one record; a batch has at most as many rows.
        seq_len: T, tokens of a segment.
        num_predict: P, targets of a segment; None: as many as the builder takes by default.
        vocab_size: V.
    """
    reuse_len = seq_len // 2
    if num_predict is None:
        num_predict = round(seq_len * _TARGETS["beta"] / _TARGETS["alpha"])
    spec = RecordSpec(seq_len, reuse_len, num_predict, vocab_size)
    writer = _write_zeros(folder, spec, rows)
    shard = Shard(
        _SHARD, 0, 0, writer.records, 0, writer.num_bytes, writer.sha256, text_sha256="", statistics={}
    )
    Manifest(
        schema_version=SCHEMA_VERSION,
        kind=KIND,
        split="train",
        corpus=[],
        tokenizer={
            "file": "spiece.model",
            "sha256": "",
            "vocab_size": vocab_size,
            "special_ids": special_tokens.IDS,
        },
        cleaning=CleaningConfig().to_dict(),
        use_eod=True,
        sentence_split="",
        seq_len=seq_len,
        reuse_len=reuse_len,
        num_predict=num_predict,
        perm_size=reuse_len,
        objective="permutation",
        functional_tokens="ordered",
        mask=_TARGETS,
        directions=["forward"],
        num_passes=1,
        stream_segments=1,
        slice_bytes=1,
        seed=0,
        compat=False,
        record_bytes=spec.record_bytes,
        dtypes=spec.dtypes,
        shards=(shard,),
        statistics={"tokens_in": 0, "tokens_written": 0, "tokens_dropped": {}},
        folder=epath.Path(folder),
    ).save()


def examples(
    folder: str, task: str, *, seq_len: int, vocab_size: int, num_labels: int, sequences: int
) -> None:
    """Writes a set of one fine-tuning example.

    Args:
        task: one of tasks.registry.FINETUNING.
        seq_len: T, tokens of a sequence.
        vocab_size: V.
        num_labels: classes of a text, or tags of a word.
        sequences: options of a question, or candidates of a query.
    """
    if task not in ("choice", "ranking"):
        sequences = 1
    own, settings = _task_columns(task, seq_len, num_labels, sequences)
    columns = (*sequence_columns(sequences * seq_len, vocab_size), *own)
    writer = _write_zeros(folder, ExampleLayout(columns), 1)
    ExampleSet(
        task=task,
        split="train",
        seq_len=seq_len,
        sequences=sequences,
        columns=[[column.name, column.dtype, column.length] for column in columns],
        settings=dict(settings),
        tokenizer={"sha256": "", "vocab_size": vocab_size},
        cleaning=CleaningConfig().to_dict(),
        shards=[
            {"file": _SHARD, "records": 1, "bytes": writer.num_bytes, "sha256": writer.sha256},
        ],
        statistics={},
        skipped={},
        folder=epath.Path(folder),
    ).save()


def _task_columns(
    task: str, seq_len: int, num_labels: int, sequences: int
) -> tuple[list[Column], Mapping[str, Any]]:
    """Returns the columns that a task's builder adds, and the settings that the task reads."""
    labels = [str(number) for number in range(num_labels)]
    length = seq_len // 2  # of a part: of no weight for a step
    label = Column("label", "int32", None)
    if task == "classification":
        return [label], {
            "name": "",
            "kind": "classification",
            "labels": labels,
            "metrics": ["accuracy"],
            "submissions": {},
            "truncation": "end",
            "pair": False,
            "labelled": True,
        }
    if task == "squad":
        places = [Column(name, "int32", None) for name in ("answer_first", "answer_last")]
        known = [Column("answer_mask", "uint8", seq_len), Column("is_impossible", "uint8", None)]
        return known + places, {
            "unanswerable": True,
            "max_question_len": length,
            "stride": length,
            "answered": True,
        }
    if task == "choice":
        return [label], {"num_choices": sequences, "max_qa_len": length, "answered": True}
    if task == "tagging":
        return [Column("tags", "int16", seq_len)], {"labels": labels, "tagged": True, "stride": length}
    settings = {"relevant_from": 1, "max_query_len": length, "judged": True}
    return [Column("relevance", "int32", sequences)], settings


def _write_zeros(folder: str, layout: Layout, records: int) -> ShardWriter:
    with ShardWriter(files.make_folder(folder) / _SHARD, layout) as writer:
        writer.write(
            {
                column.name: np.zeros((records, column.length) if column.length else records, column.dtype)
                for column in layout.columns
            }
        )
    return writer
