"""Runs pages as `make test-docs` does, and shows what each block gave.

    python -m tests.docs [--write] PAGE...

--write puts the output into blocks that show another one.
"""

import argparse
import pathlib
import sys
import tempfile
import time

from tests.docs import pages, runner, server
from tests.docs.toy import Toys


def main():
    parser = argparse.ArgumentParser("python -m tests.docs", description="Runs pages' blocks on toy data.")
    parser.add_argument("pages", nargs="+", type=pathlib.Path, metavar="PAGE")
    parser.add_argument("--write", action="store_true", help="write the output into the pages")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="pages-") as name, server.start(pathlib.Path(name)) as programs:
        toys = Toys(pathlib.Path(name) / "toys", programs)
        for number, path in enumerate(options.pages):
            page, folder = pages.read(path), pathlib.Path(name) / str(number)
            folder.mkdir()
            for file in page.files:
                toys.put(file, folder)
            failed += run(page, folder, programs, options.write)
    sys.exit(failed > 0)


def run(page: pages.Page, folder: pathlib.Path, programs: pathlib.Path, write: bool) -> int:
    """Runs a page; returns how many blocks failed."""
    failed, lines, begin = 0, page.path.read_text().splitlines(), time.monotonic()
    replaced = {}
    for block, result in runner.run_page(page, folder, programs):
        seconds, begin = time.monotonic() - begin, time.monotonic()
        print(f"--- {page.path}:{block.line} ({seconds:.1f} s)\n{block.command}---")
        print(pages.plain(result.output))
        shown = block.output
        if write and shown is not None and not pages.matches(shown, result.stdout):
            replaced[shown.line] = shown
            shown.given = pages.plain(result.stdout)
            continue
        try:
            runner.check(page, block, result)
        except runner.PageFailure as error:
            failed += 1
            print(f"!!! {error}", file=sys.stderr)
    for line, shown in sorted(replaced.items(), reverse=True):
        count = len(shown.text.rstrip("\n").split("\n"))
        lines[line - 1 : line - 1 + count] = shown.given.split("\n")
    if replaced:
        page.path.write_text("\n".join(lines) + "\n")
        print(f"--- wrote {len(replaced)} outputs into {page.path}")
    return failed


if __name__ == "__main__":
    main()
