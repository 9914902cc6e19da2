"""Examples of tables without settings: the bytes are those of the builders, and they are reused."""

import random
import re

import pytest

from tests.helpers.records import labelled
from tests.helpers.records.builders import ARTICLE, jsonl
from tfrecord_builders.automatic.build import Sources, build
from tfrecord_builders.automatic.columns import find
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet


def reviews(path, count=60, labels=("bad", "good")):
    words, rng = ["ka", "tomi", "ren", "sol", "du", "velan", "qui", "bor"], random.Random(0)
    rows = [(" ".join(rng.choices(words, k=7)), labels[n % len(labels)]) for n in range(count)]
    path.write_text("review,stars\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return str(path)


def of(tmp_path, tokenizer_file, train, **options):
    return build(Sources(train=str(train), **options), str(tokenizer_file), tmp_path / "run/examples")


def test_the_bytes_are_those_of_the_builder(tmp_path, tokenizer_file):
    train = reviews(tmp_path / "a.csv")
    built = of(tmp_path, tokenizer_file, train)
    assert "classification, text in 'review', label in 'stars' (bad, good); 32 tokens" in built.description
    options = {"text_column": ["review"], "label_column": ["stars"], "seq_len": 32, "dev_fraction": 0.2}
    for split, examples in labelled.builder(tmp_path, tokenizer_file)(train=train, **options).items():
        assert ExampleSet.load(built.folder / split).digest == examples.digest and examples.records > 0


def test_examples_are_reused_until_something_changes(tmp_path, tokenizer_file):
    train = tmp_path / "a.csv"
    reviews(train)
    first = of(tmp_path, tokenizer_file, train)
    assert not first.reused and of(tmp_path, tokenizer_file, train).reused
    assert not of(tmp_path, tokenizer_file, train, seq_len=64).reused
    reviews(train, 80)
    assert not of(tmp_path, tokenizer_file, train).reused
    (tmp_path / "run/ckpt-5.index").touch()
    reviews(train, 60)
    with pytest.raises(UserError, match="run was trained before .*a.csv changed: give another --model_dir"):
        of(tmp_path, tokenizer_file, train)
    with pytest.raises(UserError, match="run was trained on .*a.csv: give another --model_dir for .*b.csv"):
        of(tmp_path, tokenizer_file, reviews(tmp_path / "b.csv"))


def test_labels_as_numbers(tmp_path, tokenizer_file):
    for labels, kind in (
        (("1", "2", "3"), "classification.*3 classes; --task=regression learns numbers"),
        (("0.5", "1.25"), "regression.*a number; --task=classification makes classes"),
        (tuple(map(str, range(30))), "regression"),
    ):
        built = of(tmp_path, tokenizer_file, reviews(tmp_path / "a.csv", labels=labels))
        assert re.search(kind, built.description)


ROWS = [f"{a} {b} {c}" for a in ("ka", "to", "mi") for b in ("sol", "du", "ve") for c in ("qui", "bor")]
TABLES = {
    "multi_label": [{"text": text, "labels": ["a", "b"][: 1 + n % 2]} for n, text in enumerate(ROWS)],
    "question_answering": [{"context": text, "question": "ka", "answer": text[:2]} for text in ROWS],
    "multiple_choice": [{"question": text, "options": ["a", "b"], "answer": 1} for text in ROWS],
    "tags": [{"tokens": text.split(), "tags": ["X", "Y", "X"]} for text in ROWS],
    "iobes": [{"tokens": text.split(), "tags": ["S-PER", "B-LOC", "E-LOC"]} for text in ROWS],
    "entities": [{"text": text, "label": [[0, 2, "PER"]]} for text in ROWS],
    "ranking": [
        {"query": text, "passage": p, "relevance": p == "ren"} for text in ROWS for p in ("ren", "to")
    ],
    "race": [{**ARTICLE, "id": f"high{n}.txt", "article": text} for n, text in enumerate(ROWS)],
}


@pytest.mark.parametrize("name", TABLES)
def test_each_task_is_found_and_split(tmp_path, tokenizer_file, name):
    train = jsonl(tmp_path / "a.jsonl", TABLES[name])
    built = of(tmp_path, tokenizer_file, train, seq_len=64)
    sets = [ExampleSet.load(built.folder / split) for split in ("train", "dev")]
    assert all(examples.records for examples in sets)
    expected = dict.fromkeys(("tags", "iobes", "entities"), "tagging") | {"multi_label": "classification"}
    expected |= {"question_answering": "squad", "multiple_choice": "choice", "race": "choice"}
    assert sets[0].task == expected.get(name, name)
    labels = {"tags": ["X", "Y"], "iobes": ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]}
    assert name not in labels or sets[0].settings["labels"] == labels[name]


