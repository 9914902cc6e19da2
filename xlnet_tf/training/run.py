"""Runs a training from its settings to its last evaluation, or resumes it where it stopped.

A run lives in its model_dir: params.yaml (all settings), model.json (the model card), what the task needs to
be used later, checkpoints, history.jsonl and TensorBoard summaries. On SIGTERM it saves a
checkpoint. Started again with the same model_dir it resumes from the newest one. Then all that decides about
the numbers must be as it was (`FIXED`), the batch size included, or the run is refused. The machine may
change: number and kind of devices, micro-batches, intervals, validation records; but with dropout another
product of replicas and micro-batches draws other masks. So may which steps are skipped, and whether memory is
saved; the run says so.
"""

import contextlib
import os
import re
from collections.abc import Iterator

import tensorflow as tf
import tf_keras
import yaml
from absl import logging
from official.core import train_lib, train_utils

from xlnet_tf import files, folders
from xlnet_tf.checkpoints.model_card import CARD_FILE, ModelCard
from xlnet_tf.checkpoints.of_runs import check_name, newest
from xlnet_tf.errors import UserError, tf_errors_as_user_errors
from xlnet_tf.ownership import Ownership, folder_lease
from xlnet_tf.training import runtime
from xlnet_tf.training.config import flatten
from xlnet_tf.training.early_stopping import Hours, HoursUsed, Patience
from xlnet_tf.training.guard import Watch
from xlnet_tf.training.interruption import OnAnyHost, Preemption, has_peers, lost_hosts
from xlnet_tf.training.optimizer import build_optimizer
from xlnet_tf.training.profile import Profile
from xlnet_tf.training.progress import Progress, number
from xlnet_tf.training.saving import Checkpoints
from xlnet_tf.training.task import Task
from xlnet_tf.training.trainer import Trainer

FIXED = ("task", "trainer.train_steps", "trainer.optimizer_config", "runtime.mixed_precision_dtype")
_DATA_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
    tf.errors.UnknownError,
)
# Where the data lies may change. What is trained on may not: the task compares it. Texts that are only
# evaluated are not compared.
FREE = (
    *("task.validation_data", "task.general_data.input_path", "task.train_data.input_path"),
    "task.init_checkpoint",
)
# So say TensorFlow, XLA and the TPU's runtime. A full disk is an error of the same kind, and names any path.
_LACK_OF_MEMORY = re.compile(
    ".*(out of memory|OOM when allocating|failed to allocate memory|attempting to (allocate|reserve)).*", re.I
)

_STEPS_LOOKED_AT = 10_000  # for the longest

SMALLER_STEP = (
    "Raise --accumulation_steps, add --recompute, or take a smaller batch_size; for TPUs "
    "xlnet-tf tpu-compile --find_max_batch shows what fits"
)


def run_training(params, task: Task, strategy: tf.distribute.Strategy, model_dir: str) -> dict[str, float]:
    """Trains to `params.trainer.train_steps`, evaluating at the start, at intervals and at the end.

    What falls fastest at the beginning has more evaluations there: see `Task.early_evaluations`.

    Args:
        params: the experiment's settings, complete and valid.

    Returns:
        The metrics of the last evaluation; empty without validation data.

    Raises:
        UserError: model_dir holds another run, sizes do not divide, a file of the data is damaged, or a step
            does not fit into a device's memory.
        Diverged: too many steps had a loss or a gradient to skip them for, or the weights are NaN.
        Interrupted: the process was asked to end, or another host was lost; a new start resumes it.
    """
    model_dir = model_dir.rstrip("/")  # FOLDER//NAME is another object of a bucket, and matches no pattern
    check_batch_sizes(params, strategy.num_replicas_in_sync)
    check_settings(params, model_dir)
    check_data(params, task)
    with named_damage(task, params.trainer.check_data_gb), tf_errors_as_user_errors():
        check_inputs(params, task, strategy.num_replicas_in_sync)
    params.trainer.summary_interval = params.trainer.steps_per_loop  # summaries are written with the reports
    with contextlib.ExitStack() as stack:
        owner = own(strategy, model_dir, stack)
        check_resumable(params, task, model_dir)  # on all hosts, as `own` is
        if owner:
            before = set(tf.io.gfile.glob(f"{model_dir}/*")) - {f"{model_dir}/params.yaml"}
            task.save_assets(model_dir)
            # Last: what it is compared with in a later start is there then.
            files.write(f"{model_dir}/params.yaml", yaml.dump(params.as_dict(), default_flow_style=False))
            ModelCard.read(model_dir, {CARD_FILE: None}).write(model_dir)
            written = set(tf.io.gfile.glob(f"{model_dir}/*")) - before
        try:
            return _run_owned(params, task, strategy, model_dir, owner)
        except UserError:
            # What failed before it saved anything is to be started again with other settings.
            if owner and not newest(model_dir):
                owner.check()
                for path in written:
                    tf.io.gfile.remove(path)
            raise


