"""Settings of a pretraining run: from flags, recipes and files, in order, and what is wrong with them."""

import pytest

from run_scripts.common import experiment
from run_scripts.pretrain import SETTINGS
from tests.helpers.command_flags import parsed
from xlnet_tf.errors import UserError
from xlnet_tf.tasks.pretraining import task as pretraining


def load(*arguments):
    values = parsed(lambda: experiment.define_flags(SETTINGS), "--model_dir=unused", *arguments)
    return experiment.load(pretraining.EXPERIMENT, SETTINGS, experiment.run_options(SETTINGS, values))


def test_settings_override_each_other_in_order(tmp_path):
    for name, rate in (("first", 0.1), ("second", 0.2)):
        text = f"trainer:\n  optimizer_config:\n    learning_rate: {rate}\n  max_to_keep: 7\n"
        (tmp_path / name).write_text(text)
    first, second = f"--config_file={tmp_path}/first", f"--config_file={tmp_path}/second"
    override = "--params_override=trainer.optimizer_config.learning_rate=0.4,trainer.max_to_keep=9"

    def rate(*arguments):
        return load(*arguments).trainer.optimizer_config.learning_rate

    assert [rate(), rate(first), rate(first, second), rate(second, first)] == [1e-4, 0.1, 0.2, 0.1]
    assert rate("--learning_rate=0.3", first) == 0.3
    assert rate(override, "--learning_rate=0.3", first) == 0.4
    assert load(first).trainer.max_to_keep == 7 and load(first, override).trainer.max_to_keep == 9
    assert load("--memory_len=0", "--jit_compile").runtime.enable_xla
    assert load("--memory_len=0").task.model.memory_len == 0
    (tmp_path / "empty").write_text("# train_steps: 5\n")
    assert load(f"--config_file={tmp_path}/empty") == load()


@pytest.mark.parametrize(
    ("arguments", "warmup"),
    [
        (["--train_steps=50"], 3),
        (["--params_override=trainer.train_steps=1"], 0),
        (["--train_steps=101"], 100),
        (["--train_steps=50", "--warmup_steps=100"], 100),
        (["--params_override=trainer.train_steps=50,trainer.optimizer_config.warmup_steps=100"], 100),
    ],
)
def test_few_steps_shorten_the_warmup_of_a_recipe_but_no_other(arguments, warmup, caplog):
    assert load("--config_file=micro", *arguments).trainer.optimizer_config.warmup_steps == warmup
    assert ("not the recipe's 100" in caplog.text) == (warmup < 100)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--params_override=trainer.train_steps=many", "trainer.train_steps is 'many'"),
        ("--params_override=task.model.memory_len=1.5", "memory_len"),
        ("--params_override=runtime.distribution_strategy=fast", "fast"),
        ("--params_override=trainer.optimizer_config.exclude_from_decay=[3]", "is 3, expected a text"),
        ("--params_override=task.train_data.global_batch_size=0", r"\(--batch_size\) is 0, .* at least 1"),
        ("--params_override=task.model.dropout=1.0", r"\(--dropout\) is 1.0, expected .*less than 1"),
        ("--config_file=/nowhere.yaml", "/nowhere.yaml: there is no such file"),
        ("--config_file=larg_v1", r"and no such recipe: did you mean large_v1\? The recipes are adapt"),
        ("--config_file=x", "no such file and no such recipe. The recipes are .*, glue/sst-2, "),
        ("--config_file=/a.yaml,/b.yaml", "of several files, give each with a flag of its own"),
        ("--params_override=/nowhere.yaml", "/nowhere.yaml: there is no such file; write settings as NAME=V"),
        (
            "--params_override=trainer.trainsteps=3",
            "no setting .*.trainsteps: .* trainer.train_steps\\?",
        ),
        ("--params_override=train_steps=3", "no setting train_steps: did you mean trainer.train_steps\\?"),
        ("--params_override=task.modle.preset=tiny", "no setting task.modle: did you mean task.model\\?"),
        ("--params_override=batch_size=3", "did you mean task.train_data.global_batch_size\\?"),
        ("--params_override=runtime.zz=3", "no setting runtime.zz, expected one of distribution_strategy, "),
        ("--params_override=task.sed=3,trainer.zz=1", "task.sed: .* task.seed.* trainer.zz"),
        ("--params_override={trainer: {1: 2}}", "no setting trainer.1"),
        ("--params_override={trainer: [", "expected the node content"),
    ],
)
def test_wrong_settings_are_named(argument, message):
    with pytest.raises((UserError, OSError), match=message):
        load(argument)


@pytest.mark.parametrize("recipe", ["micro", "base", "large_v1", "large_v2", "demo", "small_fast"])
def test_recipes_are_valid_by_name_and_as_files(recipe):
    files = [f"--config_file={name}" for name in (recipe, "compat")]
    params = load(*files)
    paths = [f"--config_file={experiment.RECIPES}/{name}.yaml" for name in (recipe, "compat")]
    assert params == load(*paths)
    preset = {"micro": "micro", "base": "base", "demo": "tiny", "small_fast": "tiny"}.get(recipe, "large")
    assert params.task.model.preset == preset and not params.trainer.optimizer_config.bias_correction
    config = params.trainer.optimizer_config
    assert 0 < config.warmup_steps < params.trainer.train_steps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainer:\n  train_step: 5\n", "no setting trainer.train_step: did you mean trainer.train_steps"),
        ("trainer:\n\ttrain_steps: 5\n", "recipe.yaml: .*found character .* line 2"),
        ("- trainer", "recipe.yaml holds a list; expected settings by their names"),
        (
            "trainer:\n  train_steps: 5\n  optimizer_config: {learning_rate: 1e-4}\n  train_steps: 6\n",
            "recipe.yaml: train_steps is given twice, in lines 2 and 4: keep one of them",
        ),
    ],
)
def test_wrong_files_of_settings_are_named(tmp_path, text, message):
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        load(f"--config_file={tmp_path}/recipe.yaml")
