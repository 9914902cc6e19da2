"""What all builders of examples have in common: commands, messages, old sets, a dev split held out."""

import pathlib
import shutil
import sys

import pytest

from run_scripts.train_tokenizer import train
from tests.helpers.commands import run_in_fork
from tests.helpers.records import builders
from tests.helpers.records.builders import ARTICLE, CLASSES, GOOD, OWN, build, contents, question, write
from tests.helpers.records.labelled import builder, table
from tests.text.test_tokenizer import with_bytes
from tfrecord_builders import corpus
from tfrecord_builders.pretraining.build import build_sets
from tfrecord_builders.pretraining.options import PretrainingOptions
from xlnet_tf.errors import UserError
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.records.passages import Passage
from xlnet_tf.text.cleaning import CleaningConfig

PAIR_COLUMNS = "query\tpassage\trelevance\n"
NOWHERE, TAGGED = question("a?", "nowhere", 0), {"tokens": ["ka"], "tags": ["O"]}


def classification(**options):
    return "classification", {"train": CLASSES, **options}


def regression(rows):
    return classification(train=f"text,label\n{rows}", kind="regression")


def tagging(train="ka B-X\n", **options):
    return "tagging", {**({"train": train} if train else {}), **options}


def race(*rows, **options):
    return "race", {"train": [OWN, *rows], **options}


def ranking(train, **options):
    return "ranking", {"train": train, **options}


