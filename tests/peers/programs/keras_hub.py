"""KerasHub's XLNetBackbone."""

import importlib
import os

import numpy as np

os.environ["KERAS_BACKEND"] = "jax"
keras = importlib.import_module("keras")
keras_hub = importlib.import_module("keras_hub")
SIZES = {"vocabulary_size": 90, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 20}


def new_backbone():
    backbone = keras_hub.models.XLNetBackbone(**SIZES)
    rng = np.random.RandomState(0)
    for weight in backbone.weights:
        weight.assign(0.4 * rng.randn(*weight.shape) + ("gamma" in weight.path))
    return backbone


def answer(backbone, batch):
    ids, mask, segments = (np.array(batch[name]) for name in ("ids", "mask", "segments"))
    return np.asarray(backbone({"token_ids": ids, "padding_mask": mask, "segment_ids": segments})).tolist()


def batched(batches):
    backbone = new_backbone()
    return {"vectors": [answer(backbone, batch) for batch in batches]}


def write(folder, batches):
    """Saves a backbone in all of its forms and returns its answers."""
    backbone = new_backbone()
    os.makedirs(f"{folder}/preset")
    backbone.save(f"{folder}/backbone.keras")
    backbone.save_weights(f"{folder}/backbone.weights.h5")
    backbone.save_to_preset(f"{folder}/preset")
    return [answer(backbone, batch) for batch in batches]


def load_weights(path):
    new_backbone().load_weights(path)


def load_model(path):
    keras.models.load_model(path)


def from_preset(path):
    keras_hub.models.XLNetBackbone.from_preset(path)
