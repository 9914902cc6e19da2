"""Fixtures shared by all tests."""

import os
import pathlib

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture
def shared():
    """Returns a function that finds a file of the `shared` folder beside the checkout, or skips."""

    def find(relative: str) -> pathlib.Path:
        path = REPOSITORY.parent / "shared" / relative
        if not path.exists():
            pytest.skip(f"shared/{relative} is not here")
        return path

    return find


@pytest.fixture
def golden():
    """Returns a function that gives the path of a numeric fixture in tests/golden."""

    def find(relative: str) -> pathlib.Path:
        return REPOSITORY / "tests" / "golden" / relative

    return find
