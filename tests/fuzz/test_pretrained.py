"""What lies next to weights, damaged or hostile: a model as its files tell, or an error that says so."""

import json

import numpy as np
import pytest
import yaml

from tests.helpers.models.checkpoints import CONFIGS, random_checkpoint
from tests.helpers.records import mutations
from xlnet_tf.checkpoints import save_checkpoint
from xlnet_tf.hub import checksums
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.text.tokenizer import XLNetTokenizer

HEAD = ("classification_task/logits/kernel", "classification_task/logits/bias")
LABELS = ["a", "b", "c", "d", "e"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory, small_tokenizer):
    """A classifier as Hugging Face has it, and as a run of ours leaves it; without checksums."""
    root = tmp_path_factory.mktemp("pretrained")
    checkpoint = random_checkpoint(CONFIGS["micro"], HEAD)
    for format in ("hugging_face", "ours"):
        save_checkpoint(checkpoint, str(root / format), format)
        checksums.remove(root / format)
        (root / format / "spiece.model").write_bytes(small_tokenizer.model_proto)
    config = root / "hugging_face" / "config.json"
    theirs = {
        "id2label": {str(number): label for number, label in enumerate(LABELS)},
        "summary_type": "mean", "clamp_len": 7, "same_length": False, "attn_type": "bi",
    }  # fmt: skip
    config.write_text(json.dumps(json.loads(config.read_text()) | theirs))
    manifest = {"kind": "examples", "task": "classification", "settings": {"labels": LABELS}}
    manifest["cleaning"] = small_tokenizer.cleaning.to_dict()
    (root / "ours" / "manifest.json").write_text(json.dumps(manifest))
    settings = {"attention_type": "bi", "clamp_len": 7, "summary": "mean", "pool_padding": True}
    settings |= {"segment_len": 8, "memory_len": None}
    (root / "ours" / "params.yaml").write_text(yaml.safe_dump({"task": {"model": settings}}))
    return root


@mutations.counts(40, 2000)
def test_settings_files_next_to_weights(folders, count):
    files = sorted(path for path in folders.rglob("*") if path.suffix in (".json", ".yaml"))
    assert len(files) == 6
    ids = np.full([1, 16], 9, np.int32)
    inputs = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}

    def change(rng, data):
        return (mutations.of_json if data.startswith(b"{") else mutations.of_yaml)(rng, data)

    def use(path):
        XLNetTokenizer.from_pretrained(path.parent)
        model = XLNetClassifier.from_pretrained(path.parent)
        assert np.isfinite(model(inputs).numpy()).all() and len(model.labels) == 5

    seen = mutations.try_damaged(count, files, change, use)
    assert seen["UserError"] and seen["used"]
