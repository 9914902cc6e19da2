"""Small sets as the original's builder writes them, and what conversions of them are asked for."""

import json
import random

import numpy as np
import tensorflow as tf

from tests.helpers.records import original_records
from tfrecord_builders.conversion.options import ConversionOptions
from xlnet_tf.records.shards import read_shard

FEATURES = ("input", "target", "seg_id", "is_masked", "label")
SEQ_LEN, REUSE_LEN, ROWS = 32, 16, 8


def write_file(path, records):
    """Writes {feature: [N, ...]} as TFRecords of tf.train.Example."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(len(records["input"])):
            feature = {
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=values[number]))
                for name, values in records.items()
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def read_file(path):
    """Returns {feature: int [N, ...]} of the original's records."""
    examples = [
        tf.train.Example.FromString(record).features.feature
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    ]
    return {name: np.array([example[name].int64_list.value for example in examples]) for name in FEATURES}


def make_original(folder, tokenizer, bidirectional=True, num_cores=2, num_predict=6, seed=0, task=0):
    """Makes what the original's data_utils.py would; returns its records, {feature: [N, ...]}."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(9, tokenizer.vocab_size, 1900).astype(np.int32)
    tokens[[300, 700, 701, 1500]] = 7  # <eod>
    tokens[[40, 400, 900]] = 0  # <unk>
    flags = np.cumsum(np.isin(np.arange(1900) % 11, (0, 4))) % 2 == 0
    layout = (ROWS, num_cores, bidirectional)
    batches = original_records.batches(
        random.Random(seed),
        np.random.RandomState(seed),
        original_records.batch_rows(tokens, *layout),
        original_records.batch_rows(flags, *layout),
        SEQ_LEN,
        REUSE_LEN,
        num_predict,
        piece_starts=tokenizer.original_word_starts,
        num_cores=num_cores,
        bidirectional=bidirectional,
    )
    batches = list(batches)
    records = {name: np.concatenate([batch[name] for batch in batches]) for name in FEATURES}
    (folder / "tfrecords").mkdir(parents=True, exist_ok=True)
    name = (
        f"train-{task}-0.bsz-{ROWS}.seqlen-{SEQ_LEN}.reuse-{REUSE_LEN}.{'bi' if bidirectional else 'uni'}"
        f".alpha-6.beta-1.{'' if num_predict is None else f'fnp-{num_predict}.'}"
    )
    write_file(folder / "tfrecords" / f"{name}tfrecords", records)
    info = {"filenames": [f"elsewhere/tfrecords/{name}tfrecords"], "num_batch": len(batches)}
    (folder / "tfrecords" / f"record_info-{name}json").write_text(json.dumps(info))
    corpus = {"bsz_per_host": ROWS, "seq_len": SEQ_LEN, "num_core_per_host": num_cores}
    (folder / "corpus_info.json").write_text(json.dumps(corpus))
    (folder / "spiece.model").write_bytes(tokenizer.model_proto)
    return records


def options(folder, output="ours", source_format="original", **changes):
    return ConversionOptions(
        input=[str(folder)],
        source_format=source_format,
        tokenizer=str(folder / "spiece.model"),
        output_dir=str(folder / output),
        **changes,
    )


def columns_of(manifest):
    """Returns the columns of each shard."""
    return [read_shard(manifest.path(shard), manifest.spec) for shard in manifest.shards]
