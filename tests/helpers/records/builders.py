"""The builders of labelled examples, each with small sizes and a good file to begin with."""

import json
import pathlib

from tfrecord_builders.classification.build import build_classification
from tfrecord_builders.classification.options import ClassificationOptions
from tfrecord_builders.race.build import RaceOptions, build_race
from tfrecord_builders.ranking.build import RankingOptions, build_ranking
from tfrecord_builders.squad.build import SquadOptions, build_squad
from tfrecord_builders.tagging.build import TaggingOptions, build_tagging

PASSAGE = "Katomi ren  sol, du velan 5,000 quibor. " * 4 + "Mi ka to!"
ARTICLE = {
    "id": "high7.txt",
    "article": "Ka tomi ren. Sol du velan.",
    "questions": ["Ka _ ren ?", "Sol du ?"],
    "options": [["tomi", "velan", "qui", "bor"], ["ka", "to", "mi", "ren"]],
    "answers": ["B", "D"],
}
OWN = {"context": "Ka tomi.", "question": "Ren ?", "options": ["sol", "du", "ve"], "answer": 2}
CLASSES = "text,label\nKa tomi ren.,good\nSol du velan.,bad\nQui bor.,good\nMi to ka.,so-so\n"
PAIRS = "query\tpassage\trelevance\nka\tto\t1\nka\tmi\t0\n"
ENTITIES = "ka B-X\nto O\n"

_BUILDERS = {
    "classification": (build_classification, ClassificationOptions, {"seq_len": 32}),
    "race": (build_race, RaceOptions, {"seq_len": 48, "max_qa_len": 24}),
    "ranking": (build_ranking, RankingOptions, {"seq_len": 32, "max_query_len": 8, "candidates": 4}),
    "squad": (build_squad, SquadOptions, {"seq_len": 40, "max_question_len": 8, "stride": 9}),
    "tagging": (build_tagging, TaggingOptions, {"seq_len": 24}),
}
_TEXTS = {"classification": "csv", "ranking": "tsv", "tagging": "txt"}  # endings of files of text


def contents(folder):
    """Returns the bytes of all files below a folder, by their paths in it."""
    files = (path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def question(text, answer=None, begin=None, **fields):
    """A question of SQuAD's json about PASSAGE; `begin` None: where the answer is."""
    answers = [] if answer is None else [{"text": answer, "answer_start": begin}]
    if answers and begin is None:
        answers[0]["answer_start"] = PASSAGE.index(answer)
    return {"id": text, "question": text, "answers": answers, **fields}


def jsonl(path, rows):
    """Writes rows, an object a line; returns the path as a flag has it."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def squad_file(path, *questions, context=PASSAGE, version="1.1"):
    paragraphs = [{"context": context, "qas": list(questions)}]
    path.write_text(json.dumps({"version": version, "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return str(path)


def write(builder, folder, split, content):
    """Writes what a builder reads: text, rows of jsonl or, for SQuAD, questions; returns the file."""
    if builder == "squad" and not isinstance(content, str):
        return squad_file(folder / f"{split}.json", *content)
    if not isinstance(content, str):
        return jsonl(folder / f"{split}.jsonl", content)
    path = folder / f"{split}.{_TEXTS[builder]}"
    path.write_text(content)
    return str(path)


GOOD = {
    "classification": CLASSES,
    "race": [OWN],
    "ranking": PAIRS,
    "squad": [question("Ka?", "sol")],
    "tagging": ENTITIES,
}


def build(builder, folder, tokenizer, **options):
    """Builds sets in FOLDER/records from the content of the splits, or from files that are there."""
    function, cls, sizes = _BUILDERS[builder]
    for split in {"train", "dev", "test"} & options.keys():
        content = options[split]
        is_path = isinstance(content, str) and "/" in content and "\n" not in content
        file = content if is_path else write(builder, folder, split, content)
        options[split] = [file] if builder in ("race", "tagging") else file
    common = {"tokenizer": str(tokenizer), "output_dir": str(folder / "records")}
    return function(cls(**common | sizes | options))
