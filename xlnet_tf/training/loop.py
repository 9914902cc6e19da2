"""Runs the remaining steps of a training: reports, checkpoints and evaluations, in Orbit's controller."""

import orbit
from official.core import actions

from xlnet_tf.checkpoints.of_runs import newest
from xlnet_tf.errors import Interrupted
from xlnet_tf.ownership import Ownership
from xlnet_tf.training import runtime
from xlnet_tf.training.early_stopping import Hours, HoursUsed, Patience
from xlnet_tf.training.guard import Watch
from xlnet_tf.training.interruption import OnAnyHost, Preemption, has_peers, named_lack_of_memory
from xlnet_tf.training.profile import Profile
from xlnet_tf.training.progress import Progress, number
from xlnet_tf.training.report import RunReport
from xlnet_tf.training.saving import Checkpoints
from xlnet_tf.training.trainer import Trainer


class TrainingLoop(orbit.Controller):
    """Orbit's controller with our checkpoints, reports and reasons to end, from the newest checkpoint on."""

    def __init__(self, trainer: Trainer, model_dir: str, owner: Ownership | None):
        self._settings, self._model_dir, self._owner = trainer.config.trainer, model_dir, owner
        settings, is_chief = self._settings, owner is not None
        self._on_any_host = OnAnyHost(trainer.strategy)
        self._preemption = Preemption(trainer.strategy)
        self._profile = Profile(settings.profile_steps, model_dir)
        self._report = RunReport(trainer.task, model_dir, settings.train_steps, write=is_chief)
        about = settings.train_steps, trainer.task.shown_metric, is_chief, self._report
        self._progress = Progress(model_dir, trainer.global_step, *about)
        checkpoints = _checkpoints(trainer, model_dir, self._on_any_host)
        super().__init__(
            strategy=trainer.strategy,
            trainer=trainer,
            evaluator=trainer,
            global_step=trainer.global_step,
            steps_per_loop=settings.steps_per_loop,
            checkpoint_manager=checkpoints,
            summary_dir=f"{model_dir}/train" if is_chief else None,
            eval_summary_dir=f"{model_dir}/{settings.validation_summary_subdir}" if is_chief else None,
            summary_interval=settings.summary_interval if is_chief else None,
            train_actions=[
                self._progress.train,
                self._report.write_if_due,
                Watch(trainer, settings.max_skipped_steps, self._last_saved),
                self._end_if_asked,
                self._end_if_hours_are_used,
                *actions.get_train_actions(trainer.config, trainer, model_dir, checkpoints),
            ],
            eval_actions=[
                self._progress.evaluation,
                *actions.get_eval_actions(trainer.config, trainer, model_dir),
            ],
        )
        self._patience = Patience(
            trainer.task, model_dir, self._step, settings.validation_interval, settings.patience
        )
        self._hours = Hours(model_dir, settings.max_hours, write=is_chief)

    @property
    def _step(self) -> int:
        return int(self.global_step.numpy())

    def run(self) -> dict[str, float]:
        """Trains up to the last step, or until something ends the run; returns the last metrics."""
        last, interval = self._settings.train_steps, self._settings.checkpoint_interval
        with self._preemption, self._progress, self._profile, self.strategy.scope(), self.checkpoint_manager:
            self._progress.say(runtime.describe(self.strategy))
            for notice in self.trainer.resume_notices():
                self._progress.say(notice)
            metrics, reason = self._evaluation()
            if self._on_any_host(bool(reason)):  # the reason why the run had ended before this start
                self._report.write(reason)
                return metrics
            ends = False
            while not ends and (step := self._step) < last:
                evaluation = self._next_evaluation(step)
                self._profile.at(step)
                checkpoint = (step // interval + 1) * interval  # even within a loop of steps
                target = self._profile.stop_before(step, min(evaluation, checkpoint))
                try:
                    self.train(target, checkpoint_at_completion=target == last)
                except HoursUsed:
                    reason, ends = self._hours.reason(self._step), True
                else:
                    if target == evaluation:
                        metrics, reason = self._evaluation()
                        ends = self._on_any_host(bool(reason))
            if ends:
                self._save_now()
                self._progress.say(reason)
            self._report.write(reason or "The run has ended.")
        return metrics

    def _next_evaluation(self, step: int) -> int:
        """Returns the step of the next evaluation: the next multiple of the interval, or an earlier one."""
        # At the end of a loop, so that the steps run in the same loops as without early ones.
        loop, interval = self._settings.steps_per_loop, self._settings.validation_interval
        parts = (8, 4, 2) if self.trainer.task.early_evaluations else ()
        early = [interval // part // loop * loop for part in parts]
        later = (step // interval + 1) * interval
        return min(self._settings.train_steps, *(number for number in early if number > step), later)

    def _evaluation(self) -> tuple[dict[str, float], str]:
        """Evaluates if there is validation data; returns the metrics, and why the run ends now or ""."""
        if self.trainer.eval_batching is None:
            return {}, ""
        steps, task = self.trainer.eval_batching.steps, self.trainer.task
        batch_size = self.trainer.config.task.validation_data.global_batch_size
        with (
            self._progress.evaluation_bar(steps) as bar,
            named_lack_of_memory("the evaluation", f"Lower --dev_batch_size, {batch_size} now"),
        ):

            def after_step():
                bar.update()
                self._end_if_asked()

            self.trainer.on_eval_step = after_step
            logs = self.evaluate(steps)
        metrics = {name: number(value) for name, value in logs.items() if name != "steps_per_second"}
        step = self._step
        # Not where a run resumes in between: the best weights must not depend on where it stopped.
        is_regular = step % self._settings.validation_interval == 0
        if self._owner and (is_regular or step == self._settings.train_steps):
            task.after_evaluation(self.trainer.model, metrics, step, self._model_dir)
        self._report.write()
        if self._patience.lost(metrics, step):
            return metrics, self._patience.reason(step)
        if step and is_regular:
            return metrics, task.out_of_bounds(metrics, self._model_dir)
        return metrics, ""

    def _end_if_asked(self, _=None):
        """Saves and ends the run on a signal; also ends it if another process has taken over its folder."""
        if self._owner:
            self._owner.check()
        try:
            self._preemption.end_run(self._save_now, self._step, self._model_dir)
        except Interrupted as ended:
            self._report.write(f"{ended}.", evaluated=False)
            raise

    def _end_if_hours_are_used(self, _=None):
        is_last = self._step == self._settings.train_steps
        are_used = self._hours.are_used(at_end=is_last)
        if self._settings.max_hours and self._on_any_host(are_used) and not is_last:
            raise HoursUsed

    def _save_now(self):
        self.save_checkpoint()
        self.checkpoint_manager.wait()

    def _last_saved(self) -> str | None:
        self.checkpoint_manager.wait()
        return newest(self._model_dir)


def _checkpoints(trainer: Trainer, model_dir: str, on_any_host: OnAnyHost) -> Checkpoints:
    settings, resolver = trainer.config.trainer, trainer.strategy.cluster_resolver
    together = has_peers(trainer.strategy)
    return Checkpoints(
        trainer.checkpoint,
        model_dir,
        step=trainer.global_step,
        hold=trainer.guard.in_a_row,
        interval=settings.checkpoint_interval,
        max_to_keep=settings.max_to_keep,
        initialize=trainer.initialize,
        background=settings.async_checkpoints,
        host=resolver.task_id if together else 0,
        hosts=resolver.cluster_spec().num_tasks("worker") if together else 1,
        on_any_host=on_any_host,
    )
