"""What the first page promises is what a person then sees."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROW = r" *[a-z-]+ +\d+\.\d"


@pytest.mark.long
def test_the_table_of_get_started_is_what_make_openb_comes_to(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text()
    command = re.search(r"^openb: .*\n\t\$\(BIN\)/(shoal(?:.*\\\n)*.*)", makefile, re.MULTILINE)
    assert command
    arguments = command[1].replace("\\\n", " ").split()[1:]
    done = subprocess.run(
        [Path(sys.executable).parent / "shoal", *arguments[: arguments.index("--report")]],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    )
    # The last column is the time that it took, which differs between machines.
    printed = [line.split()[:-1] for line in done.stdout.splitlines() if re.match(ROW, line)]
    page = (repository / "docs" / "get-started.md").read_text()
    shown = re.findall(r"^\| ([a-z-]+ \| \d+\.\d.*) \|$", page, re.MULTILINE)
    assert [line.split(" | ") for line in shown] == printed
