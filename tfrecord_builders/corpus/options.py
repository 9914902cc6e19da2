"""Where a corpus is and how its documents are separated: options and their checks."""

import dataclasses
from collections.abc import Sequence

from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.schema import check_fields


@dataclasses.dataclass(frozen=True)
class CorpusOptions:
    """Which corpus; each field is a flag."""

    input: Sequence[str] = option(
        "Corpus: files, folders (all files in them but hidden ones) and globs. By their names, .jsonl and "
        ".json hold a document on each line, .parquet one in each row, all others are UTF-8 text, one "
        "sentence per line, a blank line between documents; all but parquet may be compressed: .gz, .zst. "
        "A line of text has up to 1 MiB, a document of jsonl or parquet up to 64 MiB. "
        "Archives, tables, PDFs, pictures and the like are refused",
        (),
        group="data",
    )
    tfds_name: str = option("a data set of TensorFlow Datasets, such as wikipedia/20230601.en", "")
    tfds_data_dir: str = option(
        "folder where --tfds_name has been prepared. Default: TensorFlow Datasets' own", ""
    )
    tfds_split: str = option("split of --tfds_name", "train")
    text_field: str = option(
        "field (of jsonl and data sets) or column (of parquet) with the text", "text", group="data"
    )
    documents: str = option(
        "where documents of text files end: at blank lines, or each file or each line is one",
        "blank_lines",
        choices=("blank_lines", "files", "lines"),
    )
    mark_paragraphs: bool = option(
        "write <eop> for a blank line inside of a document, where blank lines do not end documents", True
    )

    def __post_init__(self):
        object.__setattr__(self, "input", tuple(self.input))  # flags have lists, which cannot be hashed

    def check(self) -> None:
        """Raises UserError if an option is missing or out of range."""
        check_fields(self)
        if not self.input and not self.tfds_name:
            raise UserError("there is no corpus: give --input (files, folders, globs) or --tfds_name")
        for path in self.input:
            if not path:  # which would be the working directory
                raise UserError(f"the corpus is {','.join(self.input)!r}, with an empty path: remove a comma")
            if path.startswith(("tfds://", "hf://")):
                raise UserError(
                    f"{path} is a data set, expected files: name one of TensorFlow Datasets by --tfds_name, "
                    "and save one of the Hugging Face hub as jsonl or parquet"
                )
        if not self.text_field:
            raise UserError("text_field is empty, expected the name of the field that holds the text")
