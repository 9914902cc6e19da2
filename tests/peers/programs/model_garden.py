"""Model Garden's XLNet."""

import os
import random

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy as np
import tensorflow as tf
import tf_keras
from official.nlp.data import create_xlnet_pretraining_data
from official.nlp.modeling.models.xlnet import XLNetClassifier
from official.nlp.modeling.networks.xlnet_base import XLNetBase
from official.nlp.tools.tokenization import FullSentencePieceTokenizer


def new_network():
    tf_keras.utils.set_random_seed(0)
    return XLNetBase(
        vocab_size=90, num_layers=2, hidden_size=16, num_attention_heads=2, head_size=8, inner_size=20,
        dropout_rate=0.0, attention_dropout_rate=0.0, attention_type="bi", bi_data=False,
        initializer=tf_keras.initializers.RandomNormal(stddev=0.4, seed=0), inner_activation="gelu",
    )  # fmt: skip


def batched(batches):
    """Returns the answers to each batch, of the network and of classifiers."""
    names = {"ids": "input_word_ids", "mask": "input_mask", "segments": "input_type_ids"}
    inputs = [{names[name]: tf.constant(value) for name, value in batch.items()} for batch in batches]
    network, answers = new_network(), {"vectors": []}
    for batch in inputs:
        mask = tf.cast(batch["input_mask"], tf.float32)
        vectors, _ = network(batch["input_word_ids"], batch["input_type_ids"], mask)
        answers["vectors"].append(vectors.numpy().tolist())
    for summary in ("last", "first"):  # it has no mean
        model = XLNetClassifier(new_network(), 3, summary_type=summary)
        name = f"classifier, `summary_type={summary}`"
        answers[name] = [model(batch, training=False).numpy().tolist() for batch in inputs]
    return answers


def read(path):
    """Reads a checkpoint of ours into Model Garden's network."""
    network = new_network()
    network(input_ids=tf.constant([[9, 4, 3]]), segment_ids=tf.constant([[0, 0, 2]]))
    try:
        tf.train.Checkpoint(encoder=network).read(path).assert_existing_objects_matched()
    except AssertionError:
        raise ValueError("it finds no values for its variables") from None


def write_records(folder, texts):
    """Builds records with Model Garden's builder and returns how many it wrote."""
    random.seed(0)
    np.random.seed(0)
    with open(f"{folder}/text.txt", "w") as file:
        file.write("\n".join(texts) + "\n")
    create_xlnet_pretraining_data.create_tfrecords(
        tokenizer=FullSentencePieceTokenizer(f"{folder}/spiece.model"), save_dir=folder,
        input_file_or_files=f"{folder}/text.txt", use_eod_token=True, do_lower_case=False, bi_data=False,
        per_host_batch_size=8, seq_length=32, reuse_length=16, num_cores_per_host=1, num_passes=1,
    )  # fmt: skip
    files = tf.io.gfile.glob(f"{folder}/*tfrecord-*")
    return sum(1 for _ in tf.data.TFRecordDataset(files))
