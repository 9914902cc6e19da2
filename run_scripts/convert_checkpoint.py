r"""Converts checkpoints: between the original's format, Hugging Face's and this project's; uploads models.

    python -m run_scripts.convert_checkpoint --input=xlnet_cased_L-12_H-768_A-12 --output=xlnet-base
    python -m run_scripts.convert_checkpoint --input=runs/demo/model --output=hf --format=hugging_face

    python -m run_scripts.convert_checkpoint --input=runs/reviews --output=hf://me/xlnet-reviews \
        --license=apache-2.0 --dry_run

The input's format is detected. Without --output every variable is checked and nothing is written.

With --output=hf://OWNER/NAME the model is uploaded to the Hugging Face hub, in Hugging Face's format unless
--format names another, with a README.md of its metrics and settings. --dry_run shows the files, their sizes
and the README.md, and does not contact the hub. Uploading needs a token with write access (HF_TOKEN), and the
extra: pip install "xlnet-tf[hub]". Paths of this machine are not uploaded. Of a fine-tuned run, the best
weights are uploaded, if they were kept. Differences between the trained model and the uploaded format are
printed and listed in the README.md.
"""

import dataclasses
from collections.abc import Sequence

from run_scripts.common import uploads
from xlnet_tf import errors, folders, hub
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, given_of, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """Which checkpoint is converted, and to what."""

    input: str = option("Folder or file of the checkpoint, of any format, or hf://OWNER/NAME.", group="model")
    output: str | None = option(
        "Folder to write to, or hf://OWNER/NAME to upload to. Default: only check the input.",
        None,
        group="output",
    )
    format: str | None = option(
        "Format to write. Default: ours; for an upload, hugging_face.",
        None,
        choices=("ours", "original", "hugging_face"),
        group="output",
    )
    config_file: str | None = option("xlnet_config.json or config.json, if not next to the weights.", None)
    strict: bool = option("Refuse variables that are unknown; --nostrict leaves them out.", True)


def convert(
    source: str, output: str | None, target_format: str, config_file: str | None, strict: bool
) -> str:
    """Converts a checkpoint, or only checks it (output None); describes the result and the coverage.

    For source and config_file see open_checkpoint; `strict` refuses missing or unknown variables.
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
    options, to_upload = from_flags(ConvertOptions), from_flags(uploads.UploadOptions)
    output = options.output or ""
    if output.startswith(uploads.HUB):
        if options.config_file or not options.strict:
            raise UserError(
                "--config_file and --nostrict are not for uploads: write a folder, then upload it"
            )
        hub.require(options.input)
        name, target_format = output.removeprefix(uploads.HUB), options.format or "hugging_face"
        uploads.upload(options.input, name, target_format, to_upload)
        return
    if given := given_of(uploads.UploadOptions):
        names = ", ".join(f"--{name}" for name in given)
        raise UserError(f"{names}: for an upload to the hub: give --output={uploads.HUB}OWNER/NAME")
    if options.output is None and options.format:
        raise UserError(f"--format={options.format} writes nothing without --output: give --output=FOLDER")
    if options.output is not None:
        folders.claim(options.output, folders.WEIGHTS, flag="--output")
    hub.require(options.input)
    target_format = options.format or "ours"
    print(convert(options.input, options.output, target_format, options.config_file, options.strict))


if __name__ == "__main__":
    define_flags(ConvertOptions, uploads.UploadOptions)
    errors.run(main, positional="input")
