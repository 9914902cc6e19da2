"""Builds examples from tables whose task and columns are found, and reuses them if nothing has changed."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from tfrecord_builders.automatic.columns import KINDS, Found, check_given, find
from tfrecord_builders.classification.build import build_classification
from tfrecord_builders.classification.options import ClassificationOptions
from tfrecord_builders.common import columnar, named_sets, tables
from tfrecord_builders.common.example_builder import SPLITS
from tfrecord_builders.common.labelling_tools import ENTITY_COLUMNS
from tfrecord_builders.common.rows import LabelledRow, NestedJson
from tfrecord_builders.common.streams import unpacked_name
from tfrecord_builders.race.build import RaceOptions, build_race
from tfrecord_builders.ranking.build import RankingOptions, build_ranking
from tfrecord_builders.squad.build import SquadOptions, build_squad
from tfrecord_builders.tagging.build import TaggingOptions, build_tagging
from tfrecord_builders.tagging.data import TaggedWords, read_sentences
from tfrecord_builders.tagging.schemes import found_in
from xlnet_tf import files, folders, hub
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.text.locating import cleaning_for, find_file
from xlnet_tf.text.tokenizer import XLNetTokenizer

NOTE_FILE = "sources.json"
_BUILDERS: Mapping[str, tuple[Callable, type]] = {
    "classification": (build_classification, ClassificationOptions),
    "question_answering": (build_squad, SquadOptions),
    "multiple_choice": (build_race, RaceOptions),
    "tagging": (build_tagging, TaggingOptions),
    "ranking": (build_ranking, RankingOptions),
}
_COLUMN_FILES = (".conllu", ".conll", ".bio", ".iob", ".iob2")
_ROWS_LOOKED_AT = 2000
_MOST_CLASSES = 20  # of labels that are whole numbers; more are learned as numbers
_LENGTHS = (32, 64, 96, 128, 192, 256, 384, 512)
_SPECIAL = 3  # tokens of a pair; a text has one less
_COVERED = 99  # percent of the rows that are not cut, if possible
# Of two texts in a sequence, the one that is cut to so many tokens, or to half of the sequence.
_PARTS = {
    "question_answering": ("max_question_len", 64),
    "multiple_choice": ("max_qa_len", 128),
    "ranking": ("max_query_len", 32),
}
_DEV_FRACTIONS = ((1000, 0.1), (0, 0.2))  # from this many rows on


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sources:
    """Tables of one's own: files, folders or names of data sets.

    The task and the columns by role are found where they are not given; seq_len 0: as the texts suggest.
    """

    train: str
    dev: str = ""
    test: str = ""
    task: str | None = None
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    seq_len: int = 0


@dataclasses.dataclass(frozen=True)
class Built:
    """Examples in a folder, and in a line how they were made of the tables."""

    folder: epath.Path
    description: str
    reused: bool
    example: Mapping[str, Any]


def build(sources: Sources, tokenizer: str, folder: epath.PathLike, progress: bool = False) -> Built:
    """Builds the splits of the sources in a folder; if they are there, made of the same, they are reused."""
    folder = epath.Path(folder)
    check_given(sources.task, sources.columns)
    for path in filter(None, (sources.train, sources.dev, sources.test)):
        _check_source(path)
    kind, options, description = _plan(sources, tokenizer)
    now = {
        "options": {name: value for name, value in options.items() if value is not None},
        "tokenizer": _fingerprint(str(find_file(tokenizer))),
        "sources": {split: _fingerprint(path) for split in SPLITS if (path := getattr(sources, split))},
    }
    note = folder / NOTE_FILE
    if note.exists():
        before = files.read_json(note)
        if before == json.loads(json.dumps(now)):
            return Built(folder, description, True, _first_example(folder))
        if folders.look(folder.parent)[0] in (folders.RUN, folders.RUNS):
            former = before["options"]["train"]
            if former != now["options"]["train"]:
                named = former if isinstance(former, str) else former[0]
                raise UserError(
                    f"{folder.parent} was trained on {named}: give another --model_dir for {sources.train}"
                )
            changed = [
                split for split, value in now["sources"].items() if before["sources"].get(split) != value
            ]
            what = ", ".join(getattr(sources, split) for split in changed) or "a setting of the examples"
            raise UserError(
                f"{folder.parent} was trained before {what} changed: give another --model_dir to train again"
            )
    build_examples, cls = _BUILDERS[kind]
    build_examples(cls(tokenizer=tokenizer, output_dir=str(folder), overwrite=True, **options), progress)
    files.write_json(note, now)
    return Built(folder, description, False, _first_example(folder))


def _first_example(folder: epath.Path) -> Mapping[str, Any]:
    return next(iter(ExampleSet.load(folder / "train").sidecar()))


def _check_source(path: str) -> None:
    """Raises UserError for what people take for a table."""
    is_file = not path.startswith("hf://") and epath.Path(path).exists()
    if named_sets.is_name(path) or is_file:
        place = epath.Path(path)
        if not named_sets.is_name(path) and place.is_dir():
            if (
                folders.look(place)[0] == folders.EXAMPLES
                or folders.look(place / "train")[0] == folders.EXAMPLES
            ):
                raise UserError(f"{path} has examples that are built: give it as --data")
            if (place / "corpus.jsonl").exists():
                raise UserError(
                    f"{path} is a folder of BEIR, which needs candidates: build it, with build ranking "
                    "--format=beir"
                )
        return
    if path.startswith("hf://"):
        raise UserError(
            f"{path} is not a data set: one of the Hugging Face hub is {named_sets.HUB}OWNER/NAME/SPLIT, "
            f"such as {named_sets.HUB}stanfordnlp/imdb/train"
        )
    if path.count("/") == 1 and "." not in path:
        raise UserError(
            f"{path} does not exist; a data set of the Hugging Face hub is {named_sets.HUB}{path}/train"
        )
    tables.existing(path)


def _plan(sources: Sources, tokenizer_name: str) -> tuple[str, dict[str, Any], str]:
    """Returns the builder, its options and a description."""
    task, path = sources.task, sources.train
    shape = _shape(path)
    if shape and task not in (None, shape) and not (shape == "classification" and task in KINDS):
        raise UserError(
            f"{path} has the form of {shape}, not of {task}: leave --task out, or give another file"
        )
    if shape in ("tagging", "question_answering", "multiple_choice"):
        _refuse_columns(sources, shape)
        options = _scheme(_all_tags(path)) if shape == "tagging" else {}
        return shape, _with_splits(shape, sources, options, 0), f"{path}: {shape}"
    rows = list(itertools.islice(tables.read_table(path, tables.infer_format(path)), _ROWS_LOOKED_AT))
    if not rows:
        raise UserError(f"{path} has no rows: expected one for each example")
    if task in (None, "tagging") and any(_has_spans(row, sources.columns.get("tags")) for row in rows):
        _refuse_columns(sources, "entities", "tags")
        options = {"tags_column": sources.columns["tags"]} if "tags" in sources.columns else {}
        return "tagging", _with_splits("tagging", sources, options, len(rows)), f"{path}: tagging of entities"
    is_race = all(name in rows[0] for name in ("article", "questions", "options"))
    if is_race and task in (None, "multiple_choice"):
        _refuse_columns(sources, "RACE")
        options = _with_splits("multiple_choice", sources, {}, len(rows))
        return "multiple_choice", options, f"{path}: multiple_choice"
    found = find(path, list(rows[0].values), task, sources.columns)
    kind = "classification" if found.task == "pairs" else found.task
    options, notes = _options(found, rows, path, task)
    options["seq_len"] = sources.seq_len or _length(found, rows, tokenizer_name)
    text = f"{path}: {options.get('kind') or kind}, {_described(found)}{notes}; {options['seq_len']} tokens"
    return kind, _with_splits(kind, sources, options, len(rows)), text


def _refuse_columns(sources: Sources, form: str, *known: str) -> None:
    """Raises UserError for columns that are given but not read: those of a form have their own names."""
    if ignored := [f"--{role}_column" for role in sources.columns if role not in known]:
        raise UserError(f"{sources.train} has the form of {form}, which is read without {', '.join(ignored)}")


def _shape(path: str) -> str:
    """Returns the task of a source that is no table of named columns; "" for tables."""
    if named_sets.is_name(path):
        return ""
    place = epath.Path(path)
    name = unpacked_name(place)
    if place.is_dir():
        if columnar.kind_of(place):
            return ""
        is_race = any((place / level).is_dir() for level in ("middle", "high"))
        inside = files.entries(place)
        if not is_race and not any(entry.is_dir() for entry in inside):
            tables_in = (
                each for each in inside if unpacked_name(each).endswith((".csv", ".tsv", ".jsonl", ".json"))
            )
            raise UserError(
                f"{path} has no Parquet or Arrow files and no folders: give a file, such as "
                f"{next(tables_in, 'reviews.csv')}, or a folder with a folder of .txt files for each label"
            )
        return "multiple_choice" if is_race else ""
    if name.endswith(_COLUMN_FILES):
        return "tagging"
    if name.endswith(".json") and tables.infer_format(path).kind == "jsonl":
        with place.open("rb") as file:
            return "question_answering" if b'"paragraphs"' in file.read(1 << 16) else ""
    return ""


def _all_tags(path: str) -> set[str]:
    rows = itertools.islice(read_sentences(path), _ROWS_LOOKED_AT)
    return {tag for row in rows if isinstance(row, TaggedWords) for tag in row.tags or ()}


def _scheme(tags: set[str]) -> dict[str, Any]:
    scheme = found_in(tags)
    return {} if scheme == TaggingOptions.scheme else {"scheme": scheme}


def _has_spans(row: LabelledRow, column: str | None) -> bool:
    """Returns whether a row is a text with entities as labelling tools write them, in a column if given."""
    values = [row[name] for name in ([column] if column else ENTITY_COLUMNS) if name in row]
    return "text" in row and any(value and isinstance(value[0], NestedJson) for value in values)


def _options(
    found: Found, rows: Sequence[LabelledRow], path: str, task: str | None
) -> tuple[dict[str, Any], str]:
    columns = dict(found.columns)
    if found.task in ("classification", "pairs"):
        text = columns.get("text") or columns["text_a"]
        kind, notes = _kind_of_labels(rows, columns["label"], path, task)
        pair = {"text_pair_column": [columns["text_pair"]]} if "text_pair" in columns else {}
        return {"text_column": [text], "label_column": [columns["label"]], "kind": kind, **pair}, notes
    if found.task == "multiple_choice":
        options = columns["options"]
        endings = [name for name in rows[0].values if name.startswith(options.rstrip("0123456789"))]
        several = options[-1:].isdecimal() and len(endings) > 1
        named = {
            "context_column": columns.get("context", ""),
            "question_column": columns.get("question", ""),
            "options_column": endings if several else [options],
            "answer_column": columns["answer"],
        }
        return named, ""
    named = {f"{role}_column": column for role, column in columns.items()}
    if found.task == "tagging":
        return {**named, **_scheme({tag for row in rows for tag in row.texts(columns["tags"])})}, ""
    return named, ""


def _kind_of_labels(rows: Sequence[LabelledRow], column: str, path: str, task: str | None) -> tuple[str, str]:
    """Returns what the labels of texts are, and what to say about it."""
    values = [row[column] for row in rows]
    if not any(values):
        raise UserError(
            f"{path} has no label in column {column!r}: label some rows, or name another with --label_column"
        )
    if task in KINDS:
        return task, ""
    if any(isinstance(value, list) and len(value) > 1 for value in values):
        return "multi_label", ", several labels a text"
    if empty := sum(isinstance(value, list) and not value for value in values):
        raise UserError(
            f"{path}: {empty} of {len(values)} rows have an empty list in {column!r}, and no row has several "
            "labels: give --task=multi_label if a text may have none, or label these rows or leave them out"
        )
    texts = ["".join(value).strip() for value in values]
    distinct = set(texts) - {""}
    numbers = [number for text in distinct if (number := _number(text)) is not None]
    if len(numbers) == len(distinct):
        if any(number % 1 for number in numbers) or len(distinct) > _MOST_CLASSES:
            return "regression", " (a number; --task=classification makes classes of its values)"
        return "classification", f" ({len(distinct)} classes; --task=regression learns numbers)"
    if len(distinct) > max(_MOST_CLASSES, len(rows) // 2):
        raise UserError(
            f"{path}: {column!r} has {len(distinct)} values in {len(rows)} rows, hardly classes: "
            "name another with --label_column"
        )
    shown = ", ".join(sorted(distinct)[:5]) + (", ..." if len(distinct) > 5 else "")
    return "classification", f" ({shown})"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _described(found: Found) -> str:
    names = {"text_a": "text"}
    return ", ".join(f"{names.get(role, role)} in {column!r}" for role, column in found.columns.items())


def _with_splits(kind: str, sources: Sources, options: dict[str, Any], rows: int) -> dict[str, Any]:
    """Adds the files of the splits, the length if it was given, and a dev split that is held out."""
    several = kind in ("multiple_choice", "tagging")
    for split in SPLITS:
        if path := getattr(sources, split):
            options[split] = [path] if several else path
    if sources.seq_len:
        options["seq_len"] = sources.seq_len
    if seq_len := options.get("seq_len"):
        if kind in _PARTS:
            name, most = _PARTS[kind]
            options[name] = min(most, seq_len // 2)
        if kind == "question_answering":
            options["stride"] = min(128, seq_len // 4)
    if not sources.dev:
        options["dev_fraction"] = next(part for least, part in _DEV_FRACTIONS if rows >= least)
    return options


def _length(found: Found, rows: Sequence[LabelledRow], tokenizer_name: str) -> int:
    tokenizer = XLNetTokenizer(find_file(tokenizer_name), cleaning=cleaning_for(tokenizer_name))
    outputs = ("label", "answer", "answers", "tags", "relevance")
    texts = [
        _texts(row, [name for role, name in found.columns.items() if role not in outputs]) for row in rows
    ]
    _, lengths = tokenizer.encode_batch([" ".join(each) for each in texts])
    wanted = np.percentile(lengths, _COVERED) + _SPECIAL
    return next((length for length in _LENGTHS if length >= wanted), _LENGTHS[-1])


def _texts(row: LabelledRow, columns: Sequence[str]) -> Iterator[str]:
    for column in columns:
        value = row[column]
        yield value if isinstance(value, str) else " ".join(value)


def _fingerprint(source: str) -> str:
    """Returns what changes with a source: its bytes, or the commit of a data set of the hub."""
    if named_sets.is_name(source):
        match = named_sets.HUB_NAME.fullmatch(source)
        return hub.commit_of_data_set(match["name"], match["revision"]) if match else source
    path, digest = epath.Path(source), hashlib.sha256()
    for file in _files(path):
        digest.update(f"{file.name}\n".encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _files(path: epath.Path) -> Iterator[epath.Path]:
    if not path.is_dir():
        yield path
        return
    for entry in sorted(files.entries(path)):
        yield from _files(entry)
