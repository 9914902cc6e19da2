"""The built site, build/docs: links lead somewhere, and people who do not see it can use it.

`make docs-check` builds the site and runs these tests. They follow WCAG 2.2 where a file alone shows it.
"""

import collections
import functools
import html.parser
import pathlib
import re

import pytest

SITE = pathlib.Path(__file__).resolve().parents[2] / "build/docs"
FILES = [path for path in sorted(SITE.rglob("*.html")) if "_static" not in path.parts]
pytestmark = pytest.mark.site
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Document(html.parser.HTMLParser):
    """What the checks need of a page: its elements, each with its attributes and its text."""

    def __init__(self, path: pathlib.Path):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self._open: list[tuple[str, list[str]]] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        element = (tag, {name: value or "" for name, value in attributes}, [])
        self.elements.append(element)
        if tag == "img":
            self.handle_data(element[1].get("alt", ""))
        if tag not in VOID:
            self._open.append((tag, element[2]))

    def handle_endtag(self, tag):
        while self._open and tag in [name for name, _ in self._open]:
            if self._open.pop()[0] == tag:
                break

    def handle_data(self, data):
        for _, text in self._open:
            text.append(data)

    def find(self, *tags: str) -> list[tuple[str, dict[str, str], str]]:
        return [(tag, attrs, "".join(text).strip()) for tag, attrs, text in self.elements if tag in tags]


@functools.cache
def document(path: pathlib.Path) -> Document:
    return Document(path)


@pytest.fixture(params=FILES or [None], ids=lambda path: path and str(path.relative_to(SITE)))
def path(request):
    if request.param is None:
        pytest.skip("build the site first: make docs")
    return request.param


def test_links_lead_somewhere(path):
    lost = []
    for tag, attributes, _ in document(path).find("a", "img", "script", "link"):
        link = attributes.get("href", attributes.get("src", ""))
        if not link or re.match(r"\w+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target.partition("?")[0]).resolve() if target else path
        if not file.exists() or anchor and tag == "a" and file.suffix == ".html" and anchor not in ids(file):
            lost.append(link)
    assert not lost


def ids(path: pathlib.Path) -> set[str]:
    return {attributes["id"] for _, attributes, _ in document(path).elements if "id" in attributes}


def test_nothing_is_loaded_from_elsewhere(path):
    loaded = [
        attributes.get("src", attributes.get("href", ""))
        for tag, attributes, _ in document(path).find("img", "script", "link", "iframe")
        if tag != "link" or attributes.get("rel") in ("stylesheet", "preload", "icon")
    ]
    assert not [link for link in loaded if re.match(r"(?:https?:)?//", link)]


def test_page_has_language_title_and_one_main_heading(path):
    [(_, attributes, _)] = document(path).find("html")
    assert attributes["lang"] == "en"
    [(_, _, title), *_] = document(path).find("title")
    assert title
    levels = [int(tag[1]) for tag, _, _ in document(path).find(*(f"h{level}" for level in range(1, 7)))]
    assert levels.count(1) == 1 or path.name in ("genindex.html", "search.html")
    assert all(other <= one + 1 for one, other in zip(levels, levels[1:])), levels


def test_pictures_links_and_fields_have_names(path):
    found = document(path)
    labelled = {attributes.get("for") for _, attributes, _ in found.find("label")}
    for tag, attributes, text in found.find("img", "a", "button", "input"):
        name = attributes.get("aria-label") or attributes.get("title") or attributes.get("alt") or text
        if tag == "input":
            hidden = attributes.get("type") in ("hidden", "submit") or "sidebar-toggle" in attributes.get(
                "class", ""
            )
            name = name or hidden or attributes.get("id") in labelled or attributes.get("placeholder")
        assert name or (tag == "a" and "href" not in attributes), (tag, attributes)
        assert tag != "img" or "alt" in attributes, attributes


def test_ids_are_unique(path):
    counts = collections.Counter(attrs["id"] for _, attrs, _ in document(path).elements if attrs.get("id"))
    assert not [name for name, count in counts.items() if count > 1]


def test_tables_have_header_cells(path):
    found = document(path)
    assert len(found.find("th")) >= len(found.find("table"))


def contrast(one: str, other: str) -> float:
    """Returns the contrast of two colours, #rrggbb, as WCAG defines it."""

    def luminance(color):
        parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_code_has_contrast():
    """Every colour of highlighted code on its background: 4.5 to 1, as WCAG asks of text."""
    style = SITE / "_static/pygments.css"
    if not style.exists():
        pytest.skip("build the site first: make docs")
    text, weak = style.read_text(), []
    for prefix in ("", 'body[data-theme="dark"] '):
        rules = re.findall(rf"^{re.escape(prefix)}\.highlight\s*([^{{]*)\{{([^}}]*)\}}", text, re.MULTILINE)
        background = next(
            re.search(r"background: (#\w{6})", body)[1] for name, body in rules if not name.strip()
        )
        for name, body in rules:
            color = re.search(r"(?<!-)color: (#\w{6})", body)
            own = re.search(r"background-color: (#\w{6})", body)
            if color and contrast(color[1], own[1] if own else background) < 4.5:
                weak.append((prefix, name.strip(), color[1]))
    assert not weak


def test_external_links_are_listed(capsys):
    links = {
        attributes["href"]
        for path in FILES
        for _, attributes, _ in document(path).find("a")
        if re.match(r"https?:", attributes.get("href", ""))
    }
    with capsys.disabled():
        print("\nexternal links, not fetched:", *sorted(links), sep="\n  ")
    assert all(link.startswith("https:") for link in links)
