"""Weights and tokenizers by name, wherever a path is taken, from a hub on this machine."""

import pathlib

import numpy as np
import pytest

from run_scripts import pretrain
from run_scripts.common import experiment
from run_scripts.export import __main__ as export
from tests.helpers import fake_hub
from tests.helpers.command_flags import fresh_flags
from xlnet_tf.checkpoints import open_checkpoint, read_architecture, save_checkpoint, save_model
from xlnet_tf.config import XLNetConfig
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.serving import models
from xlnet_tf.tasks import pretraining
from xlnet_tf.text.tokenizer import XLNetTokenizer

NAME = "people/reviews"
LABELS = ["bad", "good"]


@pytest.fixture
def published(model_hub, tmp_path, small_tokenizer):
    """A classifier on the hub, in Hugging Face's format; and the model itself."""
    config = XLNetConfig(
        n_token=small_tokenizer.vocab_size, n_layer=1, d_model=16, n_head=2, d_head=8, d_inner=16
    )
    model = XLNetClassifier(XLNetEncoder(config), 2, labels=LABELS)
    model.build()
    save_model(model, tmp_path / "ours", small_tokenizer)
    save_checkpoint(open_checkpoint(tmp_path / "ours"), str(tmp_path / "theirs"), "hugging_face")
    model_hub.models[NAME] = {
        path.name: path.read_bytes() for path in pathlib.Path(tmp_path, "theirs").iterdir()
    }
    return model


def test_a_named_model_answers_as_the_published_one(published, small_tokenizer):
    model, tokenizer = XLNetClassifier.from_pretrained(NAME), XLNetTokenizer.from_pretrained(NAME)
    assert list(model.labels) == LABELS
    assert tokenizer.fingerprint == small_tokenizer.fingerprint
    features = tokenizer(["a fine film", "a waste of time"], seq_len=16)
    np.testing.assert_allclose(model(features), published(features), atol=1e-6)


def test_an_architecture_comes_by_name_and_settings_note_the_commit(published):
    source = f"hf://{NAME}@{fake_hub.COMMIT}"
    config = published.encoder.config
    assert read_architecture(NAME) == read_architecture(source) == config
    with fresh_flags() as values:
        experiment.define_flags(pretrain.SETTINGS)
        values(["pretrain", "--model_dir=run", f"--model_config={NAME}", f"--init_checkpoint={NAME}"])
        params = experiment.load(pretraining.EXPERIMENT, pretrain.SETTINGS, values)
    assert params.task.init_checkpoint == params.task.model.config_file == source
    assert params.task.model.architecture(vocab_size=7) == config


def test_a_name_is_exported(published):
    with fresh_flags() as values:
        export.define_flags()
        values(["export", f"--model_dir={NAME}", "--output_dir=served", "--head=classification"])
        export.check_flags(values)
        values["model_dir"].value = "people/nobody"
        with pytest.raises(FileNotFoundError, match="there is nothing at people/nobody"):
            export.check_flags(values)


def test_conversions_and_exports_note_the_commit(published, tmp_path):
    source = f"hf://{NAME}@{fake_hub.COMMIT}"
    save_checkpoint(open_checkpoint(NAME), str(tmp_path / "converted"), "ours")
    assert open_checkpoint(tmp_path / "converted").card.origin["converted_from"] == source
    module = models.module_of_checkpoint(NAME, head="classification")
    assert module.card.origin["exported_from"] == source
