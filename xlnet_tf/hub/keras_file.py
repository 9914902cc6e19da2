"""Models in .keras files, which tf_keras' `save` wrote, as folders of this machine."""

import atexit
import functools
import os
import shutil
import tempfile

from xlnet_tf import task_registry
from xlnet_tf.errors import UserError, reason

ENDING = ".keras"


def unpacked(path: str) -> str:
    """Returns a folder, kept until the process ends, with the model of a .keras file.

    Raises:
        UserError: it is not a model of this project.
    """
    return _unpacked(path, os.stat(path).st_mtime_ns)


@functools.cache
def _unpacked(path: str, _changed: int) -> str:
    import tf_keras

    classes = [task.model for task in task_registry.tasks().values()]
    for reference in (*classes, task_registry.PRETRAINER):
        task_registry.load(reference)  # registers it
    try:
        model = tf_keras.models.load_model(path, compile=False)
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
    temporary = tempfile.mkdtemp(prefix="xlnet-keras-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    folder = os.path.join(temporary, os.path.basename(path))
    model.save_pretrained(folder)
    return folder
