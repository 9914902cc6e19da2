"""Weights in and out: the original's format, Hugging Face's and our own, from any to any.

    checkpoint = checkpoints.open_checkpoint("xlnet_cased_L-12_H-768_A-12")
    checkpoints.save_checkpoint(checkpoint, "xlnet-base", "hugging_face")
    print(checkpoints.load_into(model, "xlnet-base").table())

Begin with `names.py`: whatever the format, weights go by our names. `opening.py` opens them, `formats.py`
loads, writes and checks; `model_card.py` is what a model needs besides its weights, and is read without
TensorFlow: the names of this package load when they are used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xlnet_tf.checkpoints.checkpoint import Checkpoint
    from xlnet_tf.checkpoints.coverage import Coverage
    from xlnet_tf.checkpoints.formats import (
        FORMATS,
        building_from,
        check,
        differences,
        load_into,
        save_checkpoint,
        save_model,
    )
    from xlnet_tf.checkpoints.opening import open_checkpoint, read_architecture

__all__ = [
    "FORMATS",
    "Checkpoint",
    "Coverage",
    "check",
    "differences",
    "load_into",
    "open_checkpoint",
    "read_architecture",
    "save_checkpoint",
    "save_model",
    "building_from",
]
_MODULES = {
    "Checkpoint": "checkpoint",
    "Coverage": "coverage",
    "open_checkpoint": "opening",
    "read_architecture": "opening",
}


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'formats')}"), name)
    globals()[name] = value
    return value
