"""A JobSet on Google Kubernetes Engine (GKE).

Fields of JobSet: https://github.com/kubernetes-sigs/jobset, api/jobset/v1alpha2 (read 2026-11-24). Labels of
GKE's nodes: https://docs.cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus (read 2026-11-24).
Never run against the real cloud.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from run_scripts.launch.job import GKE_ACCELERATORS, TENSORFLOW, Job
from run_scripts.launch.machine import LABEL, Look, Phase, Refused, Sight, Step, Unreachable, check_ours
from run_scripts.launch.tools import Failed, Outcome, Tools

_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
TRAINER, RUNTIME = "trainer", "runtime"
_PORT = 8470
_RESTARTS = 100  # by the JobSet itself, after which a launch creates it again
_GRACE_SECONDS = 300  # between SIGTERM and SIGKILL, for a loop of steps and a checkpoint
_ERRORS = [1, 2]  # exit statuses that a restart does not fix (docs/how-to/resume.md)
_SECONDS = 120  # that a look may take
# Every host of a slice serves its chips; the trainer, elsewhere, reaches them all.
_SERVER = (
    "import sys, tensorflow as tf; hosts = sys.argv[2].split(','); "
    "tf.distribute.Server({'worker': hosts}, 'worker', int(sys.argv[1])).join()"
)
_CHECK = (
    "import sys, tensorflow as tf; "
    f"tf.__version__ == '{TENSORFLOW}' or sys.exit(f'ERROR: image has TensorFlow {{tf.__version__}}, and the "
    f"training needs {TENSORFLOW}: build it from deploy/Dockerfile')"
)


class JobSet:
    """A job's JobSet; see `machine.Machine`."""

    def __init__(self, job: Job, tools: Tools, token: str):
        self._job, self._tools, self._token = job, tools, token
        kind = f"gke_{job.project}_{job.zone}_{job.cluster}"
        self._kubectl = ["kubectl", f"--context={kind}", f"--namespace={job.namespace}"]
        self._connected = False

    def create(self, seconds: float) -> None:
        try:
            self._ask(self._create(), self._manifest(seconds), allow=("exists",))
        except Failed as error:
            text = f"the cluster {self._job.cluster} refuses the JobSet: {_advice(error)}"
            raise Refused(text, error) from error

    def sight(self) -> Sight:
        found = self._look_up(self._get("jobset", self._job.name))
        if not found:
            return Sight(Phase.ABSENT, "none")
        what = f"the JobSet {self._job.name} of cluster {self._job.cluster}"
        check_ours(found["metadata"].get("labels"), self._token, what, self._delete())
        status = found.get("status") or {}
        if ended := status.get("terminalState"):
            return Sight(Phase.READY, ended)
        restarts = status.get("restarts", 0)
        pods = self._pods()
        if any((pod.get("status") or {}).get("phase") == "Running" for pod in pods):
            return Sight(Phase.READY, f"Running, restarted {restarts} times" if restarts else "Running")
        why = [condition.get("message", "") for pod in pods
               for condition in (pod.get("status") or {}).get("conditions", ())
               if condition.get("type") == "PodScheduled" and condition.get("status") == "False"]  # fmt: skip
        return Sight(Phase.WAITING, f"Pending: {why[0]}" if why and why[0] else "Pending")

    def start(self, seconds: float) -> None:
        """Deletes a JobSet that gave up, to be created again; until then it restarts the training itself."""
        if self.sight().text == "Failed":
            self.delete()

    def look(self, offset: str) -> Look:
        found = self._look_up(self._get("jobset", self._job.name))
        if not found:
            return Look("", offset, False, None)
        pods = sorted(self._pods(TRAINER), key=lambda pod: pod["metadata"].get("creationTimestamp", ""))
        log, end = self._log(pods[-1]["metadata"]["name"], offset) if pods else ("", offset)
        status = {"Completed": 0, "Failed": _exit_status(pods)}.get(
            (found.get("status") or {}).get("terminalState", "")
        )
        return Look(log, end, True, status)

    def stop(self) -> None:
        """Sends SIGTERM to the pods, and waits as long as they may take to save."""
        self.delete()

    def delete(self) -> None:
        self._ask(self._delete(), allow=("absent",))

    def steps(self) -> Iterator[Step]:
        yield Step("makes kubectl know the cluster", self._credentials())
        yield Step("asks for the TPU and trains; the JobSet restarts it after preemption", self._create(),
                   self._manifest(self._job.budget.seconds))  # fmt: skip
        yield Step("is repeated until the end", self._get("jobset", self._job.name))
        yield Step("is repeated: why pods wait", self._get_pods(()))
        yield Step("is repeated: the exit status of the one that trains", self._get_pods((TRAINER,)))
        yield Step("is repeated: new lines of the log", self._logs("POD", "TIME"))
        yield Step("always, at the end; the pods save a checkpoint", self._delete())

    def _credentials(self) -> list[str]:
        job = self._job
        return ["gcloud", "container", "clusters", "get-credentials", job.cluster, f"--location={job.zone}",
                f"--project={job.project}", "--quiet"]  # fmt: skip

    def _create(self) -> list[str]:
        return [*self._kubectl, "create", "--filename=-"]

    def _manifest(self, seconds: float) -> str:
        return yaml.safe_dump(manifest(self._job, self._token, seconds), sort_keys=False, width=110)

    def _get(self, *what: str) -> list[str]:
        return [*self._kubectl, "get", *what, "--output=json"]

    def _get_pods(self, names: Sequence[str]) -> list[str]:
        labels = [f"jobset.sigs.k8s.io/jobset-name={self._job.name}"]
        labels += [f"jobset.sigs.k8s.io/replicatedjob-name={name}" for name in names]
        return self._get("pods", f"--selector={','.join(labels)}")

    def _logs(self, pod: str, since: str) -> list[str]:
        return [*self._kubectl, "logs", pod, "--container=train", "--timestamps",
                *[f"--since-time={since}"] * bool(since)]  # fmt: skip

    def _delete(self) -> list[str]:
        """Returns what deletes the JobSet and waits until its pods have saved and ended."""
        return [*self._kubectl, "delete", "jobset", self._job.name, "--ignore-not-found",
                "--cascade=foreground"]  # fmt: skip

    def _connect(self) -> None:
        if not self._connected:
            self._tools.ask(self._credentials())
            self._connected = True

    def _ask(self, command: Sequence[str], text: str | None = None, allow: Sequence[str] = ()) -> Outcome:
        self._connect()
        return self._tools.ask(command, text, allow)

    def _look_up(self, command: Sequence[str]) -> Any:
        self._connect()
        return self._tools.look_up(command)

    def _pods(self, *names: str) -> list[dict]:
        return (self._look_up(self._get_pods(names)) or {}).get("items", [])

    def _log(self, pod: str, since: str) -> tuple[str, str]:
        """Returns a pod's lines after a time, without their times, and the time of the last one."""
        outcome = self._tools.once(self._logs(pod, since), seconds=_SECONDS)
        if outcome.status and outcome.meaning == "transient":
            raise Unreachable(outcome.reason)
        lines = [] if outcome.status else [line.partition(" ") for line in outcome.stdout.splitlines()]
        fresh = [(time, line) for time, _, line in lines if re.match(r"\d{4}-", time) and time > since]
        return "".join(f"{line}\n" for _, line in fresh), fresh[-1][0] if fresh else since


