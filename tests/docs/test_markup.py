"""How blocks are read from a page, and how the output shown is compared."""

import pytest

from tests.docs import pages


def page(*lines: str) -> pages.Page:
    return pages.parse("\n".join(lines).replace("~~~", "```") + "\n")


def shown(text: str, output: str, note: str = "") -> bool:
    return pages.matches(pages.Block("text", text, 1, {"output": note}), output)


def test_blocks_have_their_markers_and_outputs():
    found = page(
        "<!-- files: corpus/ reviews.csv -->",
        "<!-- not run: needs a TPU -->", "~~~bash", "big", "~~~", "text",
        "1. In a list:", "   <!-- test adds: --steps=3 -->", "   ~~~bash", "   run --a \\", "     --b",
        "   ~~~",
        "",
        "<!-- output: numbers vary -->", "~~~text", "12", "~~~",
        "~~~json", "{}", "~~~",
    )  # fmt: skip
    assert found.files == ("corpus/", "reviews.csv")
    assert [(block.language, block.line, block.runs) for block in found.blocks] == [
        ("bash", 4, False),
        ("bash", 10, True),
        ("text", 16, False),
        ("json", 19, False),
    ]
    assert found.blocks[1].command == "run --a \\\n  --b --steps=3\n"
    assert found.blocks[1].output is found.blocks[2]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["~~~bash", "x"], "line 1 is not closed"),
        (["~~~", "x", "~~~"], "has the language ''"),
        (["<!-- notrun: x -->"], "no marker is called 'notrun'"),
        (["<!-- not run -->", "~~~bash", "~~~"], "'not run' needs a text"),
        (["<!-- test adds: -x -->", "", "Text."], "no block follows"),
        (["~~~bash", "x", "~~~", "", "~~~text", "y", "~~~"], "mark the output"),
        (["~~~bash", "x", "~~~", "Prints:", "<!-- output -->", "~~~text", "y", "~~~"], "stands right after"),
    ],
)  # fmt: skip
def test_what_breaks_the_rules_is_named(lines, message):
    with pytest.raises(pages.PageError, match=message):
        page(*lines)


@pytest.mark.parametrize(
    ("text", "same", "others", "note"),
    [
        ("a\nb\n", ["a\nb\n\n"], ["a\n"], ""),
        ("a\n...\nd\n", ["a\nb\nc\nd\n", "a\nd\n"], [], ""),
        ("...\nd\n", ["a\nd\n"], ["a\nde\n"], ""),
        ("took ... s\n", ["took 3.14 s\n"], ["took 3\n4 s\n"], ""),
        ("a.c\n", ["a.c"], ["abc\n"], ""),
        ("loss   1.25e-3 at 12:30\n", ["loss  -17 at 9\n"], ["loss nan at 9\n"], "numbers vary"),
    ],
)
def test_outputs_are_compared_whole_but_for_dots_and_numbers_that_vary(text, same, others, note):
    assert all(shown(text, output, note) for output in same)
    assert not any(shown(text, output, note) for output in others)


def test_line_breaks_of_json_and_what_a_terminal_hides_do_not_count():
    block = pages.Block("json", '{"a":\n [1, 2]}\n', 1, {"output": ""})
    assert pages.matches(block, '{"a": [1,2]}') and not pages.matches(block, '{"a": [1, 3]}')
    assert pages.plain("\x1b[1m10 %\r 20 %\r\n\x1b[0mdone  \n") == " 20 %\ndone"
