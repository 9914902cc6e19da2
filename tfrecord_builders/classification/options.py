"""The settings of the classification builder, and the data set that they describe."""

import dataclasses
from collections.abc import Sequence

from etils import epath

from tfrecord_builders.classification.presets import METRICS, PRESETS, Dataset, SplitSource
from tfrecord_builders.common import tables
from tfrecord_builders.common.example_builder import ExampleOptions
from tfrecord_builders.common.tables import TableFormat
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.schema import check_fields

_FILES = f"train data: {tables.SOURCES}; or folders of .txt files"
_LIKE_TRAIN = "{} data, in a form of --train"
_GENERIC_ONLY = (
    "train", "dev", "test", "text_column", "text_pair_column", "label_column", "id_column", "kind", "labels",
    "label_separator", "format", "header", "delimiter", "quoting", "encoding",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ClassificationOptions(ExampleOptions):
    """What to build; each field is a flag. None means the default that the help states."""

    preset: str | None = option(
        "a well-known set of texts; needs --data_dir", None, choices=tuple(PRESETS), group="data"
    )
    data_dir: str | None = option(
        "folder of the preset's files, under their official names", None, group="data"
    )
    train: str | None = option(_FILES, None, group="data")
    dev: str | None = option(_LIKE_TRAIN.format("dev"), None, group="data")
    test: str | None = option(_LIKE_TRAIN.format("test"), None, group="data")
    text_column: Sequence[str] | None = option(
        "column of the text; several are joined. Default: text", None, group="data"
    )
    text_pair_column: Sequence[str] | None = option(
        "column of the second text, for pairs", None, group="data"
    )
    label_column: Sequence[str] | None = option(
        "column of the label; with --kind=multi_label also several columns of 0 and 1. A test split may lack "
        "it, or have nothing in it. Default: label",
        None,
        group="data",
    )
    id_column: str | None = option("column that names the rows in predictions. Default: their number", None)
    kind: str | None = option(
        "what a label is. Default: classification", None, choices=tuple(METRICS), group="data"
    )
    labels: Sequence[str] | None = option(
        "all labels, in the model's order. Default: those of --train, sorted", None
    )
    label_separator: str | None = option("between several labels in one column. Default: a comma", None)
    format: str | None = option(
        "format of the files. Default: by their names", None, choices=tuple(tables.KINDS)
    )
    header: bool | None = option(
        "csv, tsv: the first line names the columns; without, they are 0, 1, ...", None
    )
    delimiter: str | None = option(
        "csv, tsv: character between columns. Default: a tab in tsv; in csv what the header has (, ; tab |)",
        None,
    )
    quoting: bool | None = option("csv, tsv: double quotes enclose fields. Default: in csv, not in tsv", None)
    encoding: str | None = option("encoding of the files. Default: utf-8", None)
    metrics: Sequence[str] | None = option(
        "what to evaluate; the first decides which checkpoint is best", None
    )
    seq_len: int = option("tokens of an example", 128, least=5, group="examples")
    truncation: str = option("where a text that is too long is cut", "end", choices=("end", "middle"))
    dev_fraction: float | None = option(
        "part of --train to hold out as dev split. Default: the preset's, or 0", None, group="examples"
    )
    train_limit: int = option("training rows to take, at random; 0: all", 0, least=0)
    eval_limit: int = option("rows to take of each other split; 0: all", 0, least=0)
    skip_ragged: bool = option("leave out, and count, rows with too few or many fields", False)
    seed: int = option("random seed for the rows held out or taken", 0, least=0)

    def dataset(self) -> Dataset:
        """Returns the data set to read: the preset, or what the flags describe."""
        check_fields(self)
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise UserError(f"delimiter is {self.delimiter!r}, expected one character, such as ';'")
        dataset = self._described() if self.preset is None else self._preset()
        if self.truncation == "middle" and any(source.text_pair for source in dataset.sources.values()):
            raise UserError("truncation=middle is for single texts: pairs are cut at their ends")
        metrics = tuple(self.metrics or dataset.metrics or METRICS[dataset.kind][:2])
        for metric in metrics:
            if metric not in METRICS[dataset.kind]:
                known = ", ".join(METRICS[dataset.kind])
                raise UserError(f"metric {metric!r} is not for {dataset.kind}, which has {known}")
        fraction = dataset.dev_fraction if self.dev_fraction is None else self.dev_fraction
        if not 0 <= fraction < 1:
            raise UserError(f"dev_fraction is {fraction}, expected 0 to less than 1")
        if any(split.startswith("dev") for split in dataset.sources):
            if self.dev_fraction:
                raise UserError("dev_fraction is for data without a dev split, but there is one")
            fraction = 0.0
        return dataclasses.replace(
            dataset, metrics=metrics, dev_fraction=fraction, skip_ragged=self.skip_ragged
        )

    def _preset(self) -> Dataset:
        if given := [name for name in _GENERIC_ONLY if getattr(self, name) is not None]:
            raise UserError(f"--preset={self.preset} knows its files: leave out --{', --'.join(given)}")
        if self.data_dir is None:
            raise UserError(f"--preset={self.preset} needs --data_dir, the folder of its files")
        dataset = PRESETS[self.preset]
        found = {}
        for split, source in dataset.sources.items():
            plain = epath.Path(self.data_dir) / source.file
            paths = [path for path in (plain, plain.parent / f"{plain.name}.gz") if path.exists()]
            if paths:
                found[split] = dataclasses.replace(source, file=str(paths[0]))
        if not found:
            files = ", ".join(source.file for source in dataset.sources.values())
            raise FileNotFoundError(f"{self.data_dir} has none of the files of {self.preset}: {files}")
        return dataclasses.replace(dataset, sources=found)

    def _described(self) -> Dataset:
        files = {split: getattr(self, split) for split in self.splits}
        kind = self.kind or "classification"
        if self.data_dir is not None or not files:
            raise UserError("give --train (and --dev, --test), or --preset and --data_dir")
        if "train" not in files and not self.labels and kind != "regression":
            raise UserError("without --train, the labels are not known: give --labels")
        self._check_labels(kind)
        label = tuple(self.label_column or ["label"])
        if len(label) > 1 and kind != "multi_label":
            raise UserError(f"several label columns ({', '.join(label)}) are for --kind=multi_label")
        return Dataset(
            sources={
                split: SplitSource(
                    file=file,
                    table=self._table(file),
                    text=tuple(self.text_column or ["text"]),
                    text_pair=tuple(self.text_pair_column or []),
                    label=label,
                    id=self.id_column or "",
                )
                for split, file in files.items()
            },
            kind=kind,
            labels=tuple(self.labels or (label if len(label) > 1 else ())),
            separator=self.label_separator or ",",
        )

    def _check_labels(self, kind: str) -> None:
        """Raises UserError unless --labels, if given, can be the classes of a model."""
        labels = self.labels or ()
        if labels and kind == "regression":
            raise UserError(
                f"--labels ({', '.join(labels)}) are for classes; the labels of regression are numbers"
            )
        if len(set(labels)) < len(labels) or (len(labels) == 1 and kind == "classification"):
            raise UserError(f"--labels are {', '.join(labels)}; expected at least 2, each of them once")

    def _table(self, file: str) -> TableFormat:
        if self.format is None:
            table = tables.infer_format(file)
        else:
            table = TableFormat(self.format, quoting=self.format == "csv")
        names = ("header", "delimiter", "quoting", "encoding")
        given = {name: getattr(self, name) for name in names}
        return dataclasses.replace(table, **{k: v for k, v in given.items() if v is not None})
