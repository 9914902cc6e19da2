"""What gcloud and kubectl answer, from a scenario and from what was asked of them before.

A scenario says, for each kind of call, what happens at the first, the second, ... one; a kind that is left
out, or used up, goes well. Everything that exists is in one file of the state's folder, so that separate
processes see the same cloud. Nothing here uses the project: the programs start in a moment, and a mistake of
the launch is not repeated by its judge.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import re
import shlex
import sys
import time

ERRORS = {
    "quota": "ERROR: (gcloud.compute) RESOURCE_EXHAUSTED: Quota limit 'TPUV5sLitepod' has been exceeded.",
    "denied": "ERROR: (gcloud) PERMISSION_DENIED: Permission 'tpu.nodes.create' denied on resource",
    "unavailable": "ERROR: (gcloud) UNAVAILABLE: The service is currently unavailable.",
    "login": "ERROR: (gcloud) There was a problem refreshing your auth tokens. Run: gcloud auth login",
    "often": "ERROR: (gcloud) RESOURCE_EXHAUSTED: Quota exceeded for 'Read requests per minute'",
    "broken": "/usr/bin/gcloud: 192: exec: python: not found",
    "lost": "ERROR: (gcloud) Connection reset by peer",
    "late": "ERROR: (gcloud) Connection reset by peer",
}
ABSENT = "ERROR: (gcloud) NOT_FOUND: Resource was not found"
TYPES = ("v2-8", "v3-8", "v3-32", "v5litepod-1", "v5litepod-8", "v5litepod-16")
VERSIONS = (
    "tpu-ubuntu2204-base",
    "v2-alpha-tpuv5-lite",
    "tpu-vm-tf-2.19.0-pod-pjrt",
    "tpu-vm-tf-2.20.0-pod-pjrt",
)
EMPTY = {"resources": {}, "jobsets": {}, "objects": {}, "calls": [], "used": {}, "faults": [], "runs": 0}


class Cloud:
    """A cloud in a folder.

    Args:
        folder: has `scenario.json`, may have `state.json`.
        time: returns the seconds since some moment.
    """

    def __init__(self, folder, time=time.time):
        self.folder, self.time = pathlib.Path(folder), time
        scenario = self.folder / "scenario.json"
        self.scenario = json.loads(scenario.read_text()) if scenario.exists() else {}
        self.state = json.loads(json.dumps(EMPTY))

    @contextlib.contextmanager
    def locked(self):
        """Lets one process at a time look and change."""
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self.folder / "state.json"
            if path.exists():
                self.state = json.loads(path.read_text())
            yield self
            path.write_text(json.dumps(self.state))

    def run(self, command, text=None):
        """Returns status, stdout and stderr of a command."""
        program, *words = command
        self.state["calls"].append(list(command))
        flags = dict(
            re.match(r"--([\w-]+)=?(.*)", word, re.DOTALL).groups() for word in words if word[:2] == "--"
        )
        plain = [word for word in words if not word.startswith("--")]
        try:
            return (
                0,
                {"gcloud": self.gcloud, "kubectl": self.kubectl}[os.path.basename(program)](
                    plain, flags, text
                ),
                "",
            )
        except Refusal as error:
            return error.args[0], "", error.args[1] + "\n"

    def next(self, kind, default="ok"):
        """Returns what the scenario has for the next call of a kind."""
        events, index = self.scenario.get(kind, []), self.state["used"].get(kind, 0)
        self.state["used"][kind] = index + 1
        return events[index] if index < len(events) else default

    def left(self):
        """Returns what still exists and costs money."""
        return [*self.state["resources"], *self.state["jobsets"]]

    def delete_by_guards(self):
        """Deletes the TPUs whose own script does so by now."""
        for name, found in list(self.state["resources"].items()):
            if found["vm"] and self.time() >= found["vm"]["booted"] + self.guard(name, found):
                del self.state["resources"][name]

    # gcloud

    def gcloud(self, words, flags, text):
        match words:
            case ["compute", "tpus", "tpu-vm", "accelerator-types" | "versions" as kind, "list"]:
                if not flags["zone"].startswith("us-west4"):
                    where = f"'locations/{flags['zone']}' (or it may not exist)."
                    raise Refusal(1, f"ERROR: (gcloud) PERMISSION_DENIED: Permission denied on {where}")
                name, values = ("type", TYPES) if kind == "accelerator-types" else ("version", VERSIONS)
                return json.dumps([{name: value} for value in values])
            case ["compute", "tpus", "queued-resources" | "tpu-vm" as kind, "create", name]:
                return self.create(kind, name, flags)
            case ["compute", "tpus", "queued-resources" | "tpu-vm" as kind, "describe", name]:
                return self.describe(kind, name)
            case ["compute", "tpus", "queued-resources" | "tpu-vm" as kind, "delete", name]:
                return self.delete(kind, name, flags)
            case ["compute", "tpus", "tpu-vm", "scp", *files]:
                self.connect(files[-1].partition(":")[0])["files"] = [
                    os.path.basename(file) for file in files[:-1]
                ]
                return ""
            case ["compute", "tpus", "tpu-vm", "ssh", name]:
                return self.ssh(self.connect(name), flags["command"])
            case ["storage", *rest]:
                return self.storage(rest, flags, text)
            case ["artifacts", "docker", "images", "describe", image]:
                if image in self.scenario.get("no_image", []):
                    raise Refusal(1, "ERROR: (gcloud.artifacts.docker.images.describe) Image not found.")
                return ""
            case ["container", "clusters", "get-credentials", _]:
                return ""
            case ["container", "clusters", "describe", _]:
                pool = {
                    "config": {"machineType": "ct5lp-hightpu-8t"},
                    "placementPolicy": {"tpuTopology": "4x4"},
                }
                return json.dumps({"nodePools": [pool]})
        raise Refusal(2, f"ERROR: (gcloud) Invalid choice: {' '.join(words)}")

    def create(self, kind, name, flags):
        event = self.next("create")
        if event in ("quota", "denied", "unavailable", "login"):
            raise Refusal(1, ERRORS[event])
        if name in self.state["resources"]:
            raise Refusal(1, "ERROR: (gcloud) ALREADY_EXISTS: Resource already exists")
        key, _, value = flags["labels"].partition("=")
        grown = {
            "queued-resources": ["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"],
            "tpu-vm": ["READY"],
        }[kind]
        self.state["resources"][name] = {
            "kind": kind,
            "labels": {key: value},
            "late": 2 * (event == "late"),
            "states": self.next("states", grown),
            "deleting": None,
            "flags": flags,
            "vm": None,
        }
        if event in ("lost", "late"):
            raise Refusal(1, ERRORS[event])
        return ""

    def guard(self, name, found):
        """Plays run_scripts/launch/guard.sh: returns the seconds after which a TPU deletes itself."""
        flags, metadata = found["flags"], dict(re.findall(r"([\w-]+)=([^,]+)", found["flags"]["metadata"]))
        kind = {"queued-resources": "queuedResources", "tpu-vm": "nodes"}[found["kind"]]
        where = f"projects/{flags['project']}/locations/{flags['zone']}/{kind}/{name}"
        assert metadata["xlnet-guard-resource"] == where, metadata
        key, _, path = flags["metadata-from-file"].partition("=")
        assert key == "startup-script" and os.path.exists(path), flags
        return int(metadata["xlnet-guard-seconds"])

    def grow(self, name):
        """Advances a resource by a look at it, and returns it (None: absent) with its state."""
        found = self.state["resources"].get(name)
        if not found:
            return None, ""
        if found["late"]:
            found["late"] -= 1
            return None, ""
        if found["deleting"] is not None:
            found["deleting"] -= 1
            if found["deleting"] < 0:
                del self.state["resources"][name]
                return None, ""
            return found, "DELETING"
        state = found["states"][0]
        if len(found["states"]) > 1:
            found["states"].pop(0)
        if state in ("ACTIVE", "READY") and not found["vm"]:
            found["vm"] = {"files": [], "run": None, "log": "", "booted": self.time()}
        if state in ("SUSPENDED", "SUSPENDING", "PREEMPTED", "TERMINATED", "HALF", "FAILED"):
            found["vm"] = None
        return found, state

    def describe(self, kind, name):
        event = self.next("describe")
        if event == "garbled":
            return "<html>"
        if event in ERRORS:
            raise Refusal(1, ERRORS[event])
        known = self.state["resources"].get(name)
        if kind == "tpu-vm" and known and known["kind"] == "queued-resources":  # the node of the resource
            if not known["vm"]:
                raise Refusal(1, ABSENT)
            return json.dumps({"state": "READY", "labels": known["labels"]})
        found, state = self.grow(name)
        if not found or found["kind"] != kind:
            raise Refusal(1, ABSENT)
        if kind == "tpu-vm":
            return json.dumps({"state": state, "labels": found["labels"]})
        why = (
            {"failedData": {"error": {"message": "no capacity before valid-until"}}}
            if state == "FAILED"
            else {}
        )
        return json.dumps({
            "state": {"state": "ACTIVE" if state == "HALF" else state, **why},
            "tpu": {"nodeSpec": [{"node": {"labels": found["labels"]}}]},
        })  # fmt: skip

    def delete(self, kind, name, flags):
        event, found = self.next("delete"), self.state["resources"].get(name)
        if event in ERRORS:
            raise Refusal(1, ERRORS[event])
        if not found or found["kind"] != kind or found["late"]:
            raise Refusal(1, ABSENT)
        if kind == "queued-resources" and "force" not in flags:
            raise Refusal(1, "ERROR: (gcloud) FAILED_PRECONDITION: the resource has nodes: use --force")
        found["deleting"], found["vm"] = (2 if event == "slow" else 0), None
        return ""

    def connect(self, name):
        """Returns the VM that a connection reaches."""
        event, found = self.next("ssh"), self.state["resources"].get(name)
        if event == "preempt" and found:
            gone = "SUSPENDED" if found["kind"] == "queued-resources" else "PREEMPTED"
            found["states"], found["vm"] = [gone], None
        if event == "reboot" and found and found["vm"] and found["vm"]["run"]:
            found["vm"]["run"] = {"looks": 0, "status": 75}
        if event in ("lost", "preempt") or not found or not found["vm"]:
            raise Refusal(
                255, "ERROR: (gcloud.compute.tpus.tpu-vm.ssh) [/usr/bin/ssh] exited with return code [255]."
            )
        return found["vm"]

    def ssh(self, vm, command):
        """Plays run_scripts/launch/tpu_vm.sh."""
        if "tpu_vm.sh" not in vm["files"]:
            return "xlnet-job new 0 0\n"
        words = shlex.split(command.rpartition("|| ")[2])
        assert words[:2] == ["bash", "tpu_vm.sh"], command
        if words[2] == "start":
            if vm["run"] and vm["run"]["looks"]:
                return ""
            self.start(vm, words)
        elif words[2] == "stop" and vm["run"]:
            vm["run"]["looks"], vm["run"]["status"] = min(1, vm["run"]["looks"]), 75
        elif words[2] == "look":
            run = vm["run"]
            if not run:
                return "xlnet-job new 0 0\n"
            if run["looks"]:
                run["looks"] -= 1
                vm["log"] += f"step {len(vm['log'])}\n"
            log, offset = vm["log"], int(words[3])
            state = f"running -1 {len(log)}" if run["looks"] else f"ended {run['status']} {len(log)}"
            return f"xlnet-job {state}\n{log[offset:]}"
        return ""

    def start(self, vm, words):
        model_dir = next(word for word in words if word.startswith("--model_dir"))
        for name, other in self.state["resources"].items():
            if other["vm"] and other["vm"] is not vm and other["vm"]["run"] and other["vm"]["run"]["looks"]:
                self.state["faults"].append(f"a second run in {model_dir}: the first is on {name}")
        self.state["runs"] += 1
        vm["run"] = {"looks": 3, "status": 0} | self.next("run", {})
        vm["run"]["command"] = words[3:]

    def storage(self, words, flags, text):
        objects, denied = self.state["objects"], self.scenario.get("denied", [])
        path = words[-1]
        bucket = "/".join(path.split("/")[:3])
        if words[:2] == ["buckets", "describe"]:
            if bucket in self.scenario.get("no_bucket", []):
                raise Refusal(1, f"ERROR: (gcloud.storage) {bucket} not found: 404.")
            return json.dumps(
                {"location": self.scenario.get("region", "US-WEST4"), "location_type": "region"}
            )
        if any(path.startswith(prefix) for prefix in denied):
            raise Refusal(
                1,
                f"ERROR: (gcloud.storage) [me] does not have permission to access [{bucket}] HTTPError 403",
            )
        if words[0] == "cp":
            objects[path] = text
        elif words[0] == "ls":
            if not any(name.startswith(path) for name in objects):
                raise Refusal(1, "ERROR: (gcloud.storage.ls) One or more URLs matched no objects.")
        elif path not in objects:
            raise Refusal(
                1, "ERROR: (gcloud.storage.cat) The following URLs matched no objects or files: " + path
            )
        elif words[0] == "rm":
            del objects[path]
        else:
            if path.endswith("owner.json") and self.scenario.get("lease_beats"):
                objects[path] = json.dumps(json.loads(objects[path]) | {"beat": len(self.state["calls"])})
            return objects[path]
        return ""

    # kubectl

    def kubectl(self, words, flags, text):
        match words:
            case ["create"]:
                return self.create_jobset(text)
            case ["get", "jobset", name]:
                return self.get_jobset(name)
            case ["get", "pods"]:
                return self.get_pods(re.search(r"jobset-name=([\w-]+)", flags["selector"])[1])
            case ["logs", pod]:
                return self.logs(pod, flags.get("since-time", ""))
            case ["delete", "jobset", name]:
                event = self.next("delete")
                if event in ERRORS:
                    raise Refusal(1, ERRORS[event])
                self.state["jobsets"].pop(name, None)
                return ""
        raise Refusal(1, f"error: unknown command {' '.join(words)}")

    def create_jobset(self, text):
        import yaml

        event, found = self.next("create"), yaml.safe_load(text)
        if event == "quota":
            raise Refusal(1, 'Error from server (Forbidden): jobsets "x" is forbidden: exceeded quota: tpus')
        if event in ("denied", "unavailable", "login"):
            raise Refusal(1, ERRORS[event])
        name = found["metadata"]["name"]
        if name in self.state["jobsets"]:
            raise Refusal(1, f'Error from server (AlreadyExists): jobsets "{name}" already exists')
        run = {"looks": 4, "status": 0} | self.next("run", {})
        self.state["runs"] += 1
        self.state["jobsets"][name] = {
            "labels": found["metadata"]["labels"],
            "run": run,
            "looks": 0,
            "restarts": 0,
        }
        if event in ("lost", "late"):
            raise Refusal(1, ERRORS[event])
        return ""

    def get_jobset(self, name):
        event = self.next("describe")
        if event in ERRORS:
            raise Refusal(1, ERRORS[event])
        if not (found := self.state["jobsets"].get(name)):
            raise Refusal(1, f'Error from server (NotFound): jobsets.jobset.x-k8s.io "{name}" not found')
        found["looks"] += 1
        status = {"restarts": found["restarts"]}
        if found["looks"] > max(found["run"]["looks"], self.scenario.get("pending", 0)):
            status["terminalState"] = "Failed" if found["run"]["status"] else "Completed"
        return json.dumps({"metadata": {"name": name, "labels": found["labels"]}, "status": status})

    def get_pods(self, name):
        if not (found := self.state["jobsets"].get(name)):
            return json.dumps({"items": []})
        ended = found["looks"] > max(found["run"]["looks"], self.scenario.get("pending", 0))
        pod = {"metadata": {"name": f"{name}-trainer-0-0-x", "creationTimestamp": "2026-01-01T00:00:00Z"}}
        if ended:
            terminated = {"exitCode": found["run"]["status"]}
            pod["status"] = {
                "phase": "Succeeded",
                "containerStatuses": [{"state": {"terminated": terminated}}],
            }
        elif found["looks"] < self.scenario.get("pending", 2):
            condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
            pod["status"] = {"phase": "Pending", "conditions": [condition]}
        else:
            pod["status"] = {"phase": "Running"}
        return json.dumps({"items": [pod]})

    def logs(self, pod, since):
        found = next(iter(self.state["jobsets"].values()), None)
        if not found or found["looks"] < 2:
            raise Refusal(1, f"Error from server (NotFound): pods {pod} not found")
        if self.next("ssh") in ("lost", "preempt"):
            raise Refusal(1, "Unable to connect to the server: net/http: TLS handshake timeout")
        times = [
            f"2026-01-01T00:00:{second:02d}.000000000Z"
            for second in range(min(found["looks"], found["run"]["looks"]))
        ]
        return "".join(f"{time} step {index}\n" for index, time in enumerate(times) if time >= since)


class Refusal(Exception):
    """A command that fails: its status and what it writes on stderr."""


def main():
    """Answers one call of a program."""
    text = None if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    with Cloud(os.environ["STANDIN_FOLDER"]).locked() as cloud:
        status, out, error = cloud.run(sys.argv[1:], text)
    sys.stdout.write(out)
    sys.stderr.write(error)
    sys.exit(status)


if __name__ == "__main__":
    main()
