"""Weights and tokenizers by name, wherever a path is taken, from a hub on this machine."""

import json
import pathlib

import numpy as np
import pytest

from run_scripts import pretrain
from run_scripts.common import experiment
from tests.helpers import fake_hub
from tests.helpers.command_flags import fresh_flags
from tests.helpers.commands import run_command
from xlnet_tf.checkpoints import open_checkpoint, read_architecture, save_checkpoint, save_model
from xlnet_tf.config import XLNetConfig
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.serving.answers import text_answers
from xlnet_tf.serving.sources import open_served
from xlnet_tf.tasks.pretraining import task as pretraining

NAME = "people/reviews"
LABELS = ["bad", "good"]
TEXTS = ["a fine film", "tor tor ba", "ne", "ren do su mi"]


@pytest.fixture
def published(model_hub, tmp_path, small_tokenizer):
    """A classifier on the hub, in Hugging Face's format; and the model itself."""
    config = XLNetConfig(
        n_token=small_tokenizer.vocab_size, n_layer=1, d_model=16, n_head=2, d_head=8, d_inner=16
    )
    model = XLNetClassifier(XLNetEncoder(config, initializer_range=0.4), 2, labels=LABELS)
    model.build()
    model.tokenizer = small_tokenizer
    save_model(model, tmp_path / "ours", small_tokenizer)
    save_checkpoint(open_checkpoint(tmp_path / "ours"), str(tmp_path / "theirs"), "hugging_face")
    model_hub.models[NAME] = {
        path.name: path.read_bytes() for path in pathlib.Path(tmp_path, "theirs").iterdir()
    }
    return model


def test_an_architecture_comes_by_name_and_settings_note_the_commit(published):
    source = f"hf://{NAME}@{fake_hub.COMMIT}"
    config = published.encoder.config
    assert read_architecture(NAME) == read_architecture(source) == config
    with fresh_flags() as values:
        experiment.define_flags(pretrain.SETTINGS)
        values(["pretrain", "--model_dir=run", f"--model_config={NAME}", f"--init_checkpoint={NAME}"])
        options = experiment.run_options(pretrain.SETTINGS, values)
        params = experiment.load(pretraining.EXPERIMENT, pretrain.SETTINGS, options)
    assert params.task.init_checkpoint == params.task.model.config_file == source
    assert params.task.model.architecture(vocab_size=7) == config


def test_conversions_and_exports_note_the_commit(published, tmp_path):
    source = f"hf://{NAME}@{fake_hub.COMMIT}"
    save_checkpoint(open_checkpoint(NAME), str(tmp_path / "converted"), "ours")
    assert open_checkpoint(tmp_path / "converted").card.origin["converted_from"] == source
    module = open_served(NAME, head="classification").load()
    assert module.card.origin["exported_from"] == source


@pytest.mark.integration
@pytest.mark.parametrize("name", [NAME, f"hf://{NAME}@v1"])
def test_predict_evaluate_and_export_take_a_name(published, small_tokenizer, tmp_path, capsys, name):
    """And give the numbers of the model's folder."""
    expected = published.answer(TEXTS)
    rows = [f'"{text}",{LABELS[number % 2]}' for number, text in enumerate(TEXTS)]
    (tmp_path / "dev.csv").write_text("\n".join(["text,label", *rows]))

    run_command("run_scripts.predict", f"--model_dir={name}", f"--data={tmp_path / 'dev.csv'}")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["label"] for row in found] == [answer["label"] for answer in expected]
    for row, answer in zip(found, expected, strict=True):
        np.testing.assert_allclose(row["probabilities"], [*answer["probabilities"].values()], atol=1e-6)

    data = f"--output_dir={tmp_path / 'records'}", f"--dev={tmp_path / 'dev.csv'}", "--labels=bad,good"
    columns = "--text_column=text", "--label_column=label"
    run_command("tfrecord_builders.classification", f"--tokenizer={name}", *data, *columns)
    scores = {}
    published.save(tmp_path / "model.keras")
    for model in (name, str(tmp_path / "ours"), str(tmp_path / "model.keras")):
        out = tmp_path / f"scores{len(scores)}"
        given = f"--model_dir={model}", f"--data={tmp_path / 'records' / 'dev'}", f"--output_dir={out}"
        run_command("run_scripts.evaluate", *given)
        [scores[model]] = json.loads((out / "evaluations.json").read_text()).values()
    hits = [answer["label"] == LABELS[number % 2] for number, answer in enumerate(expected)]
    assert (
        scores[name] == scores[str(tmp_path / "ours")] == pytest.approx(scores[str(tmp_path / "model.keras")])
    )
    assert scores[name]["accuracy"] == np.mean(hits)

    served = str(tmp_path / "served")
    run_command("run_scripts.export", f"--model_dir={name}", f"--output_dir={served}", "--warmup_batches=1")
    [row, *_] = text_answers.answer_texts(
        open_served(served, inputs=()).load("float32"), [{"text": text} for text in TEXTS], 2
    )
    np.testing.assert_allclose(row["probabilities"], [*expected[0]["probabilities"].values()], atol=1e-6)
    card = json.loads((tmp_path / "served" / "1" / "model.json").read_text())
    assert card["origin"]["exported_from"] == f"hf://{NAME}@{fake_hub.COMMIT}"
