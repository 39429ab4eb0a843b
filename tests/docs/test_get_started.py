"""What the first page promises is what a person then sees."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from shoal.catalog.load import load_catalog
from shoal.cli.app import run
from shoal.cli.up import DEFAULT_POLICY, DEFAULT_SEED
from shoal.loop.disk import FastDisk
from shoal.loop.doors import Doors
from shoal.loop.replica import Replica
from shoal.objects.files import read_objects
from shoal.objects.quotas import names_of
from shoal.objects.tree import resolved
from shoal.server.standing import Standing
from shoal.simulation import organisation
from shoal.simulation.organisation import FIRST_MORNING_US
from shoal.simulation.platform import RECORDING, BegunWith, Platform
from tests.server.rig import served

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


def test_the_answer_of_get_started_is_what_a_newcomer_gets(
    repository: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The demo under its seed, and what the page sends to it at the time that the page shows."""
    page = (repository / "docs" / "get-started.md").read_text()
    found = re.search(
        r"^\$ \.venv/bin/shoal (submit (?:.*\\\n)*.*)\n(.*)\n"
        r"\$ \.venv/bin/shoal (why .*)\n((?:.*\n)+?)```",
        page,
        re.MULTILINE,
    )
    assert found
    submit, taken, why, shown = found.groups()
    came = re.search(r"2026-01-05 08:(\d\d):(\d\d)  came", shown)
    assert came
    at_us = FIRST_MORNING_US + (60 * int(came[1]) + int(came[2])) * 1_000_000
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    with demo_at(tmp_path, at_us) as socket:
        monkeypatch.setenv("SHOAL_SOCKET", str(socket))
        assert run("shoal", submit.replace("\\\n", " ").split()) == 0
        assert capsys.readouterr().out == f"{taken}\n"
        assert run("shoal", why.split()) == 0
    printed = capsys.readouterr().out
    # The page leaves some lines out, and says so.
    begin, _, end = shown.partition("              ...\n")
    assert (printed[: len(begin)], printed[len(printed) - len(end) :]) == (begin, end)
    monkeypatch.undo()
    time.tzset()


@contextmanager
def demo_at(folder: Path, at_us: int) -> Iterator[Path]:
    """The demo as it is at a time, where it stands still; yields where it can be asked."""
    what = BegunWith(DEFAULT_SEED, DEFAULT_POLICY, True, organisation.fleet())
    catalog = load_catalog()
    written = read_objects([Path(str(files("shoal.simulation") / "demo.yaml"))], catalog)
    platform = Platform(folder, what, disk=FastDisk())
    platform.keep_to(written.pools, resolved(written.tree, names_of(catalog)))
    platform.run_until(at_us)
    replica = Replica(folder / RECORDING)
    doors = Doors(replica, platform.inbox, lambda: at_us + 1_000_000, platform.metrics, list)
    stop = threading.Event()

    def answer() -> None:
        while not stop.wait(0.01):
            if len(platform.inbox):
                platform.run_until(at_us)
            replica.catch_up()

    answering = threading.Thread(target=answer)
    answering.start()
    try:
        with TemporaryDirectory(prefix="shoal-") as short:
            standing = Standing(doors, catalog, written, "0.0.0")
            with served(standing, Path(short) / "s.sock") as socket:
                yield socket
    finally:
        stop.set()
        answering.join()
        platform.close()
