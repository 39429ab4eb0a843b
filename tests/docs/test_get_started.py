"""What the first page promises is what a person then sees."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

LOADS = ("80", "90", "95", "100", "130")


class Run(msgspec.Struct):
    """One line of `shoal simulate -o json`, as far as the page shows it."""

    policy: str
    allocated_pct: dict[str, float]
    failed: dict[str, int]


@pytest.mark.long
def test_the_table_of_get_started_is_what_make_up_comes_to(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text()
    command = re.search(r"^up: .*\n\t\$\(BIN\)/(shoal(?:.*\\\n)*.*)", makefile, re.MULTILINE)
    assert command
    arguments = command[1].replace("\\\n", " ").split()[1:]
    arguments[arguments.index("--report") :] = ["--output", "json"]
    done = subprocess.run(
        [Path(sys.executable).parent / "shoal", *arguments],
        cwd=repository,
        check=True,
        capture_output=True,
    )
    rows = []
    for line in done.stdout.splitlines():
        run = msgspec.json.decode(line, type=Run)
        allocated = " | ".join(f"{run.allocated_pct[load]:.2f}" for load in LOADS)
        rows.append(f"| {run.policy} | {allocated} | {run.failed['100']} |")
    page = (repository / "docs" / "get-started.md").read_text()
    shown = [line for line in page.splitlines() if re.match(r"\| [a-z-]+ \| \d", line)]
    assert shown == rows
