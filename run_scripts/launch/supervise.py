"""The loop of a launch: it looks at what there is, and does what is missing until the training has ended.

No step relies on the one before: a launch that was killed continues from what the next one finds.
"""

import shutil
import sys
from typing import Any, TextIO

from run_scripts.launch.job import Job
from run_scripts.launch.machine import Look, Machine, NotOurs, Phase, Refused, Sight, Unreachable
from run_scripts.launch.state import State
from run_scripts.launch.tools import Failed
from xlnet_tf.errors import Interrupted, UserError

RESUME = Interrupted.EXIT_STATUS
STOP_SECONDS = 180  # that a training may take to save and end; as much of the budget is kept for it
_UNREACHABLE_SECONDS = 900  # after which a TPU that says READY and does not answer is replaced
_SILENT_TPUS = 3  # replaced so, one after another: then the next one would not answer either
_LATE_SECONDS = 600  # after wait_hours, in which a queue gives the request up by itself
_DELETE_TRIES = 20
_LATE_LOOKS = 3  # that find nothing of what was asked for
_TAIL = 12  # lines of the log that an error repeats
_QUIET_SECONDS = 600  # between two lines of progress, where stderr is no terminal


class Supervisor:
    """Runs a job to its end.

    Args:
        state: what earlier launches left.
        clock: has time() and sleep(seconds).
        poll_seconds: between two looks.
        estimate: hours that the training may need; None: unknown.
        out: for the training's log.
    """

    def __init__(
        self, job: Job, machine: Machine, state: State, clock: Any, poll_seconds: float,
        estimate: float | None = None, out: TextIO | None = None,
    ):  # fmt: skip
        self._job, self._machine, self._state = job, machine, state
        self._clock, self._poll, self._estimate, self._out = clock, poll_seconds, estimate, out or sys.stdout
        self._progress = Progress(clock)
        self._tail: list[str] = []
        self._silent_since: float | None = None
        self._silent_tpus = 0
        self._waiting_since: float | None = None
        self._ready, self._lost_at, self._wait = False, 0.0, 3600 * job.wait_hours

    def run(self) -> None:
        """Creates, waits, trains, resumes; at the end, whatever it is, nothing that costs money is left.

        Raises:
            UserError: the training failed, the budget is spent, or the cloud refuses the TPU.
        """
        try:
            self._run()
        except KeyboardInterrupt:
            self._say("stopping: the training saves a checkpoint (Ctrl-C again deletes the TPU at once)")
            self._attempt_stop()
            raise
        finally:
            self.clean()

    def clean(self) -> None:
        """Deletes the TPU if there may be one.

        Raises:
            UserError: it cannot be deleted; the message says how to.
        """
        if not self._state.created:
            return
        self._say("deleting the TPU")
        try:
            why = self._delete_all()
        except KeyboardInterrupt:
            self._say("still deleting the TPU (Ctrl-C again leaves it as it is, and it costs money)")
            try:
                why = self._delete_all()
            except KeyboardInterrupt:
                self._say(f"NOT deleted, and it may cost money: {self._how_to_delete()}")
                raise
        if why:
            # After Ctrl-C nobody prints the error.
            self._say(f"NOT deleted, and it may cost money: {self._how_to_delete()}")
            raise UserError(f"the TPU could not be deleted and may cost money: {why}")
        self._say(f"nothing is left; the run used {self._cost()}")

    def _delete_all(self) -> str:
        """Returns why the TPU cannot be deleted; "" once it is gone."""
        absent, why = 0, ""
        for attempt in range(_DELETE_TRIES):
            try:
                sight = self._machine.sight()
                if sight.phase is Phase.ABSENT:
                    absent += 1
                    # What was asked for and never seen may still be on its way.
                    if absent > _LATE_LOOKS * (not self._state.seen):
                        self._state.count(self._clock.time(), ready=False)
                        self._state.save(created=False)
                        return ""
                else:
                    absent, why = 0, f"it is still {sight.text}"
                    self._machine.delete()
                    if not attempt:  # it waits for the end of what it deletes, mostly
                        continue
            except NotOurs:
                self._state.save(created=False)
                return ""
            except Failed as error:
                why = str(error)
            self._clock.sleep(self._poll)
        return why

    def _how_to_delete(self) -> str:
        return (
            f"run the same launch with --stop, or delete {self._job.name} in {self._job.zone} yourself, at "
            "https://console.cloud.google.com"
        )

    def _run(self) -> None:
        while True:
            sight = self._sight()
            self._show(sight)
            if self._left() <= 0:
                self._end_of_budget()
            if sight.phase is Phase.ABSENT:
                self._create()
            elif sight.phase is Phase.FAILED:
                raise UserError(
                    f"there is no TPU: {sight.text}. Launch again to wait once more, or change zone or "
                    "accelerator"
                )
            elif sight.phase is Phase.LOST:
                self._replace(f"the TPU is lost ({sight.text}): the run resumes on a new one")
            elif sight.phase is Phase.READY and self._train():
                return
            self._clock.sleep(max(0.0, min(self._poll, self._left())))

    def _sight(self) -> Sight:
        """Returns how far the TPU is; a cloud that does not answer leaves it as far as it was."""
        try:
            sight = self._machine.sight()
            ready = sight.phase is Phase.READY
            if not ready and (seen_at := self._state.ready_at) is not None:
                self._lost_at = self._clock.time()
                if not self._ready:  # an earlier launch saw it
                    hours = (self._lost_at - seen_at) / 3600
                    self._say(
                        f"the TPU is no longer ready: the {hours:.2f} h since it was last seen ready count "
                        "as used, because the cloud does not say when it was lost"
                    )
            self._ready = ready
            if sight.phase is not Phase.ABSENT:
                self._state.seen = self._state.created = True
            sight = self._overdue(sight)
        except NotOurs:
            self._state.save(created=False)
            raise
        except Failed as error:
            if error.outcome.meaning not in ("transient", "login", "quota") or not self._state.created:
                raise
            sight = Sight(Phase.WAITING, f"no answer ({error.outcome.reason})")
            ready = self._state.ready_at is not None
        self._state.count(self._clock.time(), ready)
        return sight

    def _overdue(self, sight: Sight) -> Sight:
        """Returns how far the TPU is, which is FAILED if it has been waited for too long."""
        if sight.phase is not Phase.WAITING:
            self._waiting_since = None
            return sight
        now = self._clock.time()
        self._waiting_since = self._waiting_since or now
        is_late = now - self._waiting_since > self._wait + _LATE_SECONDS
        return Sight(Phase.FAILED, sight.text) if is_late else sight

    def _replace(self, why: str) -> None:
        self._say(why)
        self._silent_since = None
        try:
            self._machine.delete()
        except Failed as error:
            self._say(f"it cannot be deleted yet: {error.outcome.reason}")
        self._state.save(log_offset="")

    def _create(self) -> None:
        again, before = self._state.created_times > 0, self._state.created
        # First the note, then the deed: what is half created by a killed launch is found again.
        self._state.save(created=True, seen=False, created_times=self._state.created_times + 1, log_offset="")
        self._say(f"asking for {self._job.accelerator} in {self._job.zone}" + " again" * again)
        try:
            self._machine.create(self._left())
        except Refused as error:
            self._state.save(created=before or not error.nothing)
            # A run that has lost its TPU waits for the next one; a new run ends at once.
            if not (error.later and self._lost_at and self._clock.time() - self._lost_at < self._wait):
                raise
            self._say(f"trying again: {error}")

    def _train(self) -> bool:
        """Looks at the training, starts or resumes it if it does not run; returns whether it is done."""
        try:
            look = self._look()
            if not look.started:
                self._say("installing and starting the training")
                self._machine.start(self._left())
            elif look.status == RESUME:
                self._state.save(resumed=self._state.resumed + 1)
                self._say("the training was interrupted (status 75): resuming it")
                self._machine.start(self._left())
            elif look.status == 0:
                return True
            elif look.status is not None:
                raise UserError(
                    f"the training ended with status {look.status}, which a restart does not fix. Its "
                    "last lines:\n" + "".join(f"    {line}\n" for line in self._tail)
                )
            self._silent_since, self._silent_tpus = None, 0
        except Unreachable as error:
            now = self._clock.time()
            self._silent_since = self._silent_since or now
            self._say(f"the TPU does not answer ({error}): trying again; the training continues")
            if now - self._silent_since > _UNREACHABLE_SECONDS:
                self._silent_tpus += 1
                if self._silent_tpus == _SILENT_TPUS:
                    raise UserError(
                        f"{_SILENT_TPUS} TPUs in a row did not answer ({error}): a firewall or missing "
                        "rights may be in the way. To find out, create one and try gcloud compute tpus "
                        "tpu-vm ssh"
                    ) from None
                self._replace(
                    f"no answer for {_UNREACHABLE_SECONDS // 60} minutes: the run resumes on a new TPU"
                )
        return False

    def _look(self) -> Look:
        """Shows what the training has printed; of one that has ended, all."""
        while True:
            look = self._machine.look(self._state.log_offset)
            if look.log:
                self._progress.clear()
                self._out.write(look.log)
                self._out.flush()
                self._tail = [*self._tail, *look.log.splitlines()][-_TAIL:]
            self._state.save(log_offset=look.offset)
            if not look.log or look.status is None:
                return look

    def _end_of_budget(self) -> None:
        if self._state.ready_at is not None:
            self._say("the budget is spent: the training saves a checkpoint")
            self._attempt_stop()
        raise UserError(
            f"the budget is spent: {self._cost()} used. The run saved what it could and resumes "
            "with the same launch once the job's file has a larger budget"
        )

    def _attempt_stop(self) -> None:
        """Asks the training to end, and waits until it has, or for as long as it may take."""
        try:
            end = self._clock.time() + STOP_SECONDS
            if not self._look().started:
                return
            self._machine.stop()
            while self._clock.time() < end:
                look = self._look()
                if not look.started or look.status is not None:
                    return
                self._clock.sleep(min(self._poll, STOP_SECONDS))
        except (Unreachable, Failed, KeyboardInterrupt) as error:
            self._say(f"not waiting for the checkpoint: {error or 'Ctrl-C'}")

    def _left(self) -> float:
        """Returns the seconds of the budget without those kept for the last checkpoint."""
        total = self._job.budget.seconds
        return total - min(STOP_SECONDS, total / 10) - self._state.used(self._clock.time())

    def _cost(self) -> str:
        hours, price = self._state.used(self._clock.time()) / 3600, self._job.budget.price_per_hour
        total = self._job.budget.seconds / 3600
        money = f", {hours * price:,.2f} of {total * price:,.2f}" if price else ""
        return f"{hours:.2f} of {total:.2f} h{money}"

    def _show(self, sight: Sight) -> None:
        parts = [f"{self._job.name}: {sight.text}, used {self._cost()}"]
        parts += [f"{max(0.0, self._left()) / 3600:.2f} h left"]
        parts += [f"the training takes about {self._estimate:.1f} h"] if self._estimate is not None else []
        parts += [f"resumed {self._state.resumed} times"] if self._state.resumed else []
        self._progress.show(sight.text, ", ".join(parts))

    def _say(self, text: str) -> None:
        self._progress.clear()
        print(f"[launch] {text}", file=sys.stderr, flush=True)


class Progress:
    """A line that is redrawn on a terminal; elsewhere a line when something changes, and now and then."""

    def __init__(self, clock: Any):
        self._clock, self._key, self._due, self._width = clock, "", 0.0, 0

    def show(self, key: str, text: str) -> None:
        if sys.stderr.isatty():
            text = text[: shutil.get_terminal_size().columns - 1]
            print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(text)
        elif key != self._key or self._clock.time() >= self._due:
            print(f"[launch] {text}", file=sys.stderr, flush=True)
            self._due = self._clock.time() + _QUIET_SECONDS
        self._key = key

    def clear(self) -> None:
        if self._width:
            print(f"\r{' ' * self._width}\r", end="", file=sys.stderr)
            self._width = 0
