"""The report on sets of examples as one page that needs nothing else."""

import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

from run_scripts.common import pages
from tfrecord_builders.inspection import example_sets


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
            pages.table(head, rows),
            pages.section(
                "Lengths and labels", "Tokens of each example as the model reads it, and its labels."
            ),
            pages.picture(picture, "How many examples have how many tokens, and each label."),
        ]
    if samples := example_sets.samples(found):
        parts += [
            pages.section("Look at these", "The first inputs that other examples have, too."),
            pages.table(("What", "Example", "Text"), samples),
        ]
    pages.write(path, f"Examples in {folder}", parts)
