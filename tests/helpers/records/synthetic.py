"""Small record sets whose records can be distinguished, made without a corpus."""

import dataclasses

import numpy as np
from etils import epath

from xlnet_tf.records import ranks, segments, spans
from xlnet_tf.records.examples import ExampleWriter
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.shards import ShardWriter, read_shard
from xlnet_tf.records.spec import RecordSpec, stream_id
from xlnet_tf.text.tokenizer import XLNetTokenizer

SPEC = RecordSpec(seq_len=12, reuse_len=4, num_predict=3, vocab_size=70_000)


def make_set(folder, segments, stream_segments=4, spec=SPEC) -> Manifest:
    """Writes a set: [passes][slices] of (forward segments, backward segments), in streams of at most some.

    input_ids[0] of a record is its number in the set, counted over all shards.
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
    manifest = Manifest.create(
        spec,
        "ab",
        bidirectional=True,
        perm_size=4,
        num_passes=len(segments),
        stream_segments=stream_segments,
        slice_bytes=1000,
        shards=tuple(shards),
        statistics={"tokens_in": 0, "tokens_written": 0, "tokens_dropped": {}},
        folder=folder,
    )
    manifest.save()
    return manifest


def example_writer(folder, tokenizer, **options) -> ExampleWriter:
    """Returns the writer of a set of examples, by default without columns of its own."""
    given = {"task": "toy", "split": "train", "seq_len": 8, "columns": [], "settings": {}}
    return ExampleWriter(folder, tokenizer=tokenizer, **given | options)


def make_text_set(
    folder,
    tokenizer: XLNetTokenizer,
    counts,
    stream_segments=4,
    seq_len=48,
    reuse_len=16,
    num_predict=8,
    **changes,
) -> Manifest:
    """Writes a set of random tokens in which everything else is as the builder makes it; see `make_set`.

    `changes` are fields of the manifest; perm_size 4 among those that are not given.
    """
    spec = RecordSpec(seq_len, reuse_len, num_predict, tokenizer.vocab_size)
    manifest = dataclasses.replace(make_set(folder, counts, stream_segments, spec), **changes)
    rng = np.random.default_rng(0)
    shards = []
    for shard in manifest.shards:
        columns = read_shard(manifest.path(shard), spec)
        parts = [
            _text(rng, tokenizer, manifest, count, direction)
            for count, direction in ((shard.forward_segments, 1), (shard.backward_segments, -1))
        ]
        columns |= {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        with ShardWriter(manifest.path(shard), spec) as writer:
            writer.write(columns)
        shards.append(dataclasses.replace(shard, sha256=writer.sha256))
    (manifest.folder / "spiece.model").write_bytes(tokenizer.model_proto)
    tokenizer_field = manifest.tokenizer | {"sha256": tokenizer.fingerprint}
    manifest = dataclasses.replace(manifest, tokenizer=tokenizer_field, shards=tuple(shards))
    manifest.save()
    return manifest


def _text(rng, tokenizer, manifest, count, direction):
    """Returns columns of `count` segments of random tokens, read in a direction."""
    spec, reuse_len = manifest.spec, manifest.reuse_len
    length = (count - 1) * reuse_len + spec.seq_len - segments.NUM_SPECIAL if count else 0
    tokens = rng.integers(9, spec.vocab_size, length)
    starts, ends = tokenizer.word_starts[tokens], np.append(np.arange(7, length, 7), length)
    if direction < 0 and count:
        tokens, starts = tokens[::-1], segments.mirror_word_start(starts)
    cut = segments.sample_segments(rng, tokens, ends, spec.seq_len, reuse_len, starts)
    is_target = spans.sample_segment_targets(rng, cut, reuse_len, spec.num_predict)
    rank = ranks.sample_ranks(
        rng,
        is_target,
        cut.special,
        objective=manifest.objective,
        reuse_len=reuse_len,
        perm_size=manifest.perm_size,
        functional_tokens=manifest.functional_tokens,
    )
    return {
        "input_ids": cut.ids,
        "segment_ids": cut.segment_ids,
        "permutation_rank": rank,
        "target_positions": np.nonzero(is_target)[1].reshape(count, spec.num_predict),
        "next_sentence": cut.next_sentence,
        "document_offset": np.arange(count) % manifest.stream_segments * reuse_len,
    }
