"""Settings of the network that all tasks share."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from official.modeling.hyperparams import base_config

from xlnet_tf.checkpoints import read_architecture
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError

# How texts are read, which weights do not say, where neither settings nor a checkpoint say it.
READING = {"attention_type": "bi", "same_length": False, "clamp_len": -1}

# Each field of the architecture; None leaves it as the preset has it.
_Changes: type = dataclasses.make_dataclass(
    "_Changes",
    [(field.name, field.type | None, None) for field in dataclasses.fields(XLNetConfig)],
    bases=(base_config.Config,),
)


@dataclasses.dataclass
class EncoderModelConfig(_Changes):
    """The architecture and its dropout; fields of XLNetConfig, if given, change single fields of the preset.

    Attributes (besides those of XLNetConfig, and those that have a flag):
        attention_type: "bi" or "uni".
        same_length: with "uni", let all tokens see equally many.
        initializer_range: standard deviation of initial weights.
    """

    preset: str = "tiny"
    config_file: str = ""
    dropout: float = 0.1
    attention_dropout: float = 0.1
    attention_type: str | None = READING["attention_type"]
    same_length: bool | None = READING["same_length"]
    clamp_len: int | None = READING["clamp_len"]
    initializer_range: float = 0.02

    def architecture(self, vocab_size: int, base: XLNetConfig | None = None) -> XLNetConfig:
        """Returns the architecture of `base` (a checkpoint), file or preset, with the settings' changes.

        The vocabulary is vocab_size, unless a file, n_token or `base` gives it.
        """
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(XLNetConfig)}
        changes = {name: value for name, value in fields.items() if value is not None}
        if self.config_file:
            base = read_architecture(self.config_file)
        if base:
            return dataclasses.replace(base, **changes)
        return XLNetConfig.preset(self.preset, **{"n_token": vocab_size, **changes})

    def encoder_options(self) -> dict[str, Any]:
        names = ("dropout", "attention_dropout", *READING, "initializer_range")
        return {name: getattr(self, name) for name in names}

    def fill_reading(self, from_checkpoint: Mapping[str, Any]) -> dict[str, Any]:
        """Fills in missing settings of how texts are read; returns the checkpoint's that are not defaults."""
        missing = [name for name in READING if getattr(self, name) is None]
        taken = {name: from_checkpoint.get(name, READING[name]) for name in missing}
        self.override(taken)
        for name, default in READING.items():
            if type(value := getattr(self, name)) is not type(default):
                raise UserError(f"task.model.{name} is {value!r}: expected a value like {default!r}")
        return {name: value for name, value in taken.items() if value != READING[name]}


@dataclasses.dataclass
class SegmentsModelConfig(EncoderModelConfig):
    """The network of a task whose texts may be read in segments with memory; see tasks.flags.IN_SEGMENTS."""

    segment_len: int = 0
    memory_len: int = 0
    memory_gradient: int = 0

    def segment_options(self) -> dict[str, int]:
        return {"segment_len": self.segment_len, "memory_gradient": self.memory_gradient}


@dataclasses.dataclass
class SummaryModelConfig(SegmentsModelConfig):
    """The network of a task for which the tokens of a text become one vector.

    Attributes (besides those of SegmentsModelConfig, and those that have a flag):
        projection: whether a dense layer with tanh follows.
    """

    summary: str = "last"
    projection: bool = True

    def head_options(self) -> dict[str, Any]:
        """Returns the options of a head with such a vector that are settings."""
        return {"summary": self.summary, "projection": self.projection, **self.segment_options()}
