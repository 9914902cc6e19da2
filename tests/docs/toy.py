"""Toy files that pages run on: our own sentences from a few word lists, and what the commands make of them.

A page names what its folder needs, `<!-- files: corpus/ reviews.csv -->`. Each file is made once a session.
"""

import csv
import dataclasses
import gzip
import json
import os
import pathlib
import random
import shutil
import subprocess
from collections.abc import Callable, Iterable

TOYS: dict[str, Callable[["Toys", pathlib.Path], None]] = {}
# Learns something in seconds: narrow layers want a wide initializer and a high learning rate.
MODEL_FLAGS = (
    "--preset=micro --batch_size=8 --train_steps=60 --warmup_steps=10 --learning_rate=0.01 "
    "--params_override=task.model.initializer_range=0.18,task.model.dropout=0.0"
)
_RELEASED_PIECES = 32_000

PEOPLE = ("Ada", "Tom", "Maria", "Chen", "Fatima", "Ivan", "Lena", "Omar", "Rosa", "Sven")
PLACES = ("Lisbon", "Oslo", "Kyoto", "Lima", "Nairobi", "Quebec", "Dublin", "Hanoi")
THINGS = (
    ("ferry", "harbour", "sails"), ("train", "station", "leaves"), ("baker", "market", "wakes"),
    ("gardener", "park", "works"), ("teacher", "school", "reads"), ("sailor", "island", "rests"),
    ("painter", "studio", "sings"), ("doctor", "clinic", "listens"), ("farmer", "valley", "plants"),
    ("clock", "tower", "strikes"), ("river", "bridge", "rises"), ("cat", "kitchen", "sleeps"),
)  # fmt: skip
WHEN = ("early in the morning", "late at night", "on Sunday", "every spring", "after the rain", "at noon")
WEATHER = ("cold", "bright", "quiet", "windy", "golden", "grey", "warm", "clear")
GOOD = ("wonderful", "moving", "brilliant", "charming", "fresh", "funny")
BAD = ("dull", "tedious", "clumsy", "shallow", "noisy", "pointless")
EARLY = (
    "the secretary of the treasury", "the receipts of the customs", "vessels and tonnage",
    "the indian tribes", "our frontier", "the public debt",
)  # fmt: skip
LATE = (
    "new jobs", "better schools", "health care", "every family", "computers in the classroom", "our children",
)  # fmt: skip
PARTS = ("plot", "acting", "music", "ending", "dialogue", "photography")


def sentence(rng: random.Random) -> str:
    """Returns a sentence about a place."""
    one, other = rng.sample(THINGS, 2)
    when, person, place = rng.choice(WHEN), rng.choice(PEOPLE), rng.choice(PLACES)
    return rng.choice((
        f"The {one[0]} near the {one[1]} {one[2]} {when}.",
        f"{person} met the {one[0]} in {place} {when}.",
        f"It was a {rng.choice(WEATHER)} day in {place}, and the {one[0]} was far from the {other[1]}.",
        f"{when.capitalize()} {person} walks from the {one[1]} to the {other[1]}.",
        f"When the {one[0]} {one[2]}, the {other[0]} {other[2]} too.",
        f"Nobody in {place} knows why the {one[0]} {one[2]} so {rng.choice(('often', 'seldom', 'soon'))}.",
    ))  # fmt: skip


def document(rng: random.Random) -> str:
    """Returns a document: a sentence a line, a blank line at its end."""
    return "".join(f"{sentence(rng)}\n" for _ in range(rng.randint(4, 20))) + "\n"


def review(rng: random.Random) -> tuple[str, str]:
    """Returns a film review and its label, negative or positive."""
    label, words = rng.choice((("negative", BAD), ("positive", GOOD)))
    one, other = rng.sample(PARTS, 2)
    text = rng.choice((
        f"A {rng.choice(words)} film with a {rng.choice(words)} {one}.",
        f"The {one} is {rng.choice(words)}, the {other} {rng.choice(words)}.",
        f"{rng.choice(PEOPLE)} told me about the {rng.choice(words)} {one}, and it is true.",
    ))  # fmt: skip
    return text, label


