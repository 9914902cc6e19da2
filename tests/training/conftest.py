"""What the tests of training share."""

import pytest

from tests.helpers.training import toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with small records to train and to evaluate on."""
    folder = tmp_path_factory.mktemp("training")
    toy.make_records(folder / "records")
    toy.make_records(folder / "dev", segments=((7, 5), (4, 3)), seed=1)
    return folder
