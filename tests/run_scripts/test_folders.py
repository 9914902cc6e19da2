"""No writer takes over a folder of something else: each one is tried on every kind of folder."""

import functools
import json
import pathlib
import types

import pytest

from run_scripts import train_tokenizer
from run_scripts.common.sharded import job
from tests.helpers.commands import run_command, run_in_fork
from tfrecord_builders.conversion import original_format
from tfrecord_builders.corpus import CorpusOptions
from xlnet_tf import folders
from xlnet_tf.checkpoints import save_checkpoint, save_model
from xlnet_tf.errors import UserError
from xlnet_tf.folders import (
    ADAPTATION,
    EMPTY,
    EXAMPLES,
    EXPORT,
    FOREIGN,
    PART,
    RECORDS,
    RUN,
    RUNS,
    SAVED_MODEL,
    WEIGHTS,
)
from xlnet_tf.models.saving import ShapeFreeModel
from xlnet_tf.records.examples import ExampleWriter
from xlnet_tf.serving.export import export
from xlnet_tf.tasks.seeds import finetune_seeds
from xlnet_tf.tasks.sweep import sweep
from xlnet_tf.text.cleaning import DEFAULT_CLEANING
from xlnet_tf.training.checks import check_settings

CARD = json.dumps({"format_version": 1, "task": "classification"})
SETS = {"pretraining": "train-pass00-slice00000.tfrecord", "examples": "shard-00000.tfrecord"}
MANIFESTS = {kind: json.dumps({"kind": kind}) for kind in SETS}
SETTINGS = "{runtime: {}, task: {}, trainer: {}}"
OF_RUN = {"params.yaml": SETTINGS, "manifest.json": MANIFESTS["examples"], "xlnet_config.json": "{}"}
# The kind and the files of "train", or, of best weights, of the folder in it.
CASES = {
    "nothing": (EMPTY, {}),
    "a tokenizer": (EMPTY, {"train/spiece.model": "pieces", "train/owner.json": "{}"}),
    "half a file": (EMPTY, {"train/manifest.json.tmp12-0a1b2c3d": "{"}),
    "records": (RECORDS, {"train/manifest.json": MANIFESTS["pretraining"], "train/spiece.model": "pieces"}),
    "records, begun": (RECORDS, {"train/build.json": "{}", "train/spiece.model": "pieces"}),
    "records of an unknown build": (RECORDS, {f"train/{SETS['pretraining']}": "r"}),
    "examples": (EXAMPLES, {"train/manifest.json": MANIFESTS["examples"], f"train/{SETS['examples']}": "r"}),
    "examples, damaged": (EXAMPLES, {"train/manifest.json": "{", f"train/{SETS['examples']}": "r"}),
    "a run": (RUN, {f"train/{name}": text for name, text in OF_RUN.items()} | {"train/ckpt-5.index": "c"}),
    "a run, begun": (RUN, {f"train/{name}": OF_RUN[name] for name in ("manifest.json", "xlnet_config.json")}),
    "a run with best weights": (RUN, {"train/params.yaml": SETTINGS, "train/best/weights.safetensors": "w"}),
    "a run with other weights": (RUN, {"train/ckpt-5.index": "c", "train/weights.safetensors": "w"}),
    "best weights": (PART, {"train/params.yaml": SETTINGS, "train/best/weights.safetensors": "w"}),
    "our weights": (WEIGHTS, {"train/weights.safetensors": "w", "train/model.json": CARD}),
    "a converted run": (WEIGHTS, {"train/params.yaml": SETTINGS, "train/model.safetensors": "w"}),
    "the original's weights": (WEIGHTS, {"train/xlnet_model.ckpt.index": "w"}),
    "weights, begun": (WEIGHTS, {"train/model.json": CARD}),
    "an exported model": (EXPORT, {"train/1/saved_model.pb": "g", "train/models.config": "m"}),
    "a version of one": (SAVED_MODEL, {"train/saved_model.pb": "g", "train/model.json": CARD}),
    "a sweep": (RUNS, {"train/sweep.json": "[]", "train/rate=0.1/params.yaml": SETTINGS}),
    "seeds, killed": (RUNS, {"train/seed-0/params.yaml": SETTINGS, "train/seed-0/ckpt-5.index": "c"}),
    "an adaptation": (ADAPTATION, {"train/adaptation.json": "{}", "train/params.yaml": SETTINGS}),
    "somebody's manifest": (FOREIGN, {"train/manifest.json": '{"name": "app"}'}),
    "somebody's model": (FOREIGN, {"train/model.json": '{"class_name": "Sequential"}'}),
    "somebody's settings": (FOREIGN, {"train/params.yaml": "{task: t, rate: 1}", "train/best/x.pt": "x"}),
    "notes": (FOREIGN, {"train/notes.txt": "mine", "train/1/notes.txt": "mine"}),
}  # fmt: skip
HARMLESS = ("notes",)


