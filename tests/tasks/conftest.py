"""A fine-tuning run of the toy task, for the tests of what runs leave."""

import pytest

from tests.helpers import tasks
from tests.helpers.training import toy_finetuning as toy
from xlnet_tf import files


@pytest.fixture(scope="session")
def data(made_once, small_tokenizer):
    """A folder with sets of examples to train and to evaluate on."""

    def write(folder):
        toy.make_examples(folder / "train", small_tokenizer, 64)
        toy.make_examples(folder / "dev", small_tokenizer, 21, seed=1)

    return made_once("toy_examples", write)


@pytest.fixture(scope="session")
def run(data, made_once):
    """The folder of a finished run, and its last metrics."""

    def write(folder):
        files.write_json(folder / "metrics.json", toy.run(data, folder / "run"))

    folder = made_once("toy_run", write)
    return folder / "run", files.read_json(folder / "metrics.json")


@pytest.fixture
def registered():
    """Lets scripts find the toy task."""
    with tasks.registered(toy.ENTRY):
        yield
