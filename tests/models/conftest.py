"""What the tests of models share."""

import pytest
import tf_keras

from tests.helpers.models.saved import CONFIG
from xlnet_tf.checkpoints import save_model
from xlnet_tf.models.encoder import XLNetEncoder


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A folder of pretrained weights: an encoder without a head."""
    tf_keras.utils.set_random_seed(0)
    encoder = XLNetEncoder(CONFIG)
    encoder.build()
    save_model(encoder, folder := str(tmp_path_factory.mktemp("pretrained")))
    return folder
