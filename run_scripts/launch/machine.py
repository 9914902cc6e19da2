"""What a launch asks of the place where a job runs; `cloud_tpu` and `kubernetes` are such places."""

import enum
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from run_scripts.launch.tools import Failed
from xlnet_tf.errors import UserError


class Phase(enum.Enum):
    """How far a TPU is.

    ABSENT: there is nothing. WAITING: it was asked for. READY: it can be used, and costs money. LOST: it was
    taken away, or never became whole; what is left has to be deleted. FAILED: the cloud gave the request up.
    """

    ABSENT, WAITING, READY, LOST, FAILED = range(5)


class Sight(NamedTuple):
    """A TPU as it was found: its phase, and the cloud's own word for it, perhaps with a reason."""

    phase: Phase
    text: str


class Look(NamedTuple):
    """A training as it was found.

    Attributes:
        log: what it has printed since the last look.
        offset: where the next look at its log begins.
        started: whether it was started on this TPU.
        status: its exit status; None while it runs.
    """

    log: str
    offset: str
    started: bool
    status: int | None


class Step(NamedTuple):
    """A command as `--print` shows it, with the text that it reads from stdin."""

    why: str
    command: Sequence[str]
    text: str | None = None


LABEL = "xlnet-launch"  # of all that a launch creates; its value is the launch's token


class Refused(UserError):
    """The cloud does not give what was asked for: no quota, no right, no such thing.

    Args:
        text: why, and what to do.

    Attributes:
        nothing: whether it is certain that nothing was created.
        later: whether the same request may be granted later.
    """

    def __init__(self, text: str, failed: Failed):
        super().__init__(text)
        self.nothing, self.later = failed.certain, failed.outcome.meaning in ("quota", "transient")


class NotOurs(UserError):
    """What has the job's name was created by something else, and must not be touched."""


def check_ours(labels: dict[str, str] | None, token: str, what: str, delete: Sequence[str]) -> None:
    """Raises NotOurs if what exists lacks the label of this launch.

    Args:
        what: it is, for people.
        delete: the command that deletes it.
    """
    if (labels or {}).get(LABEL) != token:
        raise NotOurs(
            f"{what} exists already, and this launch did not create it: another launch may run this job, "
            "maybe from another machine. Wait for its end, choose another name:, or delete it "
            f"({shlex.join(delete)})"
        )


class Unreachable(Exception):
    """The machine did not answer: the connection is lost, or the TPU."""


class Machine(Protocol):
    """A TPU that exists for one job."""

    def create(self, seconds: float) -> None:
        """Asks for the TPU.

        Args:
            seconds: that it may exist; some time later it ends without a launch, too.

        Raises:
            Refused: the cloud says no.
        """

    def sight(self) -> Sight:
        """Returns how far it is.

        Raises:
            NotOurs: something else has the job's name.
        """

    def start(self, seconds: float) -> None:
        """Starts the training unless it runs already.

        Args:
            seconds: that it may take, after which it has to save and end by itself.

        Raises:
            Unreachable: the machine did not answer.
        """

    def look(self, offset: str) -> Look:
        """Returns what the training did since an earlier look.

        Raises:
            Unreachable: the machine did not answer.
        """

    def stop(self) -> None:
        """Asks the training to save and end, without waiting for it.

        Raises:
            Unreachable: the machine did not answer.
        """

    def delete(self) -> None:
        """Deletes all there is of the TPU; there may be nothing."""

    def steps(self) -> Iterator[Step]:
        """Yields the commands of a launch in which nothing goes wrong, for `--print`."""
