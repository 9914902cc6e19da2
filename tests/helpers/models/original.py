"""Runs the original's numeric fixtures through our models: its weights, and its time-major layout."""

import json
import pathlib

import numpy as np
import tensorflow as tf

from xlnet_tf.checkpoints import load_into, names
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.config import XLNetConfig
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden"


def load_case(name: str):
    """Returns the arrays and the settings of a fixture."""
    arrays = np.load(GOLDEN / f"{name}.npz")
    return arrays, json.loads(str(arrays["meta_json"]))


def variables(model) -> dict[str, tf.Variable]:
    """Returns a model's variables by their canonical names."""
    return {names.canonical(variable.name): variable for variable in model.variables}


def their_arrays(arrays, prefix: str = "", suffix: str = "") -> Arrays:
    """Returns a fixture's arrays of the original's variables by our names; `prefix` and `suffix` surround
    the original's there, for example "grad:".
    """
    theirs = {
        key.removeprefix(prefix).removesuffix(suffix): arrays[key]
        for key in arrays.files
        if key.startswith(prefix) and key.endswith(suffix)
    }
    return names.to_canonical(Arrays.of(theirs), names.ORIGINAL)


def load_weights(model, checkpoint: str = "tiny_ckpt"):
    """Fills a model with the weights of the original's checkpoint."""
    load_into(model, str(GOLDEN / checkpoint))
    return model


def save(prefix: str, arrays: dict[str, np.ndarray]):
    """Writes a checkpoint as TensorFlow 1 does: names and values, and no graph of objects."""
    tensors = list(map(tf.constant, arrays.values()))
    slices = [""] * len(tensors)
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=[*arrays], shape_and_slices=slices, tensors=tensors)


def write_fine_tuned(folder: pathlib.Path, dropped=("model/transformer/mask_emb/mask_emb",)) -> pathlib.Path:
    """Writes tiny_ckpt_heads as the original's fine-tuning would have: without some of its variables."""
    reader = tf.train.load_checkpoint(str(GOLDEN / "tiny_ckpt_heads" / "xlnet_model.ckpt"))
    kept = [name for name in reader.get_variable_to_shape_map() if name not in dropped]
    folder.mkdir()
    save(str(folder / "xlnet_model.ckpt"), {name: reader.get_tensor(name) for name in kept})
    config = (GOLDEN / "tiny_ckpt_heads" / "xlnet_config.json").read_text()
    (folder / "xlnet_config.json").write_text(config)
    return folder


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


def head(kind: type, *args, **options):
    """A model of a head's class with the weights of the original's heads."""
    model = kind(encoder("tiny_ckpt_heads"), *args, **options)
    model.build()
    return load_weights(model, "tiny_ckpt_heads")


def head_features(case) -> dict[str, np.ndarray]:
    """Turns the inputs of a fixture of a head into ours."""
    features = {
        "input_word_ids": case["input_ids"],
        "input_type_ids": case["segment_ids"],
        "input_mask": 1 - case["input_mask"],
    }
    if "p_mask" in case.files:
        features["answer_mask"] = 1 - case["p_mask"]
    if "start_positions" in case.files:
        features["start_position"] = case["start_positions"]
        features["end_position"] = case["end_positions"]
        features["is_impossible"] = case["is_impossible"]
    return features
