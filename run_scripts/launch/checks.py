"""What is verified before anything is created: everything that would otherwise be found out on a paid TPU."""

import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from run_scripts.launch.cloud_tpu import TPU, accelerator_type
from run_scripts.launch.job import GKE_ACCELERATORS, Job
from run_scripts.launch.machine import Step
from run_scripts.launch.state import State
from run_scripts.launch.tools import Failed, Tools
from xlnet_tf import ownership
from xlnet_tf.errors import UserError

_MULTI_REGIONS = {"us": "us-", "eu": "europe-", "asia": "asia-"}
_REGISTRY = "docker.pkg.dev/"  # of Google's Artifact Registry
_PROBE, _TEXT = "launch-may-write", "written and removed by a launch\n"
_STEPS = re.compile(r"^ +steps +([\d,]+),", re.MULTILINE)
_VARIANT = re.compile(r"^[\w.]+=\S*:$", re.MULTILINE)  # of a sweep
_PASS = re.compile(r"One pass over the data, ([\d,]+) steps, takes ([\d.]+) s( at the chip's peak rates)?")


class Check(NamedTuple):
    """One check.

    Attributes:
        name: of what is checked.
        run: checks it, and returns what was found; raises UserError.
        steps: the commands that it runs, for `--print`.
    """

    name: str
    run: Callable[[], str]
    steps: Sequence[Step] = ()


