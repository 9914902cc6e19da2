"""An adaptation in a folder: chooses the texts, builds the records, pretrains, compares."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging
from etils import epath

from run_scripts.adapt import texts
from run_scripts.adapt.comparison import Task
from run_scripts.adapt.leaks import HeldOut, texts_of, whole_texts_of
from run_scripts.adapt.options import AdaptOptions
from run_scripts.common import experiment, sweeps
from run_scripts.common.experiment import RunOptions
from tfrecord_builders.pretraining.build import build_pretraining_records
from tfrecord_builders.pretraining.options import PretrainingOptions
from xlnet_tf import files, ownership
from xlnet_tf.checkpoints import names, open_checkpoint
from xlnet_tf.checkpoints.checkpoint import Checkpoint
from xlnet_tf.checkpoints.model_card import BEST, PARAMS_FILE
from xlnet_tf.checkpoints.of_runs import optimizer_state
from xlnet_tf.differences import settings_difference
from xlnet_tf.errors import UserError, prefixed
from xlnet_tf.flags import Setting
from xlnet_tf.records.manifest import FILE_NAME, KIND, Manifest
from xlnet_tf.tasks.metrics.table import metric_table
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.tasks.pretraining.config import ModelConfig
from xlnet_tf.text.vocabulary import TOKENIZER_FILE
from xlnet_tf.training import checks, runtime
from xlnet_tf.training.early_stopping import first_evaluation, read_metrics

WORK, NOTE, COUNTS, REPORT = "adaptation", "adaptation.json", "counts.json", "report.json"
_SAME = ("use_eod", "sentence_split", "seq_len", "reuse_len", "num_predict", "perm_size", "objective",
         "functional_tokens")  # fmt: skip
_RATE = 0.25  # of the peak learning rate of the checkpoint's own pretraining
_EVALUATIONS, _WARMUP = 8, 0.1


class Adaptation:
    """An adaptation in a folder; finished steps of an earlier start are not repeated.

    The constructor refuses whatever can be checked without reading the texts.
    """

    def __init__(
        self, run: RunOptions, texts: texts.TextOptions, options: AdaptOptions, settings: Sequence[Setting]
    ):
        self.folder = epath.Path(run.model_dir)
        self.texts, self._options = texts, options
        self.checkpoint = _open_language_model(options.init_checkpoint)
        self._before = self.checkpoint.source or self.checkpoint.path
        self._finetuned = str(self.folder / WORK / "finetuned")
        recipe = files.read_yaml(experiment.recipes()["adapt"])
        derived = {"recipe adapt": recipe, "init_checkpoint": experiment_settings(self.checkpoint)}
        self.params = experiment.load(pretraining.EXPERIMENT, settings, run, derived)
        if not self.params.task.keep_best:
            raise UserError("task.keep_best is false, expected true, as adapt keeps the best: leave it out")
        if options.epochs_given and (steps := self.params.trainer.train_steps):
            logging.warning("--epochs %s", sweeps.without_effect("epochs", "train_steps", steps))
        if run.given.get("max_general_rise") and not (texts.general_input or texts.general_dev_input):
            raise UserError(
                "--max_general_rise needs general text to measure on: give --general_input or "
                "--general_dev_input"
            )
        self.task, sets = None, []
        if options.task_data:
            self.task = Task(options.task_data, options.task_config, options.num_seeds, self.params.runtime)
            sets = [self.task.sets[name] for name in ("dev", "test") if name in self.task.sets]
        self.held_out = HeldOut(text for examples in sets for text in whole_texts_of(examples))
        cut = "\n".join(sorted({text for examples in sets for text in texts_of(examples)}))
        note = {
            "init_checkpoint": self._before,
            **dataclasses.asdict(self.texts),
            **{name: getattr(options, name) for name in ("seq_len", "sentence_split", "keep_optimizer")},
            "seed": self.params.task.seed,
            "task_texts": hashlib.sha256(cut.encode()).hexdigest() if cut else "",
        }
        self._note = json.loads(json.dumps(note))
        self._check_folder()
        # Once: the operations of a second strategy would be taken for those of the first. And here, as the
        # task is checked with the devices.
        self._strategy = runtime.prepare(self.params.runtime)
        checks.check_batch_sizes(self.params, self._strategy.num_replicas_in_sync)
        if self.task:
            self.task.check(self._before, self._strategy, self._finetuned)

    def _check_folder(self) -> None:
        """Raises UserError if the folder holds anything but this adaptation."""
        self.is_new = not (self.folder / NOTE).exists()
        if self.is_new:
            if {path.name for path in files.entries(self.folder)} - {ownership.FILE}:
                raise UserError(
                    f"{self.folder} is not empty and holds no adaptation: choose another --model_dir"
                )
        elif different := settings_difference(files.read_json(self.folder / NOTE), self._note):
            lines = "\n".join(f"  {line}" for line in different)
            raise UserError(
                f"{self.folder} holds an adaptation with other settings:\n{lines}\nResume with those, or "
                "choose another --model_dir"
            )

    def prepare(self) -> tuple[dict[str, Any], dict[str, Manifest]]:
        """Chooses texts, builds records, completes the settings; returns counts, and the sets by name."""
        work, choice = self.folder / WORK, None
        if not (work / COUNTS).exists():
            choice = texts.choose(self.texts, self.held_out, self.params.task.seed)
        files.make_folder(self.folder)
        with ownership.folder_lease(self.folder, "adapting", "--model_dir"):
            try:
                if choice:  # the note comes first: what is left of a killed start is this adaptation's then
                    files.write(self.folder / NOTE, json.dumps(self._note, indent=1) + "\n")
                    texts.write(self.texts, choice[1], files.make_folder(work))
                    files.write(work / COUNTS, json.dumps(choice[0], indent=1) + "\n")
                counts = files.read_json(work / COUNTS)
                written = {name for each in counts.values() for name in each}
                records = {
                    name: build_pretraining_records(self.record_options(name, written), progress=True)
                    for name in (texts.TRAIN, texts.DEV, texts.GENERAL)
                    if name in written
                }
                self._complete(records)
                pretraining.build_task(self.params)
            except (UserError, FileNotFoundError):
                if self.is_new:
                    (self.folder / NOTE).unlink(missing_ok=True)
                    if work.exists():
                        work.rmtree()
                raise
        return counts, records

    def record_options(self, name: str, written: set[str]) -> PretrainingOptions:
        """Returns how to build a set in the form of the checkpoint's records, where it says so."""
        inputs = [name, *[texts.REPLAY] * (name == texts.TRAIN and texts.REPLAY in written)]
        paths = [self.folder / WORK / f"{each}.jsonl" for each in inputs]
        form: dict[str, Any] = {}
        path = epath.Path(self.checkpoint.path_of(FILE_NAME))
        if path.exists() and files.read_json(path).get("kind") == KIND:
            manifest = Manifest.load(path)
            mask = manifest.mask
            form = {each: getattr(manifest, each) for each in _SAME}
            form |= {"mask_alpha": mask["alpha"], "mask_beta": mask["beta"], "span_mode": mask["span_mode"]}
            form |= {"max_words": mask["max_words"], "bidirectional": len(manifest.directions) > 1}
        if self._options.seq_len is not None:
            for each in ("reuse_len", "num_predict", "perm_size"):
                form.pop(each, None)
        for each in ("seq_len", "sentence_split"):
            if getattr(self._options, each) is not None:
                form[each] = getattr(self._options, each)
        if cleaning := self.checkpoint.card.cleaning:
            form |= {"lower": cleaning.lower, "keep_accents": cleaning.keep_accents}
        found = PretrainingOptions(
            input=tuple(map(str, paths)),
            tokenizer=self.checkpoint.path_of(TOKENIZER_FILE),
            output_dir=str(self.folder / WORK / "records" / name),
            split=name.replace("-", "_"),
            seed=self.params.task.seed,
            **form,
        )
        # About four bytes a token. At least four streams for each row of a batch, read in both directions.
        tokens = sum(path.stat().length for path in paths if path.exists()) // 4
        segments = (1 + found.bidirectional) * tokens // (found.reuse_len or found.seq_len // 2)
        streams = segments // (4 * self.params.task.train_data.global_batch_size)
        return dataclasses.replace(found, stream_segments=min(64, max(1, streams)))

    def _complete(self, records: Mapping[str, Manifest]) -> None:
        """Fills in the settings that depend on the records and on the checkpoint's optimizer."""
        task, trainer = self.params.task, self.params.trainer
        task.init_checkpoint = self._before
        task.train_data.input_path = str(records[texts.TRAIN].folder)
        task.validation_data.input_path = str(records[texts.DEV].folder)
        if texts.GENERAL in records:
            task.general_data.input_path = str(records[texts.GENERAL].folder)
        else:
            task.max_general_rise = 0.0
        rows = task.train_data.global_batch_size
        if (streams := records[texts.TRAIN].num_streams) < rows:
            raise UserError(
                f"--input: there is text for {streams} rows of a batch, and batch_size is {rows}: give more "
                "text or a smaller --batch_size"
            )
        steps = math.ceil(self._options.epochs * records[texts.TRAIN].records / rows)
        trainer.train_steps = steps = trainer.train_steps or max(1, steps)
        interval = trainer.validation_interval or -(-steps // _EVALUATIONS)
        trainer.steps_per_loop = loop = min(trainer.steps_per_loop, interval)
        trainer.validation_interval = trainer.validation_interval or interval // loop * loop
        trainer.checkpoint_interval = trainer.checkpoint_interval or trainer.validation_interval
        optimizer = trainer.optimizer_config
        optimizer.warmup_steps = optimizer.warmup_steps or int(_WARMUP * steps)
        if self._options.keep_optimizer and (state := optimizer_state(self.checkpoint)):
            optimizer.updates_before = state.updates

    def adapt(self, counts: Mapping[str, Any], records: Mapping[str, Manifest]) -> str:
        """Trains on what `prepare` returns, compares on the task, writes report.json; returns a table."""
        folder = str(self.folder)
        pretraining.pretrain(self.params, folder, self._strategy)
        kept = read_metrics(f"{folder}/{BEST}")
        first = first_evaluation(folder)
        if not kept:
            raise UserError(
                "at the first evaluation, the loss on general text had risen by more than "
                f"{self.params.task.max_general_rise:g} (--max_general_rise): no weights were kept. Lower "
                "--learning_rate, raise --replay, or allow more"
            )
        measured = {
            name: {
                "<unk>": records[name].statistics["unknown_rate"],
                "pieces/word": 1 / max(records[name].statistics["word_start_rate"], 1e-9),
                "before": first[loss],
                "after": kept[loss],
                "change": kept[loss] - first[loss],
            }
            for name, loss in ((texts.DEV, "loss"), (texts.GENERAL, "general_loss"))
            if loss in kept
        }
        comparison, table = None, ""
        if self.task:
            comparison, table = self.task.compare(self._before, folder, self._strategy, self._finetuned)
        report = {"checkpoint": self._before, "counts": counts, "held_out": len(self.held_out)}
        report |= {"measured": measured, "kept": kept, "comparison": comparison}
        files.write_json(self.folder / REPORT, report)
        used = {name: each for sets in counts.values() for name, each in sets.items() if type(each) is dict}
        corpora = {f: {n: v for n, v in sets.items() if n not in used} for f, sets in counts.items()}
        losses = f"Loss in nats per target, before and after {kept['step']} steps:\n{metric_table(measured)}"
        return "\n\n".join(
            filter(None, [metric_table(corpora, "corpus"), metric_table(used, "set"), losses, table])
        )


def _open_language_model(name: str) -> Checkpoint:
    """Opens --init_checkpoint; refuses models without a language-model head or a tokenizer."""
    with prefixed("--init_checkpoint"):
        checkpoint = open_checkpoint(name)
    if not epath.Path(checkpoint.path_of(TOKENIZER_FILE)).exists():
        raise UserError(
            f"{name} has no {TOKENIZER_FILE}: copy the tokenizer there that the model was pretrained with; "
            "with another one, it would have to learn its pieces anew"
        )
    if lacking := {names.LANGUAGE_MODEL_HEAD, names.QUERY_START}.difference(checkpoint.arrays.shapes):
        raise UserError(
            f"--init_checkpoint={name} has no language model: it lacks {', '.join(sorted(lacking))}. Give "
            "pretrained weights, not those of a fine-tuned model"
        )
    return checkpoint


def experiment_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the settings that a checkpoint determines, over those of the recipe."""
    if checkpoint.config is None:
        raise UserError(f"init_checkpoint: {checkpoint.path} has no architecture next to it")
    known = {field.name for field in dataclasses.fields(ModelConfig)}
    model = {name: value for name, value in checkpoint.card.settings.items() if name in known}
    found: dict[str, Any] = {"task": {"model": model | checkpoint.config.to_dict()}}
    path = epath.Path(checkpoint.path_of(PARAMS_FILE))
    params = files.read_yaml(path) if path.exists() else {}
    if "optimizer_config" in params.get("trainer", {}) and checkpoint.card.task == "language_model":
        optimizer = dict(params["trainer"]["optimizer_config"])
        for name in ("warmup_steps", "min_lr_ratio", "updates_before"):
            optimizer.pop(name, None)
        optimizer["learning_rate"] *= _RATE
        found["trainer"] = {"optimizer_config": optimizer}
        found["task"]["train_data"] = {"global_batch_size": params["task"]["train_data"]["global_batch_size"]}
    return found
