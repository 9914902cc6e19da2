"""What is served of a checkpoint does not depend on the format that it was converted to."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.serving.toys import built
from xlnet_tf import checksums
from xlnet_tf.checkpoints import open_checkpoint, save_checkpoint, save_model
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.serving import models
from xlnet_tf.text.tokenizer import XLNetTokenizer

LABELS = ["bad", "fair", "good"]
TEXTS = ["1999, Was Old", "a NEW one , 2008, and  more", "", "Ba né tor mi kal"]


def convert(source, folder, format):
    save_checkpoint(open_checkpoint(str(source)), str(folder), format)
    return folder


def ours(folder, tokenizer, manifest=None, **options):
    """A classifier as `save_model` writes it, its tokenizer, and, if there is one, a run's manifest."""
    save_model(built(XLNetClassifier, tokenizer, 3, labels=LABELS, **options), str(folder))
    (folder / "spiece.model").write_bytes(tokenizer.model_proto)
    if manifest:
        (folder / "manifest.json").write_text(json.dumps({"kind": "examples"} | manifest))
    return folder


def theirs(folder, tokenizer, fields, tokenizer_fields=None):
    """A classifier of Hugging Face's with fields of its config.json."""
    convert(ours(folder / "source", tokenizer), folder / "theirs", "hugging_face")
    checksums.remove(folder / "theirs")
    config = folder / "theirs" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | fields))
    if tokenizer_fields:
        (folder / "theirs" / "tokenizer_config.json").write_text(json.dumps(tokenizer_fields))
    return folder / "theirs"


def answers(folder):
    module = models.module_of_checkpoint(str(folder), head="classification", seq_len=16)
    return {name: value.numpy() for name, value in module.serve(text=tf.constant(TEXTS)).items()}


def assert_same_model(converted, source):
    """Weights, labels, cleaning, and how texts are read."""
    found, expected = (XLNetClassifier.from_pretrained(folder).get_config() for folder in (converted, source))
    assert found == expected
    found, expected = (XLNetTokenizer.from_pretrained(folder).cleaning for folder in (converted, source))
    assert found == expected
    found, expected = answers(converted), answers(source)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("several", [False, True])
def test_problem_type_tells_whether_classes_exclude_each_other(tmp_path, small_tokenizer, several):
    kind = "multi_label" if several else "single_label"
    folder = theirs(tmp_path, small_tokenizer, {"problem_type": f"{kind}_classification"})
    model = XLNetClassifier.from_pretrained(folder)
    assert model.multi_label == several == model.get_config()["multi_label"]
    logits = model(small_tokenizer(TEXTS, seq_len=16))
    expected = tf.sigmoid(logits) if several else tf.nn.softmax(logits)
    found = answers(folder)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
    assert ("assigned" in found) == several
    new = XLNetClassifier.from_pretrained(folder, ["no", "yes"], head_name="other")
    assert not new.multi_label  # what the old head's classes are says nothing of them


def test_classes_that_do_not_exclude_each_other_are_written(tmp_path, small_tokenizer):
    for task, kind, expected in (
        ("classification", "multi_label", "multi_label_classification"),
        ("classification", "classification", "single_label_classification"),
    ):
        settings = {"labels": LABELS, "kind": kind}
        run = ours(tmp_path / kind, small_tokenizer, {"task": task, "settings": settings})
        folder = convert(run, tmp_path / f"{kind}-hf", "hugging_face")
        assert json.loads((folder / "config.json").read_text())["problem_type"] == expected
        for converted in (folder, convert(folder, tmp_path / f"{kind}-back", "ours")):
            assert XLNetClassifier.from_pretrained(converted).multi_label == (kind == "multi_label")


THEIR_FIELDS = {
    "problem_type": "multi_label_classification",
    "id2label": {str(index): label for index, label in enumerate(LABELS)},
    "summary_type": "mean",
    "clamp_len": 2,
    "attn_type": "uni",
    "same_length": True,
}


@pytest.mark.parametrize("format", ["ours", "original"])
def test_a_model_of_hugging_face_is_the_same_model_in_other_formats(tmp_path, small_tokenizer, format):
    source = theirs(tmp_path, small_tokenizer, THEIR_FIELDS, {"do_lower_case": True, "keep_accents": True})
    assert_same_model(convert(source, tmp_path / "converted", format), source)
