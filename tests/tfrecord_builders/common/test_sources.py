"""Whatever holds the rows, a builder makes the same examples of them; wrong names and folders are named."""

import json
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from tests.helpers.records import builders
from tests.tfrecord_builders.common.test_columnar import TEXT, classes
from tests.tfrecord_builders.conftest import make_text
from tfrecord_builders.common import named_sets, tables
from xlnet_tf.errors import UserError

N = 24
WORDS = make_text(20).split()


def texts(words: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, words)) for _ in range(N)]


def answers(context: str, number: int) -> dict:
    """Returns the answers of SQuAD 2.0 as the hub has them: some questions have none."""
    word = context.split()[number % 5]
    found = [(word, context.index(word))] if number % 4 else []
    return {"text": [text for text, _ in found], "answer_start": [begin for _, begin in found]}


class Case:
    """Rows of a task, as json and as columns with the features that `datasets` would note."""

    def __init__(self, builder, plain: dict, numbers: dict | None = None, features=None, **changes):
        self.builder, self.changes = builder, {"seq_len": 64, **changes}
        self.plain, self.columns, self.features = plain, plain | (numbers or {}), features or {}

    def built(self, folder, source: str, tokenizer: str) -> list[bytes]:
        """Returns the bytes of the training records."""
        examples = builders.build(self.builder, folder, tokenizer, train=source, **self.changes)["train"]
        return [(examples.folder / shard.file).read_bytes() for shard in examples.shards]

    def write(self, folder):
        """Writes the rows in all forms; returns name -> source."""
        lines = (dict(zip(self.plain, values)) for values in zip(*self.plain.values()))
        (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        noted = json.dumps({"info": {"features": self.features}})
        table = pyarrow.table(self.columns).replace_schema_metadata({"huggingface": noted})
        pyarrow.parquet.write_table(table, folder / "rows.parquet", row_group_size=7)
        with pyarrow.ipc.new_file(folder / "rows.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=9)
        saved, several = folder / "saved" / "train", folder / "several"
        saved.mkdir(parents=True)
        several.mkdir()
        names = [f"data-0000{number}-of-00002.arrow" for number in range(2)]
        for name, part in zip(names, (table.slice(0, 10), table.slice(10))):
            with pyarrow.ipc.new_stream(saved / name, table.schema) as stream:
                stream.write_table(part)
            pyarrow.parquet.write_table(part, several / name.replace("arrow", "parquet"))
        (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
        (folder / "saved/dataset_dict.json").write_text('{"splits": ["train"]}')
        return [str(folder / name) for name in ("rows.parquet", "rows.arrow", "saved/train", "several")]


NUMBERS = [number % 3 for number in range(N)]
NAMED = [("bad", "fine", "good")[number] for number in NUMBERS]
PASSAGES, IDS = texts(12, 1), [str(number) for number in range(N)]
ANSWERS = [answers(context, number) for number, context in enumerate(PASSAGES)]
CASES = {
    "classification": Case(
        "classification",
        {"text": texts(8), "label": NAMED},
        {"label": NUMBERS},
        {"text": TEXT, "label": classes("bad", "fine", "good")},
    ),
    "regression of pairs": Case(
        "classification",
        {
            "both": [{"first": a, "second": b} for a, b in zip(texts(5), texts(6, 2))],
            "score": [number / 4 for number in range(N)],
        },
        features={"both": {"first": TEXT, "second": TEXT}},
        kind="regression",
        label_column=["score"],
        text_column=["both.first"],
        text_pair_column=["both.second"],
    ),
    "question_answering": Case(
        "squad",
        {"id": IDS, "context": PASSAGES, "question": texts(3), "answers": ANSWERS},
        max_question_len=20,
        stride=16,
    ),
    "tagging": Case(
        "tagging",
        {
            "words": [text.split() for text in texts(3)],
            "ner_tags": [[("O", "B-X")[number % 2], "O", "B-X"] for number in range(N)],
        },
        {"ner_tags": [[number % 2, 0, 1] for number in range(N)]},
        {"words": {"_type": "List", "feature": TEXT}, "ner_tags": {"feature": classes("O", "B-X")}},
        tokens_column="words",
        tags_column="ner_tags",
    ),
}


@pytest.fixture
def rows(tmp_path, tokenizer_file):
    """Rows of classification in all forms, with the records that a builder makes of them."""
    case = CASES["classification"]
    sources = case.write(tmp_path)
    return sources, case.built(tmp_path / "of json", str(tmp_path / "rows.jsonl"), tokenizer_file)


@pytest.mark.parametrize("name", CASES)
def test_all_forms_give_the_same_records(tmp_path, tokenizer_file, name):
    case = CASES[name]
    sources = case.write(tmp_path)
    expected = case.built(tmp_path / "of json", str(tmp_path / "rows.jsonl"), tokenizer_file)
    for number, source in enumerate(sources):
        assert case.built(tmp_path / str(number), source, tokenizer_file) == expected, source


def test_prepared_data_sets_give_the_same_rows(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    text, several, label = tfds.features.Text(), tfds.features.Sequence, tfds.features.ClassLabel
    features = {
        "text": text,
        "label": label(names=["bad", "fine", "good"]),
        "tags": several(label(names=["O", "B-X"])),
        "answers": several({"text": text, "answer_start": np.int32}),
        "bytes": text,
    }
    found = [
        {"text": text, "label": number, "tags": [number % 2] * number, "answers": answers, "bytes": b"\xff"}
        for text, number, answers in zip(texts(4), NUMBERS, ANSWERS)
    ]
    tfds.dataset_builders.store_as_tfds_dataset(
        name="tiny",
        version="1.0.0",
        data_dir=str(tmp_path),
        disable_shuffling=True,
        features=tfds.features.FeaturesDict(features),
        split_datasets={"train": list(enumerate(found))},
    )
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    for part, count in (("", N), ("[:50%]", N // 2)):
        source = f"tfds://{tmp_path}/tiny/1.0.0/train{part}"
        rows = list(tables.read_table(source, tables.infer_format(source)))
        assert len(rows) == count
        for row, expected in zip(rows, found):
            assert row["text"] == expected["text"] and row["label"] == NAMED[NUMBERS.index(expected["label"])]
            assert row["tags"] == [("O", "B-X")[tag] for tag in expected["tags"]]
            assert row["answers.text"] == expected["answers"]["text"]
            assert row["answers.answer_start"] == list(map(str, expected["answers"]["answer_start"]))
            with pytest.raises(UserError, match=r"tiny/1.0.0/train.*, row \d+: 'bytes' is not UTF-8"):
                row.text("bytes")
    for source, message in (
        (f"tfds://{tmp_path}/tiny/1.0.0/dev", "tiny/1.0.0 has the splits train, and no 'dev'"),
        ("tfds://not_there/train", "has no data set 'not_there'.*check the name"),
        ("tfds://train", "is not the name of a split: expected tfds://NAME"),
    ):
        with pytest.raises(UserError, match=message):
            tables.check_exists(source)


@pytest.fixture
def hub(model_hub, rows, monkeypatch, tmp_path):
    """A hub with a data set of two splits, and an empty cache."""
    datasets = pytest.importorskip("datasets", reason="needs the extra datasets")
    import huggingface_hub

    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", model_hub.url)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "data sets")
    monkeypatch.setattr(datasets.config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    content = (tmp_path / "rows.parquet").read_bytes()
    files = {f"data/{split}-00000-of-00001.parquet": content for split in ("train", "test")}
    model_hub.models["datasets/me/set"] = files | {"README.md": b"# A set\n"}
    forgetful = (named_sets._on_hub.cache_clear, huggingface_hub.HfFileSystem.clear_instance_cache)
    for forget in forgetful:
        forget()
    yield model_hub
    for forget in forgetful:
        forget()


def test_a_data_set_of_the_hub_gives_the_same_records(hub, rows, tmp_path, tokenizer_file):
    built = CASES["classification"].built(tmp_path / "hub", "hf://datasets/me/set/train", tokenizer_file)
    assert built == rows[1]
    assert "train-00000-of-00001.parquet" in hub.fetched()
    for source, message in (
        ("me/set/dev", "me/set/dev cannot be read: Unknown split .dev"),
        ("me/set:other/train", "cannot be read: BuilderConfig 'other' not found"),
        ("me/none/train", "the Hugging Face hub has no data set me/none, or it is private"),
        ("me/set@v9/train", "hf://datasets/me/set has no revision v9"),
    ):
        with pytest.raises(UserError, match=message):
            tables.check_exists(f"hf://datasets/{source}")


def test_an_old_copy_never_stands_for_a_hub_that_is_silent(hub, monkeypatch):
    import huggingface_hub

    source = "hf://datasets/me/set/train"

    def read():
        return [row.values for row in tables.read_table(source, tables.infer_format(source))]

    rows = read()
    named_sets._on_hub.cache_clear()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="hf://datasets/me/set cannot be fetched"):
        tables.check_exists(source)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    asked = len(hub.requested)
    assert read() == rows and len(hub.requested) == asked


def test_names_of_the_hub_are_checked_and_the_extra_is_named(monkeypatch):
    for name in ("hf://datasets/train", "hf://datasets/a/b/c/train"):
        with pytest.raises(UserError, match="is not the name of a split: expected hf://datasets/OWNER/NAME"):
            tables.check_exists(name)
    monkeypatch.setitem(sys.modules, "datasets", None)
    named_sets._on_hub.cache_clear()
    with pytest.raises(UserError, match=r"not installed: pip install '.*\[datasets\]'"):
        tables.check_exists("hf://datasets/me/set/train")


def test_folders_and_files_that_are_wrong_are_named(rows, tmp_path):
    with pytest.raises(UserError, match="saved has the splits train: name one, as .*saved/train"):
        tables.infer_format(tmp_path / "saved")
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "validation.parquet").write_bytes((tmp_path / "rows.parquet").read_bytes())
    (mixed / "more.feather").write_bytes(b"")
    with pytest.raises(UserError, match=r"mixed has both Parquet and Arrow files \(validation.parquet, more"):
        tables.infer_format(mixed)
    for form in ("parquet", "arrow"):
        path = tmp_path / f"cut.{form}"
        path.write_bytes((tmp_path / f"rows.{form}").read_bytes()[:-30])
        with pytest.raises(UserError, match=f"cut.{form} cannot be read as {form} .*is it damaged"):
            list(tables.read_table(path, tables.infer_format(path)))


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_only_the_columns_that_are_used_are_decoded(rows, tmp_path, tokenizer_file, form):
    """Images, years after 9999 and time zones that nobody knows are often in data of others."""
    case = CASES["classification"]
    person = pyarrow.struct({"name": pyarrow.string(), "born": pyarrow.date32()})
    unused = {
        "image": pyarrow.array([{"bytes": b"\xff\xd8", "path": "a.jpg"}] * N),
        "took": pyarrow.array([10**17] * N, pyarrow.duration("s")),
        "when": pyarrow.array([1] * N, pyarrow.timestamp("s", tz="Mars/Olympus")),
        "who": pyarrow.array([{"name": "me", "born": 3_000_000}] * N, person),
    }
    table, path = pyarrow.table(case.plain | unused), tmp_path / f"more.{form}"
    if form == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        with pyarrow.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    assert case.built(tmp_path / "of all", str(path), tokenizer_file) == rows[1]
    row = next(tables.read_table(path, tables.infer_format(path)))
    names = "image image.bytes image.path took when who who.name who.born"
    assert " ".join(row.values) == f"text label {names}"
    assert row["image.path"] == "a.jpg" and row["who.name"] == "me" and "nothing" not in row
    unreadable = {
        "image.bytes": "is not UTF-8",
        "when": "cannot be read .*Mars/Olympus",
        "who.born": "cannot",
    }
    for name, reason in unreadable.items():
        with pytest.raises(UserError, match=rf"more.{form}, row 1: '{name}' {reason}"):
            row.text(name)