def make(root: pathlib.Path, case: str) -> pathlib.Path:
    for name, text in CASES[case][1].items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "x.csv").write_text("text,label\n")
    return root / ("train/best" if case == "best weights" else "train")


def contents(root: pathlib.Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@pytest.mark.parametrize("case", CASES)
def test_what_a_folder_holds(tmp_path, case):
    folder = make(tmp_path, case)
    kind, shown = folders.look(folder)
    assert kind == CASES[case][0]
    assert bool(shown) == (kind != EMPTY and case not in HARMLESS)


def test_best_weights_are_a_part_of_their_run_whatever_they_are_called(tmp_path, monkeypatch):
    best = make(tmp_path, "best weights")
    (tmp_path / "link").symlink_to(best)
    monkeypatch.chdir(best)
    for name in (".", "../best", f"{best}/", tmp_path / "link", best / "new"):
        assert folders.look(name) == (PART, f"the run {best.parent}")


def test_records_go_to_no_folder_with_sets_of_examples(tmp_path):
    folder = make(tmp_path, "examples")
    message = rf"{folder.parent} holds fine-tuning examples \(train\); expected a new folder, or one with"
    with pytest.raises(UserError, match=message):
        folders.claim(folder.parent, RECORDS, flag="--output_dir")
    folders.claim(folder.parent, RUN, flag="--model_dir")


class _NotRefusedError(Exception):
    pass


RESULTS = (RUN, RUNS, ADAPTATION, WEIGHTS, EXPORT, FOREIGN)
PRETRAINED, MODEL, CORPUS = "--init_checkpoint=x", "--model_dir=x", ("--input=x", "--tokenizer=x")
# Of each command: what it may find in its folder, its module, the flag of the folder, other flags.
COMMANDS = {
    "build pretraining": ([RECORDS], "tfrecord_builders.pretraining", "output_dir", *CORPUS),
    "convert-records": ([RECORDS], "run_scripts.convert_records", "output_dir", *CORPUS, "--from=original"),
    "pretrain": ([RUN], "run_scripts.pretrain", "model_dir", "--train_data=x"),
    "finetune": ([RUN, RUNS], "run_scripts.finetune", "model_dir", "--data=x", PRETRAINED),
    "adapt": ([ADAPTATION], "run_scripts.adapt", "model_dir", "--input=x", PRETRAINED),
    "export": ([EXPORT], "run_scripts.export", "output_dir", MODEL),
    "convert-checkpoint": ([WEIGHTS], "run_scripts.convert_checkpoint", "output", "--input=x"),
    "predict": (RESULTS, "run_scripts.predict", "output_dir", "--data=x", MODEL),
    "evaluate": (RESULTS, "run_scripts.evaluate", "output_dir", "--data=x", MODEL),
    "embed": (RESULTS, "run_scripts.embed", "output_dir", "--data=x", MODEL),
    "score": (RESULTS, "run_scripts.score", "output_dir", "--data=x", MODEL),
    "demo": ([], "examples.demo", "output_dir"),
}
OF_EXAMPLES = ("classification", "race", "squad", "tagging", "ranking")


def command(module: str, flag: str, *arguments: str):
    return lambda folder: run_command(module, f"--{flag}={folder}", *arguments)


def write_split(name: str, folder: pathlib.Path):
    """Builds examples whose folder of the training data is this one."""
    run_command(
        f"tfrecord_builders.{name}",
        *CORPUS[1:],
        f"--output_dir={folder.parent}",
        f"--train={folder.parent}/x.csv",
    )


def write_examples(folder):
    tokenizer = types.SimpleNamespace(vocab_size=9, fingerprint="", space_id=0, cleaning=DEFAULT_CLEANING)
    given = {"task": "t", "split": "train", "seq_len": 8, "columns": [], "settings": {}}
    with ExampleWriter(folder, tokenizer=tokenizer, **given):
        pass


def write_shards(folder):
    job.run("x", None, None, None, output_dir=folder, batch_size=1, settings={}, columns=())


WRITERS = {
    **{name: (kinds, command(*arguments)) for name, (kinds, *arguments) in COMMANDS.items()},
    **{f"build {name}": ([EXAMPLES], functools.partial(write_split, name)) for name in OF_EXAMPLES},
    "ExampleWriter": ([EXAMPLES], write_examples),
    "original_format.write": ([], lambda folder: original_format.write(None, folder, 1)),
    "run_training": ([RUN, RUNS, ADAPTATION], lambda folder: check_settings(None, str(folder))),
    "finetune_seeds": ([RUN, RUNS], lambda folder: finetune_seeds(None, None, None, str(folder))),
    "sweep": ([RUN, RUNS], lambda folder: sweep([], None, None, str(folder))),
    "save_model": ([WEIGHTS], lambda folder: save_model(None, folder)),
    "save_checkpoint": ([WEIGHTS], lambda folder: save_checkpoint(None, str(folder), "ours")),
    "model.save": ([SAVED_MODEL], lambda folder: ShapeFreeModel().save(folder)),
    "export()": ([EXPORT], lambda folder: export(None, str(folder))),
    "shards": (RESULTS, write_shards),
}


# One of each kind, which is what writers look at.
KINDS = {CASES[case][0]: case for case in reversed(CASES)} | {"harmless": "notes"}


@pytest.mark.parametrize("case", KINDS.values())
@pytest.mark.parametrize("writer", WRITERS)
def test_writers_refuse_what_they_would_harm(tmp_path, monkeypatch, writer, case):
    kinds, write = WRITERS[writer]
    if case == "best weights" and writer.removeprefix("build ") in OF_EXAMPLES:
        pytest.skip("no split is called so")
    folder, claim = make(tmp_path, case), folders.claim
    before = contents(tmp_path)

    def claim_and_end(path, *allowed, flag):
        claim(path, *allowed, flag=flag)
        raise _NotRefusedError

    monkeypatch.setattr(folders, "claim", claim_and_end)
    kind = CASES[case][0]
    if kind in (EMPTY, *kinds) or case in HARMLESS:
        with pytest.raises(_NotRefusedError):
            write(folder)
    else:
        with pytest.raises(UserError, match=f"^{folder} (holds|is a part of) .*: choose another [^\n]*$"):
            write(folder)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "convert-records"])
