"""KerasHub's backbones: the answers that it gives to single rows. keras_hub/make.py made them with it."""

import json
import pathlib
import zipfile

import numpy as np
import pytest

from run_scripts.convert_checkpoint import convert
from tests.checkpoints.keras_hub.make import ROWS
from xlnet_tf import XLNetEncoder
from xlnet_tf.checkpoints import open_checkpoint
from xlnet_tf.errors import UserError

FOLDER = pathlib.Path(__file__).parent / "keras_hub"
BACKBONE = FOLDER / "backbone.keras"


@pytest.fixture
def unpacked(tmp_path):
    with zipfile.ZipFile(BACKBONE) as archive:
        archive.extractall(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def encoder():
    return XLNetEncoder.from_pretrained(BACKBONE)


@pytest.mark.parametrize("row", ROWS)
def test_answers_are_those_to_single_rows(encoder, row):
    ids, segments = (np.array([values], np.int32) for values in ROWS[row])
    inputs = {"input_word_ids": ids, "input_mask": ids != 5, "input_type_ids": segments}
    found = encoder(inputs)["sequence_output"][0].numpy()
    expected = np.load(FOLDER / "answers.npz")[row]
    is_token = ids[0] != 5
    np.testing.assert_allclose(found[is_token], expected[is_token], atol=2e-5)


def test_weights_alone_are_read_with_a_warning(unpacked, caplog):
    (unpacked / "config.json").unlink()
    checkpoint = open_checkpoint(unpacked / "model.weights.h5")
    assert checkpoint.config == open_checkpoint(BACKBONE).config
    assert "mixes up the positions" in caplog.text
    assert "attention/position/kernel" in "".join(checkpoint.arrays)


def test_a_folder_of_keras_hub_is_read(unpacked):
    assert open_checkpoint(unpacked).format == "keras_hub"


def test_conversions_keep_every_weight_and_none_of_keras_fields(unpacked, tmp_path):
    text = convert(str(unpacked), str(tmp_path / "hf"), "hugging_face", None, strict=True)
    assert "(keras_hub): written to" in text
    fields = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (fields["ff_activation"], fields["n_layer"]) == ("gelu", 2)
    assert not {"class_name", "config", "registered_name", "dtype", "torch_dtype"} & fields.keys()
    again, first = open_checkpoint(tmp_path / "hf"), open_checkpoint(BACKBONE)
    assert again.arrays.shapes == first.arrays.shapes
    for name in first.arrays:
        np.testing.assert_array_equal(again.arrays[name], first.arrays[name])


def test_other_files_are_refused_as_before(tmp_path, unpacked):
    (tmp_path / "other.weights.h5").write_bytes(b"no HDF5")
    with pytest.raises(UserError, match="a file of Keras .other.weights.h5., which only"):
        open_checkpoint(tmp_path / "other.weights.h5")
    config = (unpacked / "config.json").read_text()
    for field, message in (
        ({"activation": "swish"}, "with the activation gelu or relu"),
        ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon is 1e-06; XLNet's is 1e-12"),
    ):
        changed = json.loads(config)
        changed["config"] |= field
        (unpacked / "config.json").write_text(json.dumps(changed))
        with pytest.raises(UserError, match=message):
            open_checkpoint(unpacked)
