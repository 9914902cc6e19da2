"""The report on sets of examples as one page that needs nothing else."""

import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

from run_scripts.demo import page
from tfrecord_builders.inspection import example_sets
from xlnet_tf import files


def write(found: Mapping[str, Any], folder: str, path: str) -> None:
    """Writes the page.

    Args:
        found: of `example_sets.report`.
        folder: what it is about, for the title.
        path: of the page.
    """
    head, *rows = [("", *found), *example_sets.rows(found)]
    with tempfile.TemporaryDirectory() as temporary:
        picture = pathlib.Path(temporary) / "lengths.png"
        example_sets.draw(found, str(picture))
        parts = [
            page.table(head, rows),
            page.section(
                "Lengths and labels", "Tokens of each example as the model reads it, and its labels."
            ),
            page.picture(picture, "How many examples have how many tokens, and each label."),
        ]
    if samples := example_sets.samples(found):
        parts += [
            page.section("Look at these", "The first inputs that other examples have, too."),
            page.table(("What", "Example", "Text"), samples),
        ]
    files.write(path, page.fill(f"Examples in {folder}", "\n".join(parts)))