def manifest(job: Job, token: str, seconds: float) -> dict[str, Any]:
    """Returns the JobSet of a job, with the label of its launch, that ends its jobs after some seconds.

    A slice of one host is one pod. One of several hosts has a pod on each, which serves its chips, and one
    more, without chips, that trains on them all and decides about success.
    """
    one = job.slice.hosts == 1
    accelerator = GKE_ACCELERATORS[job.slice.generation][0]
    node = {
        "cloud.google.com/gke-tpu-accelerator": accelerator,
        "cloud.google.com/gke-tpu-topology": job.topology,
        **({"cloud.google.com/gke-spot": "true"} if job.spot else {}),
    }
    chips = job.slice.chips // job.slice.hosts
    hosts = [f"{job.name}-{RUNTIME}-0-{host}.{job.name}:{_PORT}" for host in range(job.slice.hosts)]
    tpu = "local" if one else ",".join(f"grpc://{host}" for host in hosts)
    train = _container(
        job, "train", ["sh", "-c", 'python -c "$0" && exec python -m "$@"', _CHECK, *job.training(tpu)]
    )
    if not one:
        train["env"] = [{"name": "TPU_LOAD_LIBRARY", "value": "0"}, *train["env"]]
    jobs = [_replicated(job, TRAINER, 1, train, node if one else {}, chips if one else 0, seconds)]
    if not one:
        serve = _container(
            job,
            "serve",
            ["sh", "-c", 'exec python -c "$0" "$JOB_COMPLETION_INDEX" "$1"', _SERVER, ",".join(hosts)],
        )
        serve["ports"] = [{"containerPort": _PORT}]
        jobs.append(_replicated(job, RUNTIME, job.slice.hosts, serve, node, chips, seconds))
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": job.name,
            "labels": {LABEL: token},
        },
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": job.name},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": [TRAINER]},
            "failurePolicy": {
                "maxRestarts": _RESTARTS,
                # At the end of the budget, too: a restart would have all of it again.
                "rules": [
                    {
                        "name": "error",
                        "action": "FailJobSet",
                        "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"],
                    },
                ],
            },
            "replicatedJobs": jobs,
        },
    }  # fmt: skip


