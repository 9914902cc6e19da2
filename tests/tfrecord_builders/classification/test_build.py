"""Classification examples: what is in them, which rows they are of, and what is said of bad data."""

import json

import numpy as np
import pytest

from tests.helpers.records.labelled import ids_of, labels_of, table
from xlnet_tf.errors import UserError
from xlnet_tf.records import example_report
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.packing import pack
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID

TRAIN = [("Ka tomi ren.", "good"), ("Sol du velan.", "bad"), ("Qui bor.", "good"), ("Mi to ka.", "so-so")]
DEV = [("Ren ren.", "bad"), ("Ka.", "good")]
BARE = {"header": False, "text_column": ["0"], "label_column": ["1"]}


@pytest.fixture
def files(tmp_path):
    rows = {"train": TRAIN, "dev": DEV}
    return {name: table(tmp_path / f"{name}.csv", ("text", "label"), *rows[name]) for name in rows}


def test_pairs_and_several_columns(build, tmp_path, tokenizer):
    rows = ("Ka", "tomi", "Ren sol.", "7", 1), ("Du", "ve", "Lan.", "x", 0)
    train = table(tmp_path / "t.tsv", ("title", "body", "answer", "key", "y"), *rows, delimiter="\t")
    columns = {"text_column": ["title", "body"], "text_pair_column": ["answer"], "label_column": ["y"]}
    examples = build(train=train, id_column="key", **columns)["train"]
    packed = pack(tokenizer.encode("Ka tomi"), tokenizer.encode("Ren sol."), seq_len=32)
    np.testing.assert_array_equal(examples.arrays()["input_ids"][0], packed.input_ids)
    assert list(examples.sidecar())[0] == {"id": "7", "text": "Ka tomi", "text_pair": "Ren sol."}
    assert labels_of(examples) == [1, 0]


def test_columns_may_be_separated_by_other_marks_than_commas(build, tmp_path):
    rows = ("ka, to", "bad"), ("mi, ren", "good")
    train = table(tmp_path / "t.csv", *rows, delimiter="#")
    examples = build(train=train, delimiter="#", **BARE)["train"]
    assert labels_of(examples) == [0, 1] and next(examples.sidecar())["text"] == "ka, to"
    for wrong in ("", ";;", '"', "\n"):
        with pytest.raises(UserError, match="delimiter is .*, expected one character, such as ';'"):
            build(train=train, delimiter=wrong)


def test_all_rows_are_checked_before_anything_is_written(build, files, tmp_path):
    for name, content, message in (
        ("dev", b"text,label\nSol.,awful\n", "2: unknown label 'awful'; known are bad, good, so-so"),
        ("dev", b"text,label\nka,\n", "2: no label in column 'label'"),
        ("train", b"text,label\nka,bad\nmi \xff,good\n", r"3: byte 4 \(ff\) is not utf-8"),
    ):
        (tmp_path / f"{name}.csv").write_bytes(content)
        with pytest.raises(UserError, match=rf"{name}\.csv:{message}"):
            build(**files)
        assert not (tmp_path / "records").exists()


def test_ragged_rows_are_refused_or_left_out_and_counted(build, files, tmp_path):
    """Ids for predictions count them, as the rows of the file do."""
    ragged = "text,label\nka,bad\nmi\nsol,good\n"
    for split in ("train", "dev", "test"):
        (tmp_path / f"ragged_{split}.csv").write_text(ragged)
        given = {**files, split: str(tmp_path / f"ragged_{split}.csv")}
        with pytest.raises(UserError, match=rf"ragged_{split}\.csv:3: 1 fields .*--skip_ragged"):
            build(**given)
        examples = build(**given, skip_ragged=True, overwrite=True, labels=["bad", "good", "so-so"])[split]
        ids = ["0", "1" if split == "train" else "2"]
        assert [line["id"] for line in examples.sidecar()] == ids
        assert labels_of(examples) == [0, 1]
        [skipped] = examples.skipped.values()
        assert skipped == {"count": 1, "places": [f"{given[split]}:3"]}


