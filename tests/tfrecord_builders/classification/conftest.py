"""What builds the sets of these tests."""

import pytest

from tests.helpers.records.labelled import builder


@pytest.fixture
def build(tmp_path, tokenizer_file):
    return builder(tmp_path, tokenizer_file)