def _container(job: Job, name: str, command: list[str]) -> dict[str, Any]:
    environment = {"PYTHONUNBUFFERED": "1", "GCS_READAHEAD_BUFFER_SIZE_BYTES": "262144"}
    return {
        "name": name,
        "image": job.image,
        "command": command,
        "env": [{"name": key, "value": value} for key, value in environment.items()],
    }


def _replicated(
    job: Job, name: str, pods: int, container: dict, node: dict, chips: int, seconds: float
) -> dict[str, Any]:
    if chips:
        container["resources"] = {"limits": {"google.com/tpu": chips}, "requests": {"google.com/tpu": chips}}
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        **({"serviceAccountName": job.service_account} if job.service_account else {}),
        **({"nodeSelector": node} if node else {}),
        "containers": [container],
    }
    rule = {
        "action": "FailJob",
        "onExitCodes": {"containerName": container["name"], "operator": "In", "values": _ERRORS},
    }
    return {
        "name": name,
        "replicas": 1,
        "template": {
            # A node pool of several hosts is one slice: no other job's pods may come between.
            **({"metadata": {"annotations": {_EXCLUSIVE: "cloud.google.com/gke-nodepool"}}} if chips else {}),
            "spec": {
                "completionMode": "Indexed",
                "completions": pods,
                "parallelism": pods,
                "backoffLimit": 0,  # else a pod alone would be restarted, and never meet the others again
                # The cluster's own end of the budget, if the launch is not there to see it.
                "activeDeadlineSeconds": max(1, round(seconds)),
                **({"podFailurePolicy": {"rules": [rule]}} if name == TRAINER else {}),
                "template": {"spec": pod},
            },
        },
    }


def _exit_status(pods: Sequence[dict]) -> int:
    """Returns the exit status of the pod that ended last; 75, an interruption, if none is known."""
    for pod in reversed(pods):
        for container in (pod.get("status") or {}).get("containerStatuses", ()):
            if ended := (container.get("state") or {}).get("terminated"):
                code = ended.get("exitCode", 1)
                return code if code < 128 else 75  # killed: preempted, or out of memory
    return 75


def _advice(error: Failed) -> str:
    text = error.outcome.reason
    if "no matches for kind" in text:
        return f"{text}. Install JobSet in the cluster: https://jobset.sigs.k8s.io/docs/installation/"
    return text
