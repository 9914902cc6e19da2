"""Results as one self-contained page; its pictures are embedded, and every text is escaped."""

import base64
import html
import pathlib
import re
import string
from collections.abc import Iterable, Sequence

from etils import epath

from xlnet_tf import files

TEMPLATE = pathlib.Path(__file__).with_name("page.html")
INK = "#010203"  # in a picture, stands for the colour of the page's text
_FIGURE = re.compile(r"[-+\d.,]+(e[-+]\d+)?( ?%| s)?( \([\d.]+%\))?")


def write(path: epath.PathLike, title: str, parts: Iterable[str]) -> None:
    """Writes a page of parts, which the functions below return."""
    template = string.Template(TEMPLATE.read_text(encoding="utf-8"))
    files.write(path, template.substitute(title=html.escape(title), body="\n".join(parts)))


def section(title: str, text: str = "") -> str:
    """Returns a title and a paragraph below it, if there is a text."""
    return f"<h2>{html.escape(title)}</h2>" + paragraph(text) * bool(text)


def paragraph(text: str) -> str:
    return f"\n<p>{html.escape(text)}</p>"


def commands(lines: Iterable[str]) -> str:
    """Returns commands to copy, one a line."""
    return f'<pre tabindex="0">{html.escape(chr(10).join(lines))}</pre>'


def folded(title: str, part: str) -> str:
    """Returns a part that is shown when its title is chosen."""
    return f"<details>\n<summary>{html.escape(title)}</summary>\n{part}\n</details>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table, with columns of figures aligned to the right."""
    rows = list(rows)
    kinds = [
        ' class="number"' if rows and all(_FIGURE.fullmatch(row[column]) for row in rows) else ""
        for column in range(len(head))
    ]

    def line(tag: str, cells: Sequence[str]) -> str:
        name = tag.partition(" ")[0]
        return "".join(f"<{tag}{kind}>{html.escape(cell)}</{name}>" for cell, kind in zip(cells, kinds))

    lines = [line('th scope="col"', head), *(line("td", row) for row in rows)]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll" tabindex="0"><table>\n{body}\n</table></div>'


def picture(path: pathlib.Path, caption: str) -> str:
    """Returns a picture: an .svg as part of the page and in its text colour, others as they are."""
    if path.suffix == ".svg":
        svg = path.read_text(encoding="utf-8")
        svg = re.sub("<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
        svg = svg.replace(INK, "currentColor")
        image = svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(caption)}"', 1)
    else:
        content = base64.b64encode(path.read_bytes()).decode()
        image = f'<img alt="{html.escape(caption)}" src="data:image/png;base64,{content}">'
    return f"<figure>\n{image}\n<figcaption>{html.escape(caption)}</figcaption></figure>"
