"""Runs a command as `python -m` does, but in this process, where TensorFlow is loaded already."""

import runpy
import sys
import unittest.mock
import warnings

from absl import flags

from tests.helpers.command_flags import fresh_flags
from xlnet_tf import errors


def run_command(module: str, *arguments: str):
    """Runs the command `python -m MODULE ARGUMENTS`; its errors are raised."""

    def run(main):
        main(flags.FLAGS([module, *arguments]))

    with fresh_flags(), unittest.mock.patch.object(errors, "run", run), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the module may have been imported before
        with unittest.mock.patch.object(sys, "argv", [module, *arguments]):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
