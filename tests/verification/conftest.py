"""A small trained model: see language.py."""

import pytest

from tests.verification import language


@pytest.fixture(scope="session")
def trained():
    """The folder of a trained model, and a text of its language."""
    return language.TRAINED, language.sentences(200, seed=3)
