"""What evaluate says of a run beside its metrics; export with a temperature. One label in five is wrong."""

import csv
import json
import random

import numpy as np
import pytest
import scipy.special
import sklearn.metrics as sk
import tensorflow as tf

from tests.conftest import invent_texts
from tests.helpers.commands import run_command
from xlnet_tf.errors import UserError
from xlnet_tf.tasks.classification.task import ClassificationTask
from xlnet_tf.tasks.metrics.calibration import Probabilities, temperatures

pytestmark = pytest.mark.integration
RECIPE = """
task:
  model: {n_layer: 1, d_model: 16, n_head: 2, d_head: 8, d_inner: 16, summary: mean}
  train_data: {global_batch_size: 8}
  epochs: 8.0
trainer: {optimizer_config: {learning_rate: 0.02}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, small_tokenizer):
    """A folder with two runs, on texts labelled by a word they hold, one in five wrongly."""
    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
    (folder / "recipe.yaml").write_text(RECIPE)
    rng = random.Random(0)
    for split, count in (("train", 64), ("dev", 60)):
        with (folder / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            for number, text in enumerate(invent_texts(count, seed=count)):
                words = [*text.split()[:4], "1999," if number % 2 else "2008,"]
                writer.writerow([" ".join(words), ["new", "old"][(number % 2) ^ (rng.random() < 0.2)]])
    run_command("tfrecord_builders.classification", f"--train={folder}/train.csv", f"--dev={folder}/dev.csv",
                "--seq_len=32", f"--tokenizer={folder}/spiece.model",
                f"--output_dir={folder}/records")  # fmt: skip
    for name, rate in (("good", 0.02), ("bad", 1e-9)):
        run_command("run_scripts.finetune", f"--config_file={folder}/recipe.yaml", f"--data={folder}/records",
                    f"--model_dir={folder}/{name}", f"--learning_rate={rate}", "--alert_label=old",
                    "--alert_precision=0.7")  # fmt: skip
    return folder


def test_metrics_have_intervals_and_runs_are_compared(folder, capsys):
    run_command("run_scripts.evaluate", f"--model_dir={folder}/good", f"--against={folder}/bad",
                f"--data={folder}/records/dev", "--samples=200", f"--output_dir={folder}/out")  # fmt: skip
    scores = json.loads((folder / "out" / "evaluations.json").read_text())
    report = json.loads((folder / "out" / "evaluation.json").read_text())
    best = scores["best"]
    for name, (low, high) in report["intervals"].items():
        assert low <= best[name] <= high, name
    against = report["differences"]["accuracy"]
    assert against["value"] > 0.1 and against["p"] < 0.05 and against["interval"][0] > 0
    other = json.loads((folder / "bad" / "best" / "metrics.json").read_text())
    for name in ("alert_precision", "alert_recall"):
        assert report["differences"][name]["value"] == pytest.approx(best[name] - other[name]), name
    assert sum(each["count"] for each in report["reliability"]) == 60
    assert set(report["thresholds"]) == {"new", "old"}
    printed = capsys.readouterr().out
    assert f"difference to {folder}/bad" in printed and f"ece {report['calibration']['ece']:.4f}" in printed
    for picture in ("reliability.svg", "thresholds.svg"):
        assert (folder / "out" / picture).read_text().rstrip().endswith("</svg>")
    for options, error, message in (
        ([f"--against={folder}/bad", "--samples=0"], UserError, "leave out --samples=0"),
        ([f"--against={folder}/bad/ckpt-1"], UserError, "--against=.*has no checkpoint 'ckpt-1': it has"),
        ([f"--against={folder}/none"], FileNotFoundError, "--against=.*none/params.yaml does not exist"),
    ):
        with pytest.raises(error, match=message):
            run_command("run_scripts.evaluate", f"--model_dir={folder}/good", f"--data={folder}/records/dev",
                        *options)  # fmt: skip


def test_scores_that_are_all_alike_are_warned_of_once(folder, caplog, monkeypatch):
    monkeypatch.setattr(ClassificationTask, "has_collapsed", lambda *_: True)
    run_command("run_scripts.evaluate", f"--model_dir={folder}/good", f"--data={folder}/records/dev",
                "--samples=0", f"--output_dir={folder}/alike")  # fmt: skip
    assert len(json.loads((folder / "alike" / "evaluations.json").read_text())) > 1
    assert caplog.text.count("scores are all alike") == 1


def test_a_calibrated_export_has_the_likeliest_probabilities_and_the_same_labels(folder, caplog):
    answers, texts, labels = {}, [], []
    with (folder / "dev.csv").open() as file:
        for row in csv.DictReader(file):
            texts.append(row["text"])
            labels.append(row["label"])
    for name, options in (("plain", []), ("calibrated", [f"--calibrate={folder}/records/dev"])):
        run_command("run_scripts.export", f"--model_dir={folder}/good", f"--output_dir={folder}/{name}",
                    "--warmup_batches=1", *options)  # fmt: skip
        served = tf.saved_model.load(str(folder / name / "1")).signatures["serving_default"]
        answers[name] = {key: value.numpy() for key, value in served(text=tf.constant(texts)).items()}
    plain, calibrated = answers["plain"], answers["calibrated"]
    np.testing.assert_array_equal(plain["label"], calibrated["label"])
    alerts = plain["alert"]  # with the precision that they are to have, before and after
    assert alerts.any() and np.mean(np.array(labels)[alerts] == "old") >= 0.7
    np.testing.assert_array_equal(alerts, calibrated["alert"])
    names = [label.decode() for label in plain["labels"][0]]
    targets = np.array(labels)[:, None] == np.array(names)
    logits = np.log(plain["probabilities"].astype(np.float64))
    [temperature] = temperatures(Probabilities(np.exp(logits), targets, names, True, logits))
    expected = scipy.special.softmax(logits / temperature, axis=1)
    np.testing.assert_allclose(calibrated["probabilities"], expected, atol=1e-4)
    numbers = targets.argmax(axis=1)
    losses = {name: sk.log_loss(numbers, each["probabilities"]) for name, each in answers.items()}
    assert losses["calibrated"] < losses["plain"]
    card = json.loads((folder / "calibrated" / "1" / "model.json").read_text())
    assert card["serving"]["temperature"] == pytest.approx([temperature], rel=1e-3)
    assert "was trained on" not in caplog.text
    run_command("run_scripts.export", f"--model_dir={folder}/good", f"--output_dir={folder}/too_sure",
                "--warmup_batches=1", f"--calibrate={folder}/records/train")  # fmt: skip
    assert f"records/train has the examples that {folder}/good was trained on" in caplog.text


def test_a_precision_that_no_probability_reaches_is_a_warning_and_is_not_exported(folder, caplog):
    texts = invent_texts(20, seed=5)
    with (folder / "both.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("text", "label"), *((t, label) for t in texts for label in ("new", "old"))]
        )
    run_command("tfrecord_builders.classification", f"--train={folder}/train.csv", f"--dev={folder}/both.csv",
                "--seq_len=32", f"--tokenizer={folder}/spiece.model",
                f"--output_dir={folder}/both")  # fmt: skip
    run_command("run_scripts.finetune", f"--config_file={folder}/recipe.yaml", f"--data={folder}/both",
                f"--model_dir={folder}/unsure", "--epochs=1", "--alert_label=old",
                "--alert_precision=0.8")  # fmt: skip
    message = "alerts on 'old' have a precision of 0.5"
    assert message in caplog.text
    caplog.clear()
    for command in ("evaluate", "predict"):
        run_command(f"run_scripts.{command}", f"--model_dir={folder}/unsure", f"--data={folder}/both/dev",
                    f"--output_dir={folder}/unsure_{command}")  # fmt: skip
        assert message in caplog.text
        caplog.clear()
    with pytest.raises(UserError, match=f"{message}.*asks for 0.8: no threshold reaches it.*Fine-tune with"):
        run_command(
            "run_scripts.export", f"--model_dir={folder}/unsure", f"--output_dir={folder}/served_unsure"
        )
    assert not (folder / "served_unsure").exists()
