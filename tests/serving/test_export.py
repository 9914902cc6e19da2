"""What is written for the server, and what a fine-tuned run is served as."""

import json
import unittest.mock

import numpy as np
import pytest
import tensorflow as tf
import yaml

from run_scripts.convert_checkpoint import convert
from tests.conftest import invent_texts
from tests.helpers.commands import run_command
from tests.helpers.full_disk import files_of_at_most
from tests.helpers.records.labelled import builder, table
from tests.helpers.serving.toys import built
from xlnet_tf.checkpoints import FORMATS, open_checkpoint, save_checkpoint, save_model
from xlnet_tf.checkpoints.of_runs import newest
from xlnet_tf.errors import UserError
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.records.examples import ExampleWriter
from xlnet_tf.serving.answers.options import BFLOAT16, INT8
from xlnet_tf.serving.export import export, versions
from xlnet_tf.serving.sources import open_served
from xlnet_tf.tasks import export_checks
from xlnet_tf.tasks.classification.serving import ClassificationModule
from xlnet_tf.tasks.classification.task import ClassificationConfig, ClassificationTask
from xlnet_tf.tasks.finetuning import finetune, finetuning_experiment
from xlnet_tf.text.packing import pack
from xlnet_tf.text.tokenizer import XLNetTokenizer

TEXTS = ["1999, was old", "a new one , 2008,", ""]


@pytest.fixture(scope="module")
def module(small_tokenizer):
    return ClassificationModule(built(XLNetClassifier, small_tokenizer, 2), small_tokenizer, seq_len=16)


@pytest.fixture(scope="module")
def served(module, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "reviews"
    export(module, str(folder), warmup_batches=[1])
    return folder


def test_a_version_holds_all_that_a_server_needs(served, small_tokenizer):
    settings = {"models.config", "batching.config", "monitoring.config", "compose.yaml", "monitoring"}
    assert {path.name for path in served.iterdir()} == {"1", *settings}
    assert json.loads((served / "1" / "assets.extra" / "buckets.json").read_text())[-1] > 0
    assert (served / "1" / "assets" / "spiece.model").read_bytes() == small_tokenizer.model_proto
    assert (served / "1" / "assets.extra" / "tf_serving_warmup_requests").exists()
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        signatures = tf.compat.v1.saved_model.load(session, ["serve"], f"{served}/1").signature_def
    assert signatures["classify"].method_name == "tensorflow/serving/classify"
    assert signatures["serving_default"].method_name == "tensorflow/serving/predict"


def test_versions_are_counted_up_and_never_replaced(served, module):
    (served / "2").mkdir()
    (served / "unfinished-3").mkdir()  # of an export that was interrupted
    (served / "unfinished-3" / "rest").touch()
    assert versions(str(served)) == [1, 2]
    (served / str(2**63)).mkdir()  # the server has no such number
    assert versions(str(served)) == [1, 2]
    for folder, options, message in (
        (served, {"version": 2}, "which has 1, 2: give another number"),
        (served, {"warmup_batches": [8, 1]}, "ascending numbers from 1 to 65536"),
        (served, {"warmup_batches": [64]}, "max_batch_size 32, but the model warms up with 64 rows"),
        (f"{served}/models.config/x", {}, "models.config is a file; expected a folder"),
    ):
        with pytest.raises(UserError, match=message):
            export(module, str(folder), **options)
    assert export(module, str(served), warmup_batches=[1]) == f"{served}/3"
    assert not (served / "3" / "rest").exists() and not (served / "unfinished-3").exists()


SETTINGS = {
    "task": {
        "model": {"n_layer": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 16, "summary": "mean"},
        "train_data": {"global_batch_size": 8},
        "alert": {"label": "old", "recall": 0.5},
        "epochs": 6.0,
    },
    "trainer": {"optimizer_config": {"learning_rate": 0.02}},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory, small_tokenizer):
    """A run that was fine-tuned on pairs, with alerts."""
    folder = tmp_path_factory.mktemp("run")
    tokenizer_file = folder / "spiece.model"
    tokenizer_file.write_bytes(small_tokenizer.model_proto)
    labels = [("2008,", "new"), ("1999,", "old")]
    rows = [
        (f"{labels[number % 2][0]} {text[:20]}", text[:9], labels[number % 2][1])
        for number, text in enumerate(invent_texts(48))
    ]
    file = table(folder / "data.tsv", ("text", "second", "label"), *rows, delimiter="\t")
    data = builder(folder, tokenizer_file)(train=file, dev=file, text_pair_column=["second"], seq_len=24)
    params = finetuning_experiment(ClassificationConfig())
    params.override(SETTINGS)
    params.task.train_data.input_path = str(data["train"].folder)
    params.task.validation_data.input_path = str(data["dev"].folder)
    finetune(params, ClassificationTask, tf.distribute.get_strategy(), str(folder / "run"))
    return folder / "run"


@pytest.mark.integration
def test_a_run_is_served_as_its_task(run, small_tokenizer):
    module = open_served(str(run)).load()
    answers = module.serve(text_a=tf.constant(TEXTS), text_b=tf.constant(TEXTS[::-1]))
    model = XLNetClassifier.from_pretrained(run / "best")
    features = XLNetTokenizer.from_pretrained(run)(TEXTS, TEXTS[::-1], seq_len=24)
    expected = tf.nn.softmax(model(features))
    np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)
    assert model.labels == ["new", "old"]
    threshold = json.loads((run / "best" / "metrics.json").read_text())["alert_threshold"]
    np.testing.assert_array_equal(answers["alert"], expected[:, 1] >= threshold)
    again = open_served(str(run / "best"), seq_len=16).load()
    assert again.alert == module.alert and again.seq_len == 16


