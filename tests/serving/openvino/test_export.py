"""What `export --runtime=openvino` writes, and what smaller weights change."""

import json

import numpy as np
import pytest

from run_scripts import export as export_command
from tests.conftest import invent_texts
from tests.helpers.serving.toys import built
from xlnet_tf import folders
from xlnet_tf.checkpoints.model_card import ModelCard
from xlnet_tf.errors import UserError
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.records.examples import ExampleWriter
from xlnet_tf.records.layout import Column
from xlnet_tf.serving.export import export, export_openvino
from xlnet_tf.serving.openvino.compiled import CompiledGraph
from xlnet_tf.serving.openvino.quantization import calibration_batches
from xlnet_tf.tasks.classification.serving import AlertRule, ClassificationModule
from xlnet_tf.text.packing import pack

pytest.importorskip("openvino")
LABELS = ["bad", "good"]


@pytest.fixture(scope="module")
def module(small_tokenizer):
    model = built(XLNetClassifier, small_tokenizer, 2, labels=LABELS)
    options = {"alert": AlertRule("bad", 0.3), "temperature": [1.5], "truncation": "middle"}
    return ClassificationModule(model, small_tokenizer, seq_len=64, **options)


@pytest.fixture(scope="module")
def examples(small_tokenizer, tmp_path_factory):
    """Writes a set of examples of a number of texts; returns its folder."""

    def write(count, **settings):
        folder = tmp_path_factory.mktemp("set")
        fields = {"task": "classification", "split": "dev", "settings": {"kind": "classification"}}
        fields |= {"seq_len": 64, "tokenizer": small_tokenizer, **settings}
        columns = [Column("label", "int32", None)]
        with ExampleWriter(folder, columns=columns, **fields) as writer:
            for text in invent_texts(count):
                ids = small_tokenizer.encode(text)[:50]
                writer.write(pack(ids, seq_len=64)._asdict() | {"label": 0}, {})
        return str(folder)

    return write


def graph_of(version):
    fields = json.loads((version / "serving.json").read_text())
    return CompiledGraph(str(version / "openvino_model.xml"), fields["weights"])


def test_a_version_holds_all_that_answering_needs(module, small_tokenizer, tmp_path):
    folder = tmp_path / "reviews"
    assert export_openvino(module, str(folder), "float32") == f"{folder}/1"
    assert {path.name for path in folder.iterdir()} == {"1", "config.json", "compose.yaml"}
    version = folder / "1"
    names = {"openvino_model.xml", "openvino_model.bin", "serving.json", "model.json", "assets"}
    assert {path.name for path in version.iterdir()} == names
    assert (version / "assets/spiece.model").read_bytes() == small_tokenizer.model_proto
    fields = json.loads((version / "serving.json").read_text())
    assert [fields[name] for name in ("format_version", "runtime", "weights")] == [1, "openvino", "float32"]
    assert [fields[name] for name in ("task", "seq_len", "buckets")] == ["classification", 64, [32, 64]]
    assert fields["labels"] == LABELS and fields["example"].keys() == {"text"}
    alert = {"label": "bad", "threshold": 0.3}
    assert fields["options"] == {"pair": False, "truncation": "middle", "alert": alert, "temperature": [1.5]}
    assert ModelCard.read(str(version)).task == "classification"
    [model] = json.loads((folder / "config.json").read_text())["model_config_list"]
    assert model["config"]["name"] == "reviews" and model["config"]["base_path"] == "/models/reviews"
    assert model["config"]["plugin_config"]["INFERENCE_PRECISION_HINT"] == "f32"
    assert folders.look(folder)[0] == folders.look(version)[0] == folders.EXPORT
    assert export_openvino(module, str(folder), "float32") == f"{folder}/2"


