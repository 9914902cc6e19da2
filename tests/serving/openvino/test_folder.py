"""What is wrong with a version in OpenVINO's format is said in one line."""

import json

import pytest

from xlnet_tf.errors import UserError
from xlnet_tf.model_folders import exported_version, openvino_version
from xlnet_tf.serving.openvino import folder as folder_lib
from xlnet_tf.serving.sources import open_served

FIELDS = {
    "format_version": 1, "runtime": "openvino", "runtime_version": "2026.4.1", "weights": "float32",
    "task": "classification", "seq_len": 24, "buckets": [16, 24], "cleaning": {}, "options": {"pair": True},
    "labels": ["bad", "good"], "multi_label": False, "head": {"segment_len": 0},
    "example": {"text_a": "a", "text_b": "b"},
}  # fmt: skip


@pytest.fixture
def version(tmp_path):
    """A version without a graph that could be read."""
    path = tmp_path / "reviews" / "2"
    path.mkdir(parents=True)
    for name in ("openvino_model.xml", "openvino_model.bin"):
        (path / name).write_text("")
    (path / "model.json").write_text(json.dumps({"format_version": 1, "settings": {}}))
    (path / "serving.json").write_text(json.dumps(FIELDS))
    return path


def change(version, **values):
    (version / "serving.json").write_text(json.dumps({**FIELDS, **values}))


def test_a_folder_and_its_version_are_found(version, tmp_path):
    for path in (version, version.parent, f"{version.parent}/"):
        found = folder_lib.find_folder(path)
        assert found.path == str(version) and found.labels == ["bad", "good"]
    source = open_served(str(version.parent), inputs=["text_a", "text_b"])
    assert source.ranks == {"text_a": 1, "text_b": 1}
    assert source.file == f"{version}/openvino_model.xml"
    assert folder_lib.find_folder(tmp_path) is None


def test_the_newest_version_decides(version):
    (version.parent / "3").mkdir()
    (version.parent / "3" / "saved_model.pb").write_text("")
    assert openvino_version(str(version.parent)) is None
    assert exported_version(str(version.parent)) == f"{version.parent}/3"
    (version.parent / "4").mkdir()  # not finished
    assert exported_version(str(version.parent)) == f"{version.parent}/3"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"format_version": 2}, "has the format_version 2; this version of xlnet_tf reads those up to 1"),
        ({"task": "chess"}, "the task is 'chess'; expected one of language_model, classification"),
        ({"weights": "int3"}, "weights are 'int3'; expected float32, bfloat16, int8, int4: export the model"),
    ],
)
def test_a_wrong_serving_json(version, values, message):
    change(version, **values)
    with pytest.raises(UserError, match=message):
        folder_lib.find_folder(version)


def test_a_missing_or_damaged_file(version):
    (version / "serving.json").write_text('{"runtime": ')
    with pytest.raises(UserError, match="serving.json is not JSON .*: export the model again"):
        folder_lib.find_folder(version)
    for file in ("serving.json", "model.json", "openvino_model.bin"):
        change(version)
        (version / file).rename(version / "elsewhere")
        with pytest.raises(UserError, match=f"has openvino_model.xml but no {file}: export the model again"):
            folder_lib.find_folder(version)
        (version / "elsewhere").rename(version / file)


def test_what_is_asked_of_it(version):
    change(version, task="language_model")
    with pytest.raises(UserError, match="is a pretrained language model: ask it with fill-mask"):
        open_served(str(version), inputs=["text"])
    change(version)
    with pytest.raises(UserError, match="--checkpoint is for fine-tuned runs"):
        open_served(str(version), checkpoint="best", inputs=["text"])
    with pytest.raises(UserError, match="is exported and keeps the type that it has"):
        open_served(str(version), inputs=["text"]).load("bfloat16")
