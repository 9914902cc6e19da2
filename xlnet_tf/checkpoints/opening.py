"""Opens checkpoints of every format."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from etils import epath

from xlnet_tf import files, hub, model_folders
from xlnet_tf.checkpoints import hugging_face, hugging_face_config, keras_hub, tensorflow_files
from xlnet_tf.checkpoints.checkpoint import CONFIG_FILE, OUR_FILE, Checkpoint
from xlnet_tf.checkpoints.model_card import ModelCard
from xlnet_tf.checkpoints.of_runs import kept, runs_below
from xlnet_tf.checkpoints.safetensors_file import read_safetensors
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums
from xlnet_tf.hub.keras_file import KERAS_WEIGHTS
from xlnet_tf.hub.locating import HUGGING_FACE_WEIGHTS


def open_checkpoint(path: str | os.PathLike, config_file: str | None = None) -> Checkpoint:
    """Opens a checkpoint of any format; weights are read on demand.

    Args:
        path: a folder (of a run, of the original's files, of Hugging Face's, or of weights that
            `save_checkpoint` wrote), the prefix of a TensorFlow checkpoint, a file of weights, or the name of
            a model of the Hugging Face hub (see hub.locate). A run stands for the weights that did best on
            dev, where they were kept, else for the newest checkpoint; RUN/ckpt-STEP is a certain one.
        config_file: its xlnet_config.json or config.json, if that does not lie next to the weights.

    Example:
        >>> checkpoint = open_checkpoint("xlnet_cased_L-12_H-768_A-12")
        >>> checkpoint.config.n_layer, checkpoint.arrays["lm_bias"].shape
        (12, (32000,))
    """
    located = hub.locate(path)
    weights = _find_weights(located.folder.removesuffix(".index"))
    config, values = _read_config([config_file] if config_file else _configs_beside(weights))
    external = {} if config_file or not hugging_face_config.is_config(values) else values
    source = weights if located.source == located.folder else located.source
    return dataclasses.replace(_open(weights, config, values), config_fields=external, source=source)


def read_architecture(path: str | os.PathLike) -> XLNetConfig:
    """Reads the architecture of a model, by its folder, name or config file, without its weights."""
    folder = hub.locate(path, tokenizer_only=True).folder
    configs = _configs_beside(f"{folder}/") if tf.io.gfile.isdir(folder) else [folder]
    config, _ = _read_config(configs)
    if config is None:
        raise UserError(f"{folder} has neither {CONFIG_FILE} nor {hugging_face_config.CONFIG_FILE}")
    return config


def _open(weights: str, config: XLNetConfig | None, values: dict[str, Any]) -> Checkpoint:
    if tensorflow_files.is_tensorflow(weights):
        return tensorflow_files.read_tensorflow(weights, config)
    if weights.endswith(".safetensors"):
        arrays = read_safetensors(weights).checked([weights])
        if "word_embedding/embeddings" in arrays:
            return Checkpoint(weights, "ours", arrays, config)
    if weights.endswith(keras_hub.ENDING):
        return keras_hub.read_keras_hub(weights, config)
    return hugging_face.read_hugging_face(weights, config, values)


def _find_weights(path: str) -> str:
    """Returns the file of weights, or the prefix of a TensorFlow checkpoint, that a path stands for."""
    if tensorflow_files.is_tensorflow(path):
        return path
    if not tf.io.gfile.exists(path):
        raise hub.not_there(path)
    if not tf.io.gfile.isdir(path):
        if path.endswith((".safetensors", ".bin", ".index.json")) or keras_hub.is_backbone(path):
            return path
        raise UserError(
            f"{path} is {_of_keras([path]) or 'not a checkpoint'}: {hub.EXPECTED}, or such a file."
        )
    folder = path.rstrip("/")
    if of_run := kept(folder):
        return f"{of_run[-1]}/{OUR_FILE}" if tf.io.gfile.isdir(of_run[-1]) else of_run[-1]
    for file in (OUR_FILE, *HUGGING_FACE_WEIGHTS):
        if tf.io.gfile.exists(f"{folder}/{file}"):
            return f"{folder}/{file}"
    if tf.io.gfile.exists(backbone := f"{folder}/{KERAS_WEIGHTS}") and keras_hub.is_backbone(backbone):
        return backbone
    original = f"{folder}/{tensorflow_files.ORIGINAL_FILE}"
    prefix = original if tensorflow_files.is_tensorflow(original) else _noted(folder)
    if not prefix:
        if runs := runs_below(folder):
            raise UserError(runs)
        files = sorted(tf.io.gfile.listdir(folder))
        version = model_folders.exported_version(folder) or model_folders.openvino_version(folder)
        exported = [f"{version}/{model_folders.model_file(version)}"] if version else []
        content = _of_keras([f"{folder}/{name}" for name in files] + exported)
        content = content or ", ".join(files[:10]) or "nothing"
        below = (f"{folder}/{name.rstrip('/')}" for name in files)
        exports = [path for path in below if model_folders.newest_version(path)] if not version else []
        tip = f" Its folder {exports[0]} is an export: name that." if exports else ""
        raise UserError(f"{folder} holds no checkpoint (but {content}): {hub.EXPECTED}.{tip}")
    return prefix


def _of_keras(files: Sequence[str]) -> str:
    """Returns advice about files that Keras or TensorFlow saved; "" if there are none."""
    if keras := [file for file in files if file.endswith((".keras", ".h5", ".hdf5", "keras_metadata.pb"))]:
        how = "tf_keras.models.load_model"
        if keras[0].endswith(".weights.h5"):
            how = "the model's load_weights"
        return (
            f"a file of Keras ({os.path.basename(keras[0])}), which only Python code can load: load it "
            f"with {how}, write it with xlnet_tf.checkpoints.save_model(model, FOLDER), and give FOLDER"
        )
    if exported := [file for file in files if os.path.basename(file) in model_folders.MODEL_FILES]:
        what = {
            model_folders.SAVED_MODEL: "a SavedModel, which",
            model_folders.OPENVINO_MODEL: "a model for OpenVINO, which xlnet_tf.from_pretrained,",
        }[os.path.basename(exported[0])]
        origin = ModelCard.read(os.path.dirname(exported[0])).origin.get("exported_from")
        return (
            f"{what} predict and serve can ask, but whose weights cannot be read back: give what "
            f"it was exported from{f', {origin}' if origin else ''}"
        )
    return ""


def _noted(folder: str) -> str | None:
    try:
        return tf.train.latest_checkpoint(folder)
    except ValueError:  # the note is damaged
        return None


def _configs_beside(weights: str) -> list[str]:
    """Returns the configs in the folder of the weights, the one of the same format first."""
    folder, _, file = weights.rpartition("/")
    order = [CONFIG_FILE, hugging_face_config.CONFIG_FILE]
    if file in HUGGING_FACE_WEIGHTS:
        order.reverse()
    return [path for name in order if tf.io.gfile.exists(path := f"{folder or '.'}/{name}")]


def _read_config(paths: Sequence[str]) -> tuple[XLNetConfig | None, dict[str, Any]]:
    """Reads the first config of a list: the architecture, and all fields of the file."""
    if not paths:
        return None, {}
    content = epath.Path(paths[0]).read_bytes()
    checksums.check(paths[0], content)
    values = files.read_json(paths[0], content)
    if values.get("class_name") == keras_hub.BACKBONE:
        return keras_hub.read_config(values, paths[0]), {}
    read = hugging_face_config.read_config if hugging_face_config.is_config(values) else XLNetConfig.from_dict
    return read(values, paths[0]), values