WRONG = [
    (classification(kind="ranking"), "kind is 'ranking', expected one of classification, regression, multi"),
    (classification(metrics=["bleu"]), "metric 'bleu' is not for classification, which has accuracy"),
    (classification(metrics=["f1"]), "f1 needs two labels, here are 3"),
    (classification(format="xml"), "format is 'xml', expected one of csv"),
    (classification(label_column=["a", "b"]), r"several label columns \(a, b\) are for --kind=multi_label"),
    (classification(text_column=["body"]), r"train\.csv:2: there is no column 'body', only text, label"),
    (classification(labels=["bad", "good"]), r"train\.csv:5: unknown label 'so-so'; known are bad, good"),
    (classification(labels=["bad", "good", "bad"]), "are bad, good, bad; expected at least 2, each of"),
    (classification(labels=["1", "2"], kind="regression"), r"--labels \(1, 2\) are for classes"),
    (regression("Ka.,3.4e38\nDu.,1e39\n"), r"train\.csv:3: the label is '1e39', expected at most 3.403e\+38"),
    (regression("Ka.,-3.5e38\n"), r"train\.csv:2: the label is '-3.5e38', expected at most 3.4"),
    (regression("Ka.,many\n"), r"train\.csv:2: the label is 'many', expected a number"),
    *(
        (classification(train=[{"text": "a", "label": flags}], kind="multi_label"), "1: .* names")
        for flags in ([0, 1, 0], [1.0, 1.0, 0.0], [False, False, True], ["True", "False", "True"])
    ),
    (classification(train=[{"text": "ka", "label": ["a", "b"]}]), r"several labels .*--kind=multi_label"),
    (
        classification(train=[{"text": "ka", "label": [[0, 2, "PER"]]}]),
        "entities are for the builder tagging",
    ),
    (classification(seq_len=2), "seq_len is 2"),
    (classification(preset="sst-2"), "--preset=sst-2 knows its files: leave out --train"),
    (classification(data_dir="glue"), "give --train .* or --preset and --data_dir"),
    (classification(train="text,label\nka,good\n"), "only the label good in column 'label'; expected at"),
    (("classification", {"test": CLASSES}), "without --train, the labels are not known: give --labels"),
    (("classification", {"preset": "sst-2"}), "needs --data_dir"),
    (tagging(dev="ka B-X\n\nto O\nmi I-Y\n"), r"dev.txt:4: unknown type 'Y'; known are X"),
    (tagging(dev="ka\nto\n"), r"dev.txt:1: no tags"),
    (tagging(test=[{"text": "ka"}, {"tokens": ["to"], "tags": ["O"]}]), r"jsonl:2: tags, but"),
    (tagging("\n\n-DOCSTART- O\n"), r"no sentences in .*train.txt"),
    (tagging("ka O\n"), r"no entities in .*train.txt"),
    (tagging("ka O\nto N\n"), r"train.txt:2: the tag is 'N', expected O, .* column \(--tag_column"),
    (tagging([{"tokens": ["ka", "to"], "tags": [0, 3]}]), "jsonl:1: the tag is '0', .*for numbers write"),
    (tagging([{"tokens": ["ka"], "ner": [1]}]), r"fields tokens, ner\. .*--tags_column.*for numbers"),
    (tagging(dev=[TAGGED], tags_column="labels"), r"dev.jsonl:1: no tags .*'labels' \(--tags_column"),
    (tagging([{"text": "ka", "spans": []}]), r"train.jsonl:1: no tags among the fields text, spans"),
    (tagging("ka I-X\n", repair=False), r"train.txt:1: I-X is not allowed"),
    (tagging("", test="ka\n"), "give --types"),
    (tagging(types=["X", "Y", "X"]), "--types are 'X', 'Y', 'X'; expected .* once"),
    (tagging(stride=23), "stride is 23, expected 1 to 22"),
    (tagging(scheme="bieo"), "scheme is 'bieo'"),
    (race({**OWN, "answer": "D"}), r"train.jsonl:2: the answer is 'D', expected A to C"),
    (race({**OWN, "answer": -1}), "train.jsonl:2: no answer, expected one for each training question"),
    (race({**OWN, "options": "abc"}), r"train.jsonl:2: options is 'abc', expected a list"),
    (race({"context": "Ka.", "options": ["a", "b", "c"]}), r"train.jsonl:2.*question"),
    (race({**ARTICLE, "options": ["tomi", "velan"]}), r"train.jsonl:2 question 1: options are tomi"),
    (race({**ARTICLE, "options": [["a", 1], []]}), r"train.jsonl:2 question 1: .* expected a list"),
    (race({**ARTICLE, "answers": ["A"]}), r"train.jsonl:2: 2 questions, 2 lists of options and 1 answers"),
    (race(max_qa_len=128), "max_qa_len is 128, expected 1 to 44"),
    (ranking("query\ttext\trelevance\nka\tto\t1\n"), r"train.tsv:2.*'passage'.*query, text, relevance"),
    (ranking(PAIR_COLUMNS + "ka\tto\tyes\n"), r"train.tsv:2: the relevance is 'yes'"),
    (ranking(PAIR_COLUMNS + "ka\tto\t-1\n"), r"train.tsv:2: the relevance is '-1'"),
    (ranking(PAIR_COLUMNS + "ka\tto\t1\nka\tmi\n"), r"train.tsv:3: 2 fields where there are 3"),
    (ranking(f"query_id\t{PAIR_COLUMNS}1\tka\tto\t1\n1\tmi\tto\t1\n"), "tsv:3: query 1 is 'mi', but 'ka' in"),
    (ranking(PAIR_COLUMNS), r"train.tsv gives no examples: it is empty"),
    (ranking(PAIR_COLUMNS + "ka\tto\t0\n"), r"no examples: query without a relevant passage \(1\)"),
    (("ranking", {"dev": "/x", "format": "msmarco"}), "format is 'msmarco', expected one of table"),
    (("ranking", {"dev": "/x", "format": "trec"}), "needs --collection and --run"),
    (("ranking", {"train": "/x", "format": "trec", "collection": "c", "run": "r"}), "needs --qrels"),
    (("ranking", {"dev": "/x", "run": "r"}), "are for format=trec and beir, not table"),
    (("ranking", {"dev": "/x", "max_query_len": 29}), "max_query_len is 29, expected 1 to 28"),
    (("squad", {"dev": "/x", "seq_len": 20, "max_question_len": 17}), "question_len is 17, expected 1 to 16"),
    (("squad", {"dev": "/x", "segment_len": 15}), "segment_len is 15, expected a divisor of seq_len 40"),
    (("squad", {"dev": "/x", "segment_len": 10}), "len is 8, expected 1 to 6, so that segment_len 10"),
    (("squad", {"train": [NOWHERE]}), r"train.json gives no examples: answer not in the passage \(1\)"),
]


@pytest.mark.parametrize(
    ("wrong", "message"), WRONG, ids=lambda value: value[0] if type(value) is tuple else ""
)
def test_wrong_input_is_an_error_and_no_set(tmp_path, tokenizer_file, wrong, message):
    builder, options = wrong
    with pytest.raises(UserError, match=message):
        build(builder, tmp_path, tokenizer_file, **options)
    last = max({"train", "dev", "test"} & options.keys(), key=("train", "dev", "test").index, default="train")
    assert not (tmp_path / "records" / last / "manifest.json").exists()


