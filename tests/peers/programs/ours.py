"""This project, under the libraries of an environment."""

import pathlib

import numpy as np
import tf_keras

from tests.helpers.records.builders import CLASSES, build
from tests.helpers.serving.toys import built
from xlnet_tf import XLNetClassifier
from xlnet_tf.checkpoints import open_checkpoint, save_checkpoint
from xlnet_tf.serving.export import export, export_openvino
from xlnet_tf.tasks.classification.serving import ClassificationModule
from xlnet_tf.text.training import train_tokenizer

LABELS = ["bad", "fair", "good"]
NAMES = {"ids": "input_word_ids", "mask": "input_mask", "segments": "input_type_ids"}


def features(batch):
    return {NAMES[name]: np.array(value, np.int32) for name, value in batch.items()}


def new_model(tokenizer):
    return built(XLNetClassifier, tokenizer, 3, layers=2, labels=LABELS)


def write(folder, texts, openvino=False):
    """Writes a small model in all forms, and records."""
    tokenizer = train_tokenizer(texts, 90)
    model = new_model(tokenizer)
    model.save_pretrained(f"{folder}/saved", tokenizer)
    for name in ("hugging_face", "original"):
        save_checkpoint(open_checkpoint(f"{folder}/saved"), f"{folder}/{name}", name)
    model.save(f"{folder}/model.keras")
    model.save_weights(f"{folder}/model.weights.h5")
    module = ClassificationModule(model, tokenizer, seq_len=40, buckets=[24])
    export(module, f"{folder}/served", warmup_batches=(1,))
    if openvino:
        export_openvino(module, f"{folder}/openvino", "float32")
    build("classification", pathlib.Path(folder), f"{folder}/saved/spiece.model", train=CLASSES)


def logits(path, batch):
    return XLNetClassifier.from_pretrained(path)(features(batch)).numpy().tolist()


def loaded_by_keras(path, batch):
    return tf_keras.models.load_model(path)(features(batch)).numpy().tolist()


def loaded_weights(path, folder, batch):
    """Reads .weights.h5 into a model made anew."""
    model = XLNetClassifier.from_pretrained(folder)
    for weight in model.weights:
        weight.assign(0 * weight)
    model.load_weights(path)
    return model(features(batch)).numpy().tolist()
