"""Small record sets with a pattern to learn and settings to train on them, for tests."""

import dataclasses

import numpy as np
import tensorflow as tf

from tests.helpers.records.synthetic import make_set
from xlnet_tf import files
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.shards import ShardWriter, read_shard
from xlnet_tf.records.spec import RecordSpec
from xlnet_tf.tasks.pretraining import task as pretraining

SPEC = RecordSpec(seq_len=16, reuse_len=8, num_predict=4, vocab_size=60)


def make_records(folder, segments=((20, 18), (9, 14)), stream_segments=3, seed=0) -> Manifest:
    """Writes a set; its records have 0 to 4 targets and end in SEP and CLS. `segments`: see `make_set`."""
    manifest = make_set(folder, [segments], stream_segments, SPEC)
    rng = np.random.default_rng(seed)
    shards = []
    for shard in manifest.shards:
        columns = dict(read_shard(manifest.path(shard), SPEC))
        columns |= _content(rng, shard.records)
        with ShardWriter(manifest.path(shard), SPEC) as writer:
            writer.write(columns)
        shards.append(dataclasses.replace(shard, sha256=writer.sha256))
    (manifest.folder / manifest.tokenizer["file"]).write_bytes(b"not read here")
    tokenizer = manifest.tokenizer | {"sha256": files.sha256(manifest.tokenizer_path)}
    manifest = dataclasses.replace(manifest, tokenizer=tokenizer, shards=tuple(shards))
    manifest.save()
    return manifest


def _content(rng, count: int) -> dict[str, np.ndarray]:
    length = SPEC.seq_len
    ids = rng.integers(9, 60, (count, 1)) + np.arange(length)  # each token is the one before plus 1
    ids = 9 + (ids - 9) % 51
    ids[:, -2:] = (4, 3)
    targets = np.full((count, SPEC.num_predict), -1)
    ranks = np.zeros((count, length), np.int64)
    for row in range(count):
        number = rng.integers(0, SPEC.num_predict + 1)
        targets[row, :number] = np.sort(rng.permutation(length - 2)[:number])
        ranks[row, targets[row, :number]] = 1 + rng.permutation(number)
    return {
        "input_ids": ids,
        "segment_ids": np.repeat([[0] * (length - 1) + [2]], count, 0),
        "permutation_rank": ranks,
        "target_positions": targets,
        "next_sentence": rng.integers(0, 2, count),
    }


def settings(folder) -> dict:
    """Settings of a very small model and 20 steps on FOLDER/records."""
    model = {"n_layer": 2, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32, "memory_len": 12}
    model |= {"dropout": 0.0, "attention_dropout": 0.0}
    return {
        "task": {
            "train_data": {"input_path": str(folder / "records"), "global_batch_size": 8},
            "validation_data": {"global_batch_size": 8},
            "model": model,
        },
        "trainer": {"train_steps": 20, "optimizer_config": {"learning_rate": 0.01}},
    }


def short_run(folder, **overrides):
    """Returns the settings of a run of 7 steps on FOLDER/records, evaluated on FOLDER/dev, that keeps all."""
    params = pretraining.pretraining_experiment()
    data = {"validation_data": {"input_path": str(folder / "dev")}}
    task = {**data, "model": {"n_layer": 1, "dropout": 0.1}}
    trainer = {"train_steps": 7, "steps_per_loop": 2, "validation_interval": 4, "checkpoint_interval": 2}
    for changes in (settings(folder), {"task": task, "trainer": {**trainer, "max_to_keep": 9}}, overrides):
        params.override(changes)
    return params


def tensors(checkpoint) -> dict[str, np.ndarray]:
    """Returns what a run's checkpoint holds of a training; not how often it was saved."""
    reader = tf.train.load_checkpoint(str(checkpoint))
    names = set(reader.get_variable_to_shape_map()) - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    return {name: reader.get_tensor(name) for name in names if "save_counter" not in name}
