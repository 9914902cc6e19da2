"""Invented files for the classification builder, and what it made of them."""

from tfrecord_builders.classification.build import ClassificationOptions, build_classification


def table(path, columns, *rows, delimiter=","):
    """Writes a table, with `columns` as its header; returns its path as a flag has it."""
    path.write_text("".join(delimiter.join(map(str, line)) + "\n" for line in (columns, *rows)))
    return str(path)


def builder(tmp_path, tokenizer_file):
    """Returns a function that builds with given options, by default into tmp_path/records."""

    def build(**options):
        given = {"tokenizer": str(tokenizer_file), "output_dir": str(tmp_path / "records"), "seq_len": 32}
        return build_classification(ClassificationOptions(**given | options))

    return build


def ids_of(example_set):
    return [row["id"] for row in example_set.sidecar()]


def labels_of(example_set):
    return example_set.arrays()["label"].tolist()
