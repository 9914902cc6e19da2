"""A pretraining run on small records, for the tests of what runs leave."""

import pytest

from tests.helpers.training import toy
from xlnet_tf import files
from xlnet_tf.tasks.pretraining import task as pretraining


@pytest.fixture(scope="session")
def folder(made_once):
    """A folder with records, into which tests write what has a name of its own."""

    def write(folder):
        toy.make_records(folder / "records")
        toy.make_records(folder / "dev", segments=((5, 4),), seed=1)

    return made_once("toy_records", write)


@pytest.fixture(scope="session")
def run(folder, made_once):
    """A finished run's folder, settings and last metrics."""
    params = toy.short_run(folder)
    pretraining.build_task(params)  # fills in what follows from the records
    params.trainer.summary_interval = params.trainer.steps_per_loop  # as each run sets it

    def write(model_dir):
        files.write_json(model_dir / "last.json", pretraining.pretrain(params, str(model_dir)))

    model_dir = made_once("toy_pretraining", write)
    return model_dir, params, files.read_json(model_dir / "last.json")