@pytest.mark.integration
@pytest.mark.parametrize(("name", "format"), [*(("best", format) for format in FORMATS), ("last", "ours")])
def test_a_converted_run_is_used_as_the_run(run, tmp_path, format, name):
    source = run / "best" if name == "best" else newest(str(run))
    folder = str(tmp_path / "small")
    printed = convert(str(source), folder, format, None, strict=True)
    assert (f"{run}/best" in printed.partition("\n")[2]) == (name == "last")
    expected, found = (
        open_served(**arguments).load().serve(text_a=tf.constant(TEXTS), text_b=tf.constant(TEXTS))
        for arguments in ({"path": str(run), "checkpoint": name}, {"path": folder})
    )
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)
    data = str(run.parent / "records" / "dev")
    assert export_checks.compare_weights(folder, data, INT8) == export_checks.compare_weights(
        str(run), data, INT8, name
    )


@pytest.mark.integration
def test_buckets_for_longer_texts_are_at_most_as_long_as_what_is_served(run, tmp_path, small_tokenizer):
    settings = {"task": "toy", "split": "dev", "seq_len": 128, "columns": [], "settings": {}}
    with ExampleWriter(tmp_path / "long", tokenizer=small_tokenizer, **settings) as writer:
        for number in range(300):
            writer.write(pack([30] * (5 if number % 3 else 60), seq_len=128)._asdict(), {})
    flags = [f"--model_dir={run}", f"--output_dir={tmp_path}/pairs", f"--bucket_data={tmp_path}/long"]
    run_command("run_scripts.export", *flags, "--warmup_batches=1")
    assert json.loads((tmp_path / "pairs/1/assets.extra/buckets.json").read_text()) == [8, 24]


@pytest.mark.integration
def test_a_run_is_exported_for_openvino_with_what_integers_cost(run, tmp_path, capsys):
    pytest.importorskip("nncf")
    data = str(run.parent / "records" / "dev")
    options = ["--runtime=openvino", "--weights=int8", f"--calibration_data={data}", f"--check_data={data}"]
    run_command("run_scripts.export", f"--model_dir={run}", f"--output_dir={tmp_path}/pairs", *options)
    printed = capsys.readouterr().out
    assert "with float32, " in printed and "points lost" in printed
    assert "openvino_model   0.0 MB" in printed and "without TensorFlow: xlnet-tf serve" in printed
    fields = json.loads((tmp_path / "pairs/1/serving.json").read_text())
    threshold = json.loads((run / "best" / "metrics.json").read_text())["alert_threshold"]
    alert = {"label": "old", "threshold": threshold}
    assert fields["options"]["pair"] and fields["options"]["alert"] == alert
    assert fields["seq_len"] == 24 and fields["buckets"] == [24]


