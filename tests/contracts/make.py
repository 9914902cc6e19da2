"""Makes the artefacts that test_contracts.py reads, with the code of any checkout.

    cd CHECKOUT && python /path/to/tests/contracts/make.py FOLDER/new.tar.xz

Texts and tables are those of the archive next to this file. All else comes from the checkout's own commands,
run one after another, as a user would: nothing here knows how the code looks inside, but `ANSWERS`.
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

ARCHIVE = pathlib.Path(__file__).with_name("artefacts.tar.xz")
# Weights far from zero: otherwise every text would get the same answer, and every error the same numbers.
ARCHITECTURE = ["n_layer=1", "d_model=8", "n_head=2", "d_head=4", "d_inner=8", "initializer_range=0.6"]
TOKENIZER = "tokenizer/spiece.model"
STEPS = 4  # a run is stopped after this many steps, half of its own

# Builder, its flags, and the files of the splits by flag.
BUILDERS = {
    "classification": ("classification", "--train=reviews.csv --dev=reviews-dev.csv --seq_len=24"),
    "regression": (
        "classification",
        "--train=grades.csv --dev=grades-dev.csv --kind=regression --label_column=grade --seq_len=24",
    ),
    "multi_label": (
        "classification",
        "--train=topics.csv --dev=topics-dev.csv --kind=multi_label --label_column=topics "
        "--label_separator=| --seq_len=24",
    ),
    "squad": (
        "squad",
        "--train=squad.json --dev=squad-dev.json --seq_len=32 --max_question_len=10 --stride=8",
    ),
    "choice": ("race", "--train=choices.jsonl --dev=choices-dev.jsonl --seq_len=40 --max_qa_len=16"),
    "ranking": (
        "ranking",
        "--train=answers.csv --dev=answers-dev.csv --candidates=3 --seq_len=32 --max_query_len=10 "
        "--query_column=question --passage_column=answer --relevance_column=right",
    ),
    "tagging": ("tagging", "--train=entities.txt --dev=entities-dev.txt --seq_len=24 --lower"),
}
PRETRAINING = (
    "--input=corpus-*.txt --seq_len=16 --reuse_len=8 --num_predict=4 --dev_fraction=0.2 --num_workers=1"
)
# What a run is trained with besides; classification is the one that is resumed, exported and converted.
SETTINGS = {
    "classification": "task.model.clamp_len=5 task.model.summary=mean task.alert.label=bad",
    "regression": "task.model.summary=first",
    "squad": "task.model.start_top=3 task.model.end_top=2",
    "tagging": "task.model.segment_len=8",
}
REQUESTS = {
    "classification": {"text": ["A bright harbour.", "Ada hears a dreary violin", ""]},
    "regression": {"text": ["A bright harbour.", "Ada hears a dreary violin", ""]},
    "multi_label": {"text": ["A bright harbour.", "Ada hears a dreary violin", ""]},
    "squad": {
        "question": ["Who paints the bridge?", "Where is it?"],
        "context": ["Clara paints the bridge in Lindau.", "Boris sells a lantern in Torvik every winter."],
    },
    "choice": {
        "context": ["Clara paints the bridge in Lindau.", "Boris sells a lantern."],
        "question": ["Who paints _ ?", "What is sold?"],
        "options": [["the bridge", "a violin", "the river"], ["a letter", "a lantern", "an engine"]],
    },
    "ranking": {
        "query": ["Who paints the bridge?", "What is sold?"],
        "candidates": [["Clara paints.", "Ada hears a violin."], ["Boris sells a lantern.", "A winter."]],
    },
    "tagging": {"text": ["Clara lives in Lindau", "the captain of Torvik repairs a bridge"]},
    "pretraining": {"text": ["Clara paints the bridge.", "a splendid winter"]},
}
ANSWERS = """
import json, sys
import tensorflow as tf
from xlnet_tf.serving.sources import open_served

answers = {}
for name, folder, inputs in json.load(open(sys.argv[1])):
    if name == "pretraining":
        module = open_served(folder, seq_len=32, head="language_model").load()
    else:
        module = open_served(folder).load()
    outputs = module.answer(**{key: tf.constant(value) for key, value in inputs.items()})
    answers[name] = {key: value.numpy().tolist() for key, value in outputs.items()}
json.dump(answers, open(sys.argv[2], "w"), default=bytes.decode)
"""
SAVE = """
import sys
from xlnet_tf.checkpoints import save_model
from xlnet_tf.models.classifier import XLNetClassifier

