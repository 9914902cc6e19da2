"""Where a corpus is and how its documents are told apart: options, their checks and their flags."""

import dataclasses
from collections.abc import Sequence
from typing import Self

from absl import flags

from xlnet_tf import command_line
from xlnet_tf.errors import UserError

BORDERS = ("blank_lines", "files")


@dataclasses.dataclass(frozen=True)
class CorpusOptions:
    """Which corpus; see the flags of the same names."""

    input: Sequence[str] = ()
    tfds_name: str = ""
    tfds_data_dir: str = ""
    tfds_split: str = "train"
    text_field: str = "text"
    documents: str = "blank_lines"
    mark_paragraphs: bool = True

    def __post_init__(self):
        object.__setattr__(self, "input", tuple(self.input))  # flags have lists, which cannot be hashed

    @classmethod
    def from_flags(cls) -> Self:
        """Returns the options that the flags were given."""
        return cls(**{field.name: flags.FLAGS[field.name].value for field in dataclasses.fields(cls)})

    def check(self) -> None:
        """Raises UserError if an option is missing or out of range."""
        if not self.input and not self.tfds_name:
            raise UserError("there is no corpus: give --input (files, folders, globs) or --tfds_name")
        if self.documents not in BORDERS:
            raise UserError(f"documents is {self.documents!r}, expected one of {', '.join(BORDERS)}")
        if not self.text_field:
            raise UserError("text_field is empty, expected the name of the field that holds the text")


def define_corpus_flags() -> None:
    """Defines one flag for each field of CorpusOptions."""
    default = CorpusOptions()
    flags.DEFINE_list(
        "input",
        list(default.input),
        "corpus: files, folders (all files in them but hidden ones) and globs. By their names, .jsonl and "
        ".json hold a document on each line, .parquet one in each row, all others are UTF-8 text, one "
        "sentence per line, a blank line between documents; all but parquet may be compressed: .gz, .zst. "
        "A line of text has up to 1 MiB, a document of jsonl or parquet up to 64 MiB. "
        "Archives, tables, PDFs, pictures and the like are refused",
    )
    flags.DEFINE_string(
        "tfds_name", default.tfds_name, "a data set of TensorFlow Datasets, such as wikipedia/20230601.en"
    )
    flags.DEFINE_string(
        "tfds_data_dir",
        default.tfds_data_dir,
        "folder where --tfds_name has been prepared. Default: TensorFlow Datasets' own",
    )
    flags.DEFINE_string("tfds_split", default.tfds_split, "split of --tfds_name")
    flags.DEFINE_string(
        "text_field",
        default.text_field,
        "field (of jsonl and data sets) or column (of parquet) with the text",
    )
    flags.DEFINE_enum(
        "documents",
        default.documents,
        list(BORDERS),
        "where documents of text files end: at blank lines, or each file is one",
    )
    flags.DEFINE_bool(
        "mark_paragraphs",
        default.mark_paragraphs,
        "write <eop> for a blank line inside of a document, where blank lines do not end documents",
    )
    command_line.require_one_of("input", "tfds_name")
