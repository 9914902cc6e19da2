"""Each entry of the task registry names what is there, and what tools read of it is right."""

import numpy as np
import pytest
from official.core import exp_factory, task_factory

from run_scripts import finetune
from tests.helpers import command_flags, tasks
from tests.helpers.training import toy_finetuning as toy
from xlnet_tf import flags, task_registry
from xlnet_tf.checkpoints import names, save_model
from xlnet_tf.errors import UserError
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.head import XLNetHead
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.serving.graph.exported_model import ExportableModel
from xlnet_tf.tasks.finetuning import FinetuningTask
from xlnet_tf.tpu import synthetic

OF_TASKS = task_registry.settings("settings")


@pytest.fixture(params=task_registry.tasks())
def entry(request):
    return task_registry.find(request.param)


def field(params, path):
    for name in path.split("."):
        params = getattr(params, name)
    return params


def build(entry, folder, **changes) -> FinetuningTask:
    """Builds a task on a set without content."""
    synthetic.examples(str(folder), entry.name, seq_len=24, vocab_size=60, num_labels=3, sequences=2)
    params = exp_factory.get_exp_config(entry.experiment).task
    params.train_data.input_path = str(folder)
    params.model.override({"preset": "micro", **changes})
    return task_factory.get_task_cls(type(params))(params)


def test_an_entry_names_what_is_there(entry, tmp_path):
    assert issubclass(entry.load("model"), XLNetHead)
    assert issubclass(entry.load("serving"), ExportableModel)
    task = build(entry, tmp_path)
    assert type(task) is entry.load("task")
    assert (entry.examples or entry.name) == task.TASK
    assert task_registry.entry_for_set(ExampleSet.load(tmp_path)) is entry
    assert isinstance(task.build_head(XLNetEncoder(task.xlnet_config)), entry.load("model"))


@pytest.mark.parametrize("summary", ["last", "attn"])
def test_a_task_begins_with_a_pretrained_encoder(entry, tmp_path, summary):
    task = build(entry, tmp_path / "records")
    pretrained = XLNetEncoder(task.xlnet_config)
    pretrained.build()
    save_model(pretrained, str(tmp_path / "pretrained"))
    if hasattr(task.task_config.model, "summary"):
        task.task_config.model.summary = summary
    elif summary != "last":
        pytest.skip("the task reads all tokens")
    task.task_config.init_checkpoint = str(tmp_path / "pretrained")
    task = type(task)(task.task_config)
    model = task.build_model()
    task.initialize(model)
    for found, expected in zip(model.encoder.variables, pretrained.variables, strict=True):
        np.testing.assert_array_equal(found, expected, found.name)
    new = {names.head_scope(names.canonical(v.name)) for v in model.variables} - {"encoder"}
    assert new <= set(task.new_scopes())


def test_an_entry_has_the_variables_of_its_head(entry, tmp_path):
    model = build(entry, tmp_path).build_model()
    scope = entry.head.format(task="task")
    found = {names.canonical(variable.name) for variable in model.variables}
    shared = {name for name in found if names.head_scope(name) in ("encoder", "summary")}
    assert found - shared == {f"{scope}/{name}" for name, *_ in entry.variables}
    assert all(task_registry.entry_for_scope(names.head_scope(name)) is entry for name in found - shared)


def test_names_lead_to_one_task():
    known = task_registry.names()
    assert len(set(known)) == len(known)
    for name, task in (("squad", "question_answering"), ("choice", "multiple_choice")):
        assert task_registry.find(name).name == task
    with pytest.raises(UserError, match="no task 'parsing': expected one of classification, regression, q"):
        task_registry.find("parsing")


def test_another_task_must_have_a_new_name(monkeypatch):
    class Point:
        value = "package.module:TASK"

        def load(self):
            return task_registry.own_tasks()[0]

    monkeypatch.setattr(task_registry.metadata, "entry_points", lambda group: [Point()])
    message = "package.module:TASK, which a package installs, is .* expected a TaskEntry of a new name"
    with tasks.registered(), pytest.raises(UserError, match=message):
        task_registry.tasks()


def test_settings_of_a_task_are_fields_of_its_experiment_and_no_other_has_flags_of_the_same_name(entry):
    params = exp_factory.get_exp_config(entry.experiment)
    for setting in entry.settings:
        default = field(params, setting.field)
        setting.check(default)
    assert not {setting.flag for setting in entry.settings} & {s.flag for s in finetune.SETTINGS}


def parsed(*arguments):
    return command_flags.parsed(lambda: flags.define_of_tasks(OF_TASKS), *arguments)


@pytest.mark.parametrize("flag", OF_TASKS)
def test_a_flag_of_other_tasks_is_an_error_that_names_those_that_have_it(entry, flag):
    kind = next(iter(OF_TASKS[flag].values())).kind
    value = kind[0] if isinstance(kind, tuple) else {str: "a", int: 1, float: 0.5}[kind]
    values = parsed(f"--{flag}={value}")
    assert flags.given(OF_TASKS, values) == {flag: value}
    if entry.name in OF_TASKS[flag]:
        flags.check_task(OF_TASKS, [flag], entry.name)
        return
    expected = f"^--{flag} is for {' and '.join(OF_TASKS[flag])}, not for {entry.name}: leave it out$"
    with pytest.raises(UserError, match=expected):
        flags.check_task(OF_TASKS, [flag], entry.name)


def test_a_registered_task_is_found(tmp_path, small_tokenizer):
    examples = toy.make_examples(tmp_path, small_tokenizer, 2)
    with pytest.raises(UserError, match="has examples for 'toy': expected one of classification, regression"):
        task_registry.entry_for_set(examples)
    with tasks.registered(toy.ENTRY):
        assert task_registry.entry_for_set(examples) is toy.ENTRY
    values = parsed()
    assert values["ranking_loss"].help.endswith("Loss of training. For ranking. Sets task.loss.")
    assert "For classification, regression." in values["head_name"].help
