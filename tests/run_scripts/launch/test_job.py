"""A job's file: what it may say, and what is said about mistakes in it."""

import re

import pytest

from run_scripts.launch import job
from tests.helpers.cloud.harness import GKE, SETTINGS, World
from xlnet_tf.errors import UserError


def load(folder, **settings):
    return job.load(str(World(folder, **settings).file))


def test_defaults(tmp_path):
    found = load(tmp_path, package=None)
    assert (found.name, found.backend, found.spot, found.runtime) == (
        "base",
        "queued-resource",
        False,
        "v2-alpha-tpuv5-lite",
    )
    assert re.fullmatch(r"dist/xlnet_tf-.*-py3-none-any\.whl", found.package)
    assert found.budget.seconds == 36_000
    assert found.training("local")[:2] == ["run_scripts.pretrain", "--config_file=base"]


@pytest.mark.parametrize(
    "address", ["https://s3cr3t@h/x", "git+https://me:s3cr3t@h/x", "ssh://me:s3cr3t@h/x"]
)
def test_a_package_with_a_secret_is_refused_without_showing_it(tmp_path, address):
    with pytest.raises(UserError, match="package has a user name or password") as error:
        load(tmp_path, package=address)
    assert "s3cr3t" not in str(error.value)
    for safe in ("git+ssh://git@h/x", "https://h/x@1.whl"):
        assert load(tmp_path, package=safe).package == safe


@pytest.mark.parametrize("begin", ["xlnet-tf ", "python -m run_scripts.", "python3 -m run_scripts ", ""])
def test_a_command_may_be_written_as_it_is_typed(tmp_path, begin):
    found = load(tmp_path, command=begin + "finetune --data=gs://b/imdb --learning_rate 1e-5")
    assert found.command == ["finetune", "--data=gs://b/imdb", "--learning_rate", "1e-5"]


def test_only_flags_that_take_paths_are_looked_for_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("dev", "8", "base"):
        (tmp_path / name).mkdir()
    long = ",".join(f"task.model.d_model={number}" for number in range(20))
    command = (
        f"finetune --data=gs://b/x --dev_split=dev --batch_size 8 --preset=base --params_override={long}"
    )
    assert load(tmp_path, command=command).command == command.split()
    with pytest.raises(UserError, match="--init_checkpoint=base, which the TPU's machine does not have"):
        load(tmp_path, command="finetune --data=gs://b/x --init_checkpoint=base")


def test_paths_are_those_of_the_command(tmp_path):
    """With spaces and commas, where a flag has one path; of settings in a list or in yaml, each."""
    override = "{task: {general_data: {input_path: 'gs://b/g'}, validation_data: {input_path: gs://b/v w }}}"
    command = [
        *("finetune", "--data=gs://b/my data, old", "--init_checkpoint", "gs://b/a b", "--config_file=base"),
        *("--sweep=task.init_checkpoint:gs://b/x,gs://b/y", f"--params_override={override}"),
    ]
    expected = ["my data, old", "a b", "x", "y", "g", "v w"]
    assert load(tmp_path, command=command).paths() == [f"gs://b/{name}" for name in expected]


@pytest.mark.parametrize(("accelerator", "runtime"), [
    ("v3-8", "tpu-ubuntu2204-base"), ("v4-8", "tpu-ubuntu2204-base"), ("v5p-8", "v2-alpha-tpuv5"),
    ("v6e-8", "v2-alpha-tpuv6e"), ("v5litepod-4", "v2-alpha-tpuv5-lite"),
    ("v3-32", "tpu-vm-tf-2.20.0-pod-se"), ("v5e-16", "tpu-vm-tf-2.20.0-pod-pjrt"),
])  # fmt: skip
def test_the_runtime_follows_from_the_accelerator(tmp_path, accelerator, runtime):
    assert load(tmp_path, accelerator=accelerator).runtime == runtime