class Checks:
    """The checks of a job.

    Args:
        tools: to ask the cloud with.
        clock: has monotonic() and sleep(seconds).
        state: what earlier launches of the job have used.
        dry_run: whether to run the training's own --dry_run on this machine.
    """

    def __init__(self, job: Job, tools: Tools, clock: Any, state: State, dry_run: bool):
        self._job, self._tools, self._clock, self._state, self._dry_run = job, tools, clock, state, dry_run
        given = {
            flag: int(value)
            for flag, value in re.findall(r"--(train_steps|num_seeds)[= ](\d+)", " ".join(job.command))
        }
        self._steps, self._speed = given.get("train_steps"), job.steps_per_second
        self._seeds = given.get("num_seeds", 1)
        self._by = ""  # which the hours are estimated by, for people
        is_sweep = any(word.startswith("--sweep") for word in job.command)
        # Whether _steps counts every run; only a dry run knows those of a sweep.
        self._has_all_runs = not is_sweep

    def run(self) -> float | None:
        """Runs all checks and prints a line for each.

        Returns:
            An estimate of the hours of training; None: unknown.

        Raises:
            UserError: some failed; all were run, and the message has each failure.
        """
        failures = []
        for check in self._checks():
            try:
                result = f"ok: {check.run()}"
            except UserError as error:
                result = "FAILED"
                failures.append(f"{check.name}: {error}")
            print(f"{check.name:>12}  {result}", flush=True)
        if failures:
            raise UserError("nothing was created, because checks failed:\n" + "\n".join(failures))
        return self._hours()

    def steps(self) -> Iterator[Step]:
        """Yields the commands of the checks, for `--print`."""
        for check in self._checks():
            yield from check.steps

    def _checks(self) -> Iterator[Check]:
        job, probe = self._job, f"{self._job.model_dir}/{_PROBE}"
        lease = [Step("checks that nobody trains in model_dir", self._cat_lease())]
        yield Check("model_dir", self._check_lease, lease)
        if job.backend == "gke":
            cluster = [Step("checks the cluster", self._describe_cluster())]
            yield Check("cluster", self._check_cluster, cluster)
            image = [Step("checks that the image is there", self._describe_image())]
            yield Check("image", self._check_image, image * (_REGISTRY in job.image))
        else:
            types, versions = (
                [Step(f"checks the zone's {kind}", self._list(kind))]
                for kind in ("accelerator-types", "versions")
            )
            yield Check("accelerator", self._check_accelerator, types)
            yield Check("runtime", self._check_runtime, versions)
            yield Check("package", self._check_package)
        buckets = [Step("checks the bucket's region", self._describe_bucket(b)) for b in self._buckets()]
        yield Check("buckets", self._check_buckets, buckets)
        data = [Step("checks that the data are there", self._storage("ls", path)) for path in job.paths()]
        yield Check("data", self._check_data, data)
        write = Step("checks that model_dir can be written", self._storage("cp", "-", probe), _TEXT)
        remove = Step("removes what the check wrote", self._storage("rm", probe))
        yield Check("rights", self._check_rights, [write, remove])
        if self._dry_run:
            why = "checks settings, records and memory, and estimates the time"
            yield Check("dry run", self._check_dry_run, [Step(why, self._training_dry_run())])
        yield Check("budget", self._check_budget)

    def _check_lease(self) -> str:
        def read() -> dict[str, Any] | None:
            outcome = self._tools.ask(self._cat_lease(), allow=("absent",))
            return None if outcome.status else ownership.parse(outcome.stdout)

        if there := read():
            who, wait = ownership.describe(there), f"{ownership.LEASE_SECONDS:.0f} s"
            print(f"{'':>12}  model_dir was in use by {who}: looking for up to {wait} whether it still is")
        if lease := ownership.living(read, self._clock, there):
            raise UserError(
                f"{self._job.model_dir} is in use by {ownership.describe(lease)}: wait for its end, or "
                "choose another model_dir"
            )
        return "nobody trains there"

    def _check_accelerator(self) -> str:
        kind = accelerator_type(self._job)
        types = self._listed("accelerator-types", "type")
        if kind not in types:
            same = [name for name in types if name.partition("-")[0] == kind.partition("-")[0]]
            offered = f"of this kind {', '.join(same)}" if same else f"{', '.join(types) or 'no TPUs'}"
            raise UserError(f"{self._job.zone} has no {kind}; it has {offered}: change accelerator or zone")
        return f"{self._job.zone} has {kind}"

    def _check_runtime(self) -> str:
        versions = self._listed("versions", "version")
        if self._job.runtime not in versions:
            hint = "leave runtime out"
            if self._job.slice.hosts > 1:
                versions = [name for name in versions if name.startswith("tpu-vm-tf-")]
                hint = "take an accelerator of one host, which needs none"
            there = ", ".join(versions[-8:])
            raise UserError(f"{self._job.zone} has no runtime {self._job.runtime}; it has {there}: {hint}")
        return self._job.runtime

    def _check_package(self) -> str:
        package = self._job.package
        if "://" in package:
            return package
        if package.endswith(".whl"):
            if not pathlib.Path(package).is_file():
                raise UserError(
                    f"{package} does not exist: make it (make wheel), or say package: and what pip installs"
                )
        elif "/" in package or package.startswith("."):
            raise UserError(
                f"package is {package}, of this machine: expected a wheel (make wheel), or what pip installs "
                "from elsewhere"
            )
        return package

    def _check_cluster(self) -> str:
        if not shutil.which("kubectl"):
            raise UserError("kubectl is not installed on this machine: gcloud components install kubectl")
        cluster = self._tools.look_up(self._describe_cluster())
        if not cluster:
            raise UserError(f"{self._job.project} has no cluster {self._job.cluster} in {self._job.zone}")
        if (cluster.get("autopilot") or {}).get("enabled"):
            return "Autopilot, which makes nodes as needed"
        machines = [
            ((pool.get("config") or {}).get("machineType", ""), pool.get("placementPolicy") or {})
            for pool in cluster.get("nodePools", ())
        ]
        generation, topology = self._job.slice.generation, self._job.topology
        fitting = [
            placement for kind, placement in machines if kind.startswith(GKE_ACCELERATORS[generation][2])
        ]
        wanted, there = generation, ", ".join(sorted({kind for kind, _ in machines}))
        if fitting and self._job.slice.hosts > 1:
            wanted += f" and topology {topology}"
            fitting = [placement for placement in fitting if placement.get("tpuTopology") == topology]
        if not fitting:
            raise UserError(
                f"{self._job.cluster} has no node pool of {wanted}, only of {there or 'nothing'}: create one "
                "(gcloud container node-pools create, docs/how-to/tpu-jobs.md)"
            )
        return f"{len(fitting)} node pool(s) of {wanted}"

    def _check_image(self) -> str:
        image = self._job.image
        if _REGISTRY not in image:
            return f"{image}, which only the cluster can look up; it checks its TensorFlow before it trains"
        denied = f"your account may not read {image}"
        self._require(self._describe_image(), f"{image} does not exist: build and push it", denied)
        return f"{image}; it checks its TensorFlow before it trains"

    def _check_buckets(self) -> str:
        found = []
        for bucket in self._buckets():
            try:
                described = self._tools.look_up(self._describe_bucket(bucket))
            except Failed as error:
                if error.outcome.meaning != "denied":
                    raise
                found.append(f"{bucket}: your account may not see its region")
                continue
            if not described:
                raise UserError(f"{bucket} does not exist")
            location, kind = described.get("location", "").lower(), described.get("location_type", "region")
            begins = f"{location}-" if kind == "region" else _MULTI_REGIONS.get(location, "")
            if not f"{self._job.region}-".startswith(begins) and not self._job.other_region:
                raise UserError(
                    f"{bucket} is in {location}, and the TPU in {self._job.region}: reading across "
                    "regions is slow and costs money. Copy the data, change zone, or accept it with "
                    "other_region: true"
                )
            found.append(f"{bucket} in {location}")
        return ", ".join(found)

    def _check_data(self) -> str:
        paths = self._job.paths()
        for path in paths:
            self._require(
                self._storage("ls", path), f"{path} does not exist", f"your account may not read {path}"
            )
        return f"{len(paths)} path(s) can be read"

    def _check_rights(self) -> str:
        path = f"{self._job.model_dir}/{_PROBE}"
        denied = f"your account may not write to {self._job.model_dir}: it needs the role Storage Object User"
        self._require(self._storage("cp", "-", path), "its bucket does not exist", denied, _TEXT)
        self._require(self._storage("rm", path), "", denied)
        return "model_dir can be written; the TPU's service account needs the same rights"

    def _check_dry_run(self) -> str:
        outcome = self._tools.once(self._training_dry_run(), seconds=3600)
        if outcome.status:
            raise UserError(f"{outcome.reason} (--skip_dry_run launches without this check)")
        steps, self._has_all_runs = [], True
        for variant in _VARIANT.split(outcome.stdout)[1:] or [outcome.stdout]:
            found = _STEPS.search(variant)
            # Of further variants, only what differs from the first is printed.
            steps += [int(found[1].replace(",", ""))] if found else steps[:1]
        self._steps = sum(steps) or self._steps
        if (found := _PASS.search(outcome.stdout)) and not self._speed:
            self._speed = int(found[1].replace(",", "")) / max(float(found[2]), 1e-9)
            self._by = found[3] or ""
        return "settings, records and memory fit"

    def _check_budget(self) -> str:
        budget, used = self._job.budget.seconds / 3600, self._state.used_seconds / 3600
        if used >= budget:
            raise UserError(
                f"the budget is spent: {used:.2f} of {budget:.2f} h used. Raise it in the job's file"
            )
        left = f"{budget - used:.2f} of {budget:.2f} h are left"
        if (hours := self._hours()) is None:
            return f"{left}; how long the training takes is unknown"
        if hours > budget - used and not self._job.until_budget:
            raise UserError(
                f"the training takes about {hours:.2f} h{self._by}, and {left}: raise the budget, train "
                "fewer steps, or accept it with until_budget: true"
            )
        return f"the training takes about {hours:.2f} h{self._by}, {left}"

    def _hours(self) -> float | None:
        """Returns how long the training takes, in hours, once a dry run or the job has said so."""
        if not (self._steps and self._speed and self._has_all_runs):
            return None
        return self._seeds * self._steps / self._speed / 3600

    def _require(self, command: list[str], absent: str, denied: str, text: str | None = None) -> None:
        """Raises UserError with one of two messages if what a command needs is absent or denied."""
        outcome = self._tools.ask(command, text, allow=("absent", "denied"))
        if outcome.status:
            raise UserError(denied if outcome.meaning == "denied" else absent)

    def _listed(self, kind: str, name: str) -> list[str]:
        try:
            found = self._tools.look_up(self._list(kind))
        except Failed as error:
            if error.outcome.meaning != "denied":
                raise
            found = None
        if found is None:
            raise UserError(
                f"{self._job.zone} has no TPUs that your account may use in {self._job.project}: check zone, "
                "project and the role TPU Admin (zones: https://docs.cloud.google.com/tpu/docs/regions-zones)"
            )
        return sorted(item.get(name, "") for item in found)

    def _buckets(self) -> list[str]:
        paths = [self._job.model_dir, *self._job.paths()]
        return list(dict.fromkeys("/".join(path.split("/")[:3]) for path in paths))

    def _list(self, kind: str) -> list[str]:
        at = [f"--project={self._job.project}", f"--zone={self._job.zone}", "--quiet"]
        return [*TPU, "tpu-vm", kind, "list", "--format=json", *at]

    def _describe_cluster(self) -> list[str]:
        at = [f"--location={self._job.zone}", f"--project={self._job.project}", "--quiet"]
        return ["gcloud", "container", "clusters", "describe", self._job.cluster, "--format=json", *at]

    def _describe_image(self) -> list[str]:
        return ["gcloud", "artifacts", "docker", "images", "describe", self._job.image, "--quiet"]

    def _describe_bucket(self, bucket: str) -> list[str]:
        return self._storage("buckets", "describe", bucket, "--format=json")

    def _cat_lease(self) -> list[str]:
        return self._storage("cat", f"{self._job.model_dir}/{ownership.FILE}")

    def _storage(self, *words: str) -> list[str]:
        return ["gcloud", "storage", *words, "--quiet"]

    def _training_dry_run(self) -> list[str]:
        tpu = "local" if self._job.slice.hosts == 1 else self._job.name
        return [
            sys.executable,
            "-m",
            *self._job.training(tpu),
            "--dry_run",
            f"--topology={self._job.accelerator}",
        ]
