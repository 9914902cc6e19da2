"""Well-known sets of texts: their official files, invented and real."""

import gzip

import numpy as np
import pytest

from tests.helpers.records.labelled import ids_of, labels_of, table
from tfrecord_builders.classification.presets import PRESETS
from xlnet_tf.text.packing import pack


def glue(folder, name, *rows):
    """Writes a file of a task of GLUE, as it comes: no quotes around anything. Here | is a tab."""
    (folder / name).write_text("".join(row.replace("|", "\t") + "\n" for row in rows))


PARSES = "sentence1_binary_parse|sentence2_binary_parse|sentence1_parse|sentence2_parse"
MNLI_TEST = f"index|promptID|pairID|genre|{PARSES}|sentence1|sentence2"
STSB_TEST = "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
STSB_ROW, MRPC_IDS = "0|g|f|2012|1|none|none|ka|mi", "#1 ID|#2 ID|#1 String|#2 String"
PAIR, SENTENCES = "index|question|sentence", "index|sentence1|sentence2"
OFFICIAL = {
    # preset -> header of the training file, a row of it, header of the test file, a row of it
    "sst-2": ("sentence|label", "ka|1", "index|sentence", "0|ka"),
    "mrpc": (f"\ufeffQuality|{MRPC_IDS}", '1|702|709|ka|the " mi', f"index|{MRPC_IDS}", "0|108|109|ka|mi"),
    "sts-b": (f"{STSB_TEST}|score", f"{STSB_ROW}|3.800", STSB_TEST, STSB_ROW),
    "qqp": (
        "id|qid1|qid2|question1|question2|is_duplicate",
        "133273|213221|213222|ka|mi|1",
        "id|question1|question2",
        "0|ka|mi",
    ),
    "qnli": (f"{PAIR}|label", "0|ka|mi|not_entailment", PAIR, "0|ka|mi"),
    "rte": (f"{SENTENCES}|label", "0|ka|mi|not_entailment", SENTENCES, "0|ka|mi"),
    "wnli": (f"{SENTENCES}|label", "0|ka|mi|1", SENTENCES, "0|ka|mi"),
}


@pytest.mark.parametrize("preset", OFFICIAL)
def test_tasks_of_glue(build, tmp_path, tokenizer, preset):
    train_header, train_row, test_header, test_row = OFFICIAL[preset]
    glue(tmp_path, "train.tsv", train_header, train_row)
    glue(tmp_path, "dev.tsv", train_header, train_row, train_row)
    glue(tmp_path, "test.tsv", test_header, test_row)
    built = build(preset=preset, data_dir=str(tmp_path))
    assert {name: examples.records for name, examples in built.items()} == {"train": 1, "dev": 2, "test": 1}
    settings = built["test"].settings
    assert settings["submissions"] == {"test": f"{preset.upper()}.tsv"} and not settings["labelled"]
    if preset == "sts-b":
        assert labels_of(built["dev"]) == [np.float32(3.8)] * 2
    else:
        assert labels_of(built["dev"]) == [1, 1] and len(settings["labels"]) == 2
    second = [] if preset == "sst-2" else ["mi"]
    packed = pack(tokenizer.encode("ka"), *map(tokenizer.encode, second), seq_len=32)
    np.testing.assert_array_equal(built["test"].arrays()["input_ids"][0], packed.input_ids)


def test_cola_has_no_header_but_in_its_test_file(build, tmp_path):
    glue(tmp_path, "train.tsv", "gj04|1||Ka tomi.", "gj04|0|*|Mi.")
    glue(tmp_path, "dev.tsv", "gj04|1||Sol.")
    glue(tmp_path, "test.tsv", "index|sentence", "0|Du.")
    built = build(preset="cola", data_dir=str(tmp_path))
    assert labels_of(built["train"]) == [1, 0] and labels_of(built["test"]) == [-1]
    texts = {name: [row["text"] for row in examples.sidecar()] for name, examples in built.items()}
    assert texts == {"train": ["Ka tomi.", "Mi."], "dev": ["Sol."], "test": ["Du."]}
    assert built["dev"].settings["metrics"] == ["matthews", "accuracy"]
    assert built["test"].settings["submissions"] == {"test": "CoLA.tsv"}