def test_errors_of_other_table_formats_name_the_flags(build, tmp_path):
    for name, content, message, options in (
        ("a.txt", "ka@good\nmi@bad\n", r": the name does not show .*--format \(one of", {"format": "at"}),
        ("a.csv", "ka mi,good\ndu,bad\n", ":2: there is no column .text., only ka mi.*--noheader", BARE),
        ("b.csv", 'text,label\n"ka" mi,good\ndu,bad\n', ":2: bad quoting .*--noquoting", {"quoting": False}),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(UserError, match=name + message):
            build(train=str(tmp_path / name))
        assert build(train=str(tmp_path / name), overwrite=True, **options)["train"].records == 2
    with pytest.raises(UserError, match=r"no column 'text', only 0, 1 \(without a header"):
        build(train=str(tmp_path / "a.csv"), **BARE | {"text_column": ["text"]})


def test_a_preset_with_dev_data_alone_can_be_evaluated(build, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none of the files of sst-2: train.tsv, dev.tsv, test.tsv"):
        build(preset="sst-2", data_dir=str(tmp_path))
    folder = tmp_path / "SST-2"
    folder.mkdir()
    (folder / "dev.tsv").write_text("sentence\tlabel\nka mi\t1\ndu\t0\n")
    built = build(preset="sst-2", data_dir=str(folder))
    assert list(built) == ["dev"] and labels_of(built["dev"]) == [1, 0]


def test_empty_texts_are_left_out_of_training_only(build, files, tmp_path):
    table(tmp_path / "train.csv", ("text", "label"), ("ka", "bad"), (" ", "good"), ("\u0301", "good"))
    table(tmp_path / "dev.csv", ("text", "label"), ("", "bad"), ("ka", "good"))
    built = build(**files)
    assert labels_of(built["train"]) == [0]
    places = [f"{files['train']}:3", f"{files['train']}:4"]
    assert built["train"].skipped == {"empty text": {"count": 2, "places": places}}
    assert labels_of(built["dev"]) == [0, 1] and built["dev"].statistics["empty texts (kept)"] == 1
    assert built["dev"].arrays()["input_ids"][0, -2:].tolist() == [SEP_ID, CLS_ID]
    table(tmp_path / "dev.csv", ("text", "label"), ("", "bad"))
    with pytest.raises(UserError, match="all texts of .*dev.csv are empty: is text the column"):
        build(**files)


def test_long_texts_are_cut_at_the_end_or_in_the_middle(build, tmp_path, tokenizer):
    text = "Ka tomi ren sol du velan qui bor. " * 10
    train = table(tmp_path / "train.csv", ("text", "label"), (text, "bad"), ("ka", "good"))
    ids = tokenizer.encode(text)
    examples = build(train=train)["train"]
    assert examples.arrays()["input_ids"][0].tolist() == [*ids[:30], SEP_ID, CLS_ID]
    assert not example_report.warnings(examples)  # one of two
    assert examples.statistics["texts cut"] == 1 and examples.statistics["pieces cut"] == len(ids) - 30
    assert examples.statistics["pieces of a text, longest"] == len(ids)
    examples = build(train=train, truncation="middle", overwrite=True)["train"]
    assert examples.arrays()["input_ids"][0].tolist() == [*ids[:7], *ids[-23:], SEP_ID, CLS_ID]
    with pytest.raises(UserError, match="truncation=middle is for single texts"):
        build(train=train, text_pair_column=["label"], truncation="middle")
    table(tmp_path / "train.csv", ("text", "label"), (text, "bad"), (f"Sol. {text}", "good"), ("ka", "good"))
    warning = example_report.summary(build(train=train, overwrite=True)).splitlines()[-1]
    assert "texts cut: 2 of 3 in train" in warning and "--seq_len, 32 now" in warning


@pytest.mark.parametrize("name", ["run", "run/spiece.model"])
def test_texts_are_cleaned_as_those_of_the_model_that_the_tokenizer_is_of(
    build, files, tmp_path, tokenizer, caplog, name
):
    run = tmp_path / "run"
    tokenizer.save_pretrained(run)
    cleaning = CleaningConfig(lower=True, normalize_quotes=False)
    (run / "manifest.json").write_text(json.dumps({"cleaning": cleaning.to_dict()}))
    built = build(**files, tokenizer=str(tmp_path / name))["train"]
    assert built.cleaning == cleaning.to_dict() and not caplog.text
    packed = pack(tokenizer.encode(TRAIN[0][0].lower()), seq_len=32)
    np.testing.assert_array_equal(built.arrays()["input_ids"][0], packed.input_ids)
    options = {"lower": False, "output_dir": str(tmp_path / "other")}
    other = build(**files, tokenizer=str(tmp_path / name), **options)["train"]
    assert other.cleaning == {**cleaning.to_dict(), "lower": False}
    assert "reads texts with lower True, and these are built with lower False" in caplog.text


def test_a_dev_split_is_held_out_of_training(build, tmp_path):
    """By the text alone: neither the seed nor other rows move one, and equal ones are on one side."""
    words = ["ka", "tomi", "ren", "sol", "du", "velan", "qui", "bor"]
    rows = [(f"{words[n // 24]} {words[n // 3 % 8]}", n % 2) for n in range(100)]
    train = table(tmp_path / "t.csv", ("text", "label"), *rows)

    def split(**options):
        built = build(**{"train": train, "dev_fraction": 0.2} | options)
        return built, {name: set(ids_of(examples)) for name, examples in built.items()}

    built, ids = split()
    assert 5 <= len(ids["dev"]) <= 40 and sorted(map(int, ids["train"] | ids["dev"])) == list(range(100))
    texts = {name: {row["text"] for row in examples.sidecar()} for name, examples in built.items()}
    assert not texts["train"] & texts["dev"] and not example_report.shared_with_train(built)
    repeated = sum(examples.statistics["inputs equal to an earlier one"] for examples in built.values())
    assert repeated == 100 - 34
    assert split(seed=1)[1] == ids
    more = table(tmp_path / "more.csv", ("text", "label"), *rows, *((f"mi {n}", n % 2) for n in range(50)))
    longer = split(train=more)[1]
    assert all(ids[name] == {n for n in longer[name] if int(n) < 100} for name in ids)
    few = split(train_limit=10, eval_limit=5)[1]
    assert [len(few[name]) for name in ("train", "dev")] == [10, 5]
    assert few["train"] <= ids["train"] and few["dev"] <= ids["dev"]
    with pytest.raises(UserError, match="dev_fraction 0.001 holds out 0 of the 100 rows"):
        split(dev_fraction=0.001)
    with pytest.raises(UserError, match="dev_fraction is for data without a dev split"):
        split(dev=train)


def test_texts_that_a_dev_file_shares_with_training_are_reported(build, tmp_path):
    train = table(tmp_path / "t.csv", ("text", "label"), ("ka ren", 0), ("ka sol", 1), ("ka du", 1))
    dev = table(tmp_path / "d.csv", ("text", "label"), ("ka ren", 1), ("mi ren", 0), ("ka  du", 0))
    [line] = example_report.shared_with_train(build(train=train, dev=dev))
    assert line.startswith("2 of 3 inputs of dev are in train, too")
    assert line in example_report.summary(build(train=train, dev=dev))


def test_text_that_the_tokenizer_cannot_write_is_reported(build, tmp_path):
    known = [("ka tomi ren", n % 2) for n in range(20)]
    train = table(tmp_path / "t.csv", ("text", "label"), *known, ("\u4e2d\u6587", 1), ("\u4e2d ka", 0))
    examples = build(train=train)["train"]
    assert examples.statistics["pieces unknown (<unk>)"] == 2
    assert examples.statistics["texts of <unk> alone"] == 1 and examples.statistics["texts"] == 22
    [warning] = example_report.warnings(examples)
    assert "are <unk>, and 1 of 22 texts have no other" in warning
    assert f"WARNING: {warning}" in example_report.summary({"train": examples})
    many = table(tmp_path / "m.csv", ("text", "label"), *known * 20, ("\u4e2d ka", 0))
    assert not example_report.warnings(build(train=many)["train"])  # less than 1 %