save_model(XLNetClassifier.from_pretrained("runs/classification/best"), sys.argv[1])
"""


def copy_sources(folder: pathlib.Path):
    """Takes the texts and tables that everything is made of from the archive."""
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            if "/" not in member.name and member.name != "answers.json":
                archive.extract(member, folder, filter="data")


def run_module(folder: pathlib.Path, module: str, *flags: str):
    """Runs a command of the checkout in a folder, so that no path of this machine gets into a file."""
    environment = os.environ | {"PYTHONPATH": os.getcwd(), "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-m", module, *flags]
    print("  " + " ".join(command[2:]), flush=True)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-4000:])


def stop_after_half(run: pathlib.Path):
    """Makes a run what it was when it had saved the checkpoint of STEPS; history.jsonl stays whole."""
    for path in run.glob(f"ckpt-{2 * STEPS}.*"):
        path.unlink()
    (run / "checkpoint").write_text(f'model_checkpoint_path: "ckpt-{STEPS}"\n')
    for summaries in ("train", "validation"):
        shutil.rmtree(run / summaries, ignore_errors=True)


def builder_command(task: str, output: str) -> list[str]:
    builder, options = BUILDERS.get(task, ("pretraining", PRETRAINING))
    return [
        f"tfrecord_builders.{builder}",
        *options.split(),
        f"--tokenizer={TOKENIZER}",
        f"--output_dir={output}",
    ]


def training_command(task: str, model_dir: str) -> list[str]:
    command = ["run_scripts.finetune", f"--data=examples/{task}"]
    if task == "pretraining":
        command = ["run_scripts.pretrain", "--train_data=records/train", "--dev_data=records/dev"]
    elif task != "tagging":  # whose texts are cleaned otherwise than those of pretraining
        command.append("--init_checkpoint=runs/pretraining")
    settings = [*(f"task.model.{setting}" for setting in ARCHITECTURE), *SETTINGS.get(task, "").split()]
    return [
        *command, f"--model_dir={model_dir}", "--learning_rate=0.02", "--steps_per_loop=1", "--batch_size=4",
        f"--train_steps={2 * STEPS}", f"--checkpoint_interval={STEPS}", f"--eval_interval={STEPS}",
        f"--params_override={','.join(settings)}",
    ]  # fmt: skip


def make(folder: pathlib.Path):
    """Writes all artefacts into a folder: texts, tokenizer, records, runs, and what is made of runs."""
    copy_sources(folder)
    tokenizer = f"--output_prefix={TOKENIZER.removesuffix('.model')}"
    run_module(folder, "run_scripts.train_tokenizer", "--input=corpus-*.txt", tokenizer, "--vocab_size=90")
    for task in ("pretraining", *BUILDERS):
        run_module(folder, *builder_command(task, "records" if task == "pretraining" else f"examples/{task}"))
        run_module(folder, *training_command(task, f"runs/{task}"))
    for task in BUILDERS:
        run = f"--model_dir=runs/{task}", f"--data=examples/{task}/dev"
        run_module(folder, "run_scripts.evaluate", *run, f"--output_dir=scores/{task}", "--checkpoint=best")
        run_module(folder, "run_scripts.predict", *run, f"--output_dir=predictions/{task}")
    run = "runs/classification"
    served = f"--model_dir={run}", "--output_dir=served/classification", "--warmup_batches=1", "--buckets=16"
    run_module(folder, "run_scripts.export", *served)
    for format in ("ours", "original", "hugging_face"):
        target = f"--input={run}/best", f"--output=converted/{format}", f"--format={format}"
        run_module(folder, "run_scripts.convert_checkpoint", *target)
    for path in (folder / "runs").iterdir():
        stop_after_half(path)
        if path.name not in ("pretraining", "classification"):  # the best weights of the others are enough
            for file in (*path.glob("ckpt-*"), path / "checkpoint"):
                file.unlink()
    write_answers(folder)
    run_source(folder, SAVE, "saved")


def run_source(folder: pathlib.Path, source: str, *arguments: str):
    script = folder / "script_of_contracts.py"
    script.write_text(source)
    run_module(folder, script.stem, *arguments)
    script.unlink()


def write_answers(folder: pathlib.Path):
    """Writes what each run answers to REQUESTS when it is served."""
    requests = [(name, f"runs/{name}", inputs) for name, inputs in REQUESTS.items()]
    (folder / "requests.json").write_text(json.dumps(requests))
    run_source(folder, ANSWERS, "requests.json", "answers.json")
    (folder / "requests.json").unlink()


def pack(folder: pathlib.Path, archive: pathlib.Path):
    """Packs a folder; equal files take the room of one."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    paths.sort(key=lambda path: (path.suffix, hashlib.sha256(path.read_bytes()).hexdigest()))

    def plain(member):
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(archive, "w:xz", preset=9) as file:
        for path in paths:
            file.add(path, str(path.relative_to(folder)), filter=plain)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        make(pathlib.Path(temporary))
        pack(pathlib.Path(temporary), pathlib.Path(sys.argv[1]))