@pytest.mark.parametrize("builder", GOOD)
def test_a_set_needs_data_that_are_there_and_a_tokenizer(tmp_path, tokenizer_file, builder):
    """All of it is looked for before any split is written."""
    no_data = "give --train" if builder == "classification" else "no data: give --train"
    with pytest.raises(UserError, match=no_data):
        build(builder, tmp_path, tokenizer_file)
    with pytest.raises(FileNotFoundError, match="dve.csv"):
        build(builder, tmp_path, tokenizer_file, train=GOOD[builder], dev=str(tmp_path / "dve.csv"))
    with pytest.raises(FileNotFoundError, match="none.model does not exist"):
        build(builder, tmp_path, tmp_path / "none.model", train=GOOD[builder])
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize("builder", GOOD)
def test_the_command_prints_a_table_or_what_is_wrong(tmp_path, tokenizer_file, builder):
    files = [f"--train={write(builder, tmp_path, 'train', GOOD[builder])}", f"--tokenizer={tokenizer_file}"]
    command = [f"tfrecord_builders.{builder}", *files, f"--output_dir={tmp_path / 'records'}"]
    good = run_in_fork(*command)
    length = ExampleSet.load(tmp_path / "records/train").seq_len
    assert good.returncode == 0 and "tokens of an example" in good.stdout and str(length) in good.stdout
    bad = run_in_fork(*command, "--seq_len=5")
    assert bad.returncode == 1 and bad.stderr.startswith("ERROR: ") and "5" in bad.stderr


@pytest.mark.parametrize(
    ("builder", "train"),
    [
        ("squad", GOOD["squad"]),
        ("tagging", [{"text": "ka to", "entities": [{"start": 0, "end": 2, "label": "X"}]}]),
    ],
)
def test_offsets_need_a_tokenizer_without_byte_fallback_and_the_old_set_stays(
    tmp_path, tokenizer_file, tokenizer, builder, train
):
    build(builder, tmp_path, tokenizer_file, train=train)
    (tmp_path / "bytes.model").write_bytes(with_bytes(tokenizer))
    with pytest.raises(UserError, match=r"bytes.model has byte fallback.*--tokenizer"):
        build(builder, tmp_path, tmp_path / "bytes.model", train=train)
    assert ExampleSet.load(tmp_path / "records/train").records


ROWS = [f"{a} {b}" for a in ("ka", "to", "mi", "ren") for b in ("sol", "du", "ve", "bor")]
MANY = {
    "race": [OWN | {"context": text} for text in ROWS for _ in range(2)],
    "ranking": "query\tpassage\trelevance\n" + "".join(f"{q}\tto\t1\n{q}\tmi\t0\n" for q in ROWS),
    "squad": [({"context": text, "question": "Ka?", "answer": text[:2]}) for text in ROWS],
    "tagging": [{"tokens": text.split(), "tags": ["B-X", "O"]} for text in ROWS],
}


def path_of(folder):
    return str(next(folder.glob("train.*")))


def texts_of(examples):
    """What decides the side of each example."""
    rows = list(examples.sidecar())
    if examples.task == "squad":
        return [passage.text for passage in Passage.read_all(examples.folder)]
    return [row["query"] if "query" in row else row["parts"][0]["text"] for row in rows]


@pytest.mark.parametrize("builder", MANY)
def test_dev_is_held_out_by_the_text_alone(builder, tmp_path, tokenizer_file):
    content = MANY[builder]
    if builder == "squad":
        content = builders.jsonl(tmp_path / "train.jsonl", content)
    sets = build(builder, tmp_path, tokenizer_file, train=content, dev_fraction=0.3)
    assert list(sets) == ["train", "dev"] and 0 < sets["dev"].records < sets["train"].records
    (tmp_path / "all").mkdir()
    whole = build(builder, tmp_path / "all", tokenizer_file, train=path_of(tmp_path))
    assert sets["train"].records + sets["dev"].records == whole["train"].records
    if builder != "race":
        train, dev = (texts_of(sets[name]) for name in ("train", "dev"))
        assert not set(train) & set(dev) and set(train) | set(dev) == set(texts_of(whole["train"]))
    with pytest.raises(UserError, match="dev_fraction is for a train split without a dev split"):
        build(builder, tmp_path, tokenizer_file, train=path_of(tmp_path), dev=content, dev_fraction=0.3)


def digests(root: pathlib.Path) -> dict[str, str]:
    return {path.parent.name: ExampleSet.load(path).digest for path in root.glob("*/manifest.json")}


@pytest.fixture
def build_rows(tmp_path, tokenizer_file):
    """Builds classification sets of as many rows as are given, in tmp_path/set."""

    def build_rows(seq_len=32, overwrite=False, **rows):
        texts = {split: [(f"ka mi {n}", n % 2) for n in range(count)] for split, count in rows.items()}
        given = {split: table(tmp_path / f"{split}.csv", ("text", "label"), *texts[split]) for split in rows}
        given |= {"output_dir": str(tmp_path / "set"), "seq_len": seq_len, "overwrite": overwrite}
        builder(tmp_path, tokenizer_file)(labels=["0", "1"], **given)
        return digests(tmp_path / "set")

    return build_rows


