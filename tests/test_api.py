"""The package's names are there, and importing it loads nothing heavy."""

import os
import subprocess
import sys

import pytest

import xlnet_tf

LIGHT = """
import sys
import xlnet_tf
from xlnet_tf import UserError, XLNetConfig, XLNetTokenizer

heavy = {"tensorflow", "tf_keras", "keras", "official", "torch"} & set(sys.modules)
assert not heavy, heavy
import os
assert os.environ["TF_USE_LEGACY_KERAS"] == "1"
"""


def test_importing_the_package_loads_no_tensorflow():
    result = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


INSTALLED = """
from importlib import resources
import run_scripts, tfrecord_builders, xlnet_tf
assert xlnet_tf.XLNetConfig
assert (resources.files("run_scripts") / "recipes" / "base.yaml").is_file()
"""


def test_packages_and_recipes_are_installed_outside_the_checkout(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", INSTALLED]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, f"run `make setup`, which installs the project\n{result.stderr}"


def test_every_name_is_the_class_it_says():
    for name in xlnet_tf.__all__:
        assert getattr(xlnet_tf, name).__name__ == name
    assert set(xlnet_tf.__all__) <= set(dir(xlnet_tf))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'XLNetPoet'"):
        xlnet_tf.XLNetPoet  # noqa: B018
