"""Writes docs/reference/python.md from the docstrings of what `xlnet_tf` offers, without importing it."""

import logging
import pathlib
import re

import griffe
from griffe2md import render_object_docs

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
_OTHER_SECTION = r"(?s)<details[^>]*>\n<summary>(.*?)</summary>\n\n(.*?)\n\n</details>"
STYLE = {
    "docstring_section_style": "list",
    "heading_level": 2,
    "inherited_members": True,
    "members_order": "source",
    "show_bases": False,
    "show_if_no_docstring": False,
    "show_object_full_path": False,
    "show_root_full_path": False,
    "summary": False,
}


def write() -> None:
    """Writes the page."""
    logging.getLogger("griffe").setLevel(logging.ERROR)  # it warns of "a, b: both arguments"
    package = griffe.load("xlnet_tf", search_paths=[REPOSITORY], docstring_parser="google")
    text = "# Python\n\nNames of the package `xlnet_tf`: `from xlnet_tf import XLNetClassifier`.\n\n"
    public = re.findall(
        r"import (\w+) as \1$", (REPOSITORY / "xlnet_tf/__init__.py").read_text(), re.MULTILINE
    )
    for name in public:
        target = package[name].final_target
        if target.name != name:
            text += f"## {name}\n\nAn alias of {target.name}.\n\n"
            continue
        found = render_object_docs(target, STYLE)
        found = re.sub(r"\[([^][]*)\]\(#[\w.]+\)", r"\1", found)  # types, most of them of other packages
        found = re.sub(r"</?code>", "`", found)
        found = re.sub(r"^(#+) `(?:[a-z_]+\.)*", r"\1 `", found, flags=re.MULTILINE)
        found = re.sub(_OTHER_SECTION, r"**\1**\n\n```text\n\2\n```", found)
        text += found + "\n\n"
    folder = REPOSITORY / "docs/reference"
    folder.mkdir(exist_ok=True)
    (folder / "python.md").write_text(text)
