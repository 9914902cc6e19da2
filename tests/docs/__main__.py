"""Runs pages as `make test-docs` does, and shows what each block gave.

    python -m tests.docs [--write] [--keep] PAGE...

--write puts the output into blocks that show another one; --keep leaves the folders in which the pages ran.
"""

import argparse
import pathlib
import shutil
import sys
import tempfile
import time

from tests.docs import pages, runner, server
from tests.docs.toy import Toys


def main():
    parser = argparse.ArgumentParser(
        "python -m tests.docs", description="Runs the blocks of pages on toy data."
    )
    parser.add_argument("pages", nargs="+", type=pathlib.Path, metavar="PAGE")
    parser.add_argument(
        "--write", action="store_true", help="put the output into blocks that show another one"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folders in which the pages ran")
    options = parser.parse_args()
    failed = 0
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="pages-"))
    with server.start(scratch) as programs:
        toys = Toys(scratch / "toys", programs)
        for number, path in enumerate(options.pages):
            page, folder = pages.read(path), scratch / str(number)
            folder.mkdir()
            for name in page.files:
                toys.put(name, folder)
            failed += run(page, folder, programs, options.write)
            if options.keep:
                print(f"--- {path} ran in {folder}")
    if not options.keep:
        shutil.rmtree(scratch)
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
