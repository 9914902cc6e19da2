"""Runs gcloud and kubectl, tries again where that helps, and says what their errors mean."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from xlnet_tf.errors import UserError, shown

# What the tools write on stderr, by meaning; the first that matches counts.
_MEANINGS = {
    "absent": r"NOT_FOUND|was not found|not found: 404|Image not found|NotFound|HTTPError 404|code=404|"
    r"matched no objects",
    "exists": r"ALREADY_EXISTS|already exists|AlreadyExists",
    "quota": r"[Qq]uota|RESOURCE_EXHAUSTED|no more capacity|stockout",
    "denied": r"PERMISSION_DENIED|HTTPError 403|Forbidden|[Pp]ermission.{0,40}denied|"
    r"does not have .{0,60}access",
    "login": r"auth login|[Rr]eauthentication|UNAUTHENTICATED|credentials",
    "transient": r"UNAVAILABLE|INTERNAL|DEADLINE_EXCEEDED|HTTPError 5\d\d|[Cc]onnection|[Tt]imed? ?out|"
    r"[Tt]emporar|Unable to connect|TLS handshake",
}  # fmt: skip
_INSTALL = {
    "gcloud": "https://docs.cloud.google.com/sdk/docs/install",
    "kubectl": "gcloud components install kubectl",
}
_TRIES = 5
_SECONDS = 900  # that a command may take; creating a TPU VM takes minutes


class Outcome(NamedTuple):
    """How a command ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def meaning(self) -> str:
        """What went wrong, as a key of the table above; "" after success, "other" for what it lacks."""
        if not self.status:
            return ""
        return next((name for name, text in _MEANINGS.items() if re.search(text, self.stderr)), "other")

    @property
    def reason(self) -> str:
        """The line that says most."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("ERROR", "Error", "error"))]
        text = errors[0] if errors else (lines or [f"it ended with status {self.status}"])[-1]
        return re.sub(r"^ERROR: (\(gcloud\S*\) )?", "", text)


class Failed(UserError):
    """A command failed, and trying again did not help.

    Args:
        first: whether it was tried once only; an earlier try whose answer was lost may have had its effect.
    """

    def __init__(self, command: Sequence[str], outcome: Outcome, first: bool):
        super().__init__(f"{outcome.reason} ({shlex.join(command)})")
        self.outcome, self.first = outcome, first

    @property
    def certain(self) -> bool:
        """Whether it is certain that the command had no effect."""
        return self.first and self.outcome.meaning in ("denied", "login", "quota", "absent")


def start(command: Sequence[str], text: str | None, seconds: float) -> Outcome:
    """Runs a command of this machine, out of the reach of the terminal's Ctrl-C."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, encoding="utf-8", errors="replace", timeout=seconds,
            start_new_session=True, stdin=subprocess.DEVNULL if text is None else None,
        )  # fmt: skip
    except FileNotFoundError:
        where = _INSTALL.get(command[0], "")
        raise UserError(f"{command[0]} is not installed on this machine{where and f': {where}'}") from None
    except subprocess.TimeoutExpired:
        return Outcome(1, "", f"Timed out after {seconds:.0f} s")
    return Outcome(done.returncode, done.stdout, done.stderr)


class Tools:
    """The commands of a launch.

    Args:
        clock: has sleep(seconds).
        seconds: to wait before a command that failed for the moment is tried again.
        run: starts a command and waits for its end; see `start`.
    """

    def __init__(self, clock: Any, seconds: float, run: Callable[..., Outcome] = start):
        self._clock, self._seconds, self._run = clock, seconds, run

    def once(self, command: Sequence[str], text: str | None = None, seconds: float = _SECONDS) -> Outcome:
        """Runs a command and returns how it ended, whatever that is."""
        return self._run(list(command), text, seconds)

    def ask(self, command: Sequence[str], text: str | None = None, allow: Sequence[str] = ()) -> Outcome:
        """Runs a command, again where the cloud did not answer.

        Args:
            text: what it reads from stdin.
            allow: meanings of failures to return.

        Raises:
            Failed: it did not succeed, and its failure is not allowed.
        """
        for left in reversed(range(_TRIES)):
            outcome = self.once(command, text)
            if not outcome.status or outcome.meaning in allow:
                return outcome
            if outcome.meaning != "transient" or not left:
                raise Failed(command, outcome, first=left == _TRIES - 1)
            self._clock.sleep(self._seconds)
        raise AssertionError("unreachable")

    def look_up(self, command: Sequence[str]) -> Any:
        """Returns the json that a command prints; None if what it asks for does not exist.

        Raises:
            Failed: the command did not succeed, or printed something else.
        """
        outcome = self.ask(command, allow=("absent",))
        try:
            return None if outcome.status else json.loads(outcome.stdout or "null")
        except ValueError:
            outcome = Outcome(1, "", f"it printed {shown(outcome.stdout)}, expected json")
            raise Failed(command, outcome, first=True) from None
