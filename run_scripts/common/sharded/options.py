"""Which corpus is answered, where, and how the answers are written: flags of predict, score and embed."""

import dataclasses
import glob
import os
from collections.abc import Collection, Sequence

from etils import epath

from tfrecord_builders.common.runners import RunnerOptions, threads_of_machine
from tfrecord_builders.corpus import CorpusOptions
from xlnet_tf import folders
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.schema import check_fields

FORMATS = ("jsonl", "parquet", "tfrecord")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardOptions(RunnerOptions):
    """How the rows of a corpus are answered; each field is a flag."""

    output_format: str = option(
        "format of the shards. In parquet and TFRecord, columns are texts: those of the corpus' first row",
        FORMATS[0],
        choices=FORMATS,
        group="output",
    )
    shard_mb: float = option("MB of text in a shard", 4.0, least=0.001, most=1024)
    max_failed: int = option(
        "rows that may fail without the command failing; failed-*.jsonl lists all that did", 0, least=0
    )
    worker_threads: int = option(
        "threads that a worker computes with; another number may change last digits", 1, least=1, most=1024
    )
    documents: str = option(
        "what a row of a text file is: a line, what stands between blank lines, or the file",
        "lines",
        choices=("lines", "blank_lines", "files"),
    )
    tfds_name: str = option("a prepared data set of TensorFlow Datasets, instead of --data", "")
    tfds_data_dir: str = option("folder of --tfds_name. Default: TensorFlow Datasets' own", "")
    tfds_split: str = option("split of --tfds_name", "train")

    def resolved(self) -> "ShardOptions":
        check_fields(self)
        self.check_runner()
        return dataclasses.replace(self, num_workers=self.num_workers or threads_of_machine())

    @staticmethod
    def are_wanted(data: str, given: Collection[str]) -> bool:
        """Returns whether a command that also answers single files should answer shards, given its flags."""
        several = (glob.has_magic(data) or "," in data) and not epath.Path(data).exists()
        return bool(given) or several or data.lower().endswith((".parquet", ".zst"))

    @property
    def shard_bytes(self) -> int:
        return int(self.shard_mb * 1e6)

    def corpus(self, data: str, text_field: str) -> CorpusOptions:
        """Returns the options of the corpus `data`: files, folders and globs, with commas between them.

        The lengths of `text_field`, the column with the text, decide how parquet files are split.
        """
        names = [data] if os.path.exists(data) else [name for name in data.split(",") if name]
        if not names and not self.tfds_name:
            raise UserError("there is no corpus: give --data (files, folders, globs) or --tfds_name")
        return CorpusOptions(
            input=names,
            text_field=text_field,
            documents=self.documents,
            tfds_name=self.tfds_name,
            tfds_data_dir=self.tfds_data_dir,
            tfds_split=self.tfds_split,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Which texts of flags or of a corpus are answered, and where the answers to a corpus go."""

    text: Sequence[str] | None = None  # each command has the flag with a help of its own
    data: str = option(
        "Corpus: files, folders and globs, separated by commas. A row is a line of text, an object of jsonl, "
        "or a row of csv, tsv or parquet; all but parquet may be .gz or .zst.",
        "",
        group="data",
    )
    output_dir: str = option("Folder for the shards; needed for a corpus.", "", group="output")
    batch_size: int = option("Texts that are read together.", 8, least=1)

    def check(self, shards: ShardOptions) -> None:
        """Raises UserError if texts are given along with a corpus or a folder for its answers."""
        for name, value in (("data", self.data), ("tfds_name", shards.tfds_name)):
            if self.text and value:
                raise UserError(f"--text and --{name} are both given: expected one of them")
        if self.text and self.output_dir:
            raise UserError(
                "--output_dir is given, but answers to --text are printed: to have them written, give the "
                "texts in a file as --data"
            )
        if self.output_dir:  # before TensorFlow is loaded
            folders.claim(self.output_dir, *folders.TAKE_RESULTS, flag="--output_dir")
