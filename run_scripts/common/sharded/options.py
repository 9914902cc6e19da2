"""Which corpus is answered, where, and how it is written: the flags of predict, score and embed."""

import dataclasses
import glob
import os

from etils import epath

from tfrecord_builders.common.runners import RunnerOptions, threads_of_machine
from tfrecord_builders.corpus import CorpusOptions
from xlnet_tf import flags, folders
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.schema import check_fields

FORMATS = ("jsonl", "parquet", "tfrecord")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardOptions(RunnerOptions):
    """How the rows of a corpus are answered; each field is a flag."""

    output_format: str = option(
        "of the shards. In parquet and TFRecord, columns are texts: those of the corpus' first row",
        FORMATS[0],
        choices=FORMATS,
    )
    shard_mb: float = option("MB of text in a shard", 4.0, least=0.001, most=1024)
    max_failed: int = option(
        "rows that may fail without the command failing; failed-*.jsonl lists all that did", 0, least=0
    )
    worker_threads: int = option(
        "TensorFlow's threads in a worker; another number may change last digits", 1, least=1, most=1024
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
        """Returns the options with all defaults filled in, and checked."""
        check_fields(self)
        self.check_runner()
        return dataclasses.replace(self, num_workers=self.num_workers or threads_of_machine())

    @property
    def shard_bytes(self) -> int:
        return int(self.shard_mb * 1e6)

    def corpus(self, data: str, text_field: str) -> CorpusOptions:
        """Returns where the corpus is.

        Args:
            data: files, folders and globs, with commas between them; or one file whose name has commas.
            text_field: the column with the text, by which parquet files are cut.

        Raises:
            UserError: there is none.
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


def define_text_flags() -> None:
    """Defines the flags of a command that answers texts, besides those of its `models.TextModel`."""
    flags.flags.DEFINE_string(
        "data",
        "",
        "Corpus: files, folders and globs, separated by commas. A row is a line of text, an object of jsonl, "
        "or a row of csv, tsv or parquet; all but parquet may be .gz or .zst.",
    )
    flags.flags.DEFINE_string("output_dir", "", "Folder for the shards; needed for a corpus.")
    flags.flags.DEFINE_integer("batch_size", 8, "Texts that are read together.", 1)
    flags.define_flags(ShardOptions)


def check_text_flags(values: flags.flags.FlagValues) -> None:
    """Raises UserError if texts are given as well as a corpus, or as well as a folder for its answers."""
    for name in ("data", "tfds_name"):
        if values.text and values[name].value:
            raise UserError(f"--text and --{name} are both given: expected one of them")
    if values.text and values.output_dir:
        raise UserError(
            "--output_dir is given, but answers to --text are printed: to have them written, give the texts "
            "in a file as --data"
        )
    if values.output_dir:  # before TensorFlow is loaded
        folders.claim(values.output_dir, *folders.TAKE_RESULTS, flag="--output_dir")


def is_wanted(values: flags.flags.FlagValues) -> bool:
    """Returns whether a command that answers single files, too, is asked for shards."""
    given = any(values[field.name].present for field in dataclasses.fields(ShardOptions))
    data = values.data or ""
    several = (glob.has_magic(data) or "," in data) and not epath.Path(data).exists()
    return given or several or data.lower().endswith((".parquet", ".zst"))
