"""Well-known sets of labelled texts: official file names, columns, labels and metrics, in one table."""

import dataclasses
from collections.abc import Mapping

from tfrecord_builders.common.tables import TableFormat

# What can be evaluated (xlnet_tf/tasks/classification/metrics.py), the usual first.
METRICS: Mapping[str, tuple[str, ...]] = {
    "classification": (
        "accuracy", "macro_f1", "f1", "matthews", "auc", "average_precision", "log_loss",
    ),
    "regression": ("pearson", "spearman", "rmse"),
    "multi_label": ("micro_f1", "macro_f1", "exact_match", "auc"),
}  # fmt: skip
BINARY_METRICS = ("f1", "average_precision")  # of the second of two labels


@dataclasses.dataclass(frozen=True)
class SplitSource:
    """Where the rows of one split are."""

    file: str  # path; in presets relative to the data's folder, where .gz may follow it
    table: TableFormat
    text: tuple[str, ...]  # column of the text; several are joined by a space
    text_pair: tuple[str, ...] = ()  # the same for the second text; (): there is none
    # Column of the label; several: columns of 0 and 1, one for each label; (): unlabelled
    label: tuple[str, ...] = ()
    id: str = ""  # column that identifies a row; "": the rows are numbered from 0


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Splits of labelled texts, and what they are for."""

    sources: Mapping[str, SplitSource]  # by split
    # Names of metrics (xlnet_tf/tasks/classification/metrics.py); the first decides which checkpoint is the
    # best one; (): the usual ones for the kind
    metrics: tuple[str, ...] = ()
    kind: str = "classification"  # classification, regression or multi_label
    # All of them, in the order of the model's outputs; (): taken from the training data
    labels: tuple[str, ...] = ()
    separator: str = ""  # multi_label: what separates the labels in one column
    # Split -> file that GLUE's server expects
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dev_fraction: float = 0.0  # part of the training rows that becomes the dev split, where there is none
    skip_ragged: bool = False  # whether to leave out rows with too few or many fields; else they are errors


_PLAIN_TSV = TableFormat("tsv")
_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")


def _files(source: SplitSource, suffix: str, *splits: str) -> dict[str, SplitSource]:
    """Returns the source of each split, its file named SPLIT + suffix."""
    return {split: dataclasses.replace(source, file=f"{split}{suffix}") for split in splits}


def _glue(name: str, text: str, text_pair: str, label: str, labels: tuple[str, ...], *metrics: str):
    """A task of GLUE with one dev and one test file; regression if it has no labels."""
    train = SplitSource("train.tsv", _PLAIN_TSV, (text,), (text_pair,) if text_pair else (), (label,))
    return Dataset(
        sources=_files(train, ".tsv", "train", "dev")
        | _files(dataclasses.replace(train, label=()), ".tsv", "test"),
        metrics=metrics,
        kind="classification" if labels else "regression",
        labels=labels,
        submissions={"test": f"{name}.tsv"},
    )


def _cola() -> Dataset:
    """Alone in GLUE: no header but in the test file."""
    train = SplitSource("train.tsv", dataclasses.replace(_PLAIN_TSV, header=False), ("3",), (), ("1",))
    return Dataset(
        sources=_files(train, ".tsv", "train", "dev")
        | {"test": SplitSource("test.tsv", _PLAIN_TSV, ("sentence",))},
        metrics=("matthews", "accuracy"),
        labels=_BINARY,
        submissions={"test": "CoLA.tsv"},
    )


def _mnli() -> Dataset:
    """Two dev and two test sets, and GLUE's diagnostic set, which MNLI's model predicts."""
    train = SplitSource("train.tsv", _PLAIN_TSV, ("sentence1",), ("sentence2",), ("gold_label",))
    test = dataclasses.replace(train, label=())
    return Dataset(
        sources={
            **_files(train, ".tsv", "train", "dev_matched", "dev_mismatched"),
            **_files(test, ".tsv", "test_matched", "test_mismatched"),
            "test_diagnostic": dataclasses.replace(test, file="diagnostic.tsv"),
        },
        metrics=("accuracy",),
        labels=("contradiction", "entailment", "neutral"),
        submissions={
            "test_matched": "MNLI-m.tsv",
            "test_mismatched": "MNLI-mm.tsv",
            "test_diagnostic": "AX.tsv",
        },
    )


_ESCAPED = (("\\n", "\n"), ('\\"', '"'))
_BROKEN_LINES = (("\\", " "),)  # AG News: a backslash stands where a line of the news ended


def _zhang(num_labels: int, *text: str, dev_fraction: float, replaced=_ESCAPED) -> Dataset:
    """The csv files of Zhang, Zhao and LeCun (2015): no header, labels from 1, then the texts."""
    table = TableFormat("csv", header=False, quoting=True, replaced=replaced)
    train = SplitSource("train.csv", table, text, (), ("0",))
    return Dataset(
        sources=_files(train, ".csv", "train", "test"),
        metrics=("accuracy",),
        labels=tuple(str(label) for label in range(1, num_labels + 1)),
        dev_fraction=dev_fraction,
    )


def _imdb() -> Dataset:
    """The folder aclImdb of Maas et al. (2011); its unlabelled reviews are left alone."""
    train = SplitSource(
        "train", TableFormat("folders", folders=("neg", "pos")), ("text",), (), ("label",), "id"
    )
    return Dataset(
        sources=_files(train, "", "train", "test"),
        metrics=("accuracy",),
        labels=("neg", "pos"),
        dev_fraction=0.04,
    )


def _chnsenticorp() -> Dataset:
    train = SplitSource("train.tsv", _PLAIN_TSV, ("text_a",), (), ("label",))
    return Dataset(
        sources=_files(train, ".tsv", "train", "dev", "test"),
        metrics=("accuracy", "macro_f1"),
        labels=_BINARY,
    )


def _financial_phrasebank() -> Dataset:
    """One file without splits (Malo et al., 2014), here the sentences that all annotators agree on."""
    table = TableFormat("at", encoding="latin-1")
    return Dataset(
        sources={"train": SplitSource("Sentences_AllAgree.txt", table, ("text",), (), ("label",))},
        metrics=("macro_f1", "accuracy"),
        labels=("negative", "neutral", "positive"),
        dev_fraction=0.2,
    )


def _clicks() -> Dataset:
    """A click log in csv files: what was searched for, the title that was shown, clicked or not."""
    train = SplitSource("train.csv", TableFormat("csv", quoting=True), ("query",), ("title",), ("click",))
    return Dataset(
        sources=_files(train, ".csv", "train", "dev", "test"),
        metrics=("auc", "log_loss", "accuracy"),
        labels=_BINARY,
    )


PRESETS: Mapping[str, Dataset] = {
    "cola": _cola(),
    "sst-2": _glue("SST-2", "sentence", "", "label", _BINARY, "accuracy"),
    "mrpc": _glue("MRPC", "#1 String", "#2 String", "Quality", _BINARY, "accuracy", "f1"),
    "sts-b": _glue("STS-B", "sentence1", "sentence2", "score", (), "pearson", "spearman"),
    "qqp": _glue("QQP", "question1", "question2", "is_duplicate", _BINARY, "accuracy", "f1"),
    "mnli": _mnli(),
    "qnli": _glue("QNLI", "question", "sentence", "label", _ENTAILMENT, "accuracy"),
    "rte": _glue("RTE", "sentence1", "sentence2", "label", _ENTAILMENT, "accuracy"),
    "wnli": _glue("WNLI", "sentence1", "sentence2", "label", _BINARY, "accuracy"),
    "imdb": _imdb(),
    "yelp-2": _zhang(2, "1", dev_fraction=0.01),
    "yelp-5": _zhang(5, "1", dev_fraction=0.01),
    "dbpedia": _zhang(14, "1", "2", dev_fraction=0.01),
    "ag-news": _zhang(4, "1", "2", dev_fraction=0.05, replaced=_BROKEN_LINES),
    "amazon-2": _zhang(2, "1", "2", dev_fraction=0.002),
    "amazon-5": _zhang(5, "1", "2", dev_fraction=0.002),
    "chnsenticorp": _chnsenticorp(),
    "financial-phrasebank": _financial_phrasebank(),
    "clicks": _clicks(),
}
