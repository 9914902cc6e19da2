"""Small record sets whose records can be told apart, made without a corpus."""

import numpy as np
from etils import epath

from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.shards import ShardWriter
from xlnet_tf.records.spec import RecordSpec, stream_id
from xlnet_tf.text import special_tokens
from xlnet_tf.text.cleaning import CleaningConfig

SPEC = RecordSpec(seq_len=12, reuse_len=4, num_predict=3, vocab_size=70_000)


def make_set(folder, segments, stream_segments=4, spec=SPEC) -> Manifest:
    """Writes a set.

    Args:
        folder: where to.
        segments: [passes][slices] of (forward segments, backward segments).
        stream_segments: longest stream.
        spec: layout of the records.

    Returns:
        The saved manifest. input_ids[0] of a record is its number in the set, counted over all shards.
    """
    folder = epath.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shards, number = [], 0
    for pass_index, slices in enumerate(segments):
        for slice_index, counts in enumerate(slices):
            name = f"train-pass{pass_index:02d}-slice{slice_index:05d}.tfrecord"
            with ShardWriter(folder / name, spec) as writer:
                streams = 0
                for direction, count in zip((1, -1), counts):
                    stream, segment = np.divmod(np.arange(count), stream_segments)
                    stream += stream_id(pass_index, slice_index, streams)
                    streams += -(-count // stream_segments)
                    ids = np.arange(number, number + count)[:, None] + np.zeros(spec.seq_len, np.int64)
                    writer.write(
                        {
                            "input_ids": ids,
                            "segment_ids": np.zeros((count, spec.seq_len), np.int64),
                            "permutation_rank": np.tile(np.arange(spec.seq_len), (count, 1)),
                            "target_positions": np.tile(np.arange(spec.num_predict), (count, 1)),
                            "direction": np.full(count, direction),
                            "next_sentence": np.ones(count, np.int64),
                            "stream": stream,
                            "segment": segment,
                            "document_offset": 7 * segment,
                        }
                    )
                    number += count
            shards.append(
                Shard(name, pass_index, slice_index, *counts, writer.num_bytes, writer.sha256, "0" * 64, {})
            )
    manifest = Manifest(
        schema_version=1,
        kind="pretraining",
        split="train",
        corpus=[],
        tokenizer={
            "file": "spiece.model",
            "sha256": "ab",
            "vocab_size": spec.vocab_size,
            "special_ids": special_tokens.IDS,
        },
        cleaning=CleaningConfig().to_dict(),
        use_eod=True,
        sentence_split="",
        seq_len=spec.seq_len,
        reuse_len=spec.reuse_len,
        num_predict=spec.num_predict,
        perm_size=4,
        objective="permutation",
        functional_tokens="ordered",
        mask={"alpha": 6, "beta": 1, "span_mode": "words", "max_words": 5},
        directions=["forward", "backward"],
        num_passes=len(segments),
        stream_segments=stream_segments,
        slice_bytes=1000,
        seed=0,
        compat=False,
        record_bytes=spec.record_bytes,
        dtypes=spec.dtypes,
        shards=tuple(shards),
        statistics={"tokens_in": 0, "tokens_written": 0, "tokens_dropped": {}},
        folder=folder,
    )
    manifest.save()
    return manifest
