"""`finetune --train`: examples from a table of one's own, settings that suit them, and what to do next."""

import dataclasses
from typing import Any

from etils import epath

from run_scripts.common import experiment
from tfrecord_builders.automatic.columns import TASKS
from tfrecord_builders.common import tables
from xlnet_tf.errors import UserError
from xlnet_tf.flags import given_of, option

# The builders load numpy and more: they are imported where they are used, so that --help answers at once.

_COLUMN = "_column"
_ROLE = "With --train: column of the {}, if its name does not tell."


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Tables to train on, instead of built examples."""

    train: str = option(
        f"Table of your own to learn from, instead of --data: {tables.SOURCES}; or a folder of .txt files "
        "for each label. Task, columns and length are found; examples are built in the run's folder.",
        "",
    )
    dev: str = option("The same, to evaluate on. Default: a part of --train, by its texts.", "")
    test: str = option("The same, to evaluate the best weights on at the end of a single run.", "")
    task: str | None = option(
        "With --train: what is learned. Default: as the columns suggest.", None, choices=TASKS
    )
    tokenizer: str = option("With --train: SentencePiece model. Default: that of --init_checkpoint.", "")
    seq_len: int = option("With --train: tokens of a sequence; 0: as the texts need.", 0, least=0)
    text_column: str = option(_ROLE.format("text"), "")
    text_pair_column: str = option(_ROLE.format("second text"), "")
    label_column: str = option(_ROLE.format("label"), "")
    context_column: str = option(_ROLE.format("text that a question is about"), "")
    question_column: str = option(_ROLE.format("question"), "")
    answers_column: str = option(_ROLE.format("answers"), "")
    options_column: str = option(_ROLE.format("options, a list"), "")
    answer_column: str = option(_ROLE.format("right option"), "")
    tokens_column: str = option(_ROLE.format("words, a list"), "")
    tags_column: str = option(_ROLE.format("tags, a list"), "")
    query_column: str = option(_ROLE.format("query"), "")
    passage_column: str = option(_ROLE.format("passage"), "")
    relevance_column: str = option(_ROLE.format("relevance"), "")

    def columns(self) -> dict[str, str]:
        """Returns role -> column, for those that are given."""
        names = (field.name for field in dataclasses.fields(self) if field.name.endswith(_COLUMN))
        return {name.removesuffix(_COLUMN): value for name in names if (value := getattr(self, name))}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneRunOptions(experiment.RunOptions):
    """As RunOptions; a run on a table has a folder by default."""

    model_dir: str = option(
        "Folder of the run: checkpoints, settings, losses. Default, with --train=NAME.csv: runs/NAME.", ""
    )


def check(options: TableOptions, data: str, init_checkpoint: str | None, several_runs: bool) -> None:
    """Raises UserError for flags that have no effect or conflict; for mains."""
    if bool(data) == bool(options.train):
        found = "--data and --train are both given" if data else "missing: either --data or --train"
        raise UserError(f"{found}: --data has built examples, --train a table of your own")
    if data and (names := sorted(given_of(TableOptions))):
        raise UserError(f"--{', --'.join(names)}: for --train; the examples of --data are built")
    if options.train and not (options.tokenizer or init_checkpoint):
        raise UserError(
            "--train needs --init_checkpoint, the model to begin with: a folder, such as runs/demo/model, or "
            "a name (or --tokenizer, to begin with random weights)"
        )
    if options.test and several_runs:
        raise UserError("--test is evaluated after a single run: leave it out with --sweep and --num_seeds")


def build(options: TableOptions, model_dir: str, init_checkpoint: str | None, warn: bool = True) -> Any:
    """Builds the examples in the run's folder, or finds them there; returns an automatic.build.Built.

    With `warn` it prints what should be fixed before training, which a dry run says by itself.
    """
    from tfrecord_builders.automatic.build import Sources
    from tfrecord_builders.automatic.build import build as build_examples
    from xlnet_tf.records import example_report
    from xlnet_tf.records.examples import ExampleSet

    sources = Sources(
        train=options.train,
        dev=options.dev,
        test=options.test,
        task=options.task,
        columns=options.columns(),
        seq_len=options.seq_len,
    )
    tokenizer = options.tokenizer or init_checkpoint or ""
    built = build_examples(sources, tokenizer, epath.Path(model_dir) / "examples", progress=True)
    print(f"{built.description}{'; examples as before' if built.reused else ''}", flush=True)
    for split in ("train", "dev") if warn else ():
        for warning in example_report.warnings(ExampleSet.load(built.folder / split)):
            print(f"WARNING: {warning}", flush=True)
    return built


def print_outcome(options: TableOptions, built: Any, model_dir: str, strategy) -> None:
    """Prints the scores on the test table, if there is one, and what to do next."""
    from xlnet_tf import task_registry
    from xlnet_tf.pages.next_steps import after_finetuning
    from xlnet_tf.records.examples import ExampleSet
    from xlnet_tf.training.report import FILE as REPORT

    if options.test:
        print(f"\non {options.test}, with the best weights:")
        print(evaluated(model_dir, str(built.folder / "test"), strategy))
    task = task_registry.entry_for_set(ExampleSet.load(built.folder / "train")).name
    print("\nnext:")
    for command in after_finetuning(model_dir, task, built.example, f"{model_dir}/examples/dev"):
        print(f"  {command}")
    print(f"\nto look at the run: {model_dir}/{REPORT}")


def evaluated(model_dir: str, data: str, strategy) -> str:
    """Returns the scores of a run's best weights on a set, as a table."""
    from xlnet_tf.tasks.metrics.table import metric_table
    from xlnet_tf.tasks.prediction import Predictor, Run

    run = Run.open(model_dir, data)
    examples = run.task.validation_set
    if not run.task.has_answers(examples):
        return "it has no answers to compare with"
    predictions = Predictor(run, strategy, 32).predict(run.checkpoint(""))
    return metric_table({"best": run.task.score(examples, predictions)})
