"""Writes the JobSets of deploy/gke from the jobs of deploy/jobs; run it as a module."""

import yaml

from run_scripts.launch import job, kubernetes
from tests.conftest import REPOSITORY

JOBS = {"single-host.yaml": "gke.yaml", "slice.yaml": "gke-slice.yaml"}
_NOTE = """\
# What `xlnet-tf launch deploy/jobs/{}` creates, for `kubectl create --filename`. Written by
# `python -m tests.run_scripts.launch.write_manifests` from run_scripts/launch/kubernetes.py, which says where
# the fields come from. Replace what is in capitals. Never run on the real cloud.
"""


def text(name):
    """Returns the manifest of a job of deploy/jobs."""
    loaded = job.load(str(REPOSITORY / "deploy/jobs" / name))
    made = kubernetes.manifest(loaded, "manual", loaded.budget.seconds)
    return _NOTE.format(name) + yaml.safe_dump(made, sort_keys=False, width=110)


if __name__ == "__main__":
    for file, name in JOBS.items():
        (REPOSITORY / "deploy/gke" / file).write_text(text(name))
