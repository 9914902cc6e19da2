"""The whole command on toy texts: what it reports, that a kill changes nothing, and what it refuses."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from run_scripts.adapt import __main__ as adapt
from run_scripts.adapt import options
from run_scripts.adapt.adaptation import Adaptation
from tests.conftest import REPOSITORY, invent_texts
from tests.helpers.command_flags import parsed
from tests.tfrecord_builders.conftest import make_text
from tfrecord_builders.classification.build import build_classification
from tfrecord_builders.classification.options import ClassificationOptions
from tfrecord_builders.pretraining.build import PretrainingOptions, build_pretraining_records
from xlnet_tf import files, ownership
from xlnet_tf.checkpoints import open_checkpoint
from xlnet_tf.errors import UserError
from xlnet_tf.models.classifier import XLNetClassifier
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.training.early_stopping import read_metrics
from xlnet_tf.training.progress import read_history

pytestmark = pytest.mark.integration  # each needs a pretrained run
MODEL = {"n_layer": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32, "memory_len": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, corpus_file, tokenizer_file):
    """A pretrained run, texts of a domain and of the general kind, and a task's examples."""
    folder = tmp_path_factory.mktemp("adapt")
    form = {"seq_len": 32, "reuse_len": 16, "num_predict": 6, "mask_alpha": 5, "span_mode": "pieces"}
    options = PretrainingOptions(
        input=[str(corpus_file)], tokenizer=str(tokenizer_file), output_dir=str(folder / "records"),
        stream_segments=8, num_workers=1, **form,
    )  # fmt: skip
    build_pretraining_records(options)
    params = pretraining.pretraining_experiment()
    data = {"input_path": str(folder / "records"), "global_batch_size": 4}
    trainer = {"train_steps": 4, "steps_per_loop": 2, "optimizer_config": {"learning_rate": 0.01}}
    params.override({"task": {"model": MODEL, "train_data": data}, "trainer": trainer})
    pretraining.pretrain(params, str(folder / "general"))
    (folder / "domain.txt").write_text(make_text(80, seed=5) + "\n" + make_text(2, seed=6))
    (folder / "general.txt").write_text(make_text(120, seed=7))
    tested = [text.replace("\n", " ") for text in make_text(8, seed=6).strip().split("\n\n")]
    for split, texts in (("train", invent_texts(12)), ("dev", tested[2:]), ("test", tested)):
        with (folder / f"{split}.csv").open("w", newline="") as file:
            rows = [(text, number % 2) for number, text in enumerate(texts)]
            csv.writer(file).writerows([("text", "label"), *rows])
    splits = {split: str(folder / f"{split}.csv") for split in ("train", "dev", "test")}
    options = ClassificationOptions(
        tokenizer=str(tokenizer_file), output_dir=str(folder / "task"), seq_len=64, **splits
    )
    build_classification(options)
    return folder


def arguments(folder, model_dir, **changes):
    given = {
        "init_checkpoint": folder / "general",
        "input": folder / "domain.txt",
        "general_input": folder / "general.txt",
        "replay": 0.2,
        "dev_mb": 0.001,
        "train_steps": 8,
        "eval_interval": 4,
        "steps_per_loop": 2,
        "task_data": folder / "task",
        "task_config": "trainer.train_steps=2,task.train_data.global_batch_size=4",
        "num_seeds": 2,
        "model_dir": model_dir,
    }
    return [f"--{name}={value}" for name, value in (given | changes).items() if value is not None]


def started(folder, model_dir, **changes):
    """Returns the adaptation that the command begins with."""
    values = parsed(lambda: options.define_flags(adapt.SETTINGS), *arguments(folder, model_dir, **changes))
    return Adaptation(*options.from_flags(adapt.SETTINGS, values), adapt.SETTINGS)


def start(folder, model_dir, **changes):
    command = [sys.executable, "-m", "run_scripts.adapt", *arguments(folder, model_dir, **changes)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        command, cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, **pipes
    )


