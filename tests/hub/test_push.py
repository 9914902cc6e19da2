"""Models on their way to the hub, one on this machine."""

import io
import json
import pathlib

import pytest
import yaml

from run_scripts.common import uploads
from tests.helpers import fake_hub
from xlnet_tf import hub
from xlnet_tf.checkpoints import publishing, save_model
from xlnet_tf.checkpoints.model_card import ModelCard
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice, XLNetRanker
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.models.token_classifier import XLNetTokenClassifier
from xlnet_tf.text.tokenizer import XLNetTokenizer

huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs the extra hub")

NAME = "people/reviews"
FACTS = publishing.Facts(license="apache-2.0", language="en", dataset="people/films")


def small_encoder(tokenizer):
    sizes = {"n_layer": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 16}
    return XLNetEncoder(XLNetConfig(tokenizer.vocab_size, **sizes))


@pytest.fixture
def model_dir(tmp_path, small_tokenizer):
    """A classifier with what a run notes: metrics, settings, and where its weights came from."""
    model = XLNetClassifier(small_encoder(small_tokenizer), 2, labels=["bad", "good"])
    model.build()
    card = ModelCard.of_model(model, small_tokenizer)
    card = card.with_origin("init_checkpoint", "hf://xlnet/xlnet-base-cased@0123")
    metrics = {"accuracy": 0.875, "step": 8, "dev_set": "a", "dev_set_since": 4}
    card = card.with_origin("converted_from", "/home/me/weights", metrics=metrics)
    save_model(model, tmp_path / "run", small_tokenizer, card)
    task = {
        "init_checkpoint": "hf://xlnet/xlnet-base-cased@0123",
        "model": {"dropout": 0.1},
        "train_data": {"input_path": "/home/me/films/train", "global_batch_size": 32},
    }
    params = {"task": task, "trainer": {"train_steps": 1200}}
    (tmp_path / "run" / "params.yaml").write_text(yaml.safe_dump(params))
    return str(tmp_path / "run")


@pytest.fixture
def token(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", fake_hub.TOKEN)


def push(model_dir, **options):
    with publishing.prepared(model_dir, FACTS, name=NAME) as folder:
        return publishing.push(folder, NAME, **options)


def test_what_was_pushed_is_found_by_its_name_and_only_changed_if_asked(model_hub, model_dir, token):
    address = push(model_dir)
    assert address == f"{model_hub.url}/{NAME}/commit/{fake_hub.COMMIT}"
    model = XLNetClassifier.from_pretrained(NAME)
    assert list(model.labels) == ["bad", "good"]
    tokenizer = XLNetTokenizer.from_pretrained(NAME)
    assert tokenizer.fingerprint == XLNetTokenizer.from_pretrained(model_dir).fingerprint
    assert hub.locate(NAME).source == f"hf://{NAME}@{fake_hub.COMMIT}"
    assert f"--model_dir=hf://{NAME} --output_dir=served" in model_hub.models[NAME]["README.md"].decode()
    model_hub.models[NAME] = {"config.json": b"theirs"}
    with pytest.raises(UserError, match="hf://people/reviews exists already: give --update"):
        push(model_dir)
    assert model_hub.models[NAME] == {"config.json": b"theirs"}
    push(model_dir, update=True)
    assert b"xlnet" in model_hub.models[NAME]["config.json"]


def test_the_readme_has_metrics_and_training_facts(model_dir):
    with publishing.prepared(model_dir, FACTS) as folder:
        text = (folder / "README.md").read_text()
        contents = {file.name: file.read_bytes() for file in folder.iterdir()}
    _, metadata, page = text.split("---\n", 2)
    values = yaml.safe_load(io.StringIO(metadata))
    assert (values["license"], values["language"]) == ("apache-2.0", "en")
    assert values["base_model"] == "xlnet/xlnet-base-cased"
    assert values["pipeline_tag"] == "text-classification"
    [result] = values["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "accuracy", "value": 0.875}]
    assert result["dataset"]["name"] == "people/films"
    assert "| accuracy | 0.875 |" in page
    assert "| steps | 1,200 |" in page and "| rows of a step | 32 |" in page
    assert "| init_checkpoint | hf://xlnet/xlnet-base-cased@0123 |" in page
    for name, content in contents.items():
        assert b"/home/me" not in content, name
    assert json.loads(contents["model.json"])["metrics"]["accuracy"] == 0.875


def test_the_readme_has_the_last_evaluation_of_a_run_without_best_weights(model_dir):
    card = json.loads(pathlib.Path(model_dir, "model.json").read_text()) | {"metrics": {}}
    pathlib.Path(model_dir, "model.json").write_text(json.dumps(card))
    lines = [{"step": step, "kind": "dev", "loss": loss} for step, loss in ((4, 0.5), (8, 0.25))]
    lines.append({"step": 9, "kind": "train", "training_loss": 3.5})
    history = "".join(json.dumps(line) + "\n" for line in lines)
    pathlib.Path(model_dir, "history.jsonl").write_text(history + '{"step": 12, "ki')  # the run was killed
    with publishing.prepared(model_dir, FACTS) as folder:
        text = (folder / "README.md").read_text()
    assert "0.25" in text and "0.5" not in text and "3.5" not in text


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: publishing.Facts(license="MIT"), "license is 'MIT'"),
        (lambda: publishing.Facts(language="en-us"), "language is 'en-us'"),
        (lambda: publishing.check_name("reviews"), "expected OWNER/NAME"),
        (lambda: publishing.check_name("people/a--b"), "people/a--b is not a name that the hub takes"),
    ],
)
def test_what_the_hub_does_not_take_is_refused_before_it_is_asked(refused, message):
    with pytest.raises(UserError, match=message):
        refused()


