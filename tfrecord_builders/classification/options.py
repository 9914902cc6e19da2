"""The settings of the classification builder, and what data they describe."""

import dataclasses
from collections.abc import Sequence

from etils import epath

from tfrecord_builders.classification.presets import METRICS, PRESETS, Dataset, Source
from tfrecord_builders.common import tables
from tfrecord_builders.common.tables import TableFormat
from xlnet_tf.errors import UserError
from xlnet_tf.text.cleaning import CleaningConfig

TRUNCATIONS = ("end", "middle")
_GENERIC_ONLY = (
    "train", "dev", "test", "text_column", "text_pair_column", "label_column", "id_column", "kind", "labels",
    "label_separator", "format", "header", "quoting", "encoding",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ClassificationOptions:
    """What to build; see the flags of the same names. None means the default that the help states."""

    tokenizer: str
    output_dir: str
    preset: str | None = None
    data_dir: str | None = None
    train: str | None = None
    dev: str | None = None
    test: str | None = None
    text_column: Sequence[str] | None = None
    text_pair_column: Sequence[str] | None = None
    label_column: Sequence[str] | None = None
    id_column: str | None = None
    kind: str | None = None
    labels: Sequence[str] | None = None
    label_separator: str | None = None
    format: str | None = None
    header: bool | None = None
    quoting: bool | None = None
    encoding: str | None = None
    metrics: Sequence[str] | None = None
    seq_len: int = 128
    truncation: str = "end"
    dev_fraction: float | None = None
    train_limit: int = 0
    eval_limit: int = 0
    skip_ragged: bool = False
    lower: bool = False
    keep_accents: bool = False
    seed: int = 0

    @property
    def cleaning(self) -> CleaningConfig:
        return CleaningConfig(lower=self.lower, keep_accents=self.keep_accents)

    def dataset(self) -> Dataset:
        """Returns what is to be read: the preset, or what the flags describe.

        Raises:
            UserError: options are wrong or do not fit together.
            FileNotFoundError: the preset's files are missing.
        """
        if self.truncation not in TRUNCATIONS:
            raise UserError(f"truncation is {self.truncation!r}, expected {' or '.join(TRUNCATIONS)}")
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
        return dataclasses.replace(dataset, metrics=metrics, dev_fraction=fraction)

    def _preset(self) -> Dataset:
        if self.preset not in PRESETS:
            raise UserError(f"there is no preset {self.preset!r}, only {', '.join(PRESETS)}")
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
        files = {name: getattr(self, name) for name in ("train", "dev", "test") if getattr(self, name)}
        kind = self.kind or "classification"
        if self.data_dir is not None or not files:
            raise UserError("give --train (and --dev, --test), or --preset and --data_dir")
        if kind not in METRICS:
            raise UserError(f"kind is {kind!r}, expected one of {', '.join(METRICS)}")
        if "train" not in files and not self.labels and kind != "regression":
            raise UserError("without --train, the labels are not known: give --labels")
        self._check_labels(kind)
        label = tuple(self.label_column or ["label"])
        if len(label) > 1 and kind != "multi_label":
            raise UserError(f"several label columns ({', '.join(label)}) are for --kind=multi_label")
        return Dataset(
            sources={
                split: Source(
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
        elif self.format in tables.KINDS:
            table = TableFormat(self.format, quoting=self.format == "csv")
        else:
            raise UserError(f"format is {self.format!r}, expected one of {', '.join(tables.KINDS)}")
        given = {"header": self.header, "quoting": self.quoting, "encoding": self.encoding}
        return dataclasses.replace(table, **{k: v for k, v in given.items() if v is not None})
