"""Links and tables of all pages, as plain files."""

import functools
import json
import pathlib
import re

import pytest

from tests.docs import pages
from tests.docs.generators import notebooks

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+(?:\([^()]*\))?)\)")


@functools.cache
def prose(path: pathlib.Path) -> str:
    """Returns a page without its blocks and its code in lines."""
    text = re.sub(r"^( *)```.*?^\1```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "code", text)


@functools.cache
def anchors(path: pathlib.Path) -> set[str]:
    """Returns the anchors of a page's headings, as code hosts and the site name them."""
    text = re.sub(r"^( *)```.*?^\1```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        number = 1
        while (unique := slug if number == 1 else f"{slug}-{number - 1}") in found:
            number += 1
        found.add(unique)
    return found


def name(path: pathlib.Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere_and_say_what_they_show(path):
    lost = []
    for picture, text, link in _LINK.findall(prose(path)):
        assert text.strip(), f"{link} has no text"
        assert picture or text.lower() not in ("here", "this", "link", "click here"), link
        target, _, anchor = link.partition("#")
        if re.match(r"\w+:", link) or target.startswith("reference/"):  # written when the site is built
            continue
        file = path.parent / target if target else path
        if not file.exists() or not file.resolve().is_relative_to(REPOSITORY):
            lost.append(f"{link}: no such file")
        elif anchor and (file.suffix != ".md" or anchor not in anchors(file)):
            lost.append(f"{link}: no such heading")
    assert not lost


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_markup_follows_the_rules(path):
    if path.parent != REPOSITORY or path.name == "README.md":
        pages.read(path)
    text = prose(path)
    levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]
    assert levels[:1] == [1] and levels.count(1) == 1, "a page has one title"
    jumps = [(one, other) for one, other in zip(levels, levels[1:]) if other > one + 1]
    assert not jumps, "a heading skips a level"


def test_every_page_is_listed_by_an_index_page():
    listed = {DOCS / "index.md"}
    for path in DOCS.rglob("index.md"):
        links = [link.partition("#")[0] for _, _, link in _LINK.findall(prose(path))]
        listed |= {(path.parent / link).resolve() for link in links}
    moved = {path for path in DOCS.rglob("*.md") if path.read_text().startswith("---\norphan: true")}
    assert not [name(path) for path in DOCS.rglob("*.md") if path not in listed | moved]


def test_readme_reads_in_three_minutes():
    readme = (REPOSITORY / "README.md").read_text()
    assert len(readme.splitlines()) <= 200
    for row in re.findall(r"^\|(.*)\|$", readme, re.MULTILINE):
        for cell in re.split(r"(?<!\\)\|", row):
            shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", cell).strip()
            assert len(shown) <= 60, shown


@pytest.mark.parametrize("path", notebooks.tutorials(), ids=lambda path: path.stem)
def test_notebooks_are_the_tutorials(path):
    page = pages.read(path)
    text = (notebooks.FOLDER / f"{path.stem}.ipynb").read_text()
    assert text == notebooks.notebook(page), "run `make notebooks`"
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    blocks = [block for block in page.blocks if block.runs]  # which test_pages runs, in this order
    sources = ["".join(cell["source"]).removeprefix("%%bash\n") for cell in cells]
    assert sources == [block.text.rstrip("\n") for block in blocks]


def test_every_tutorial_is_a_valid_notebook():
    files = {path.stem: path for path in notebooks.FOLDER.glob("*.ipynb")}
    assert files.keys() == {path.stem for path in notebooks.tutorials()}, "run `make notebooks`"
    nbformat = pytest.importorskip("nbformat")
    for path in files.values():
        nbformat.validate(nbformat.read(path, as_version=4))
