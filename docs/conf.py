"""Builds the site of these pages, `make docs`; they are plain Markdown, which nothing here changes."""

import pathlib
import posixpath
import re
import sys

from docutils import nodes
from docutils.utils.math import latex2mathml

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import python_reference

project = "XLNet on TensorFlow 2"
copyright = "the authors of this project, Apache License 2.0"  # noqa: A001 (Sphinx's name)
extensions = ["myst_parser", "sphinx_copybutton"]
# The folder of the sources is the repository, so that pages can link to its files.
root_doc = "docs/index"
include_patterns = ["docs/**.md", "BUILD.md", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = [".*", "build", "dist", "runs", "tests", "xlnet_tf", "tfrecord_builders", "run_scripts"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
pygments_dark_style = "a11y-high-contrast-dark"  # the theme's own has too little contrast
smartquotes = False  # "--flag" is two dashes
html_math_renderer = "mathml"
copybutton_selector = "div.highlight-bash pre, div.highlight-python pre"  # not of outputs
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
_SECTION = re.compile(r"^## (.+)$|^(?:[-*]|\d+\.) +\[.+?\]\(([\w./-]+\.md)\)", re.MULTILINE)


def add_contents(app, page: str, source: list[str]):
    """Makes the lists of links of an index page the site's table of contents, a section each."""
    if posixpath.basename(page) != "index":
        return
    sections = [("", [])]
    for heading, link in _SECTION.findall(source[0]):
        if heading:
            sections.append((heading, []))
        else:
            sections[-1][1].append(link.removesuffix(".md"))
    for heading, links in sections:
        if links:
            caption = f":caption: {heading}\n" if heading and page == root_doc else ""
            source[0] += "\n```{toctree}\n:hidden:\n" + caption + "\n".join(["", *links]) + "\n```\n"


def visit_math(translator, node):
    """Writes an equation as MathML, which browsers draw without a script from elsewhere."""
    block = node.tagname == "math_block"
    tree = latex2mathml.tex2mathml(node.astext().replace(r"\lt", "<"), as_block=block)
    translator.body.append(f'<div class="math">{tree}</div>' if block else tree)
    raise nodes.SkipNode


# What the theme leaves to be said to people who use a keyboard or hear the page.
ACCESSIBLE = {
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Site">',
    '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="On this page">',
    'class="caption" role="heading">': 'class="caption" role="heading" aria-level="2">',
    "<pre>": '<pre tabindex="0">',
    '<div class="math">': '<div class="math" tabindex="0">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
}
FRONT = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{project}</title>
<meta http-equiv="refresh" content="0; url=docs/index.html"></head>
<body><h1><a href="docs/index.html">{project}</a></h1></body></html>
"""


def finish(app, error):
    """Makes what scrolls reachable by keyboard, and names the parts of a page."""
    for path in pathlib.Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for found, better in ACCESSIBLE.items():
            text = text.replace(found, better)
        path.write_text(text, encoding="utf-8")
    (pathlib.Path(app.outdir) / "index.html").write_text(FRONT, encoding="utf-8")


def setup(app):
    app.connect("config-inited", lambda *_: python_reference.write())
    app.connect("build-finished", finish)
    app.connect("source-read", add_contents)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
