"""Options of an adaptation besides its texts and its settings."""

import dataclasses
from collections.abc import Sequence

from absl import flags

from run_scripts.adapt.texts import TextOptions
from run_scripts.common import experiment
from xlnet_tf import flags as flags_lib
from xlnet_tf.flags import Setting, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptOptions:
    """What is adapted, and how it is compared; `epochs_given` is whether --epochs is given."""

    init_checkpoint: str = option(
        "Weights to adapt: a folder (ours, the original's, Hugging Face's) or hf://OWNER/NAME."
    )
    epochs: float = option("Passes over the texts, if train_steps is 0.", 1.0, least=0.0001, most=1_000_000)
    seq_len: int | None = option(
        "Tokens of a segment. Default: as the checkpoint's records, or 512.", None, least=7
    )
    sentence_split: str | None = option(
        "Language code (en, de, ...) if the texts have paragraphs on their lines. Default: as the "
        "checkpoint's records, or none.",
        None,
    )
    keep_optimizer: bool = option("Take over the optimizer's moments, if they were kept.", True)
    task_data: str = option("Folder of built examples, to fine-tune the weights before and after on.", "")
    task_config: Sequence[str] = option(
        "Settings of that fine-tuning: a recipe, a yaml file, or NAME=VALUE,NAME=VALUE.", (), repeated=True
    )
    num_seeds: int = option("Number of seeds of that fine-tuning.", 3, least=1, most=100)
    epochs_given: bool = False


def define_flags(settings: Sequence[Setting]) -> None:
    experiment.define_flags(settings)
    flags_lib.define_flags(TextOptions, AdaptOptions)


def from_flags(
    settings: Sequence[Setting], values: flags.FlagValues
) -> tuple[experiment.RunOptions, TextOptions, AdaptOptions]:
    """Returns the options that the flags give; for mains."""
    epochs_given = bool(flags_lib.given(["epochs"], values))
    return (
        experiment.run_options(settings, values),
        flags_lib.from_flags(TextOptions, values),
        flags_lib.from_flags(AdaptOptions, values, epochs_given=epochs_given),
    )
