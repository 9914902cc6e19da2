r"""Converts pretraining records: the original's and Model Garden's to ours, ours to the original's.

    python -m run_scripts.convert_records --input=proc_data/tfrecords --from=original \
        --tokenizer=spiece.model --output_dir=records
    python -m run_scripts.convert_records --input=records --to=original --batch_size=32 --output_dir=proc_data

What the records lack is said when all is done. An interrupted conversion begins anew.
"""

from collections.abc import Sequence

from absl import flags

from xlnet_tf import command_line, errors
from xlnet_tf.errors import UserError
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records import ranks, spans
from xlnet_tf.records.manifest import Manifest

# Modules that load TensorFlow are imported where they are used, so that --help answers at once.


def define_flags():
    """Defines the script's flags."""
    flags.DEFINE_list(
        "input",
        None,
        "folders of records, or paths or globs of their record_info-*.json or *.tfrecord*.json; with --to "
        "the folder of one of our sets",
        required=True,
    )
    flags.DEFINE_enum(
        "from", None, ("original", "model_garden"), "format of the records to be converted to ours"
    )
    flags.DEFINE_enum("to", None, ("original",), "format to write one of our sets in")
    flags.DEFINE_string("output_dir", None, "folder for what is written", required=True)
    flags.DEFINE_string(
        "tokenizer", None, "with --from: the SentencePiece model that the records were made with"
    )
    flags.DEFINE_integer("seed", 0, "with --from: random seed for what is drawn", lower_bound=0)
    flags.DEFINE_integer(
        "perm_size",
        None,
        "with --from: tokens of a block that is permuted by itself. Default: reuse_len",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "num_predict",
        None,
        "with --from: targets of a segment. Default: the original's own number (the "
        "largest, if it was not fixed); for Model Garden's a sixth of a segment",
        lower_bound=1,
    )
    flags.DEFINE_enum(
        "span_mode",
        "words",
        spans.SPAN_MODES,
        "with --from=model_garden: targets are spans of whole words, spans of pieces, or single tokens",
    )
    flags.DEFINE_enum(
        "functional_tokens",
        None,
        ranks.FUNCTIONAL_TOKENS,
        "with --from: SEP and CLS take places in the "
        "order, unseen by context (default for the original's), or are context (Model Garden's)",
    )
    flags.DEFINE_integer(
        "stream_segments",
        None,
        "with --from: cut rows into streams of so many segments, for batches of "
        "more rows. Default: a row is a stream",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "num_cores",
        None,
        "cores that share a batch's rows (num_core(s)_per_host), which decides "
        "the rows that are read backward. Default: what corpus_info.json or the meta file says; with --to 1",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "batch_size", 32, "with --to: rows of a batch of a host (bsz_per_host)", lower_bound=1
    )
    flags.DEFINE_integer("num_tasks", 1, "with --to: files for each pass", lower_bound=1)


def to_ours(values: flags.FlagValues):
    """Converts to one of our sets and prints what it is and what the records lacked."""
    from tfrecord_builders.conversion import convert
    from tfrecord_builders.conversion.readers import TargetOptions

    if not values.tokenizer:
        raise UserError("--from needs --tokenizer, the SentencePiece model that the records were made with")
    options = convert.ConversionOptions(
        input=values.input,
        source_format=values["from"].value,
        tokenizer=values.tokenizer,
        output_dir=values.output_dir,
        num_cores=values.num_cores,
        targets=TargetOptions(values.num_predict, values.span_mode),
        perm_size=values.perm_size,
        functional_tokens=values.functional_tokens,
        stream_segments=values.stream_segments,
        seed=values.seed,
    )
    manifest, lacking = convert.convert(options, progress=True)
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
    print(
        f"{written.records:,} records in {len(written.files)} files, {written.steps:,} steps of "
        f"{values.batch_size} rows: {values.output_dir}/tfrecords"
    )
    for what in original_format.lost(manifest, written):
        print(f"WARNING: {what}")


def run(values: flags.FlagValues):
    """Converts what the flags say.

    Args:
        values: the parsed flags.

    Raises:
        UserError: flags, files or records are wrong.
        FileNotFoundError: the tokenizer or the set is missing.
    """
    if (values["from"].value is None) == (values.to is None):
        raise UserError("give either --from, the format of records to be converted to ours, or --to")
    if values.to:
        to_original(values)
    else:
        to_ours(values)


def main(_: Sequence[str]):
    run(flags.FLAGS)


if __name__ == "__main__":
    define_flags()
    command_line.require_one_of("from", "to")
    errors.run(main)
