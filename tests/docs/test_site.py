"""The built site, build/docs: links lead somewhere, and people who do not see it can use it.

`make docs-check` builds the site and runs these tests. They follow WCAG 2.2 where a file alone shows it.
"""

import collections
import functools
import pathlib
import re

import lxml.html
import pytest

SITE = pathlib.Path(__file__).resolve().parents[2] / "build/docs"
FILES = [path for path in sorted(SITE.rglob("*.html")) if "_static" not in path.parts]
pytestmark = pytest.mark.site


@functools.cache
def document(path: pathlib.Path) -> lxml.html.HtmlElement:
    return lxml.html.parse(path).getroot()


@pytest.fixture(params=FILES or [None], ids=lambda path: path and str(path.relative_to(SITE)))
def path(request):
    if request.param is None:
        pytest.skip("build the site first: make docs")
    return request.param


def test_links_lead_somewhere(path):
    lost = []
    for element in document(path).iter("a", "img", "script", "link"):
        link = element.get("href", element.get("src", ""))
        assert not link.startswith("http:")
        if not link or re.match(r"\w+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target.partition("?")[0]).resolve() if target else path
        has_anchor = element.tag == "a" and anchor and file.suffix == ".html"
        if not file.exists() or has_anchor and anchor not in ids(file):
            lost.append(link)
    assert not lost


def ids(path: pathlib.Path) -> list[str]:
    return document(path).xpath("//@id")


def test_nothing_is_loaded_from_elsewhere(path):
    loaded = [
        element.get("src", element.get("href", ""))
        for element in document(path).iter("img", "script", "link", "iframe")
        if element.tag != "link" or element.get("rel") in ("stylesheet", "preload", "icon")
    ]
    assert not [link for link in loaded if re.match(r"(?:https?:)?//", link)]


def test_page_has_language_title_and_one_main_heading(path):
    assert document(path).get("lang") == "en"
    assert document(path).findtext("head/title").strip()
    levels = [int(element.tag[1]) for element in document(path).iter("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels.count(1) == 1 or path.name in ("genindex.html", "search.html")
    assert all(other <= one + 1 for one, other in zip(levels, levels[1:])), levels


def test_pictures_links_and_fields_have_names(path):
    labelled = set(document(path).xpath("//label/@for"))
    for element in document(path).iter("img", "a", "button", "input"):
        text = "".join(element.xpath(".//text() | .//img/@alt")).strip()
        name = element.get("aria-label") or element.get("title") or element.get("alt") or text
        if element.tag == "input":
            hidden = element.get("type") in ("hidden", "submit") or "sidebar-toggle" in element.classes
            name = name or hidden or element.get("id") in labelled or element.get("placeholder")
        assert name or (element.tag == "a" and "href" not in element.attrib), element.attrib
        assert element.tag != "img" or "alt" in element.attrib, element.attrib


def test_ids_are_unique(path):
    assert not [name for name, count in collections.Counter(ids(path)).items() if count > 1]


def test_tables_have_header_cells(path):
    assert document(path).xpath("count(//th) >= count(//table)")


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
