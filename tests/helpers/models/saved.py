"""Small models with three labels, and their folders as runs write them."""

import json

import numpy as np
import tf_keras
import yaml

from xlnet_tf.checkpoints import save_model
from xlnet_tf.config import XLNetConfig
from xlnet_tf.models.encoder import XLNetEncoder

LABELS = ["bad", "fair", "good"]
CONFIG = XLNetConfig(n_token=60, n_layer=1, d_model=32, n_head=2, d_head=16, d_inner=16)


def invent_features(rows=32, length=10):
    """Rows whose label is told by half of their tokens; the rest is noise, and padding on the left."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, rows)
    ids = rng.integers(12, 60, [rows, length])
    ids[:, 4:9], ids[:, -1], ids[::2, :3] = 9 + labels[:, None], 3, 5
    features = {
        "input_word_ids": ids.astype(np.int32),
        "input_mask": (ids != 5).astype(np.uint8),
        "input_type_ids": np.zeros([rows, length], np.uint8),
    }
    return features, labels


def fine_tuned(model, folder, task=None, settings=None):
    """Writes a model as a run does."""
    folder.mkdir(exist_ok=True)
    save_model(model, str(folder))
    if task:
        manifest = {"kind": "examples", "task": task, "settings": {"labels": list(model.labels)}}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    if settings:
        (folder / "params.yaml").write_text(yaml.safe_dump({"task": {"model": settings}}))
    return folder


def new_model(model_class, seed=0, **options):
    tf_keras.utils.set_random_seed(seed)
    model = model_class(XLNetEncoder(CONFIG), 3, labels=LABELS, **options)
    model.build()
    return model


def predict(model):
    return model(invent_features()[0]).numpy()
