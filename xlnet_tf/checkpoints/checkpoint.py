"""A checkpoint as the rest of the project sees it, whatever format it comes from."""

import dataclasses
import os
from typing import Any

import tensorflow as tf

from xlnet_tf import files, manifest_checksum
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.records.manifest import FILE_NAME as MANIFEST_FILE

CONFIG_FILE = "xlnet_config.json"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Weights under our names, and the architecture they belong to.

    Attributes:
        path: the files it was read from.
        format: "original", "hugging_face" or "ours".
        arrays: the weights by our names; each is read when asked for. What names.py does not know keeps the
            name it has in the file.
        config: the architecture; None if no file told it.
        stripped: names of what the file also holds but no model needs: optimizer slots, counters.
    """

    path: str
    format: str
    arrays: Arrays
    config: XLNetConfig | None
    stripped: tuple[str, ...] = ()

    def beside(self, name: str) -> str:
        """Returns the path of a file in the folder of the weights, whether it is there or not."""
        return os.path.join(os.path.dirname(self.path), name)

    def manifest(self) -> dict[str, Any]:
        """Returns the manifest of what the weights were trained on; empty if none lies beside them.

        Raises:
            UserError: it is damaged.
        """
        path = self.beside(MANIFEST_FILE)
        if not tf.io.gfile.exists(path):
            return {}
        values = files.read_json(path)
        if not manifest_checksum.take_seal(values):
            raise manifest_checksum.broken(path)
        if not isinstance(values.setdefault("settings", {}), dict):
            raise UserError(f"{path}: settings is {values['settings']!r}; expected an object with fields.")
        return values
