"""Unpacks models in .keras files, which tf_keras and KerasHub write, to local folders."""

import atexit
import functools
import json
import os
import pathlib
import shutil
import tempfile
import zipfile

from xlnet_tf import task_registry
from xlnet_tf.errors import UserError, reason

ENDING = ".keras"
KERAS_WEIGHTS, _CONFIG = "model.weights.h5", "config.json"  # in such a file
_KERAS_HUB = "keras_hub>"  # begins the names under which KerasHub registers its classes


def unpacked(path: str) -> str:
    """Returns a folder, kept until the process ends, with the model of a .keras file."""
    return _unpacked(path, os.stat(path).st_mtime_ns)


@functools.cache
def _unpacked(path: str, _changed: int) -> str:
    temporary = tempfile.mkdtemp(prefix="xlnet-keras-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    folder = os.path.join(temporary, os.path.basename(path))
    if _is_of_keras_hub(path):
        with zipfile.ZipFile(path) as archive:
            for name in (KERAS_WEIGHTS, _CONFIG):
                archive.extract(name, folder)
        return folder
    classes = [task.model for task in task_registry.tasks().values()]
    for reference in (*classes, task_registry.PRETRAINER):
        task_registry.load(reference)  # registers it
    try:
        model = _load(path)
    except Exception as error:  # whatever is in the file
        raise UserError(
            f"{path} is not a model of xlnet_tf alone, or damaged ({reason(error)}). With the code that made "
            "it, load it with tf_keras.models.load_model, write it with xlnet_tf.checkpoints."
            "save_model(model, FOLDER), and give FOLDER"
        ) from error
    if not hasattr(model, "save_pretrained"):
        raise UserError(
            f"{path} has a {type(model).__name__}; expected a model of xlnet_tf. Of a model with one inside, "
            "save that one: its save_pretrained(FOLDER)"
        )
    model.save_pretrained(folder)
    return folder


def _is_of_keras_hub(path: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read(_CONFIG))
        return str(config.get("registered_name")).startswith(_KERAS_HUB)
    except (zipfile.BadZipFile, KeyError, ValueError, AttributeError):
        return False


def _load(path: str):
    """Loads an unpacked copy without its optimizer, as Python 3.12.0 to 3.13.1 cannot (cpython#127847)."""
    import tf_keras

    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
        config = json.loads(pathlib.Path(folder, _CONFIG).read_text())
        model = tf_keras.saving.deserialize_keras_object(config | {"compile_config": None})
        model.load_weights(os.path.join(folder, KERAS_WEIGHTS))
        assets = os.path.join(folder, "assets")
        if hasattr(model, "load_assets") and os.path.isdir(assets):
            model.load_assets(assets)
    return model
