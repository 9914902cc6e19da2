r"""Predicts with a fine-tuned run: writes the task's files, tsv, json, submission or run files.

    python -m run_scripts.predict --model_dir=runs/sst-2 --data=records/sst-2/test --output_dir=predictions
    python -m run_scripts.predict --model_dir=runs/sst-2 --text="A fine film."
    python -m run_scripts.predict --model_dir=runs/sst-2 --data=reviews.csv --output_dir=predictions
    python -m run_scripts.predict --server=localhost:8501 --model=sst-2 --input=text="A fine film."

Takes the weights that did best on the dev examples, unless --checkpoint names others. Where the examples have
answers, the scores are printed too. An interrupted prediction resumes where it was. Devices are those of the
training, unless flags say otherwise.

Texts need no set of examples: --text (--text_pair, --question, --context, --option, --query, --candidate; or
--input with the model's own names) gives one row, a file as --data (csv, tsv or JSON lines, with the
model's inputs by name) any number of rows. They are answered by a run, a folder of save_pretrained, a .keras
file, an exported model or a model of the hub. The answers are those of the exported model. Those to --input
are printed; those to a file are printed, or written to --output_dir, with the rows, as JSON lines. A column
with the name of an answer, such as label, becomes given_label. With --server, TensorFlow Serving is asked.

A corpus is answered in shards, by many processes or machines:

    python -m run_scripts.predict --model_dir=runs/sst-2 --data='reviews/*.jsonl.gz' \
        --output_dir=predictions --output_format=parquet --runner=beam

Flags such as --runner, --output_format and --shard_mb ask for that, and so do parquet, .zst, globs and
several files as --data. An interrupted job resumes; rows that cannot be answered are listed in
failed-predictions-*.jsonl.
"""

from collections.abc import Sequence

from run_scripts.common import answers, experiment, training_flags
from run_scripts.common.predicting import served, texts
from run_scripts.common.predicting.options import PredictOptions
from run_scripts.common.sharded.options import ShardOptions
from tfrecord_builders.common import tables
from xlnet_tf import errors, folders, hub
from xlnet_tf import flags as flags_lib
from xlnet_tf.errors import UserError
from xlnet_tf.flags import from_flags


def define_flags():
    flags_lib.define_flags(PredictOptions, ShardOptions)
    training_flags.define_devices()


def main(_: Sequence[str]):
    options, shards = from_flags(PredictOptions).with_inputs(), from_flags(ShardOptions)
    if options.input and options.output_dir:
        raise UserError(
            "--output_dir is given, but answers to --input, --text and the like are printed: to have them "
            "written, give the texts in a file as --data"
        )
    if options.output_dir:
        folders.claim(options.output_dir, *folders.TAKE_RESULTS, flag="--output_dir")
    if options.data and options.output_dir:
        answers.check_output(options.data, options.output_dir)
    if options.server:
        served.predict(options)
        return
    if options.input and options.data:
        raise UserError("--data is given, and so is --input, --text or the like: expected one of them")
    if options.model_dir:
        hub.require(options.model_dir)
        options = experiment.split_checkpoint(options)
    devices = training_flags.given_devices()
    if not options.input and shards.are_wanted(options.data or "", flags_lib.given_of(ShardOptions)):
        options.require("model_dir", *([] if shards.tfds_name else ["data"]))
        if not options.output_dir:
            raise UserError("--output_dir is missing: the folder for the answers to a corpus")
        texts.refuse_devices(devices)
        texts.answer_corpus(options, devices.get("dtype"), shards.resolved())
    elif options.input or (options.data and tables.existing(options.data).is_file()):
        options.require("model_dir")
        texts.refuse_devices(devices)
        texts.answer(options, devices.get("dtype"))
    else:
        options.require("model_dir", "data", "output_dir")
        from run_scripts.common.predicting import examples

        examples.predict(options, devices)


if __name__ == "__main__":
    define_flags()
    errors.run(main)
