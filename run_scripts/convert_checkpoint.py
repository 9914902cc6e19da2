"""Converts checkpoints: between the original's format, Hugging Face's and this project's.

    python -m run_scripts.convert_checkpoint --input=xlnet_cased_L-12_H-768_A-12 --output=xlnet-base
    python -m run_scripts.convert_checkpoint --input=runs/demo/model --output=hf --format=hugging_face

The input's format is detected. Without --output every variable is checked and nothing is written.
"""

import dataclasses
from collections.abc import Sequence

from xlnet_tf import errors, folders, hub
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, given, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """Which checkpoint is converted, and to what."""

    input: str = option("Folder or file of the checkpoint, of any format, or hf://OWNER/NAME.")
    output: str | None = option("Folder to write to. Default: only check the input.", None)
    format: str = option("Format to write.", "ours", choices=("ours", "original", "hugging_face"))
    config_file: str | None = option("xlnet_config.json or config.json, if not next to the weights.", None)
    strict: bool = option("Refuse variables that are unknown; --nostrict leaves them out.", True)


def convert(
    source: str, output: str | None, target_format: str, config_file: str | None, strict: bool
) -> str:
    """Converts a checkpoint.

    Args:
        source: the checkpoint (see xlnet_tf.checkpoints.open_checkpoint).
        output: folder to write to; None only checks.
        target_format: "ours", "original" or "hugging_face".
        config_file: the architecture's file, if it is not next to the weights.
        strict: refuse checkpoints with missing or unknown variables.

    Returns:
        What was done and the coverage, for a person.

    Raises:
        UserError: the checkpoint is damaged, of another model, or cannot be written in this format.
        FileNotFoundError: there is no checkpoint.
    """
    import tensorflow as tf  # which --help need not wait for

    from xlnet_tf import checkpoints
    from xlnet_tf.checkpoints.model_card import BEST

    checkpoint = checkpoints.open_checkpoint(source, config_file)
    if output is None:
        coverage, done = checkpoints.check(checkpoint), "nothing written"
    else:
        coverage = checkpoints.save_checkpoint(checkpoint, output, target_format, strict=strict)
        done = f"written to {output} ({target_format})"
    lines = [f"{checkpoint.path} ({checkpoint.format}): {done}", coverage.table()]
    if output:
        lines += [f"note: {line}" for line in checkpoints.differences(checkpoint, target_format)]
        if tf.io.gfile.exists(best := checkpoint.path_of(BEST)):
            lines.append(f"note: the run's weights that did best on dev are in {best}")
    text = "\n".join(lines)
    if strict and not coverage.complete:
        raise UserError(text)
    return text


def main(_: Sequence[str]) -> None:
    options = from_flags(ConvertOptions)
    if options.output is None and given(["format"]):
        raise UserError(f"--format={options.format} writes nothing without --output: give --output=FOLDER")
    if options.output is not None:
        folders.claim(options.output, folders.WEIGHTS, flag="--output")
    hub.require(options.input)
    print(convert(options.input, options.output, options.format, options.config_file, options.strict))


if __name__ == "__main__":
    define_flags(ConvertOptions)
    errors.run(main)
