"""TPU VMs of the Cloud TPU API: from a queue (queued resources), or at once.

Facts from the reference of `gcloud compute tpus` (Google Cloud SDK 528.0.0, June 2025) and from
https://docs.cloud.google.com/tpu/docs/queued-resources (read 2026-11-24). Never run against the real cloud.
"""

import pathlib
import re
import shlex
from collections.abc import Iterator

from run_scripts.launch.job import TENSORFLOW, Job
from run_scripts.launch.machine import LABEL, Look, Phase, Refused, Sight, Step, Unreachable, check_ours
from run_scripts.launch.tools import Failed, Outcome, Tools

SCRIPT = pathlib.Path(__file__).with_name("tpu_vm.sh")
GUARD = pathlib.Path(__file__).with_name("guard.sh")
TPU = ["gcloud", "compute", "tpus"]
_TYPES = {"v5e": "v5litepod"}  # in the name of an accelerator
_WAITING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "STATE_UNSPECIFIED")
_WAITING_NODE = ("CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "STATE_UNSPECIFIED")
_GUARD_SECONDS = 900  # after the budget, when a launch would have deleted the TPU: the VM deletes it itself
_SSH_SECONDS = 180  # of a look; a connection that hangs longer is lost
_LOOK = re.compile(r"^xlnet-job (\w+) (-?\d+) (\d+)$", re.MULTILINE)


def accelerator_type(job: Job) -> str:
    """Returns the TPU of a job as this API calls it: v5litepod-8 for v5e-8."""
    generation = job.slice.generation
    return f"{_TYPES.get(generation, generation)}-{job.slice.name.partition('-')[2]}"


class CloudTpu:
    """The TPU VMs of a job; see `machine.Machine`."""

    def __init__(self, job: Job, tools: Tools, token: str):
        self._job, self._tools, self._token = job, tools, token
        self._queued = job.backend == "queued-resource"
        self._at = [f"--project={job.project}", f"--zone={job.zone}", "--quiet"]
        self._uploaded = False

    def create(self, seconds: float) -> None:
        try:
            # Asking twice is harmless: a name exists once.
            self._tools.ask(self._create(seconds), allow=("exists",))
        except Failed as error:
            text = f"{self._job.accelerator} in {self._job.zone} is refused: {_advice(error)}"
            raise Refused(text, error) from error

    def sight(self) -> Sight:
        if not self._queued:
            node = self._node()
            return self._of_node(node) if node else Sight(Phase.ABSENT, "none")
        # The node is looked at last: it appears before its resource is ACTIVE.
        resource = self._tools.look_up(self._describe("queued-resources"))
        if not resource:
            half = self._node() is not None
            return Sight(Phase.LOST, "only the node is left") if half else Sight(Phase.ABSENT, "none")
        spec = ((resource.get("tpu") or {}).get("nodeSpec") or [{}])[0]
        self._check_ours(spec.get("node") or {}, "queued-resources")
        state = resource.get("state") or {}
        name = state.get("state", "STATE_UNSPECIFIED")
        if name in _WAITING:
            return Sight(Phase.WAITING, name)
        if name == "ACTIVE":
            node = self._node()
            return self._of_node(node) if node else Sight(Phase.LOST, "ACTIVE without a node")
        why = ((state.get("failedData") or {}).get("error") or {}).get("message", "")
        text = f"{name}: {why}" if why else name
        return Sight(Phase.FAILED if name == "FAILED" else Phase.LOST, text)

    def start(self, seconds: float) -> None:
        if not self._uploaded:
            self._reach(self._upload())
            self._uploaded = True
        self._reach(self._ssh(*self._work(seconds)))

    def look(self, offset: str) -> Look:
        # A VM that was never used has no script yet.
        outcome = self._reach(self._ssh_if_there("look", offset or "0"))
        if not (found := _LOOK.search(outcome.stdout)):
            raise Unreachable("its answer is none of ours")
        state, status, end = found[1], int(found[2]), found[3]
        self._uploaded = self._uploaded and state != "new"
        log = outcome.stdout[found.end() + 1 :]
        return Look(log, end, state != "new", status if state == "ended" else None)

    def stop(self) -> None:
        self._reach(self._ssh_if_there("stop"))

    def delete(self) -> None:
        self._uploaded = False
        for kind in ("queued-resources", "tpu-vm")[not self._queued :]:
            self._tools.ask(self._delete(kind), allow=("absent",))

    def steps(self) -> Iterator[Step]:
        yield Step(
            "asks for the TPU, which deletes itself after the budget if no launch does",
            self._create(self._job.budget.seconds),
        )
        for kind in ("queued-resources", "tpu-vm")[not self._queued :]:
            yield Step("is repeated until the TPU is ACTIVE and READY, and later to see whether it still is",
                       self._describe(kind))  # fmt: skip
        yield Step("copies what the VM needs", self._upload())
        yield Step(
            "installs and trains, in the background; again after status 75, and on a new TPU",
            self._ssh(*self._work(self._job.budget.seconds)),
        )
        yield Step("is repeated: new lines of the log, and the exit status", self._ssh_if_there("look", "0"))
        yield Step(
            "when the budget is spent, or after Ctrl-C: saves a checkpoint", self._ssh_if_there("stop")
        )
        for kind in ("queued-resources", "tpu-vm")[not self._queued :]:
            yield Step("always, at the end", self._delete(kind))

    def _create(self, seconds: float) -> list[str]:
        job, kind = self._job, accelerator_type(self._job)
        more = ["--spot"] * job.spot + [f"--service-account={job.service_account}"] * bool(
            job.service_account
        )
        end = round(seconds) + _GUARD_SECONDS
        collection = "queuedResources" if self._queued else "nodes"
        resource = f"projects/{job.project}/locations/{job.zone}/{collection}/{job.name}"
        more += [
            f"--metadata=xlnet-guard-seconds={end},xlnet-guard-resource={resource}",
            f"--metadata-from-file=startup-script={GUARD}",
            f"--labels={LABEL}={self._token}",
            *self._at,
        ]
        if self._queued:
            return [*TPU, "queued-resources", "create", job.name, f"--node-id={job.name}",
                    f"--accelerator-type={kind}", f"--runtime-version={job.runtime}",
                    f"--valid-until-duration={round(job.wait_hours * 3600)}s", "--async", *more]  # fmt: skip
        return [
            *TPU,
            "tpu-vm",
            "create",
            job.name,
            f"--accelerator-type={kind}",
            f"--version={job.runtime}",
            *more,
        ]

    def _describe(self, kind: str) -> list[str]:
        return [*TPU, kind, "describe", self._job.name, "--format=json", *self._at]

    def _delete(self, kind: str) -> list[str]:
        return [*TPU, kind, "delete", self._job.name, *["--force"] * (kind == "queued-resources"), *self._at]

    def _upload(self) -> list[str]:
        package = pathlib.Path(self._job.package)
        lock = package.parent.parent / "requirements.lock"  # of the checkout that the wheel was made in
        files = [str(package), *[str(lock)] * lock.is_file()] * self._is_file()
        return [*TPU, "tpu-vm", "scp", str(SCRIPT), *files, f"{self._job.name}:.", "--worker=0", *self._at]

    def _work(self, seconds: float) -> list[str]:
        """Returns the words that start the training on the first VM."""
        one = self._job.slice.hosts == 1
        package = pathlib.Path(self._job.package).name if self._is_file() else self._job.package
        where = "local" if one else self._job.name
        limit = max(1, round(seconds))  # `timeout 0` has none
        return ["start", str(limit), package, TENSORFLOW, where, *self._job.training(where)]

    def _is_file(self) -> bool:
        return self._job.package.endswith(".whl") and "://" not in self._job.package

    def _ssh(self, *words: str, unless_new: str = "") -> list[str]:
        text = unless_new + shlex.join(["bash", SCRIPT.name, *words])
        return [*TPU, "tpu-vm", "ssh", self._job.name, "--worker=0", f"--command={text}", *self._at]

    def _ssh_if_there(self, *words: str) -> list[str]:
        """Returns the words of a command for a VM that may be new, without our script."""
        return self._ssh(*words, unless_new=f"[ ! -e {SCRIPT.name} ] && echo xlnet-job new 0 0 || ")

    def _reach(self, command: list[str]) -> Outcome:
        outcome = self._tools.once(command, seconds=_SSH_SECONDS)
        if outcome.status:
            raise Unreachable(outcome.reason)
        return outcome

    def _check_ours(self, node: dict, kind: str) -> None:
        what = f"{kind} {self._job.name} in {self._job.zone}"
        check_ours(node.get("labels"), self._token, what, self._delete(kind))

    def _node(self) -> dict | None:
        if node := self._tools.look_up(self._describe("tpu-vm")):
            self._check_ours(node, "tpu-vm")
        return node

    def _of_node(self, node: dict) -> Sight:
        name = node.get("state", "STATE_UNSPECIFIED")
        if name == "READY":
            return Sight(Phase.READY, name)
        return Sight(Phase.WAITING if name in _WAITING_NODE else Phase.LOST, name)


def _advice(error: Failed) -> str:
    """Returns a failure of creating a TPU with what to do about it."""
    advice = {
        "quota": "ask for more quota (https://docs.cloud.google.com/tpu/docs/quota), take a smaller "
        "accelerator or another zone, or wait in a queue: backend: queued-resource",
        "denied": "your account needs the role TPU Admin in this project; the zone may also not exist",
        "absent": "the zone has no such accelerator or runtime",
        "login": "log in: gcloud auth login",
    }
    return f"{error.outcome.reason}. {advice.get(error.outcome.meaning, 'Nothing was created')}"