def own(strategy: tf.distribute.Strategy, model_dir: str, stack: contextlib.ExitStack) -> Ownership | None:
    """Makes a run the owner of its folder until the stack ends; None on hosts that do not write there.

    Raises:
        UserError: another process trains there; on all hosts, as a refusal of one alone would look like its
            loss, and the others would be started again for ever.
    """
    owner, refusal = None, None
    if strategy.extended.should_checkpoint:  # of several hosts one writes; all compute
        tf.io.gfile.makedirs(model_dir)
        try:
            owner = stack.enter_context(folder_lease(model_dir, "training", "--model_dir"))
        except UserError as error:
            refusal = error
    with lost_hosts(strategy, model_dir):
        if OnAnyHost(strategy)(refusal is not None):
            raise refusal or UserError(f"{model_dir} is in use, as the first host's message says")
    return owner


def _run_owned(params, task, strategy, model_dir: str, owner: Ownership | None) -> dict[str, float]:
    """Trains in a folder that belongs to this run."""
    if runtime.has_remote_hosts(strategy):
        task.read_in_graph(params.trainer.train_steps)
    evaluate = bool(params.task.validation_data.input_path)
    tf_keras.utils.set_random_seed(params.task.seed)
    with strategy.scope(), lost_hosts(strategy, model_dir):  # initial weights go to all hosts
        trainer = Trainer(
            params,
            task,
            task.build_model(),
            build_optimizer(params.trainer.optimizer_config, params.trainer.train_steps, task.n_layer),
            evaluate=evaluate,
            checkpoint_exporter=train_utils.maybe_create_best_ckpt_exporter(params, model_dir),
        )
    # Orbit prints each message besides logging it, which would tear the progress bar.
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        named_damage(task, params.trainer.check_data_gb),
        tf_errors_as_user_errors(),
        lost_hosts(strategy, model_dir),
        named_lack_of_memory("training", SMALLER_STEP),
    ):
        try:
            return _Run(params, task, strategy, model_dir, trainer, evaluate, owner).train()
        finally:
            # Now, and not when the trainer is collected: the end of an iterator waits for a thread of
            # TensorFlow's that sleeps the longer the older the iterator is, up to a minute.
            trainer.train_dataset = None


@contextlib.contextmanager
def named_damage(task: Task, most_gb: float) -> Iterator[None]:
    """Turns TensorFlow's errors about data, inside of a `with` block, into those of the task.

    TensorFlow names at most a record's offset or the line of code that found it; the task compares all files
    with their checksums, and names file and record. Other errors are raised as they are.

    Args:
        most_gb: of more gigabytes than these the error is raised as it is.
    """
    try:
        yield
    except _DATA_ERRORS:
        size = task.data_bytes() / 1e9
        if size > most_gb:
            logging.warning(
                "to see whether data are damaged, raise trainer.check_data_gb and start again, and the "
                "file is named. %.0f GB are not compared now, as it is %g",
                size,
                most_gb,
            )
            raise
        logging.warning("to see whether data are damaged, %.1f GB are compared", size)
        task.check_data()
        raise


@contextlib.contextmanager
def named_lack_of_memory(what: str, advice: str) -> Iterator[None]:
    """Turns TensorFlow's error about a device's memory, inside of a `with` block, into one that helps.

    Args:
        what: the steps are of.
        advice: what takes less.
    """
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        found = _LACK_OF_MEMORY.search(error.message)
        if not found:
            raise
        raise UserError(
            f"a step of {what} does not fit into the memory of a device ({found[0].strip()}). {advice}"
        ) from error


