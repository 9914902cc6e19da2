"""Settings that suit a model's size and the number of examples, where nothing else says them."""

import math
from typing import Any, NamedTuple

_WIDE = 512  # d_model, from which on a model is like the released ones
_SMALL_RATE = 1e-3  # of models below that width
# The defaults of fine-tuning on built examples.
LEARNING_RATE, EPOCHS, BATCH = 2e-5, 3.0, 32
_MOST_EPOCHS, _FEW_EPOCHS = 20, 3
_SMALL_STEPS, _WIDE_STEPS = 600, 300
_BATCH = 16


class Suggested(NamedTuple):
    """Settings of an experiment, and in words what they follow from."""

    settings: dict[str, Any]
    origin: str


def suggest(d_model: int, records: int) -> Suggested:
    """Returns settings for fine-tuning a model of width d_model on that many records.

    A small model learns at a rate at which a large one diverges. Few examples are seen more often, so that
    there are enough steps to learn from.
    """
    is_small = d_model < _WIDE
    steps_of_epoch = math.ceil(records / _BATCH)
    wanted = math.ceil((_SMALL_STEPS if is_small else _WIDE_STEPS) / steps_of_epoch)
    epochs = float(min(max(_FEW_EPOCHS, wanted), _MOST_EPOCHS))
    settings: dict[str, Any] = {"task": {"epochs": epochs, "train_data": {"global_batch_size": _BATCH}}}
    if is_small:
        settings["trainer"] = {"optimizer_config": {"learning_rate": _SMALL_RATE}}
    return Suggested(settings, f"for a model of width {d_model} and {records:,} examples")


def described(d_model: int | None) -> dict[str, str]:
    """Returns the suggested values in words, by the names of flags; None: the width is not known."""
    rates = f"{_SMALL_RATE:g} for models narrower than {_WIDE}, else {LEARNING_RATE:g}"
    one = LEARNING_RATE if d_model is None or d_model >= _WIDE else _SMALL_RATE
    return {
        "learning_rate": rates if d_model is None else f"{one:g}, as the model's width needs",
        "epochs": f"{_FEW_EPOCHS} to {_MOST_EPOCHS}, more for fewer examples",
        "batch_size": f"{_BATCH}",
    }