def finished(process):
    """Returns what a command prints, once it has ended well."""
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output


def test_an_adaptation_is_reported_and_a_kill_changes_nothing(folder):
    undisturbed, killed = folder / "undisturbed", folder / "killed"
    output = finished(start(folder, undisturbed))
    process = start(folder, killed)
    while not (killed / "ckpt-4.index").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert finished(start(folder, killed)) == output.replace(str(undisturbed), str(killed))
    other = "trainer.train_steps=3,task.train_data.global_batch_size=4"
    with pytest.raises(UserError, match="with other settings:\n  .*trainer.train_steps: 2 there, 3 now"):
        started(folder, killed, task_config=other)

    report = json.loads((undisturbed / "report.json").read_text())
    assert report["counts"]["input"]["leaks"] == 2 and report["held_out"] == 8
    optimizer = files.read_yaml(undisturbed / "params.yaml")["trainer"]["optimizer_config"]
    assert optimizer["updates_before"] == 4 and optimizer["learning_rate"] == pytest.approx(0.0025)
    kept = read_metrics(str(undisturbed / "best"))
    for name, loss in (("domain-dev", "loss"), ("general-dev", "general_loss")):
        assert report["measured"][name]["after"] == kept[loss]
        assert all(f"{value:.4f}" in output for value in report["measured"][name].values())
    comparison = report["comparison"]
    assert comparison["split"] == "test" and comparison["examples"] == 8
    for name in ("before", "after"):
        assert len(comparison["scores"][name]) == 2
        assert all(f"{value:.4f}" in output for value in comparison["scores"][name])
    adapted = open_checkpoint(str(undisturbed))
    assert adapted.card.task == "language_model" and adapted.arrays["lm_bias"].shape == (200,)


@pytest.mark.long
def test_replicas_train_and_score_both_beginnings(folder):
    """With 3, as 32 examples cannot be split evenly."""
    config = "trainer.train_steps=2,task.train_data.global_batch_size=3"
    model_dir = folder / "mirrored"
    finished(start(folder, model_dir, strategy="mirrored", virtual_devices=3, batch_size=3, train_steps=2,
                   eval_interval=2, task_config=config, num_seeds=1, dtype="bfloat16"))  # fmt: skip
    scores = json.loads((model_dir / "report.json").read_text())["comparison"]["scores"]
    assert len(scores["before"]) == len(scores["after"]) == 1
    for name in ("before", "after"):
        saved = files.read_yaml(f"{model_dir}/adaptation/finetuned/weights={name}/params.yaml")["runtime"]
        assert (saved["mixed_precision_dtype"], saved["virtual_devices"]) == ("bfloat16", 3)


def test_records_have_the_form_of_the_checkpoints(folder, tmp_path):
    built = Manifest.load(folder / "records")
    options = started(folder, tmp_path / "new").record_options("domain-train", set())
    assert (options.seq_len, options.reuse_len, options.num_predict) == (32, 16, 6)
    mask = {"alpha": options.mask_alpha, "beta": options.mask_beta,
            "span_mode": options.span_mode, "max_words": options.max_words}  # fmt: skip
    assert mask == built.mask and options.bidirectional
    shorter = started(folder, tmp_path / "new", seq_len=16).record_options("domain-train", set()).resolved()
    assert (shorter.seq_len, shorter.reuse_len, shorter.mask_alpha) == (16, 8, 5)


