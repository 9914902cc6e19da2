"""The notebooks that are written by code are up to date."""

import json

import pytest

from tests.docs import pages
from tests.docs.generators import notebooks


def test_every_tutorial_is_a_notebook():
    expected = {path.stem for path in notebooks.tutorials()}
    assert {path.stem for path in notebooks.FOLDER.glob("*.ipynb")} == expected, "run `make notebooks`"


@pytest.mark.parametrize("path", notebooks.tutorials(), ids=lambda path: path.stem)
def test_notebooks_are_the_tutorials(path):
    page = pages.read(path)
    text = (notebooks.FOLDER / f"{path.stem}.ipynb").read_text()
    assert text == notebooks.notebook(page), "run `make notebooks`"
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    blocks = [block for block in page.blocks if block.runs]  # which test_pages runs, in this order
    assert ["".join(cell["source"]).removeprefix("%%bash\n") for cell in cells] == [
        block.text.rstrip("\n") for block in blocks
    ]


def test_notebooks_are_valid():
    nbformat = pytest.importorskip("nbformat")
    for path in notebooks.FOLDER.glob("*.ipynb"):
        nbformat.validate(nbformat.read(path, as_version=4))
