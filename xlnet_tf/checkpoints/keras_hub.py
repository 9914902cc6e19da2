"""KerasHub's XLNetBackbone: the `.weights.h5` that `save_weights` writes, and the one in a `.keras` file.

One row alone gets the same vectors here and there. In a batch of several rows KerasHub (0.32) gives each row
others, because a reshape mixes the positions of the rows; so its weights were trained with mixed positions,
unless each batch had one row.

Source: keras_hub/src/models/xlnet, and Keras 3 for the paths in the file.
"""

import io
import re
from typing import Any

import numpy as np
from absl import logging
from etils import epath

from xlnet_tf.checkpoints.arrays import Arrays, Entry, float32
from xlnet_tf.checkpoints.checkpoint import Checkpoint
from xlnet_tf.checkpoints.names import QUERY_START
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums

ENDING = ".weights.h5"
BACKBONE = "XLNetBackbone"  # the class in its config.json

_EMBEDDING = "content_and_query_embedding/word_embed/vars/0"
_WEIGHTS = {_EMBEDDING: "word_embedding/embeddings", "xl_net_attention_mask_layer/vars/0": QUERY_START}
_LAYER = re.compile(r"xl_net_encoder(?:_(\d+))?/(.+)")
_LAYER_WEIGHTS = {
    "vars/0": "attention/content_bias",
    "vars/1": "attention/position_bias",
    "vars/2": "attention/segment_bias",
    "vars/3": "attention/segment_embedding",
    "relative_attention/query_dense/vars/0": "attention/query/kernel",
    "relative_attention/key_dense/vars/0": "attention/key/kernel",
    "relative_attention/value_dense/vars/0": "attention/value/kernel",
    "relative_attention/_encoding_dense/vars/0": "attention/position/kernel",
    "relative_attention/output_dense/vars/0": "attention/output/kernel",
    "layer_norm/vars/0": "attention_norm/gamma",
    "layer_norm/vars/1": "attention_norm/beta",
    "feedforward_intermediate_dense/vars/0": "feed_forward/inner/kernel",
    "feedforward_intermediate_dense/vars/1": "feed_forward/inner/bias",
    "feedforward_output_dense/vars/0": "feed_forward/outer/kernel",
    "feedforward_output_dense/vars/1": "feed_forward/outer/bias",
    "layer_norm_ff/vars/0": "feed_forward_norm/gamma",
    "layer_norm_ff/vars/1": "feed_forward_norm/beta",
}
_ACTIVATIONS = {"gelu": "gelu_erf", "relu": "relu"}  # Keras' gelu is the exact one


def is_backbone(path: str) -> bool:
    """Returns whether a file of weights is that of a model with one XLNetBackbone."""
    try:
        return path.endswith(ENDING) and sum(name.endswith(_EMBEDDING) for name in _datasets(path)) == 1
    except OSError:  # not HDF5
        return False


def read_keras_hub(path: str, config: XLNetConfig | None) -> Checkpoint:
    """Opens the weights of a backbone; those of layers around it keep their names."""
    checksums.check(path)
    datasets = _datasets(path)
    prefix = next(name for name in datasets if name.endswith(_EMBEDDING)).removesuffix(_EMBEDDING)
    entries = {}
    for name, dataset in datasets.items():
        ours = _name(name.removeprefix(prefix)) if name.startswith(prefix) else name

        shape = dataset.shape[-1:] if ours == QUERY_START else dataset.shape  # [1, 1, D] there

        def read(dataset=dataset, name=name, shape=shape) -> np.ndarray:
            return float32(dataset[()].reshape(shape), name, path)

        entries[ours] = Entry(tuple(shape), read)
    logging.warning(
        "%s is of KerasHub's XLNetBackbone, which mixes up the positions of the rows of a batch. The answers "
        "here are those that it gives to single rows. If it was trained in batches of several rows, they are "
        "worse than in training: check them on labelled texts, or train it further",
        path,
    )
    return Checkpoint(path, "keras_hub", Arrays(entries), config or _architecture(entries))


def read_config(values: dict[str, Any], path: str) -> XLNetConfig:
    """Turns the config.json of a backbone into an architecture."""
    fields = values.get("config")
    try:
        activation = _ACTIVATIONS[fields["activation"]]
        heads, width = fields["num_heads"], fields["hidden_dim"]
        if (epsilon := fields.get("layer_norm_epsilon", 1e-12)) != 1e-12:
            raise UserError(f"{path}: layer_norm_epsilon is {epsilon}; XLNet's is 1e-12")
        return XLNetConfig(
            n_token=fields["vocabulary_size"],
            d_model=width,
            n_layer=fields["num_layers"],
            n_head=heads,
            d_head=width // heads,
            d_inner=fields["intermediate_dim"],
            ff_activation=activation,
            untie_r=True,
        )
    except (KeyError, TypeError):
        raise UserError(
            f"{path}: expected the config of KerasHub's {BACKBONE}, with the activation "
            f"{' or '.join(_ACTIVATIONS)}"
        ) from None


def _architecture(entries: dict[str, Entry]) -> XLNetConfig:
    """Returns the architecture that the shapes show; the activation is KerasHub's default."""
    n_token, d_model = entries["word_embedding/embeddings"].shape
    _, n_head, d_head = entries["layer_0/attention/query/kernel"].shape
    return XLNetConfig(
        n_token=n_token,
        d_model=d_model,
        n_layer=sum(name.endswith("/query/kernel") for name in entries),
        n_head=n_head,
        d_head=d_head,
        d_inner=entries["layer_0/feed_forward/inner/bias"].shape[0],
        ff_activation="gelu_erf",
        untie_r=True,
    )


def _name(path: str) -> str:
    """Returns our name of a weight; one that is not the backbone's keeps its path."""
    if match := _LAYER.fullmatch(path):
        known = _LAYER_WEIGHTS.get(match[2])
        return f"layer_{int(match[1] or 0)}/{known}" if known else path
    return _WEIGHTS.get(path, path)


def _datasets(path: str) -> dict[str, Any]:
    """Returns the arrays of an HDF5 file by their paths; the file stays open as long as they are used."""
    import h5py  # comes with TensorFlow

    file = h5py.File(io.BytesIO(epath.Path(path).read_bytes()) if "://" in path else path, "r")
    found: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item

    file.visititems(visit)
    return found