MODELS = [
    (XLNetPretrainer, "fill-mask", "ours", None),
    (lambda e: XLNetTokenClassifier(e, 3, labels=["O", "B-P", "I-P"]), "token-classification", "ours", None),
    (lambda e: XLNetMultipleChoice(e, 2), "multiple-choice", "ours", None),
    (lambda e: XLNetRanker(e, 2), None, "ours", None),
    (lambda e: XLNetClassifier(e, 2, summary="mean"), "text-classification", "hugging_face",
     "its summary mean takes in padding: outputs agree for texts without"),
    (lambda e: XLNetRanker(e, 2), None, "original",
     "the original has no ranking: it leaves these weights out"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "hubs_task", "format", "line"), MODELS)
def test_the_readme_has_the_hubs_name_of_the_task_and_what_differs_in_the_format(
    model_hub, token, tmp_path, small_tokenizer, capsys, make, hubs_task, format, line
):
    make(small_encoder(small_tokenizer)).save_pretrained(tmp_path, small_tokenizer)
    for dry_run in (True, False):
        uploads.upload(str(tmp_path), NAME, format, uploads.UploadOptions(dry_run=dry_run))
        printed = capsys.readouterr().out
        assert (f"bytes, to hf://{NAME}; if the hub stops" in printed) == (not dry_run)
        readme = printed if dry_run else model_hub.models[NAME]["README.md"].decode()
        notes = [text for text in printed.splitlines() if text.startswith("note:")]
        assert notes == ([f"note: {line}"] if line else [])
        assert ("## Differences" in readme) == bool(line) and (not line or f"\n- {line}\n" in readme)
    assert yaml.safe_load(readme.split("---\n", 2)[1]).get("pipeline_tag") == hubs_task or hubs_task is None


def test_a_private_model_is_made_private(model_hub, model_dir, token, monkeypatch):
    push(model_dir, private=True)
    assert model_hub.private == {NAME}
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UserError, match="or it is private"):
        hub.locate(f"hf://{NAME}")


@pytest.mark.parametrize("reason", ["no token", "a wrong token", "a token that may not write"])
def test_a_refused_token_is_one_clear_error(model_hub, model_dir, monkeypatch, reason):
    if reason == "a wrong token":
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    if reason == "a token that may not write":
        monkeypatch.setenv("HF_TOKEN", fake_hub.TOKEN)
        model_hub.refused = True
    with pytest.raises(UserError, match="the hub refuses to write hf://people/reviews: set HF_TOKEN"):
        push(model_dir)
    assert not model_hub.models


def test_refused_metadata_is_one_clear_error_and_leaves_no_empty_model(model_hub, model_dir, token):
    model_hub.refused_metadata = 'Invalid metadata:\n- "license" must be one of [' + "mit, " * 200
    expected = 'reviews cannot be written: Invalid metadata: - "license" must be one of .* Check --license, '
    with pytest.raises(UserError, match=expected) as found:
        push(model_dir)
    assert len(str(found.value)) < 500
    assert not model_hub.models


@pytest.mark.parametrize("where", ["/repos/create", "/preupload/", "/batch", "/commit/"])
@pytest.mark.parametrize("body", [b"<title>Log in</title>", b"[]", b"{}"])
def test_what_is_not_a_hub_is_called_so(model_hub, model_dir, token, where, body):
    model_hub.instead = lambda _, path: (200, body, {}) if where in path else None
    with pytest.raises(UserError, match="cannot be written: .*does not answer as a Hugging Face hub does"):
        push(model_dir)


def test_a_missing_tokenizer_and_a_hub_that_cannot_be_reached(model_hub, model_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://localhost:9")
    with pytest.raises(UserError, match=r"reviews cannot be written \(Connection refused\). .* start again$"):
        push(model_dir)
    (tmp_path / "run" / "spiece.model").unlink()
    with pytest.raises(UserError, match="there is no spiece.model next to"):
        push(model_dir)
    assert not model_hub.requested


def test_an_upload_that_fails_says_that_the_model_exists_by_now(model_hub, model_dir, token, monkeypatch):
    def fail(*_, **__):
        raise ConnectionError("the network has ended")

    monkeypatch.setattr("huggingface_hub.HfApi.upload_folder", fail)
    with pytest.raises(UserError, match="the network has ended.* with --update, as the model exists by now"):
        push(model_dir)
    assert model_hub.models == {NAME: {}}