def test_mnli_has_two_of_each_and_the_diagnostic_set(build, tmp_path):
    row, voters = "0|1n|1|g|p|p|p|p|ka|mi", "label1|label2|label3|label4|label5"
    glue(tmp_path, "train.tsv", f"{MNLI_TEST}|label1|gold_label", f"{row}|neutral|entailment")
    for name in ("matched", "mismatched"):
        judged = row + 5 * "|neutral" + "|contradiction"
        glue(tmp_path, f"dev_{name}.tsv", f"{MNLI_TEST}|{voters}|gold_label", judged)
        glue(tmp_path, f"test_{name}.tsv", MNLI_TEST, row)
    glue(tmp_path, "diagnostic.tsv", SENTENCES, "0|ka|mi")
    built = build(preset="mnli", data_dir=str(tmp_path))
    assert list(built) == list(PRESETS["mnli"].sources)
    assert labels_of(built["train"]) == [1] and labels_of(built["dev_mismatched"]) == [0]
    names = {"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "test_diagnostic": "AX.tsv"}
    assert built["test_matched"].settings["submissions"] == names


def test_imdb_folders(build, tmp_path):
    for split in ("train", "test"):
        for label in ("neg", "pos", "unsup"):
            for number in range(3):
                path = tmp_path / split / label / f"{number}_{number + 1}.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"Ka tomi<br />{label}")
    built = build(preset="imdb", data_dir=str(tmp_path), dev_fraction=0)
    assert labels_of(built["train"]) == [0, 0, 0, 1, 1, 1] and list(built) == ["train", "test"]
    assert ids_of(built["test"])[-1] == "pos/2_3"


@pytest.mark.parametrize("preset", ["yelp-2", "yelp-5", "dbpedia", "amazon-2", "amazon-5", "ag-news"])
def test_the_csv_files_of_zhang(build, tmp_path, preset):
    """Lines of AG's news end at backslashes, next to any letter, n too: they were wrapped early."""
    labels = PRESETS[preset].labels
    title = [] if preset.startswith("yelp") else ["Mi \\n du"]
    fields = [*title, 'Ka \\""tomi\\"", ren']
    expected = 'Mi \n du Ka "tomi", ren' if title else 'Ka "tomi", ren'
    if preset == "ag-news":
        fields = ['Oil and ""Ka""', "worries\\about a tomi\\not \\$5"]
        expected = 'Oil and "Ka" worries about a tomi not  $5'
    text = "".join(",".join(f'"{field}"' for field in (label, *fields)) + "\n" for label in labels)
    if preset == "ag-news":  # numbers stand for its labels
        text = "".join(",".join(f'"{field}"' for field in (n, *fields)) + "\n" for n in range(1, 5))
    (tmp_path / "test.csv").write_text(text)
    (tmp_path / "train.csv.gz").write_bytes(gzip.compress(text.encode()))
    built = build(preset=preset, data_dir=str(tmp_path), dev_fraction=0)
    assert labels_of(built["train"]) == list(range(len(labels))) == labels_of(built["test"])
    assert {row["text"] for row in built["train"].sidecar()} == {expected}


def test_clicks(build, tmp_path):
    header = ("query", "title", "click")
    table(tmp_path / "train.csv", header, ("ka", '"Mi, du"', 1), ("ka", "sol", 0))
    table(tmp_path / "dev.csv", header, ("ka", "mi", 0))
    built = build(preset="clicks", data_dir=str(tmp_path))
    assert labels_of(built["train"]) == [1, 0] and built["dev"].settings["metrics"][0] == "auc"
    assert list(built["train"].sidecar())[0] == {"id": "0", "text": "ka", "text_pair": "Mi, du"}


@pytest.mark.parametrize(
    ("preset", "data", "model", "dev", "metric"),
    [
        ("sts-b", "glue/STS-B", "xlnet_cased", 500, "pearson"),
        ("chnsenticorp", "chnsenticorp", "xlnet_chinese", 500, "accuracy"),
        ("financial-phrasebank", "financial_phrasebank", "xlnet_cased", 456, "macro_f1"),
    ],
)
def test_real_data(build, shared, preset, data, model, dev, metric):
    files = {"data_dir": shared(f"data/{data}"), "tokenizer": shared(f"data/{model}/spiece.model")}
    limits = {"train_limit": 500, "eval_limit": 500, "seq_len": 64}
    built = build(preset=preset, **{name: str(path) for name, path in files.items()}, **limits)
    assert {name: examples.records for name, examples in built.items()} == {"train": 500, "dev": dev}
    assert built["dev"].settings["metrics"][0] == metric
    for examples in built.values():
        if labels := examples.settings["labels"]:
            assert set(labels_of(examples)) == set(range(len(labels)))
        else:
            assert 0 <= min(labels_of(examples)) < 1 and 4 < max(labels_of(examples)) <= 5
