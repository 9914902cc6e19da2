"""What a launch has created and used, in a file: a later launch continues from there, or deletes it."""

import dataclasses
import pathlib
import secrets

from run_scripts.launch.job import Job
from xlnet_tf import files
from xlnet_tf.errors import UserError

FILE = "state.json"
_OF_JOB = ("name", "backend", "project", "zone", "accelerator", "cluster", "namespace", "model_dir")


@dataclasses.dataclass
class State:
    """A launch so far; every change is in the file before what it announces is done.

    Attributes:
        folder: of the file.
        created: whether something was asked for that may exist.
        used_seconds: that TPUs of this run have existed, ready or in use.
        ready_at: when the TPU was last seen so, in seconds since 1970; None while there is none.
        created_times: how often a TPU was asked for.
        resumed: how often the training was started again.
        seen: whether what was asked for last has appeared.
        token: the label of all that launches of this job create.
        log_offset: where the log of the TPU continues that was shown.
        where: the job's name, project and so on, when something was created.
    """

    folder: pathlib.Path
    created: bool = False
    used_seconds: float = 0.0
    ready_at: float | None = None
    created_times: int = 0
    resumed: int = 0
    seen: bool = False
    log_offset: str = ""
    token: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    where: dict[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, folder: pathlib.Path, job: Job) -> "State":
        """Returns what an earlier launch of the job left; nothing for a new one.

        Raises:
            UserError: what it created is elsewhere than the job says now.
        """
        state, now = cls(folder), {name: getattr(job, name) for name in _OF_JOB}
        if (folder / FILE).exists():
            known = files.read_json(
                folder / FILE, fix="delete what the cloud lists under the job's name, then this file"
            )
            state = cls(
                folder, **{name: value for name, value in known.items() if name in cls.__annotations__}
            )
        changed = [name for name in _OF_JOB if state.where.get(name, now[name]) != now[name]]
        if state.created and changed:
            name = changed[0]
            raise UserError(
                f"an earlier launch created something with {name}: {state.where[name]}, and the file says "
                f"{now[name]} now: restore that line, run the launch with --stop, and change it then"
            )
        if "model_dir" in changed:  # another run: its budget is its own
            state = cls(folder)
        state.where = now
        return state

    def save(self, **changes) -> None:
        """Changes attributes, in the file first."""
        for name, value in changes.items():
            setattr(self, name, value)
        values = {name: value for name, value in dataclasses.asdict(self).items() if name != "folder"}
        files.write_json(self.folder / FILE, values)

    def used(self, now: float) -> float:
        """Returns the seconds that TPUs were there, up to now."""
        return self.used_seconds + (max(0.0, now - self.ready_at) if self.ready_at is not None else 0.0)

    def count(self, now: float, ready: bool) -> None:
        """Adds the time since the TPU was last seen ready, and notes whether it is."""
        self.save(used_seconds=self.used(now), ready_at=now if ready else None)