@pytest.mark.integration
def test_smaller_weights_are_near_and_what_they_cost_is_measured(run, monkeypatch):
    data = str(run.parent / "records" / "dev")
    found = export_checks.compare_weights(str(run), data, INT8)
    kept = json.loads((run / "best" / "metrics.json").read_text())
    assert found.metric == "score" and found.full == pytest.approx(kept["score"])
    assert found.points == pytest.approx(100 * (found.full - found.small))
    assert found.full > 0.9
    full = open_served(str(run)).load()
    texts = {"text_a": tf.constant(TEXTS), "text_b": tf.constant(TEXTS)}
    size = sum(4 * np.prod(v.shape) for v in full.variables)
    for weights in (BFLOAT16, INT8):
        small = open_served(str(run)).load(weights)
        probabilities = (each.serve(**texts)["probabilities"] for each in (small, full))
        np.testing.assert_allclose(*probabilities, atol=0.02)
        assert sum(np.prod(v.shape) * v.dtype.size for v in small.variables) < 0.7 * size
    monkeypatch.setattr("xlnet_tf.serving.graph.int8._LARGEST", 0.01)  # all weights become zero
    assert export_checks.compare_weights(str(run), data, INT8).points > 20


def test_checkpoints_are_served_by_their_heads(tmp_path, small_tokenizer, eagerly):
    """As Hugging Face's, too: labels and weights come from its files."""
    model = built(XLNetClassifier, small_tokenizer, 2, labels=["no", "yes"])
    save_model(model, str(tmp_path / "ours"))
    checkpoint = open_checkpoint(str(tmp_path / "ours"))
    save_checkpoint(checkpoint, str(tmp_path / "theirs"), "hugging_face")
    expected = tf.nn.softmax(model(small_tokenizer(TEXTS, seq_len=16)))
    for folder in (tmp_path / "ours", tmp_path / "theirs"):
        (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
        module = open_served(str(folder), head="classification", seq_len=16).load()
        answers = module.serve(text=tf.constant(TEXTS))
        np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)
    with pytest.raises(UserError, match="the head is 'span'; expected one of language_model, classification"):
        open_served(str(folder), head="span").load()


def test_a_run_by_the_recipe_compat_is_served_as_a_language_model(tmp_path, small_tokenizer, eagerly):
    """Where its training let a token that sees nothing see everything, a language model cannot."""
    save_model(built(XLNetPretrainer, small_tokenizer), str(tmp_path))
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    settings = {"uniform_when_blind": True, "endless_memory": True, "clamp_len": 3}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"task": {"model": settings}}))
    module = open_served(str(tmp_path), seq_len=16, head="language_model").load()
    [expected] = XLNetLanguageModel.from_pretrained(tmp_path).score(TEXTS[:1])
    inputs = (tf.constant([value]) for value in (TEXTS[0], "", "left_to_right"))
    answers = module.score(*inputs, tf.constant([0], tf.int64))
    np.testing.assert_allclose(answers["log_probability"], [expected.total], rtol=1e-5)


@pytest.mark.parametrize("name", ["variables/variables.data-00000-of-00001", "saved_model.pb"])
def test_a_full_disk_is_one_error_and_leaves_nothing(served, module, tmp_path, name):
    with files_of_at_most((served / "1" / name).stat().st_size // 2), pytest.raises(UserError) as found:
        export(module, str(tmp_path / "reviews"), warmup_batches=[1])
    assert str(found.value).startswith("cannot write ") and "\n" not in str(found.value)
    assert not list((tmp_path / "reviews").glob("*"))


def test_a_full_disk_of_temporary_files_is_named(module, tmp_path):
    full = files_of_at_most(len(module.tokenizer.model_proto) - 1)
    with full, pytest.raises(UserError, match=rf"cannot write (?!{tmp_path}).*spiece.model: File too large"):
        export(module, str(tmp_path / "reviews"), warmup_batches=[1])


def test_a_failed_export_leaves_nothing(module, tmp_path, monkeypatch):
    full = tf.errors.ResourceExhaustedError(None, None, "No space left on device")
    for failure, error, message in (
        (full, UserError, "cannot write .*warmup_requests: No space left on device"),
        (ZeroDivisionError("by chance"), ZeroDivisionError, "by chance"),
    ):
        monkeypatch.setattr(tf.io.TFRecordWriter, "write", unittest.mock.Mock(side_effect=failure))
        with pytest.raises(error, match=message):
            export(module, str(tmp_path / "reviews"), warmup_batches=[1])
        assert not list((tmp_path / "reviews").iterdir())