def test_what_does_not_fit_is_refused_and_leaves_nothing(folder, tmp_path, small_tokenizer):
    for name in ("bare", "other"):
        shutil.copytree(folder / "general", tmp_path / name)
    (tmp_path / "bare" / "spiece.model").unlink()
    (tmp_path / "other" / "spiece.model").write_bytes(small_tokenizer.model_proto)
    (tmp_path / "test.txt").write_text(make_text(8, seed=6))
    classifier = XLNetClassifier.from_pretrained(str(folder / "general"), labels=["bad", "good"])
    classifier.save_pretrained(str(tmp_path / "tuned"))
    no_text = {"general_input": None, "replay": None, "max_general_rise": 0.1}
    for message, changes in (
        ("init_checkpoint: there is no checkpoint", {"init_checkpoint": tmp_path / "no"}),
        ("bare has no spiece.model", {"init_checkpoint": tmp_path / "bare"}),
        ("tuned has no language model: it lacks lm_bias", {"init_checkpoint": tmp_path / "tuned"}),
        ("another tokenizer than that of the checkpoint", {"init_checkpoint": tmp_path / "other"}),
        ("needs general text", no_text),
        ("--task_config=demo_review: .* did you mean demo_reviews", {"task_config": "demo_review"}),
        ("every document of .* holds a text", {"input": tmp_path / "test.txt"}),
    ):
        with pytest.raises((UserError, FileNotFoundError), match=message):
            started(folder, tmp_path / "new", **changes).prepare()
        assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())


def test_settings_are_refused_before_anything_is_written(folder, tmp_path):
    batch, steps = "task.train_data.global_batch_size", "trainer.train_steps=2"
    for message, config in (
        (rf"--task_config: {batch} .* is 0, expected at least 1", f"{batch}=0"),
        ("with --task_config: weights=before: warmup_steps is 7 and train_steps is 2",
         f"trainer.optimizer_config.warmup_steps=7,{steps}"),
        ("--task_config: runtime.mixed_precision_dtype is 'float16', and 'float32' for the adaptation",
         "runtime.mixed_precision_dtype=float16"),
        ("task.keep_best is false, expected true", None),
    ):  # fmt: skip
        changes = {"task_config": config} if config else {"params_override": "task.keep_best=false"}
        with pytest.raises(UserError, match=message):
            started(folder, tmp_path / "new", **changes)
    assert not (tmp_path / "new").exists()


def test_evaluations_are_after_as_many_steps_as_asked_for(folder, tmp_path, caplog):
    for train_steps, said in ((8, True), (0, False)):
        caplog.clear()
        started(folder, tmp_path / "new", task_data=None, epochs=2, train_steps=train_steps)
        assert ("--epochs has no effect, as train_steps is 8: give --train_steps=0" in caplog.text) == said
    adaptation = started(folder, tmp_path / "new", task_data=None, eval_interval=3)  # in loops of 2
    adaptation.adapt(*adaptation.prepare())
    history = read_history(f"{tmp_path}/new/history.jsonl")
    assert [line["step"] for line in history if line["kind"] != "train"] == [0, 3, 6, 8]
    saved = {path.stem for path in (tmp_path / "new").glob("ckpt-*.index")}
    assert {"ckpt-6", "ckpt-8"} <= saved <= {"ckpt-3", "ckpt-6", "ckpt-8"}


def test_a_start_that_was_killed_before_it_wrote_its_settings_is_begun_again(folder, tmp_path, monkeypatch):
    def killed(*unused):
        raise KeyboardInterrupt

    own = tmp_path / "own"
    with monkeypatch.context() as patched:
        patched.setattr(ownership, "folder_lease", killed)
        with pytest.raises(KeyboardInterrupt):
            started(folder, own).prepare()
    (own / ownership.FILE).write_text("{}")  # the lease of a killed process
    assert started(folder, own).is_new


def test_another_run_and_another_adaptation_are_left_alone(folder, tmp_path):
    with pytest.raises(UserError, match="is not empty and holds no adaptation"):
        started(folder, folder / "general")
    own = tmp_path / "own"
    started(folder, own).prepare()
    kept = {path: path.stat().st_mtime_ns for path in own.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="other settings:\n  replay: 0.2 there, 0.3 now"):
        started(folder, own, replay=0.3)
    assert kept == {path: path.stat().st_mtime_ns for path in own.rglob("*") if path.is_file()}
