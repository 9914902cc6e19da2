"""The models and the server that the tests of this folder ask."""

import pytest
import tensorflow as tf

from tests.helpers.serving.requests import LIMITS, shared_exports
from xlnet_tf.serving.local import server, versions


@pytest.fixture(scope="package")
def exports(small_tokenizer, made_once):
    """Folders of exported models, by their names."""
    return shared_exports(made_once, small_tokenizer)


@pytest.fixture(scope="package")
def running(exports):
    configs = [versions.of_folder(str(path)) for path in exports.values()]
    configs[0] = versions.dataclasses.replace(configs[0], labels={"stable": 1})
    with server.serving(configs, limits=LIMITS) as found:
        yield found


@pytest.fixture(scope="package")
def toy(tmp_path_factory):
    """The folder of a SavedModel that is loaded in no time."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def lengths(text):
        return {"length": tf.strings.length(text)}

    folder = tmp_path_factory.mktemp("toys") / "toy"
    tf.saved_model.save(tf.Module(), str(folder / "1"), signatures={"serving_default": lengths})
    return folder


@pytest.fixture(scope="package")
def loaded(exports):
    """The SavedModels themselves, by name."""
    return {name: tf.saved_model.load(str(path / "1")) for name, path in exports.items()}