class _Run:
    """A run from where it is to its end: steps, evaluations and checkpoints.

    Args:
        evaluate: whether there is a set to evaluate on.
        owner: has model_dir to itself; None on all hosts but the chief.
    """

    def __init__(
        self,
        params,
        task: Task,
        strategy: tf.distribute.Strategy,
        model_dir: str,
        trainer: Trainer,
        evaluate: bool,
        owner: Ownership | None,
    ):
        self._params, self._task, self._strategy, self._model_dir = params, task, strategy, model_dir
        self._trainer, self._evaluate, self._owner = trainer, evaluate, owner
        self._train_steps, self._interval = params.trainer.train_steps, params.trainer.validation_interval
        chief = owner is not None
        self._progress = Progress(
            model_dir, trainer.global_step, self._train_steps, task.shown_metric, write=chief
        )
        self._preemption = Preemption(strategy)
        self._profile = Profile(params.trainer.profile_steps, model_dir)
        self._runner = _Runner(
            strategy,
            task,
            "train_and_eval" if evaluate else "train",
            params,
            model_dir,
            save_summary=chief,
            trainer=trainer,
            train_actions=[
                self._progress.train,
                Watch(trainer, params.trainer.max_skipped_steps, self._last_saved),
                self._end_if_asked,
                self._end_if_hours_are_used,
            ],
            eval_actions=[self._progress.evaluation],
        )
        self._validation_steps = task.validation_steps() if evaluate else 0
        self._patience = Patience(task, model_dir, self._step, self._interval, params.trainer.patience)
        self._hours = Hours(model_dir, params.trainer.max_hours, write=chief)
        self._on_any_host = OnAnyHost(strategy)

    @property
    def _step(self) -> int:
        return int(self._trainer.global_step.numpy())

    def train(self) -> dict[str, float]:
        """Trains up to the last step, or until an evaluation ends the run; returns the last metrics."""
        progress, runner = self._progress, self._runner
        with self._preemption, progress, self._profile, self._strategy.scope(), runner.checkpoint_manager:
            progress.say(runtime.describe(self._strategy))
            for notice in filter(None, (self._trainer.changed_micro_batches(), self._trainer.lost_memory())):
                progress.say(notice)
            metrics = self._evaluation()
            step = self._step  # the runner has restored the checkpoint
            reason = self._reason_to_end(metrics, step)
            if self._on_any_host(bool(reason)):  # as it had before it was started again
                return metrics
            while step < self._train_steps:
                evaluated = self._next_evaluation(step)
                self._profile.at(step)
                step = self._profile.stop_before(step, min(evaluated, self._next_checkpoint(step)))
                try:
                    runner.controller.train(step, checkpoint_at_completion=step == self._train_steps)
                except HoursUsed:
                    self._save_now()
                    progress.say(self._hours.reason(self._step))
                    break
                if step != evaluated:
                    continue
                metrics = self._evaluation()
                reason = self._reason_to_end(metrics, step)
                if self._on_any_host(bool(reason)):
                    progress.say(reason)
                    self._save_now()
                    break
        return metrics

    def _next_evaluation(self, step: int) -> int:
        """Returns the step of the next evaluation: the next multiple of the interval, or an earlier one."""
        # At the end of a loop, so that the steps run in the same loops as without early ones.
        loop = self._params.trainer.steps_per_loop
        early = [self._interval // part // loop * loop for part in (8, 4, 2) if self._task.early_evaluations]
        later = (step // self._interval + 1) * self._interval
        return min(self._train_steps, *(one for one in early if one > step), later)

    def _next_checkpoint(self, step: int) -> int:
        """Returns the step at which the next checkpoint is due, be it within a loop of steps or not."""
        interval = self._params.trainer.checkpoint_interval
        return (step // interval + 1) * interval

    def _evaluation(self) -> dict[str, float]:
        """Evaluates, where there is a set for it; returns the metrics."""
        if not self._evaluate:
            return {}
        smaller = f"Lower --dev_batch_size, {self._params.task.validation_data.global_batch_size} now"
        with (
            self._progress.evaluation_bar(self._validation_steps) as bar,
            named_lack_of_memory("the evaluation", smaller),
        ):

            def after_step():
                bar.update()
                self._end_if_asked()

            self._trainer.on_eval_step = after_step
            logs = self._runner.controller.evaluate(self._validation_steps)
        metrics = {name: number(value) for name, value in logs.items() if name != "steps_per_second"}
        step = self._step
        # Not where a run resumes between two evaluations: what is best must not depend on where it stopped.
        if self._owner and (step % self._interval == 0 or step == self._train_steps):
            self._task.after_evaluation(self._trainer.model, metrics, step, self._model_dir)
        return metrics

    def _reason_to_end(self, metrics: dict[str, float], step: int) -> str:
        """Returns why the run ends after an evaluation; "" if it does not."""
        if self._patience.lost(metrics, step):
            return self._patience.reason(step)
        # Not where a run resumes between two evaluations; see `_evaluation`.
        if self._evaluate and step and step % self._interval == 0:
            return self._task.out_of_bounds(metrics, self._model_dir)
        return ""

    def _end_if_asked(self, _=None):
        """Ends the run if a signal asked for it, or if another process has its folder; saves before."""
        if self._owner:
            self._owner.check()
        self._preemption.end_run(self._save_now, self._step, self._model_dir)

    def _end_if_hours_are_used(self, _=None):
        is_last = self._step == self._train_steps
        are_used = self._hours.are_used(at_end=is_last)
        if self._params.trainer.max_hours and self._on_any_host(are_used) and not is_last:
            raise HoursUsed

    def _save_now(self):
        self._runner.controller.save_checkpoint()
        self._runner.checkpoint_manager.wait()

    def _last_saved(self) -> str | None:
        self._runner.checkpoint_manager.wait()
        return newest(self._model_dir)


class _Runner(train_lib.OrbitExperimentRunner):
    """Model Garden's runner with our checkpoints; its workers all restore what the chief has saved."""

    def _maybe_build_checkpoint_manager(self):
        settings, resolver = self.params.trainer, self.strategy.cluster_resolver
        together = has_peers(self.strategy)
        return Checkpoints(
            self.trainer.checkpoint,
            self.model_dir,
            step=self.trainer.global_step,
            hold=self.trainer.guard.in_a_row,
            interval=settings.checkpoint_interval,
            max_to_keep=settings.max_to_keep,
            initialize=self.trainer.initialize,
            background=settings.async_checkpoints,
            host=resolver.task_id if together else 0,
            hosts=resolver.cluster_spec().num_tasks("worker") if together else 1,
            on_any_host=OnAnyHost(self.strategy),
        )


def check_settings(params, model_dir: str):
    """Raises UserError for settings and folders that no run can have, whatever it runs on."""
    check_name(model_dir)
    folders.claim(model_dir, folders.RUN, folders.RUNS, folders.ADAPTATION, flag="--model_dir")
    check_remote_paths(params, model_dir)
    Profile(params.trainer.profile_steps, model_dir)  # refuses wrong profile_steps
    for name in ("validation_interval", "checkpoint_interval"):
        if (steps := getattr(params.trainer, name)) < 1:
            raise UserError(f"trainer.{name} is {steps}: expected at least 1 step")
    if params.trainer.patience and not params.task.validation_data.input_path:
        raise UserError("trainer.patience (--patience) counts evaluations, and there are no dev examples")


def check_batch_sizes(params, replicas: int):
    """Raises UserError unless the batches split evenly over the replicas and their micro-batches."""
    micro_batches = params.trainer.accumulation_steps
    batch_size = params.task.train_data.global_batch_size
    if micro_batches < 1 or batch_size < 1 or batch_size % (replicas * micro_batches):
        raise UserError(
            f"batch_size is {batch_size} with {replicas} replicas and accumulation_steps {micro_batches}: "
            f"expected a multiple of {replicas * max(micro_batches, 1)}"
        )
    if params.task.validation_data.input_path and params.task.validation_data.global_batch_size % replicas:
        raise UserError(
            f"dev_batch_size is {params.task.validation_data.global_batch_size} with {replicas} replicas: "
            f"expected a multiple of {replicas}"
        )


def check_memory(params, task: Task, strategy: tf.distribute.Strategy):
    """Warns of a step on CPUs that may not fit this machine, whose system would end the run without a word.

    Raises:
        UserError: the step needs twice the machine's memory, and trainer.check_memory does not allow it.
    """
    if not runtime.describe(strategy).partition(" on ")[2].startswith("CPU"):
        return
    steps = min(params.trainer.train_steps, _STEPS_LOOKED_AT)
    lengths = {*task.step_lengths(0, steps, training=True, multiple=1)}
    config, step_tokens = task.xlnet_config, max(map(task.tokens_per_step, lengths))
    tokens = step_tokens // max(1, params.trainer.accumulation_steps)
    layers = 1 if params.trainer.recompute else config.n_layer
    # Measured with Base (512 tokens, 384 of memory): 0.83 GB a row, 44 floats a layer and unit of width.
    needed = 44 * 4 * tokens * layers * config.d_model / 1e9
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    if needed <= found:
        return
    problem = f"a step of {step_tokens:,} tokens needs about {needed:.0f} GB and this machine has {found:.0f}"
    if needed < 2 * found or not params.trainer.check_memory:
        logging.warning(
            "%s: the system may kill the run. %s, or begin with a small model (--preset=micro)",
            problem,
            SMALLER_STEP,
        )
        return
    rows, parts = params.task.train_data.global_batch_size, max(1, params.trainer.accumulation_steps)
    most = int(rows // parts * 0.8 * found / needed)
    smaller = ""
    if most:
        fitting = (count for count in range(parts, rows + 1) if rows % count == 0 and rows // count <= most)
        smaller = f"--batch_size={most * parts}, or --accumulation_steps={next(fitting)} with this batch, or "
    raise UserError(
        f"{problem}: the system would kill the run. What fits: {smaller}a small model "
        "(--preset=micro). --params_override=trainer.check_memory=false tries it all the same"
    )


def check_data(params, task: Task):
    """Compares the data with their checksums, or warns that they are too many for it.

    Raises:
        UserError: a file is damaged.
    """
    if (size := task.data_bytes() / 1e9) <= params.trainer.check_data_gb:
        task.check_data()
        return
    logging.warning(
        "the data's %.0f GB are not compared with their checksums before the run: check_data_gb is %g",
        size,
        params.trainer.check_data_gb,
    )


def check_inputs(params, task: Task, replicas: int, hosts: int = 1):
    """Reads a batch of each host's training and validation data: what cannot be read is an error at once.

    Training data would else be read only after the first evaluation.

    Raises:
        UserError: data and sizes do not fit together, such as a batch with more rows than there are streams.
    """
    task.replicas, task.accumulation_steps = replicas, params.trainer.accumulation_steps
    for data in (params.task.train_data, params.task.validation_data):
        for host in range(hosts if data.input_path else 0):
            for _ in task.build_inputs(data, tf.distribute.InputContext(hosts, host, replicas)).take(1):
                pass


def check_remote_paths(params, model_dir: str):
    """Raises UserError if the hosts of a TPU that is reached by name cannot read or write what they must."""
    if params.runtime.distribution_strategy != "tpu" or params.runtime.tpu in (None, "", "local"):
        return
    data = params.task.train_data.input_path, params.task.validation_data.input_path
    here = [path for path in (*data, model_dir) if path and "://" not in path]
    if here:
        raise UserError(
            f"the hosts of the TPU {params.runtime.tpu} read and write by themselves, and do not see "
            f"{', '.join(here)}: expected paths that all machines reach, as gs://BUCKET/..."
        )


def check_resumable(params, task: Task, model_dir: str):
    """Raises UserError if model_dir holds a run with other numbers (see FIXED), saved or only begun.

    What else differs of the trainer's settings is only said.
    """
    path = f"{model_dir}/params.yaml"
    saved = newest(model_dir)
    if not tf.io.gfile.exists(path):
        if not saved:
            return
        raise UserError(
            f"{model_dir} holds checkpoints but no params.yaml, which has the settings they were trained "
            "with: put it back, or choose another --model_dir"
        )
    # A setting that the run's version did not have was at its default.
    defaults = {name: type(getattr(params, name))().as_dict() for name in ("task", "trainer", "runtime")}
    before = flatten(defaults) | flatten(files.read_yaml(path))
    now = flatten(params.as_dict())
    changed = {
        name: f"{name}: {before.get(name)} there, {now.get(name)} now"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    }
    fixed = [name for name in changed if name.startswith(FIXED) and not name.startswith(FREE)]
    different = [f"  {line}" for line in (*map(changed.get, fixed), *task.data_difference(model_dir))]
    if different:
        begin = f"(--init_checkpoint={model_dir} begins with its weights)"
        if not saved:
            begin = f"or remove {path}: nothing of that run has been saved"
        raise UserError(
            f"{model_dir} holds a run with other settings:\n" + "\n".join(different) + "\nResume with the "
            f"settings of that run, or start a new one with another --model_dir {begin}."
        )
    changed.pop("trainer.summary_interval", None)  # follows steps_per_loop
    if said := [line for name, line in changed.items() if name.startswith("trainer.")]:
        logging.warning("%s holds a run with other settings, and resumes: %s", model_dir, "; ".join(said))
