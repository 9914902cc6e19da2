"""Runs a training on a TPU of Google Cloud: checks, creates, trains, resumes after preemption, deletes.

    python -m run_scripts.launch job.yaml --print
    python -m run_scripts.launch job.yaml

docs/how-to/tpu-jobs.md describes the file. At the end nothing is left that costs money, also after Ctrl-C,
an error, or when the budget is spent. If the launch itself is killed, the training continues: the same
command finds it again, and --stop deletes it.
"""

import pathlib
import shlex
import time
from collections.abc import Sequence

from absl import flags

from run_scripts.launch import checks, cloud_tpu, kubernetes, supervise
from run_scripts.launch.job import Job, load
from run_scripts.launch.machine import Machine, Phase, Step
from run_scripts.launch.state import State
from run_scripts.launch.tools import Tools
from xlnet_tf import errors, ownership

FLAGS = flags.FLAGS


def place(job: Job, tools: Tools, token: str) -> Machine:
    """Returns what runs a job."""
    return (kubernetes.JobSet if job.backend == "gke" else cloud_tpu.CloudTpu)(job, tools, token)


def shown(step: Step) -> str:
    """Returns a command as one would type it, after a comment that says what it is for."""
    text = f"# {step.why}\n{shlex.join(step.command)}"
    return f"{text} <<'END'\n{step.text.rstrip()}\nEND" if step.text else text


def main(_: Sequence[str]) -> None:
    job, clock = load(FLAGS.job), time
    tools = Tools(clock, FLAGS.poll_seconds)
    file = pathlib.Path(FLAGS.job)
    folder = file.with_name(f"{file.stem}.launch")
    if FLAGS.print:
        state = State(folder, token="TOKEN")
        plan = [*checks.Checks(job, tools, clock, state, not FLAGS.skip_dry_run).steps()]
        plan += place(job, tools, state.token).steps()
        print("\n\n".join(map(shown, plan)))
        return
    folder.mkdir(exist_ok=True)
    with ownership.owning(folder, "launching", "job"):
        state = State.of(folder, job)
        machine = place(job, tools, state.token)
        if FLAGS.stop:
            machine.sight()  # refuses what is not ours
            state.save(created=True)  # whatever the file says: look
            supervise.Supervisor(job, machine, state, clock, FLAGS.poll_seconds).clean()
            return
        estimate = None
        if state.created and machine.sight().phase is not Phase.ABSENT:
            print(f"continuing what an earlier launch began ({folder / 'state.json'})")
        else:
            estimate = checks.Checks(job, tools, clock, state, not FLAGS.skip_dry_run).run()
        if FLAGS.check:
            return
        supervise.Supervisor(job, machine, state, clock, FLAGS.poll_seconds, estimate).run()
        print(f"done: {job.model_dir}")


if __name__ == "__main__":
    flags.DEFINE_string("job", None, "Yaml file of the job.", required=True)
    flags.DEFINE_bool("print", False, "Print every command and run none.")
    flags.DEFINE_bool("check", False, "Run the checks and create nothing.")
    flags.DEFINE_bool("stop", False, "Delete what earlier launches of the job have left.")
    flags.DEFINE_bool(
        "skip_dry_run",
        False,
        "Launch without the training's own --dry_run, which needs the records and a compiler.",
    )
    flags.DEFINE_float("poll_seconds", 30.0, "Seconds between two looks at the TPU.", lower_bound=0.0)
    errors.run(main, positional="job", after_ctrl_c="the same command resumes the training")