class Toys:
    """Makes toy files, each once.

    Args:
        cache: folder to keep them in.
        programs: see `tests.docs.server.start`.
    """

    def __init__(self, cache: pathlib.Path, programs: pathlib.Path):
        self._cache, self._programs = cache, programs

    def __getitem__(self, name: str) -> pathlib.Path:
        """Returns the path of a toy file, which must not be changed."""
        if name not in TOYS:
            raise KeyError(f"tests/docs/toy.py has no toy file {name!r}, only {', '.join(sorted(TOYS))}")
        path = self._cache / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            TOYS[name](self, path)
        return path

    def put(self, name: str, folder: pathlib.Path):
        """Copies a toy file into a page's folder."""
        source, target = self[name], folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)

    def command(self, line: str):
        """Runs a command in the cache."""
        path = f"{self._programs}:/usr/local/bin:/usr/bin:/bin"
        done = subprocess.run(
            ["bash", "-ec", line],
            cwd=self._cache,
            env={"PATH": path, "HOME": str(self._cache), "MPLBACKEND": "Agg"},
            capture_output=True,
            text=True,
            preexec_fn=os.setpgrp,
        )
        if done.returncode:
            raise RuntimeError(f"{line}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def toy(name: str):
    """Registers the function that makes a toy file, or a folder if the name ends with a slash."""

    def register(make):
        TOYS[name] = make
        return make

    return register


@toy("corpus/")
def _corpus(toys: Toys, path: pathlib.Path):
    rng = random.Random(1)
    path.mkdir()
    for name in ("harbour", "market", "valley"):
        (path / f"{name}.txt").write_text("".join(document(rng) for _ in range(40)))
    packed = "".join(document(rng) for _ in range(40)).encode()
    (path / "archive.txt.gz").write_bytes(gzip.compress(packed, mtime=0))


def _reviews(seed: int, count: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    return [review(rng) for _ in range(count)]


def _write_table(path: pathlib.Path, header: tuple[str, ...], rows: list, delimiter: str = ","):
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows([header, *rows])


def _table_of_reviews(seed: int, count: int):
    def make(toys: Toys, path: pathlib.Path):
        _write_table(path, ("text", "label"), _reviews(seed, count))

    return make


TOYS["train.csv"] = _table_of_reviews(2, 96)
TOYS["dev.csv"] = _table_of_reviews(3, 32)
TOYS["test.csv"] = _table_of_reviews(4, 32)


@toy("reviews.txt")
def _review_texts(toys: Toys, path: pathlib.Path):
    path.write_text("".join(f"{text}\n\n" for text, _ in _reviews(2, 200)))


@toy("texts.jsonl")
def _texts(toys: Toys, path: pathlib.Path):
    _write_rows(path, ({"text": text} for text, _ in _reviews(5, 8)))


@toy("glue/SST-2/")
def _sst2(toys: Toys, path: pathlib.Path):
    path.mkdir(parents=True)
    for split, seed, count in (("train", 2, 96), ("dev", 3, 32)):
        rows = [(text, int(label == "positive")) for text, label in _reviews(seed, count)]
        _write_table(path / f"{split}.tsv", ("sentence", "label"), rows, "\t")
    rows = [(number, text) for number, (text, _) in enumerate(_reviews(4, 32))]
    _write_table(path / "test.tsv", ("index", "sentence"), rows, "\t")


@toy("corpus.jsonl")
def _corpus_of_objects(toys: Toys, path: pathlib.Path):
    rng = random.Random(6)
    _write_rows(path, ({"text": document(rng).strip().replace("\n", " ")} for _ in range(60)))


def _questions(seed: int, count: int) -> list[tuple[str, str, str, int]]:
    """Returns passages, questions and answers with the answers' first characters."""
    rng, found = random.Random(seed), []
    for _ in range(count):
        who, (what, _, _), where, when = (rng.choice(of) for of in (PEOPLE, THINGS, PLACES, WHEN))
        passage = f"{sentence(rng)} {who} met the {what} in {where} {when}. {sentence(rng)}"
        answer, question = rng.choice(((where, f"Where did {who} meet the {what}?"),
                                       (who, f"Who met the {what} in {where}?")))  # fmt: skip
        begin = passage.index(f"{who} met the {what} in {where}")
        found.append((passage, question, answer, passage.index(answer, begin)))
    return found


@toy("squad/")
def _squad(toys: Toys, path: pathlib.Path):
    path.mkdir()
    for name, seed, count in (("train", 7, 48), ("dev", 8, 12)):
        paragraphs = []
        for number, (passage, question, answer, start) in enumerate(_questions(seed, count)):
            answers = [{"text": answer, "answer_start": start}] if number % 4 else []
            asked = {"id": f"{name}-{number}", "question": question, "answers": answers}
            asked["is_impossible"] = not answers
            if not answers:
                asked["question"] = "What is the price of the boat?"
            paragraphs.append({"context": passage, "qas": [asked]})
        content = {"version": "v2.0", "data": [{"title": "Toys", "paragraphs": paragraphs}]}
        (path / f"{name}-v2.0.json").write_text(json.dumps(content))


def _tagged(rng: random.Random) -> tuple[list[str], list[str]]:
    """Returns the words of a sentence and their tags."""
    words = sentence(rng).replace(",", " ,").replace(".", " .").split()
    return words, ["B-PER" if word in PEOPLE else "B-LOC" if word in PLACES else "O" for word in words]


def _write_rows(path: pathlib.Path, rows: Iterable[dict]):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@toy("entities.jsonl")
def _entities(toys: Toys, path: pathlib.Path):
    rng = random.Random(16)
    _write_rows(path, (dict(zip(("tokens", "tags"), _tagged(rng))) for _ in range(240)))


@toy("questions.jsonl")
def _table_of_questions(toys: Toys, path: pathlib.Path):
    rows = []
    for passage, question, answer, start in _questions(17, 240):
        answers = {"text": [answer], "answer_start": [start]}
        rows.append({"question": question, "context": passage, "answers": answers})
    _write_rows(path, rows)


@toy("race/")
def _race(toys: Toys, path: pathlib.Path):
    path.mkdir()
    for name, seed, count in (("train", 12, 32), ("dev", 13, 8)):
        rng, rows = random.Random(seed), []
        for passage, question, answer, _ in _questions(seed, count):
            others = [other for other in PEOPLE + PLACES if other != answer]
            options = rng.sample(others, 3)
            place = rng.randrange(4)
            options.insert(place, answer)
            asked = {"context": passage, "question": question}
            rows.append({**asked, "options": options, "answer": "ABCD"[place]})
        _write_rows(path / f"{name}.jsonl", rows)


@toy("ranking/")
def _ranking(toys: Toys, path: pathlib.Path):
    path.mkdir()
    for name, seed, count in (("train", 14, 24), ("dev", 15, 8)):
        rng, rows = random.Random(seed), []
        for passage, question, _, _ in _questions(seed, count):
            candidates = [(passage, 1), *((sentence(rng), 0) for _ in range(3))]
            rng.shuffle(candidates)
            rows += [(question, candidate, relevance) for candidate, relevance in candidates]
        _write_table(path / f"{name}.csv", ("query", "passage", "relevance"), rows)


def _made_by(command: str, *needed: str):
    """Returns what makes a toy from other toys by a command."""

    def make(toys: Toys, path: pathlib.Path):
        for name in needed:
            toys[name]
        toys.command(command)

    return make


TOYS["spiece.model"] = _made_by(
    "xlnet-tf train-tokenizer --input='corpus/*.txt,reviews.txt' --output_prefix=spiece --vocab_size=200",
    *("corpus/", "reviews.txt"),
)
TOYS["runs/records/"] = _made_by(
    "xlnet-tf build pretraining --input=corpus --tokenizer=spiece.model --output_dir=runs/records "
    "--stream_segments=16 --dev_fraction=0.1 --seq_len=64 --reuse_len=32 --num_predict=11",
    *("corpus/", "spiece.model"),
)
TOYS["runs/pretrained/"] = _made_by(
    "xlnet-tf pretrain --train_data=runs/records/train --dev_data=runs/records/dev "
    f"--model_dir=runs/pretrained {MODEL_FLAGS}",
    "runs/records/",
)
TOYS["runs/reviews/"] = _made_by(
    "xlnet-tf build classification --train=train.csv --dev=dev.csv --test=test.csv --tokenizer=spiece.model "
    "--output_dir=runs/reviews-data --seq_len=32 && "
    "xlnet-tf finetune --data=runs/reviews-data --init_checkpoint=runs/pretrained --model_dir=runs/reviews "
    "--batch_size=8 --train_steps=120 --warmup_steps=10 --learning_rate=3e-3",
    *("train.csv", "dev.csv", "test.csv", "runs/pretrained/"),
)


@toy("runs/demo/model/")
def _demo_model(toys: Toys, path: pathlib.Path):
    shutil.copytree(toys["runs/pretrained/"], path)


@toy("runs/demo/centuries/")
def _centuries(toys: Toys, path: pathlib.Path):
    path.mkdir(parents=True)
    for split, seed, count in (("train", 18, 200), ("test", 19, 40)):
        rng = random.Random(seed)
        drawn = [rng.choice(((EARLY, "before 1860"), (LATE, "after 1960"))) for _ in range(count)]
        rows = [(" and ".join(rng.sample(phrases, 3)), label) for phrases, label in drawn]
        _write_table(path / f"{split}.csv", ("text", "label"), rows)


@toy("xlnet_cased_L-12_H-768_A-12/")
def _released(toys: Toys, path: pathlib.Path):
    """With the released model's 32,000 pieces: a page that expects the toys' 200 fails, as for readers."""
    import numpy as np
    from sentencepiece import sentencepiece_model_pb2

    from xlnet_tf.checkpoints import open_checkpoint, save_checkpoint
    from xlnet_tf.checkpoints.arrays import Arrays
    from xlnet_tf.hub import checksums

    source = open_checkpoint(toys["runs/pretrained/"])
    more = _RELEASED_PIECES - source.config.n_token
    arrays = dict(source.arrays.items())
    for name, values in arrays.items():
        if values.shape[:1] == (source.config.n_token,):
            arrays[name] = np.pad(values, [(0, more), *[(0, 0)] * (values.ndim - 1)])
    config = dataclasses.replace(source.config, n_token=_RELEASED_PIECES)
    released = dataclasses.replace(source, arrays=Arrays.of(arrays), config=config)
    save_checkpoint(released, str(path), "original")
    proto = sentencepiece_model_pb2.ModelProto.FromString((toys["spiece.model"]).read_bytes())
    for number in range(more):
        proto.pieces.add(piece=f"\ue000{number}", score=-1000.0)  # in no text
    (path / "spiece.model").write_bytes(proto.SerializeToString())
    checksums.remove(path)