def test_entities_are_found_though_the_first_text_has_none(tmp_path, tokenizer_file):
    train = jsonl(tmp_path / "a.jsonl", [{"text": "ka", "label": []}, *TABLES["entities"]])
    assert of(tmp_path, tokenizer_file, train).description.endswith("tagging of entities")
    span = {"start": 0, "end": 2, "text": "ka", "labels": ["X"]}
    jsonl(tmp_path / "a.jsonl", [{"text": f"ka {text}", "who": [span]} for text in ROWS])
    of(tmp_path, tokenizer_file, train, columns={"tags": "who"})
    assert ExampleSet.load(tmp_path / "run/examples/train").settings["labels"] == ["O", "B-X", "I-X"]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("review,stars\nka,\nto,\n", {}, "has no label in column 'stars'"),
        ("text,label\n" + "".join(f"ka,x{n}\n" for n in range(50)), {}, "50 values in 50 rows, hardly"),
        ([{"text": "ka", "label": "a"}, {"text": "to", "label": []}], {}, "has several .*=multi"),
        (TABLES["entities"], {"task": "ner"}, "task is 'ner'; expected one of classification, "),
        (TABLES["entities"], {"columns": {"txt": "a"}}, "columns is {'txt': 'a'}; .* its role: text, label"),
        (TABLES["entities"], {"columns": {"text": "a"}}, "form of entities, .* without --text_column"),
        ("{tmp_path}/notes.xlsx", {}, "notes.xlsx is a spreadsheet, .* save the sheet as .csv"),
        (
            "{tmp_path}/films",
            {},
            "has no Parquet or Arrow files and no folders: give a file, such as .*b.tsv,",
        ),
        ("{tmp_path}/run/examples", {}, "has examples that are built: give it as --data"),
        ("stanfordnlp/imdb", {}, "does not exist; a data set of the .* is hf://datasets/stanfordnlp/imdb/"),
        ("hf://imdb", {}, "hf://imdb is not a data set: one of the .* is hf://datasets/OWNER/"),
    ],
)
def test_wrong_tables_and_settings_are_named(tmp_path, tokenizer_file, content, options, message):
    (tmp_path / "films").mkdir()
    reviews(tmp_path / "films/b.tsv")
    (tmp_path / "notes.xlsx").write_text("PK")
    if "run" in content:
        of(tmp_path, tokenizer_file, reviews(tmp_path / "a.csv"))
    if isinstance(content, list):
        content = jsonl(tmp_path / "a.jsonl", content)
    elif "\n" in content:
        (tmp_path / "a.csv").write_text(content)
        content = str(tmp_path / "a.csv")
    with pytest.raises((UserError, FileNotFoundError), match=message) as error:
        of(tmp_path, tokenizer_file, content.format(tmp_path=tmp_path), **options)
    assert "\n" not in str(error.value)


def test_folders_of_texts_have_their_labels(tmp_path, tokenizer_file):
    for label in ("neg", "pos"):
        (tmp_path / "films" / label).mkdir(parents=True)
        for number in range(20):
            (tmp_path / "films" / label / f"{number}.txt").write_text(f"ka {label} {number}")
    assert "label in 'label' (neg, pos)" in of(tmp_path, tokenizer_file, tmp_path / "films").description


@pytest.mark.parametrize(
    ("columns", "task", "found"),
    [
        ("text label", "classification", "text=text label=label"),
        ("id Review Sentiment", "classification", "text=Review label=Sentiment"),
        ("premise hypothesis label", "pairs", "text_a=premise text_pair=hypothesis label=label"),
        ("question sentence label", "pairs", "text_a=question text_pair=sentence label=label"),
        ("id title context question answers", "question_answering",
         "context=context question=question answers=answers"),
        ("context question options answer", "multiple_choice",
         "options=options answer=answer context=context question=question"),
        ("id question choices choices.text choices.label answerKey", "multiple_choice",
         "options=choices.text answer=answerKey question=question"),
        ("id tokens pos_tags ner_tags", "tagging", "tokens=tokens tags=ner_tags"),
        ("query passage label", "ranking", "query=query passage=passage relevance=label"),
    ],
)  # fmt: skip
def test_the_task_follows_from_the_columns(columns, task, found):
    result = find("a.csv", columns.split(), None, {})
    assert (result.task, result.columns) == (task, dict(role.split("=") for role in found.split()))


def test_flags_name_other_columns_and_decide():
    columns = ["body_text", "verdict", "label"]
    given = {"text": "body_text", "label": "verdict"}
    assert find("a.csv", columns, None, given).columns == given
    two = find("a.csv", ["a", "b", "label"], None, {"text": "a", "text_pair": "b"})
    assert two.columns == {"text_a": "a", "text_pair": "b", "label": "label"}
    ranking = find("a.csv", ["question", "answer", "label"], None, {"query": "question"})
    assert ranking.task == "ranking"


@pytest.mark.parametrize(
    ("columns", "task", "given", "message"),
    [
        ("a b", None, {}, "has the columns a, b: which has the text and which the label.*--text_c"),
        ("text b", None, {}, "has the label.? Say so with --label_column, or another task with --task"),
        ("text b", None, {"label": "c"}, "has no column 'c', only text, b: name the right one with --label"),
        ("text label", "tagging", {}, "which has the tokens and which the tags.? Say so with --tokens"),
        ("text label tokens tags", None, {}, r"may be for classification \(text, label\) or tagging "
         r"\(tokens, tags\): give --task=classification or --task=tagging"),
    ],
)  # fmt: skip
def test_what_is_open_is_asked_for(columns, task, given, message):
    with pytest.raises(UserError, match=message) as error:
        find("a.csv", columns.split(), task, given)
    assert "\n" not in str(error.value)
