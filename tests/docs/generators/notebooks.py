"""Writes the tutorials as notebooks: docs/notebooks/NAME.ipynb for each page of docs/tutorials.

python -m tests.docs.generators.notebooks
"""

import json
import pathlib
import re

from tests.docs import pages

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"
TUTORIALS, FOLDER = DOCS / "tutorials", DOCS / "notebooks"
_LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)]+\))")


def tutorials() -> list[pathlib.Path]:
    """Returns the pages that become notebooks."""
    return sorted(path for path in TUTORIALS.glob("*.md") if path.stem != "index")


def notebook(page: pages.Page) -> str:
    """Returns a page as a notebook: blocks that run become cells of code, all else stays Markdown."""
    lines, cells, text = page.path.read_text().splitlines(), [], []

    def end_text():
        shown = "\n".join(line for line in text if not pages.is_marker(line)).strip("\n")
        if shown:
            cells.append(
                {"cell_type": "markdown", "metadata": {}, "source": _LINK.sub(r"\1../tutorials/\2", shown)}
            )
        text.clear()

    position = 0
    for block in page.blocks:
        begin, end = block.line - 2, block.line - 1 + block.text.count("\n") + 1
        if not block.runs:
            continue
        text += lines[position:begin]
        end_text()
        source = block.text.rstrip("\n")
        source = f"%%bash\n{source}" if block.language == "bash" else source
        cells.append(
            {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
        )
        position = end
    text += lines[position:]
    end_text()
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
        cell["source"] = cell["source"].splitlines(keepends=True)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main():
    FOLDER.mkdir(exist_ok=True)
    for path in tutorials():
        (FOLDER / f"{path.stem}.ipynb").write_text(notebook(pages.read(path)))


if __name__ == "__main__":
    main()
