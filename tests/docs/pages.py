"""The blocks of a page that tests run, and how the output shown is compared.

docs/contributing-docs.md describes the markers, comments on the lines before a block.
"""

import contextlib
import dataclasses
import json
import pathlib
import re

RUN = ("bash", "python")
LANGUAGES = (*RUN, "text", "json", "yaml", "dockerfile", "protobuf", "bibtex", "math", "toml")
MARKERS = ("not run", "test runs", "test adds", "output", "fails")
_MARKER = re.compile(r"<!-- ([a-z ]+?)(?:: (.*?))? -->")
_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,})(?P<language>[\w{}+-]*)(?P<rest>.*)")
_ELLIPSIS = "..."
_COMMAND = re.compile(r"(?:^|[;&|]|\bdo\b)[ \n]*((?:xlnet-tf|python3?) )", re.MULTILINE)
# In a command: what is quoted; what ends it, a pipe, a redirection, a comment, another command; all else.
_PIECE = re.compile(r"""(\\.|"[^"]*"|'[^']*')|(\s\d?>|\s\#|[|>&;\n])|.""", re.DOTALL)
_NUMBER = re.compile(r"[-+]?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?")


class PageError(ValueError):
    """A page breaks a rule of its markup."""


@dataclasses.dataclass
class Block:
    """A fenced block.

    Args:
        language: the word after the fence.
        text: the lines inside.
        line: number of the first line inside, from 1.
        markers: the comments on the lines before, by name.
        output: the block that shows its output, if any.
    """

    language: str
    text: str
    line: int
    markers: dict[str, str]
    output: "Block | None" = None

    @property
    def runs(self) -> bool:
        return self.language in RUN and "not run" not in self.markers

    @property
    def command(self) -> str:
        """What the test runs: the text, or what the markers put in its place."""
        text = self.markers.get("test runs", self.text)
        added = self.markers.get("test adds", "")
        return add_flags(text, added) if added else text


@dataclasses.dataclass
class Page:
    """A page's blocks and the names of the toy files that its folder needs."""

    path: pathlib.Path
    blocks: list[Block]
    files: tuple[str, ...]


def read(path: pathlib.Path) -> Page:
    """Reads a page.

    Raises:
        PageError: a block breaks the rules of docs/contributing-docs.md.
    """
    return parse(path.read_text(), path)


def parse(text: str, path: pathlib.Path = pathlib.Path("page.md")) -> Page:
    """Reads the text of a page, see `read`."""
    lines, blocks, files, markers = text.splitlines(), [], (), {}
    number, between = 0, True  # whether only blank lines and markers stand since the last block

    def fail(message):
        raise PageError(f"{path.name}:{number}: {message}")

    while number < len(lines):
        line = lines[number]
        number += 1
        if found := _MARKER.fullmatch(line.strip()):
            name, value = found[1], found[2] or ""
            if name == "files":
                files += tuple(value.split())
            elif name in MARKERS:
                markers[name] = value
                if name in ("not run", "test runs", "test adds") and not value:
                    fail(f"'{name}' needs a text after a colon")
            else:
                fail(f"no marker is called {name!r}: expected one of files, {', '.join(MARKERS)}")
        elif found := _FENCE.fullmatch(line):
            language, first, body = found["language"], number, []
            while number < len(lines) and lines[number].strip() != found["fence"]:
                body.append(lines[number].removeprefix(found["indent"]))
                number += 1
            if number == len(lines):
                fail(f"the fence of line {first} is not closed")
            number += 1
            if not language or not (language in LANGUAGES or language.startswith("{")):
                fail(f"the fence of line {first} has the language {language!r}: expected {LANGUAGES}")
            block = Block(language, "\n".join(body) + "\n", first + 1, markers)
            previous = blocks[-1] if blocks and between else None
            if "output" in markers:
                if language in RUN or previous is None or not previous.runs:
                    fail(f"line {first}: an output stands right after the block that it is of")
                previous.output = block
            elif language == "text" and previous is not None and previous.runs and not markers:
                fail(f"line {first}: mark the output with <!-- output -->")
            blocks.append(block)
            markers, between = {}, True
        elif line.strip():
            if markers:
                fail(f"no block follows {sorted(markers)} directly")
            between = False
    return Page(path, blocks, files)


def is_marker(line: str) -> bool:
    """Returns whether a line is a comment for the tests."""
    return _MARKER.fullmatch(line.strip()) is not None


def add_flags(command: str, flags: str) -> str:
    """Puts flags after those of the last command of this project, else after those of the last line's."""
    line = max((found.end() for found in re.finditer(r"(?<!\\)\n(?=.)", command)), default=0)
    start = max((found.start(1) for found in _COMMAND.finditer(command)), default=line)
    end = next(found.start() for found in _PIECE.finditer(command + "\n", start) if found[2])
    rest = command[end:].lstrip(" ")
    return f"{command[:end].rstrip()} {flags}{' ' * (rest[:1] not in ('', chr(10)))}{rest}"


def plain(output: str) -> str:
    """Returns output as a terminal shows it at the end: no colours, of rewritten lines the last form."""
    output = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
    lines = (line.rstrip("\r").rsplit("\r")[-1].rstrip() for line in output.split("\n"))
    return "\n".join(lines).strip("\n")


def matches(shown: Block, output: str) -> bool:
    """Returns whether a block shows an output: `...` stands for any lines, or for any text in a line.

    Of JSON, spaces and the order of names do not count.
    """
    expected, output = map(plain, (shown.text, output))
    if shown.language == "json":
        with contextlib.suppress(ValueError):  # with `...` it is no JSON
            expected, output = (json.dumps(json.loads(text), sort_keys=True) for text in (expected, output))
    if "numbers vary" in shown.markers["output"]:
        expected, output = map(_without_numbers, (expected, output))
    pattern = ""
    for line in expected.split("\n"):
        if line.strip() == _ELLIPSIS:
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(map(re.escape, line.split(_ELLIPSIS))) + r"\n"
    return re.fullmatch(pattern, output + "\n") is not None


def _without_numbers(text: str) -> str:
    """Masks numbers, and the spaces that align them."""
    return re.sub(r"[ \t]+", " ", _NUMBER.sub("#", text))