def test_sets_with_other_settings_are_replaced_on_request_only(build_rows, tmp_path):
    """Else train and dev would be of 64 tokens, and the old test of 32."""
    first = build_rows(train=9, dev=4, test=5)
    before = contents(tmp_path / "set")
    with pytest.raises(UserError, match=r"other settings.*--overwrite.*\n  dev: seq_len: 32 there, 64 now\n"):
        build_rows(train=9, dev=4, seq_len=64)
    assert contents(tmp_path / "set") == before
    assert build_rows(train=9, dev=4, test=5) == first  # the same command builds them again
    assert sorted(build_rows(train=9, dev=4, seq_len=64, overwrite=True)) == ["dev", "train"]


def test_splits_are_added_and_new_training_data_come_with_all_splits(build_rows, tmp_path):
    first = build_rows(train=9, dev=4)
    assert build_rows(test=5) | first == digests(tmp_path / "set")
    assert build_rows(test=6)["train"] == first["train"]  # of other data to predict for
    before = contents(tmp_path / "set")
    with pytest.raises(UserError, match="a new train next to the old dev, test: build dev, test, too"):
        build_rows(train=8)
    assert contents(tmp_path / "set") == before
    assert sorted(build_rows(train=8, dev=4, test=6)) == ["dev", "test", "train"]


def test_a_build_that_fails_leaves_no_old_split_next_to_new_ones(build_rows, tmp_path, monkeypatch):
    build_rows(train=9, dev=4)
    monkeypatch.setattr(ExampleWriter, "count_lengths", lambda *_: sys.exit("killed"))
    with pytest.raises(SystemExit):
        build_rows(train=8, dev=4)
    assert not digests(tmp_path / "set")
    monkeypatch.undo()
    assert sorted(build_rows(train=8, dev=4)) == ["dev", "train"]


def test_runs_next_to_splits_are_no_splits(build_rows, tmp_path):
    build_rows(train=9, dev=4)
    run = tmp_path / "set" / "run"
    shutil.copytree(tmp_path / "set" / "train", run)
    (run / "ckpt-5.index").write_text("")
    before = contents(run)
    build_rows(train=9, dev=4, seq_len=64, overwrite=True)
    assert contents(run) == before


TEXT = "\u00dcber die sch\u00f6ne Br\u00fccke"
ASKED = {"id": "1", "question": TEXT[9:], "answers": [{"text": "die", "answer_start": 5}]}
MARKED = {
    "classification": [{"text": TEXT, "label": "a"}, {"text": "plain", "label": "b"}],
    "race": [{"context": TEXT[:8], "question": TEXT[9:15], "options": ["da", TEXT[16:]], "answer": 1}],
    "ranking": [
        {"query": "Wo?", "passage": TEXT, "relevance": 1},
        {"query": "Wo?", "passage": "plain", "relevance": 0},
    ],
    "squad": [],
    "tagging": [{"text": TEXT, "entities": [{"start": 16, "end": 22, "label": "LOC"}]}],
}


def build_any(name, folder, tokenizer, keep_accents):
    if name in MARKED:
        rows = MARKED[name] or builders.squad_file(folder / "squad.json", ASKED, context=TEXT[:8])
        build(name, folder, tokenizer, train=rows, keep_accents=keep_accents, overwrite=True)
        return
    text = [builders.jsonl(folder / "rows.jsonl", [{"text": f"{TEXT}\n" * 9}])]
    if name == "tokenizer":
        cleaning, prefix = CleaningConfig(keep_accents=keep_accents), folder / f"kept {keep_accents}/spiece"
        train(corpus.CorpusOptions(input=text), prefix, 32, cleaning=cleaning)
    else:
        files = {"input": text, "tokenizer": str(tokenizer), "output_dir": str(folder / "records")}
        options = {"seq_len": 32, "stream_segments": 1, "num_workers": 1, "overwrite": True}
        build_sets(PretrainingOptions(**files, **options, keep_accents=keep_accents))


@pytest.mark.parametrize("name", [*MARKED, "pretraining", "tokenizer"])
def test_builders_warn_before_they_start(name, tmp_path, small_tokenizer, caplog):
    (tmp_path / "used.model").write_bytes(small_tokenizer.model_proto)
    for keep_accents in (False, True):
        caplog.clear()
        build_any(name, tmp_path, tmp_path / "used.model", keep_accents)
        warnings = [record.getMessage() for record in caplog.records if "accents" in record.getMessage()]
        assert len(warnings) == (not keep_accents)
        for warning in warnings:
            assert "\u00dcber -> Uber, sch\u00f6ne -> schone, Br\u00fccke -> Brucke" in warning
