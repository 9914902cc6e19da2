r"""Converts pretraining records: the original's and Model Garden's to this project's format, or back.

    python -m run_scripts.convert_records --input=proc_data/tfrecords --from=original \
        --tokenizer=spiece.model --output_dir=records
    python -m run_scripts.convert_records --input=records --to=original --batch_size=32 --output_dir=proc_data

At the end it prints what the records lack. An interrupted conversion starts again.
"""

import dataclasses
from collections.abc import Sequence

from absl import flags

from tfrecord_builders.conversion.options import ConversionOptions
from xlnet_tf import errors
from xlnet_tf import flags as flags_lib
from xlnet_tf.cli import command_line
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.manifest import Manifest

# Modules that load TensorFlow are imported where they are used, so that --help answers at once.


@dataclasses.dataclass(frozen=True, kw_only=True)
class FormatOptions:
    """The format to convert from or to."""

    source_format: str | None = option(
        "format of the records to convert to this project's",
        None,
        choices=("original", "model_garden"),
        flag="from",
    )
    to: str | None = option("format to write one of our sets in", None, choices=("original",))
    batch_size: int = option("with --to: rows of a batch of a host (bsz_per_host)", 32, least=1)
    num_tasks: int = option("with --to: files for each pass", 1, least=1)


def define_flags():
    flags_lib.define_flags(ConversionOptions, FormatOptions)


def import_records(options: ConversionOptions):
    """Imports records as one of our sets; prints its summary and what the records lacked."""
    from tfrecord_builders.conversion import convert

    if not options.tokenizer:
        raise UserError("--from needs --tokenizer, the SentencePiece model that the records were made with")
    manifest, lacking = convert.convert(options, progress=True)
    print(f"Pretraining records are ready:\n{convert.summary(manifest)}")
    for what in lacking:
        print(f"WARNING: {what}")


def export_records(options: ConversionOptions, batch_size: int, num_tasks: int):
    """Exports one of our sets to the original's format and prints what is lost."""
    from tfrecord_builders.conversion import original_format

    if len(options.input) != 1:
        raise UserError(f"--to takes one set, found {len(options.input)} in --input")
    manifest = Manifest.load(options.input[0])
    manifest.check_files()
    with ProgressBar(total=manifest.records, unit="record", unit_scale=True, desc="writing") as bar:
        written = original_format.write(
            manifest, options.output_dir, batch_size, options.num_cores or 1, num_tasks, report=bar.update
        )
    count = len(written.files)
    print(
        f"{written.records:,} records in {count} file{'s' * (count != 1)}, {written.steps:,} steps of "
        f"{batch_size} rows: {options.output_dir}/tfrecords"
    )
    for what in original_format.lost(manifest, written):
        print(f"WARNING: {what}")


def run(values: flags.FlagValues):
    """Converts in the direction that the flags give."""
    formats = flags_lib.from_flags(FormatOptions, values)
    if (formats.source_format is None) == (formats.to is None):
        raise UserError("give either --from, the format of records to convert to this project's, or --to")
    options = flags_lib.from_flags(ConversionOptions, values, source_format=formats.source_format)
    if formats.to:
        export_records(options, formats.batch_size, formats.num_tasks)
    else:
        import_records(options)


def main(_: Sequence[str]):
    run(flags.FLAGS)


if __name__ == "__main__":
    define_flags()
    command_line.require_one_of("from", "to")
    errors.run(main, after_ctrl_c="the same command converts them anew")
