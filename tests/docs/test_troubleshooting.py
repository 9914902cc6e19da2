"""docs/troubleshooting.md: each message that it quotes is one that the code writes."""

import ast
import pathlib
import re

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ("xlnet_tf", "tfrecord_builders", "run_scripts")
PAGE = (REPOSITORY / "docs" / "troubleshooting.md").read_text().split("## Symptoms")[0]
QUOTED = re.findall(r"^\| `([^`]+)` \|", PAGE, re.M)


def messages() -> list[str]:
    """Returns the strings of the code; what is put into them is a line break."""
    found = []
    for folder in SOURCES:
        for path in (REPOSITORY / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = (part.value if isinstance(part, ast.Constant) else "\n" for part in node.values)
                    found.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return found


def test_every_message_is_one_of_the_code():
    code = messages()
    assert len(QUOTED) > 35
    for quoted in QUOTED:
        parts = [part.strip() for part in quoted.split("...") if part.strip()]
        pattern = re.compile(".*?".join(map(re.escape, parts)), re.S)
        assert any(pattern.search(message) for message in code), quoted
