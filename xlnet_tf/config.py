"""The architecture of an XLNet: the fields of the released `xlnet_config.json`, and presets."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal

from typing_extensions import Self

from xlnet_tf import hints, schema
from xlnet_tf.errors import UserError, prefixed
from xlnet_tf.schema import limited

ACTIVATIONS = ("gelu", "relu", "gelu_erf")

# Far above any model's: a damaged file is to be an error, not a network that no machine can hold.
_MOST_TOKENS, _MOST_LAYERS, _MOST_WIDTH = 1 << 24, 1 << 10, 1 << 17
_MOST_WEIGHTS = 5 * 10**9  # with gradients and Adam's moments 80 GB on each device
MOST_MEMORY = 1 << 16  # tokens
MOST_SEED = (1 << 63) - 1  # seeds are int64

#: What gradient checkpointing computes again: nothing; all; or "cheap", all but products with weights.
Recompute = Literal[False, True, "cheap"]


@hints.refusing_unknown
@dataclasses.dataclass(frozen=True)
class XLNetConfig:
    """Shape of the network; what it is trained with (dropout, memory, ...) is given to the encoder.

    `n_head * d_head` need not equal `d_model`: heads are projected from and back to `d_model`.

    New fields beyond those of the released `xlnet_config.json` must be keyword-only (`kw_only=True`), with a
    default that keeps earlier behaviour: files without it stay readable; `to_json` writes only other values.

    Args:
        n_token: vocabulary size V.
        n_layer: number of layers L.
        d_model: width D of the model; even, for its sines and cosines of position.
        n_head: number of attention heads N.
        d_head: size H of one head.
        d_inner: inner width F of the feed-forward network.
        ff_activation: "gelu" (tanh form), "relu", or "gelu_erf" (exact form, Hugging Face's "gelu").
        untie_r: whether each layer has its own three attention biases.

    Example:
        >>> XLNetConfig.preset("base").d_model
        768

    Source: xlnet.py of the original (XLNetConfig); paper, appendix A.4.
    """

    n_token: int = limited(32000, least=1, most=_MOST_TOKENS)
    n_layer: int = limited(12, least=1, most=_MOST_LAYERS)
    d_model: int = limited(768, least=1, most=_MOST_WIDTH)
    n_head: int = limited(12, least=1, most=_MOST_WIDTH)
    d_head: int = limited(64, least=1, most=_MOST_WIDTH)
    d_inner: int = limited(3072, least=1, most=_MOST_WIDTH)
    ff_activation: str = limited("gelu", choices=ACTIVATIONS)
    untie_r: bool = True

    from_pretrained = hints.Absent()

    def __post_init__(self):
        schema.check_fields(self, "XLNetConfig.")
        if self.num_weights > _MOST_WEIGHTS:
            numbers = {name: value for name, value in vars(self).items() if type(value) is int}
            sizes = ", ".join(f"{name} {value}" for name, value in numbers.items())
            raise UserError(
                f"XLNetConfig has {self.num_weights:,} weights with {sizes}; expected at most "
                f"{_MOST_WEIGHTS:,}: no device can train more."
            )
        if self.d_model % 2:
            raise UserError(
                f"XLNetConfig.d_model is {self.d_model}; expected an even number, because half of a "
                "position's encoding are sines and half are cosines."
            )

    @property
    def num_weights(self) -> int:
        """Weights of the large matrices: the embedding and all layers."""
        layer = 5 * self.d_model * self.n_head * self.d_head + 2 * self.d_model * self.d_inner
        return self.n_token * self.d_model + self.n_layer * layer

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "XLNetConfig":
        """Returns a preset (see PRESETS), with `changes` to single fields."""
        if name not in PRESETS:
            raise UserError(f"no preset is called {name!r}; the presets are {', '.join(PRESETS)}.")
        return dataclasses.replace(PRESETS[name], **changes)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "the configuration") -> Self:
        """Builds a config from the fields of the released `xlnet_config.json`, all and no others."""
        added = {field.name for field in dataclasses.fields(cls) if field.kw_only}
        schema.check_object(values, cls, source, optional=added)
        with prefixed(source):
            return cls(**values)

    @classmethod
    def from_json_file(cls, path: str) -> Self:
        """Reads an `xlnet_config.json`, such as a released one, from any of TensorFlow's file systems."""
        from xlnet_tf import files

        return cls.from_dict(files.read_json(path), source=str(path))

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        values = {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default or not field.kw_only
        }
        return json.dumps(values, indent=4, sort_keys=True) + "\n"


# Base and Large are the released ones; tiny is for a laptop's CPU (the demo), micro for tests.
PRESETS: Mapping[str, XLNetConfig] = {
    "micro": XLNetConfig(n_token=200, n_layer=2, d_model=32, n_head=4, d_head=8, d_inner=64),
    "tiny": XLNetConfig(n_token=8000, n_layer=4, d_model=256, n_head=4, d_head=64, d_inner=1024),
    "base": XLNetConfig(),
    "large": XLNetConfig(n_layer=24, d_model=1024, n_head=16, d_inner=4096),
}