def test_commands_refuse_before_tensorflow_is_loaded(tmp_path, name):
    kinds, module, flag, *arguments = COMMANDS[name]
    folder = make(tmp_path, "examples")
    ended = run_in_fork(module, f"--{flag}={folder}", *arguments)
    assert f"{folder} holds fine-tuning examples (manifest.json); expected a new folder" in ended.stderr
    assert ended.returncode == 1 and not ended.heavy


@pytest.mark.parametrize("case", ["records", "examples", "a run", "our weights", "a tokenizer", "notes"])
def test_a_tokenizer_replaces_none_of_a_set_or_model(tmp_path, small_tokenizer, case):
    folder = make(tmp_path, case)
    (folder / "spiece.model").write_text("pieces")
    before = contents(tmp_path)
    corpus = CorpusOptions(input=[str(tmp_path / "x.csv")])
    if CASES[case][0] in (EMPTY, FOREIGN):
        small_tokenizer.save_pretrained(folder)
        assert (folder / "spiece.model").read_bytes() == small_tokenizer.model_proto
        return
    with pytest.raises(UserError, match=f"{folder} holds .*: choose another folder$"):
        small_tokenizer.save_pretrained(folder)
    with pytest.raises(UserError, match=f"{folder} holds .*: choose another --output_prefix$"):
        train_tokenizer.train(corpus, folder / "spiece", 99, overwrite=True)
    assert contents(tmp_path) == before
    (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
    small_tokenizer.save_pretrained(folder)  # the same one, also as transformers reads it
