"""Every command and block of code of README.md and docs/ runs, and gives the output that is shown.

`make test-docs` runs these tests; `python -m tests.docs PAGE` runs one page and shows what it gave.
"""

import pytest

from tests.docs import pages, runner, server
from tests.docs.toy import Toys

REPOSITORY = server.REPOSITORY
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    with server.start(tmp_path_factory.mktemp("programs")) as folder:
        yield folder


@pytest.fixture(scope="session")
def toys(programs, tmp_path_factory):
    return Toys(tmp_path_factory.mktemp("toys"), programs)


@pytest.mark.docs
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.path.relative_to(REPOSITORY)))
        for page in map(pages.read, PAGES)
        if any(block.runs for block in page.blocks)
    ],
)
def test_page(page, programs, toys, tmp_path):
    for name in page.files:
        toys.put(name, tmp_path)
    for block, result in runner.run_page(page, tmp_path, programs):
        runner.check(page, block, result)
