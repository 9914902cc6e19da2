"""Runs the original's numeric fixtures through our models: its weights, and its time-major layout."""

import json
import pathlib

import numpy as np
import tensorflow as tf

from xlnet_tf.config import XLNetConfig
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


def load_case(name: str):
    """Returns the arrays and the settings of a fixture."""
    arrays = np.load(GOLDEN / f"{name}.npz")
    return arrays, json.loads(str(arrays["meta_json"]))


def variable_map(model) -> dict[str, list[tuple[str, object]]]:
    """Names each variable of a model as the original does; stacked variables have an index."""
    encoder = getattr(model, "encoder", model)
    names = {
        "word_embedding/lookup_table": encoder.word_embedding,
        "mask_emb/mask_emb": encoder.mask_embedding,
    }
    biases = {"r_w_bias": "content_bias", "r_r_bias": "position_bias", "r_s_bias": "segment_bias"}
    for layer, block in enumerate(encoder.blocks):
        scope = f"layer_{layer}"
        attention = block.attention
        for theirs, ours in {"q": "query", "k": "key", "v": "value", "r": "position", "o": "output"}.items():
            names[f"{scope}/rel_attn/{theirs}/kernel"] = getattr(attention, f"{ours}_kernel")
        names[f"seg_embed:{layer}"] = attention.segment_embedding
        for theirs, ours in biases.items():
            key = f"{theirs}:{layer}" if encoder.tied_biases is None else theirs
            names[key] = getattr(attention.biases, ours)
        for theirs, norm in {"rel_attn": block.attention_norm, "ff": block.feed_forward_norm}.items():
            names[f"{scope}/{theirs}/LayerNorm/gamma"] = norm.gamma
            names[f"{scope}/{theirs}/LayerNorm/beta"] = norm.beta
        for number, dense in enumerate((block.feed_forward.inner, block.feed_forward.outer), start=1):
            names[f"{scope}/ff/layer_{number}/kernel"] = dense.kernel
            names[f"{scope}/ff/layer_{number}/bias"] = dense.bias
    names = {f"model/transformer/{name}": variable for name, variable in names.items()}
    if hasattr(model, "lm_bias"):
        names["model/lm_loss/bias"] = model.lm_bias
    return names


def their_array(arrays, name: str) -> np.ndarray:
    """Reads the array of a variable_map name; `:i` is the i-th of a stack."""
    name, _, index = name.partition(":")
    array = arrays(name)
    return array[int(index)] if index else array


def load_weights(model, checkpoint: str = "tiny_ckpt"):
    """Fills a model with the weights of the original's checkpoint."""
    reader = tf.train.load_checkpoint(str(GOLDEN / checkpoint / "xlnet_model.ckpt"))
    for name, variable in variable_map(model).items():
        variable.assign(np.reshape(their_array(reader.get_tensor, name), variable.shape))
    return model


def encoder(checkpoint: str = "tiny_ckpt", **options) -> XLNetEncoder:
    """An encoder with the original's weights, its behaviour where ours differs, and no dropout."""
    config = XLNetConfig.from_json_file(GOLDEN / checkpoint / "xlnet_config.json")
    model = XLNetEncoder(config, dropout=0.0, attention_dropout=0.0, uniform_when_blind=True, **options)
    model.build()
    return load_weights(model, checkpoint)


def pretrainer(**options) -> XLNetPretrainer:
    """As `encoder`, with the language-model head."""
    model = XLNetPretrainer(encoder(**options))
    model.build()
    return load_weights(model)


def directions(batch_size: int, bi_data: bool) -> dict[str, np.ndarray]:
    """The original reads the second half of a batch backward when bi_data is set."""
    if not bi_data:
        return {}
    return {"direction": np.repeat(np.int8([1, -1]), batch_size // 2)}


def encoder_features(case) -> dict[str, np.ndarray]:
    """Turns an encoder fixture's inputs into ours."""
    features = {"input_word_ids": case["inp_k"].T}
    if "seg_id" in case.files:
        features["input_type_ids"] = case["seg_id"].T
    if "input_mask" in case.files:
        features["input_mask"] = 1 - case["input_mask"].T
    if "mems" in case.files:
        features["memory"] = case["mems"].transpose(0, 2, 1, 3)
    return features


def pretraining_features(case, settings) -> dict[str, np.ndarray]:
    """Turns a pretraining fixture's inputs into ours."""
    features = {
        "input_word_ids": case["bf_input_k"],
        "input_type_ids": case["bf_seg_id"],
        "permutation_mask": 1 - case["bf_perm_mask"],
        **directions(len(case["bf_input_k"]), settings["flags"]["bi_data"]),
    }
    if "bf_target_mapping" in case.files:
        mapping = case["bf_target_mapping"]
        features["target_positions"] = np.where(mapping.any(-1), mapping.argmax(-1), -1).astype(np.int32)
    else:
        features["target_mask"] = case["bf_input_q"]
    if "mems" in case.files:
        features["memory"] = case["mems"].transpose(0, 2, 1, 3)
    return features
