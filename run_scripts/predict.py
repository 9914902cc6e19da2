r"""Predicts with a fine-tuned run: writes the task's files, tsv, json, submission or run files.

    python -m run_scripts.predict --model_dir=runs/sst-2 --data=records/sst-2/test --output_dir=predictions
    python -m run_scripts.predict --model_dir=runs/sst-2 --input=text="A fine film."
    python -m run_scripts.predict --model_dir=runs/sst-2 --data=reviews.csv --output_dir=predictions
    python -m run_scripts.predict --server=localhost:8501 --model=sst-2 --input=text="A fine film."

Takes the weights that did best on the dev examples, unless --checkpoint names others. Where the examples have
answers, the scores are printed too. An interrupted prediction resumes where it was. Devices are those of the
training, unless flags say otherwise.

Texts need no set of examples: --input gives one row, a file as --data (csv, tsv or JSON lines, with the
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

from absl import flags, logging

from run_scripts.common import answers, experiment, predict_served, predict_texts, training_flags
from run_scripts.common.sharded import options as sharded
from tfrecord_builders.common import tables
from xlnet_tf import errors, files, folders, hub, ownership
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags as define_flags_of
from xlnet_tf.progress_bar import ProgressBar


def define_flags():
    flags.DEFINE_string(
        "model_dir",
        None,
        "The fine-tuned model: folder of a run, of save_pretrained or, for texts, of export, a .keras file "
        "or hf://OWNER/NAME; needed without --server.",
    )
    flags.DEFINE_string(
        "data",
        None,
        "Folder of a set of examples that a builder wrote, or a file of texts: csv, tsv "
        "or JSON lines, with the model's inputs by name; in shards also text, parquet, folders, globs and "
        "several of them, separated by commas.",
    )
    flags.DEFINE_multi_string(
        "input", [], "NAME=VALUE: a text for the model, a list as JSON; repeat it for other inputs and rows."
    )
    flags.DEFINE_string("output_dir", None, "Folder for the files; needed for a set of examples.")
    flags.DEFINE_string(
        "checkpoint", "", "Weights: best, last, or as ckpt-100; empty: best if kept, else last."
    )
    flags.DEFINE_integer("batch_size", 32, "Examples per step, all devices.", 1, training_flags.ROWS - 1)
    for setting in training_flags.DEVICES:
        setting.define()
    predict_texts.define_flags()
    predict_served.define_flags()
    define_flags_of(sharded.ShardOptions)


def main(_: Sequence[str]):
    values = flags.FLAGS
    if values.input and values.output_dir:
        raise UserError(
            "--output_dir is given, but answers to --input are printed: to have them written, give the texts "
            "in a file as --data"
        )
    if values.output_dir:
        folders.claim(values.output_dir, *folders.TAKE_RESULTS, flag="--output_dir")
    if values.data and values.output_dir:
        answers.check_output(values.data, values.output_dir)
    if values.server:
        predict_served.main(values)
        return
    if values.input and values.data:
        raise UserError("--input and --data are both given: expected one of them")
    if values.model_dir:
        hub.require(values.model_dir)
        experiment.split_checkpoint(values)
    if not values.input and sharded.is_wanted(values):
        _require(values, "model_dir", *([] if values.tfds_name else ["data"]))
        if not values.output_dir:
            raise UserError("--output_dir is missing: the folder for the answers to a corpus")
        predict_texts.answer_corpus(values)
        return
    texts = values.input or (values.data and tables.existing(values.data).is_file())
    _require(values, *(("model_dir",) if texts else ("model_dir", "data", "output_dir")))
    if texts:
        predict_texts.main(values)
        return
    from xlnet_tf.tasks.pieces import remove_pieces
    from xlnet_tf.tasks.prediction import Predictor, Run
    from xlnet_tf.tasks.scoring import UNREACHED
    from xlnet_tf.training import runtime

    run = Run.open(values.model_dir, values.data)
    experiment.override_by_flags(run.params, training_flags.DEVICES, values)
    examples, task = run.task.validation_set, run.task
    checkpoint = run.checkpoint(values.checkpoint)
    if text := task.shortfall(task.best_metrics()):
        logging.warning("%s: %s", values.model_dir, text + UNREACHED)
    strategy = runtime.prepare(run.params.runtime)
    folder = files.make_folder(values.output_dir)
    pieces = str(folder / "unfinished_predictions")
    with ownership.owning(folder, "predicting", "--output_dir") as owner:
        with ProgressBar(desc="predict", unit="text", dynamic_ncols=True) as bar:
            predictor = Predictor(run, strategy, values.batch_size, on_step=bar.update)
            bar.reset(total=examples.records)
            predictions = predictor.predict(checkpoint, pieces)
        owner.check()
        print(f"weights: {checkpoint}")
        for path in task.write_predictions(examples, predictions, str(folder)):
            print(f"  {path}")
        remove_pieces(pieces)
    if task.has_answers(examples):
        for name, value in task.score(examples, predictions).items():
            print(f"{name:>24}  {value:.4f}")
        if text := task.tables(examples, predictions):
            print(f"\n{text}")


def _require(values: flags.FlagValues, *names: str):
    if missing := [f"--{name}" for name in names if not values[name].value]:
        raise UserError(
            f"{', '.join(missing)} missing: predict for a set of examples, give texts (--input=text=..., or "
            "a file as --data), or give --server to ask a server"
        )


if __name__ == "__main__":
    define_flags()
    errors.run(main)
