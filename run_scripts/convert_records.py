r"""Converts pretraining records of the original and of Model Garden to this project's format, or back.

    python -m run_scripts.convert_records --input=proc_data/tfrecords --from=original \
        --tokenizer=spiece.model --output_dir=records
    python -m run_scripts.convert_records --input=records --to=original --batch_size=32 --output_dir=proc_data

At the end it prints what the records lack. An interrupted conversion starts again.
"""

from collections.abc import Sequence

from absl import flags

from tfrecord_builders.conversion.options import ConversionOptions
from xlnet_tf import errors
from xlnet_tf import flags as options
from xlnet_tf.cli import command_line
from xlnet_tf.errors import UserError
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.manifest import Manifest

# Modules that load TensorFlow are imported where they are used, so that --help answers at once.


def define_flags():
    options.define_flags(ConversionOptions)
    flags.DEFINE_enum(
        "from", None, ("original", "model_garden"), "format of the records to convert to this project's"
    )
    flags.DEFINE_enum("to", None, ("original",), "format to write one of our sets in")
    flags.DEFINE_integer(
        "batch_size", 32, "with --to: rows of a batch of a host (bsz_per_host)", lower_bound=1
    )
    flags.DEFINE_integer("num_tasks", 1, "with --to: files for each pass", lower_bound=1)


def to_ours(values: flags.FlagValues):
    """Converts to one of our sets and prints what it is and what the records lacked."""
    from tfrecord_builders.conversion import convert

    if not values.tokenizer:
        raise UserError("--from needs --tokenizer, the SentencePiece model that the records were made with")
    manifest, lacking = convert.convert(
        options.from_flags(ConversionOptions, values, source_format=values["from"].value), progress=True
    )
    print(f"Pretraining records are ready:\n{convert.summary(manifest)}")
    for what in lacking:
        print(f"WARNING: {what}")


def to_original(values: flags.FlagValues):
    """Writes one of our sets in the original's format and prints what is lost."""
    from tfrecord_builders.conversion import original_format

    if len(values.input) != 1:
        raise UserError(f"--to takes one set, found {len(values.input)} in --input")
    manifest = Manifest.load(values.input[0])
    manifest.check_files()
    with ProgressBar(total=manifest.records, unit="record", unit_scale=True, desc="writing") as bar:
        written = original_format.write(
            manifest,
            values.output_dir,
            values.batch_size,
            values.num_cores or 1,
            values.num_tasks,
            report=bar.update,
        )
    count = len(written.files)
    print(
        f"{written.records:,} records in {count} file{'s' * (count != 1)}, {written.steps:,} steps of "
        f"{values.batch_size} rows: {values.output_dir}/tfrecords"
    )
    for what in original_format.lost(manifest, written):
        print(f"WARNING: {what}")


def run(values: flags.FlagValues):
    """Converts what the flags say."""
    if (values["from"].value is None) == (values.to is None):
        raise UserError("give either --from, the format of records to convert to this project's, or --to")
    if values.to:
        to_original(values)
    else:
        to_ours(values)


def main(_: Sequence[str]):
    run(flags.FLAGS)


if __name__ == "__main__":
    define_flags()
    command_line.require_one_of("from", "to")
    errors.run(main, after_ctrl_c="the same command converts them anew")