MISTAKES = [
    ({"acelerator": "v5e-8"}, "there is no setting acelerator: did you mean accelerator?"),
    ({"gpu": 1}, "there is no setting gpu: expected command, model_dir, "),
    ({"project": None}, "project is missing: project of Google Cloud"),
    ({"budget": 48}, r"budget is 48: expected \{hours: 48\}, or \{money: 300, price_per_hour: 9.6\}"),
    ({"budget": {}}, "budget has neither hours nor money"),
    ({"budget": {"hour": 3}}, r"there is no setting budget\.hour: did you mean budget\.hours\?"),
    ({"budget": {"hours": -1}}, "budget.hours is -1.0, expected more than 0"),
    ({"budget": {"hours": float("nan")}}, "budget.hours is nan: expected a number"),
    ({"budget": {"hours": 1e300}}, r"budget.hours is 1e\+300, expected at most 87600"),
    ({"budget": {"money": 1e300, "price_per_hour": 1}}, "pays for more than 87,600 hours at budget"),
    ({"wait_hours": 10**400}, "wait_hours is too large: expected a smaller number"),
    ({"wait_hours": 1e306}, r"wait_hours is 1e\+306, expected at most 87600"),
    ({"budget": {"money": 10}}, "budget.money needs budget.price_per_hour"),
    ({"spot": "maybe"}, "spot is 'maybe': expected true or false"),
    ({"project": 7}, "project is 7: expected text"),
    ({"project": ""}, "project is '': expected its id, as gcloud projects list shows it"),
    ({"project": "My Project"}, "project is 'My Project': expected its id"),
    ({"model_dir": "gs://b/runs/*"}, r"model_dir is 'gs://b/runs/\*': expected a name without \*, which"),
    ({"command": "pretrain --flagfile=README.md"}, "command has --flagfile: write its flags here"),
    ({"zone": "us-west4"}, "zone is 'us-west4': expected one like us-west4-a"),
    ({"backend": "qr"}, "backend is 'qr', expected one of queued-resource, tpu-vm, gke"),
    ({"accelerator": "v5e"}, "accelerator is 'v5e': expected a kind of TPU"),
    ({"accelerator": "a100"}, "accelerator is 'a100': expected a kind of TPU"),
    ({"name": "My_Run"}, "name is 'My_Run': expected up to 40 small letters"),
    ({"model_dir": "runs/base"}, "model_dir is 'runs/base': expected gs://BUCKET/FOLDER"),
    ({"command": ""}, "command begins with '': expected pretrain or finetune"),
    ({"command": "pretrian --x"}, "command begins with 'pretrian': did you mean pretrain?"),
    ({"command": "pretrain 'x"}, "command cannot be split into words: No closing quotation"),
    ({"command": "pretrain --config_file=bse"}, "no such recipe: did you mean base?"),
    ({"topology": "v5e-8"}, "topology is for backend: gke, .*; kind and size are accelerator:"),
    ({"command": 3}, "command is 3: expected a command in one line"),
    ({"command": "pretrain --model_dir=gs://b/x"}, "command has --model_dir: say model_dir:"),
    ({"command": "pretrain --strategy tpu"}, "command has --strategy: leave it out"),
    ({"command": "pretrain --train_data=records"}, "--train_data=records, which the TPU's machine"),
    ({"command": "pretrain --train_data records"}, "--train_data=records, which the TPU's machine"),
    ({"command": "pretrain --config_file=README.md"}, "--config_file=README.md, which the TPU's machine"),
    ({"runtime": "tpu-vm-tf-2.16.1-pjrt"}, "which has TensorFlow 2.16.1, and this project needs 2.20.0"),
    ({"accelerator": "v5e-16", "runtime": "tpu-vm-tf-2.20.0-pjrt"}, "and v5e-16 has 4: add -pod"),
    ({"accelerator": "v5e-16", "runtime": "v2-alpha-tpuv5-lite"}, "without TensorFlow's runtime for slices"),
    ({"image": "x"}, "this job's is queued-resource; the image of a TPU VM is runtime"),
    (GKE | {"image": None}, "image is missing: with gke"),
    (GKE | {"runtime": "x"}, "runtime is not for backend: gke"),
    (GKE | {"accelerator": "v3-8"}, "accelerator is v3-8: GKE has v4, v5p, v5e, v6e"),
    (GKE | {"topology": "2x2"}, "topology is '2x2': expected an arrangement of the 8 chips of v5e-8"),
    (GKE | {"topology": "2x2x2"}, "topology is '2x2x2': expected an arrangement of the 8 chips of v5e-8"),
    (GKE | {"accelerator": "v4-8", "topology": "2x2"}, "topology is '2x2': .* of the 4 chips of v4-8"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "message"), MISTAKES, ids=[text[:40] for _, text in MISTAKES])
def test_a_mistake_is_named_with_what_would_be_right(tmp_path, settings, message):
    with pytest.raises(UserError, match=rf"base\.yaml: .*{message}"):
        load(tmp_path, **settings)


@pytest.mark.parametrize(("text", "found"), [("- pretrain\n", "a list"), ("# spot: true\n", "nothing")])
def test_a_file_that_is_no_mapping_is_refused(tmp_path, text, found):
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(UserError, match=f"job.yaml holds {found}; expected settings"):
        job.load(str(tmp_path / "job.yaml"))


@pytest.mark.parametrize("name", ["2024", "\u8bad\u7ec3", "a-name-of-more-than-forty-characters-is-too-long"])
def test_a_file_whose_name_cannot_be_the_job_s_is_said_to_be_its_source(tmp_path, name):
    file = World(tmp_path).file.rename(tmp_path / f"{name}.yaml")
    with pytest.raises(UserError, match=r"a letter first \(without name:, it is the file's\)"):
        job.load(str(file))


@pytest.mark.parametrize(
    ("text", "found"),
    [("zone: a\n\tspot: true\n", r"line 2: found character '\t' that cannot start any token"),
     ("budget: {hours: 4\nzone: a\n", "line 2: expected ',' or '}', but got ':'"),
     ("project my-project\nzone: a\n", "line 2: mapping values are not allowed here")],
)  # fmt: skip
def test_bad_yaml_is_reported_with_its_line(tmp_path, text, found):
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(UserError, match=re.escape(f"job.yaml is not yaml ({found}).")):
        job.load(str(tmp_path / "job.yaml"))


@pytest.mark.parametrize(
    ("text", "found"),
    [("spot: true\nzone: a\nspot: false\n", "spot is given twice, in lines 1 and 3: keep one of them"),
     ("budget: {hours: 4, hours: 40}\n", "hours is given twice, in line 1: keep one of them")],
)  # fmt: skip
def test_a_setting_that_is_given_twice_is_refused(tmp_path, text, found):
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(UserError, match=f"job.yaml: {found}$"):
        job.load(str(tmp_path / "job.yaml"))


def test_every_setting_is_described():
    fields = {**job.Job.__dataclass_fields__, **job.Budget.__dataclass_fields__}
    assert all(field.metadata["help"] for field in fields.values()) and set(SETTINGS) <= set(fields)
