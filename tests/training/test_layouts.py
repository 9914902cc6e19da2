"""The same numbers on any layout of devices and micro-batches, and after a resume."""

import numpy as np
import pytest

from tests.helpers.training.alone import run_alone


def run_layouts(folder, *names):
    """Runs tests/helpers/training/layouts.py in a process that may set up devices; returns what it gives."""
    result = run_alone("-m", "tests.helpers.training.layouts", folder, *names)
    assert result.returncode == 0, result.stderr[-3000:]
    return lambda name: np.load(folder / f"{name}.npz")


def assert_close(got, expected, steps):
    """The norms tell what AdamW and clipping hide: gradients that are all a multiple of the right ones."""
    np.testing.assert_allclose(got["losses"], expected["losses"][-steps:], atol=1e-5, rtol=0)
    np.testing.assert_allclose(got["norms"], expected["norms"][-steps:], atol=0, rtol=1e-5)
    for name in set(got.files) - {"losses", "norms"}:
        # By the size of each tensor: second moments, and gradients far below the head, are tiny.
        largest = np.abs(expected[name]).max()
        np.testing.assert_allclose(got[name], expected[name], atol=1e-5 * largest, rtol=0, err_msg=name)


@pytest.mark.integration
def test_micro_batches_on_two_devices_equal_one_device(tmp_path):
    runs = run_layouts(tmp_path, "one", "two_accumulated")
    one = runs("one")
    assert len(one["losses"]) == 30 and one["losses"][-1] < one["losses"][0]
    assert one["memory/mask"].any() and not one["memory/mask"].all()
    gradients = [name for name in one.files if name.startswith("gradient/")]
    assert len(gradients) > 30 and all(one[name].any() for name in gradients)
    assert_close(runs("two_accumulated"), one, 30)


@pytest.mark.long
def test_a_run_resumes_on_other_devices(tmp_path):
    runs = run_layouts(tmp_path, "saved", "resumed_elsewhere")
    # Two micro-batches on one device draw the dropout masks of one on each of two devices.
    assert_close(runs("resumed_elsewhere"), runs("saved"), 18)


@pytest.mark.long
@pytest.mark.parametrize("name", ["two", "four", "four_accumulated", "eight"])
def test_more_devices_equal_one(tmp_path, name):
    runs = run_layouts(tmp_path, "one", name)
    assert_close(runs(name), runs("one"), 30)