@pytest.mark.parametrize(("weights", "size", "near"), [("bfloat16", 0.55, 0.05), ("int8", 0.5, 0.1)])
def test_smaller_weights_are_near(module, examples, tmp_path, small_tokenizer, weights, size, near):
    data = examples(40) if weights == "int8" else None
    paths = [tmp_path / "float32" / "1", tmp_path / weights / "1"]
    export_openvino(module, str(paths[0].parent), "float32")
    export_openvino(module, str(paths[1].parent), weights, calibration_data=data)
    sizes = [(path / "openvino_model.bin").stat().st_size for path in paths]
    assert sizes[1] < size * sizes[0]
    features = small_tokenizer(invent_texts(6, seed=3), seq_len=64)
    features = {name: np.int32(values) for name, values in features.items()}
    expected, found = (graph_of(path)(features)["probabilities"] for path in paths)
    assert np.ptp(expected[:, 0]) > 0.1
    np.testing.assert_allclose(found, expected, atol=near)
    assert not np.array_equal(found, expected)


def test_calibration_reads_texts_as_they_are_served(module, examples, small_tokenizer):
    batches = calibration_batches(module, examples(40))
    assert sum(len(batch["input_word_ids"]) for batch in batches) == 40
    for batch in batches:
        mask = batch["input_mask"]
        assert mask.any(axis=0)[0] and mask[:, -1].all()  # the padding that all rows share is cut
        assert {values.dtype for values in batch.values()} == {np.dtype(np.int32)}
    rows = {row.tobytes() for batch in batches for row in (ids[ids != 5] for ids in batch["input_word_ids"])}
    texts = [small_tokenizer.encode(text)[:50] for text in invent_texts(40)]
    assert {np.int32([*text, 4, 3]).tobytes() for text in texts} == rows


def test_bad_calibration_data_is_one_clear_line(module, examples, tmp_path):
    ranking = examples(40, task="ranking", settings={})
    for data, message in (
        (ranking, "has examples for ranking, the model is for classification"),
        (examples(31), "has 31 examples; expected at least 32"),
    ):
        with pytest.raises(UserError, match=message):
            export_openvino(module, str(tmp_path / "reviews"), "int8", calibration_data=data)
    assert not list((tmp_path / "reviews").iterdir())


def test_versions_of_two_runtimes_do_not_share_a_folder(module, tmp_path):
    export_openvino(module, str(tmp_path / "fast"), "float32")
    message = r"has versions for another runtime \(1\).*choose another --output_dir"
    with pytest.raises(UserError, match=message):
        export(module, str(tmp_path / "fast"))
    (tmp_path / "plain" / "3").mkdir(parents=True)
    (tmp_path / "plain" / "3" / "saved_model.pb").touch()
    with pytest.raises(UserError, match=r"has versions for another runtime \(3\)"):
        export_openvino(module, str(tmp_path / "plain"), "float32")


def test_a_version_that_does_not_pass_its_check_leaves_nothing(module, tmp_path):
    def check(path):
        assert (tmp_path / "reviews" / "unfinished-1" / "serving.json").exists()
        raise UserError(f"{path} loses too much")

    with pytest.raises(UserError, match="loses too much"):
        export_openvino(module, str(tmp_path / "reviews"), "float32", check=check)
    assert not list((tmp_path / "reviews").iterdir())


@pytest.mark.parametrize(("flags", "task", "message"), [
    ({"weights": "int4"}, None, "are for --runtime=openvino"),
    ({"runtime": "openvino", "calibration_data": "dev"}, None, "give --weights=int8, too"),
    ({"runtime": "openvino", "warmup_batches": ("2",)}, None, "--warmup_batches is for TensorFlow Serving"),
    ({"weights": "int4"}, "classification", "int4 is for language models: give int8 with --calibration_data"),
    ({"weights": "int8"}, "classification", "computes with 8-bit activations: give --calibration_data"),
    ({"weights": "int8", "calibration_data": "dev"}, "language_model", "is of weights alone, which needs no"),
])  # fmt: skip
def test_options_that_do_not_go_with_the_runtime_or_the_task(flags, task, message):
    given = {"model_dir": "run", "output_dir": "served", **({"runtime": "openvino"} if task else {}), **flags}
    options = export_command.ExportOptions(**given)
    with pytest.raises(UserError, match=message):
        if task:
            served = type("Served", (), {"card": ModelCard(task=task)})
            export_command.exports.export_openvino(options, served)
        else:
            export_command.exports.check_runtime(options)
