"""An adaptation in a folder: chooses the texts, builds the records, trains, compares."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from absl import flags, logging
from etils import epath

from run_scripts import pretrain
from run_scripts.adapt import texts
from run_scripts.adapt.texts import TextOptions
from run_scripts.common import experiment
from xlnet_tf import files, ownership
from xlnet_tf import flags as options
from xlnet_tf.errors import UserError
from xlnet_tf.flags import Setting
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.records.manifest import Manifest, settings_difference

if TYPE_CHECKING:
    from run_scripts.adapt.report import Outcome

WORK, NOTE, COUNTS = "adaptation", "adaptation.json", "counts.json"
_LEFT_OUT = ("train_data", "dev_data", "init_checkpoint", "preset", "model_config", "next_sentence_weight")
_FILLED_IN = ("train_steps", "checkpoint_interval", "eval_interval")  # 0: see the recipe
SETTINGS = (
    *(
        dataclasses.replace(setting, minimum=0) if setting.flag in _FILLED_IN else setting
        for setting in pretrain.SETTINGS
        if setting.flag not in _LEFT_OUT
    ),
    Setting("max_general_rise", "task.max_general_rise", "float",
            "Rise of the loss on general text, in nats, after which the run ends; 0: it never does.", 0),
)  # fmt: skip


class Adaptation:
    """An adaptation in a folder; what an earlier start has finished is not done again.

    Args:
        values: the flags. All that can be wrong without reading the texts is refused here.

    Raises:
        UserError: flags, checkpoint or task do not fit together, or the folder holds something else.
        FileNotFoundError: a file is missing.
    """

    def __init__(self, values: flags.FlagValues):
        self.folder = epath.Path(values.model_dir)
        self.texts = options.from_flags(TextOptions, values)
        texts.check(self.texts)
        if not (self.folder / NOTE).exists():  # what an earlier start has chosen of them is not read again
            texts.require(self.texts)
        if values.task_data:
            ExampleSet.load(f"{values.task_data}/train")

        # TensorFlow is loaded once the paths are known to be good.
        from run_scripts.adapt import settings
        from run_scripts.adapt.comparison import Task
        from run_scripts.adapt.leaks import HeldOut, texts_of, whole_texts_of
        from xlnet_tf.checkpoints import names, open_checkpoint
        from xlnet_tf.tasks import pretraining
        from xlnet_tf.text.tokenizer import MODEL_FILE
        from xlnet_tf.training import run, runtime

        try:
            self.checkpoint = open_checkpoint(values.init_checkpoint)
        except (UserError, FileNotFoundError) as error:
            raise type(error)(f"--init_checkpoint: {error}") from error
        if not epath.Path(self.checkpoint.path_of(MODEL_FILE)).exists():
            raise UserError(
                f"{values.init_checkpoint} has no {MODEL_FILE}: copy the tokenizer there that the model was "
                "pretrained with; with another one, it would have to learn its pieces anew"
            )
        lacking = {names.LANGUAGE_MODEL_HEAD, names.QUERY_START}.difference(self.checkpoint.arrays.shapes)
        if lacking:
            raise UserError(
                f"--init_checkpoint={values.init_checkpoint} has no language model: it lacks "
                f"{', '.join(sorted(lacking))}. Give pretrained weights, not those of a fine-tuned model"
            )
        recipe = files.read_yaml(experiment.recipes()["adapt"])
        given = {"recipe adapt": recipe, "init_checkpoint": settings.experiment_settings(self.checkpoint)}
        self.params = experiment.load(pretraining.EXPERIMENT, SETTINGS, values, given)
        if not self.params.task.keep_best:
            raise UserError(
                "task.keep_best is false: expected true. The weights with the lowest loss on held-out "
                "texts are what an adaptation gives: leave the setting out"
            )
        if values["epochs"].present and (steps := self.params.trainer.train_steps):
            logging.warning("--epochs %s", experiment.without_effect("epochs", "train_steps", steps))
        general = self.texts.general_input or self.texts.general_dev_input
        if values.max_general_rise and not general:
            raise UserError(
                "--max_general_rise needs general text to measure on: give --general_input or "
                "--general_dev_input"
            )
        self.task, held_out, whole = None, [], []
        if values.task_data:
            self.task = Task(values.task_data, values.task_config, values.num_seeds, self.params.runtime)
            sets = [self.task.sets[name] for name in ("dev", "test") if name in self.task.sets]
            held_out = sorted({text for examples in sets for text in texts_of(examples)})
            whole = [text for examples in sets for text in whole_texts_of(examples)]
        self.held_out = HeldOut(whole)
        self._values = values
        self._note = {
            "init_checkpoint": self._before,
            **dataclasses.asdict(self.texts),
            **{name: values[name].value for name in ("seq_len", "sentence_split", "keep_optimizer")},
            "seed": self.params.task.seed,
            "task_texts": hashlib.sha256("\n".join(held_out).encode()).hexdigest() if held_out else "",
        }
        self._note = json.loads(json.dumps(self._note))
        self._check_folder()
        # Once: the operations of a second strategy would be taken for those of the first. And here, as the
        # task is checked with the devices.
        self._strategy = runtime.prepare(self.params.runtime)
        run.check_batch_sizes(self.params, self._strategy.num_replicas_in_sync)
        if self.task:
            self.task.check(self._before, self._strategy, self._finetuned)

    @property
    def _before(self) -> str:
        """Where the weights before the adaptation are."""
        return self.checkpoint.source or self.checkpoint.path

    @property
    def _finetuned(self) -> str:
        """Folder of the runs that are compared."""
        return str(self.folder / WORK / "finetuned")

    def _check_folder(self) -> None:
        """Raises UserError if the folder holds anything but this adaptation."""
        self.is_new = not (self.folder / NOTE).exists()
        if self.is_new and {path.name for path in files.entries(self.folder)} - {ownership.FILE}:
            raise UserError(f"{self.folder} is not empty and holds no adaptation: choose another --model_dir")
        if not self.is_new and (
            different := settings_difference(files.read_json(self.folder / NOTE), self._note)
        ):
            lines = "\n".join(f"  {line}" for line in different)
            raise UserError(
                f"{self.folder} holds an adaptation with other settings:\n{lines}\nResume with those, or "
                "choose another --model_dir"
            )

    def prepare(self) -> tuple[dict[str, Any], dict[str, Manifest]]:
        """Chooses the texts, builds the records and completes the settings.

        Returns:
            The counts of documents, and the sets of records by the names of `texts`.

        Raises:
            UserError: the texts cannot be used; nothing is left of a first start then.
        """
        from run_scripts.adapt import settings
        from xlnet_tf.tasks import pretraining

        work = self.folder / WORK
        choice = None
        if not (work / COUNTS).exists():
            choice = texts.choose(self.texts, self.held_out, self.params.task.seed)
        files.make_folder(self.folder)
        with ownership.owning(self.folder, "adapting", "--model_dir"):
            try:
                if choice:  # the note comes first: what is left of a killed start is this adaptation's then
                    files.write(self.folder / NOTE, json.dumps(self._note, indent=1) + "\n")
                    files.make_folder(work)
                    choice.write(self.texts, work)
                    files.write(work / COUNTS, json.dumps(choice.counts(), indent=1) + "\n")
                counts = files.read_json(work / COUNTS)
                records = self._build(work, {name for c in counts.values() for name in c})
                settings.complete(
                    self.params, self.checkpoint, records, self._values.epochs, self._values.keep_optimizer
                )
                pretraining.build_task(self.params)
            except (UserError, FileNotFoundError):
                if self.is_new:
                    (self.folder / NOTE).unlink(missing_ok=True)
                    if work.exists():
                        work.rmtree()
                raise
        return counts, records

    def _build(self, work: epath.Path, written: set[str]) -> dict[str, Manifest]:
        from run_scripts.adapt import settings
        from tfrecord_builders.pretraining.build import build_pretraining_records

        records = {}
        for name in (texts.TRAIN, texts.DEV, texts.GENERAL):
            if name not in written:
                continue
            inputs = [name, *[texts.REPLAY] * (name == texts.TRAIN and texts.REPLAY in written)]
            built = settings.record_options(
                self.checkpoint,
                [work / f"{one}.jsonl" for one in inputs],
                work / "records" / name,
                name.replace("-", "_"),
                self.params.task.train_data.global_batch_size,
                seq_len=self._values.seq_len,
                sentence_split=self._values.sentence_split,
                seed=self.params.task.seed,
            )
            records[name] = build_pretraining_records(built, progress=True)
        return records

    def adapt(self, counts: Mapping[str, Any], records: Mapping[str, Manifest]) -> "Outcome":
        """Trains on what `prepare` returns, and compares on the task.

        Raises:
            UserError: no weights were kept, as too much was forgotten at once, or training fails.
        """
        from run_scripts.adapt.report import Outcome
        from xlnet_tf.checkpoints.model_card import BEST
        from xlnet_tf.tasks import pretraining
        from xlnet_tf.training.early_stopping import read_metrics
        from xlnet_tf.training.progress import HISTORY, read_history

        params, folder = self.params, str(self.folder)
        pretraining.pretrain(params, folder, self._strategy)
        kept, history = read_metrics(f"{folder}/{BEST}"), read_history(f"{folder}/{HISTORY}")
        bound = params.task.max_general_rise
        if not kept:
            raise UserError(
                f"at the first evaluation, the loss on general text had risen by more than {bound:g} "
                "(--max_general_rise): no weights were kept. Lower --learning_rate, raise --replay, or allow "
                "more"
            )
        comparison = None
        if self.task:
            comparison = self.task.compare(self._before, folder, self._strategy, self._finetuned)
        optimizer = params.trainer.optimizer_config
        return Outcome(
            folder=pathlib.Path(folder),
            checkpoint=self._before,
            counts=counts,
            held_out=len(self.held_out),
            records=records,
            settings={
                "train_steps": params.trainer.train_steps,
                "batch_size": params.task.train_data.global_batch_size,
                "learning_rate": optimizer.learning_rate,
                "warmup_steps": optimizer.warmup_steps,
                "replay": self.texts.replay,
                "max_general_rise": bound,
                "optimizer": f"moments of {optimizer.updates_before:,} updates, kept from the checkpoint"
                if optimizer.updates_before
                else "new",
                "memory_len": params.task.model.memory_len,
                "seq_len": records[texts.TRAIN].seq_len,
                "seed": params.task.seed,
            },
            history=history,
            kept=kept,
            bound=bound,
            comparison=comparison,
        )
