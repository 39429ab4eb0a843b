"""Evictions, kept places and the guard as people see them on the command line, word for word."""

import time
from collections.abc import Iterator
from io import StringIO
from os import getuid
from pathlib import Path
from pwd import getpwuid
from typing import Any

import pytest
import yaml
from rich.console import Console

from shoal.cli.screen import Place, frame, view_of
from shoal.core import events as ev
from shoal.core.decisions import Freeze, GiveUp
from shoal.model.verdict import Reason
from tests.cli.test_platform import Capture, Shell, golden
from tests.server.rig import MINUTE_US, TWO_QUEUES, platform, reclaim, served


@pytest.fixture
def shell(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """Queue a takes back four devices; one of the two who go for it has left."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    with (
        platform(tmp_path, queues=TWO_QUEUES) as rig,
        served(rig.standing, tmp_path / "run" / "shoal.sock") as path,
    ):
        monkeypatch.setenv("SHOAL_SOCKET", str(path))
        found = Shell(rig, path, capsys)

        def submit(*manifests: Any) -> None:
            file = tmp_path / "work.yaml"
            file.write_text(yaml.safe_dump_all(manifests))
            found(f"submit {file}")

        reclaim(rig, submit)
        rig.leave(1)
        rig.now_us += MINUTE_US // 4
        yield found
    monkeypatch.undo()
    time.tzset()


def freeze(shell: Shell) -> None:
    """Freeze evictions."""
    frozen = Freeze("freeze/1", 12, 10, Reason.TOO_MANY_EVICTIONS)
    shell.rig.step(ev.Decided(shell.rig.now_us, frozen))


def test_why_of_who_takes_back_of_who_is_evicted_and_of_who_looks_on(shell: Shell) -> None:
    golden("why-reclaims", shell("why p"))
    golden("why-leaves", shell("why x2"))
    golden("why-was-evicted", shell("why x1"))
    golden("why-looks-on", shell("why late"))
    golden("why-reclaims-chinese", shell("why p --lang zh"))


def test_lists_show_what_is_kept_and_lost(shell: Shell) -> None:
    golden("evicted-decisions", shell("decisions --last 5"))
    golden("evicted-workloads", shell("get workloads"))
    golden("evicted-devices", shell("get devices --node n2"))
    golden("evicted-queue", shell("queue -o wide"))
    golden("evicted-top", shell("top"))
    assert shell("get workloads --state evicting -o name") == "default/x2\n"


@pytest.mark.parametrize("command", ["top", "get workloads", "queue", "get queues -o json"])
def test_while_evictions_are_frozen_every_list_says_so_beside_it(
    shell: Shell, command: str
) -> None:
    before = shell(command)
    freeze(shell)
    printed = shell(command)
    assert printed == before + (
        "alert: 2026-11-29 10:10:20  Evictions are frozen: 12 workloads would be evicted within 5"
        " minutes, and at most 10 may be. If that is as it should be, shoal resume lets them go"
        " on.\n"
    )


def test_resume_lets_evictions_go_on_and_says_so(shell: Shell) -> None:
    assert shell("resume") == "Shoal decides again\n"
    freeze(shell)
    assert "  alert       Nobody is evicted for it while evictions are frozen." in shell("why late")
    assert shell("resume") == "Shoal decides again\nevictions go on, which were frozen\n"
    assert "alert" not in shell("top")
    guard = shell.rig.replica.story.guard
    assert (guard.frozen, guard.by) == (None, f"user:{getpwuid(getuid()).pw_name}")


def test_the_screen_shows_evictions_and_that_they_are_frozen(shell: Shell) -> None:
    rig = shell.rig
    rig.step(ev.Decided(rig.now_us, GiveUp("g", rig.uid("p"), Reason.PLACE_LOST)))
    freeze(shell)
    console = Console(width=110, height=30, record=True, file=StringIO())
    view = view_of(rig.standing.doors)
    console.print(frame(view, Place("state", "1x"), 110, 30))
    text = console.export_text()
    first = text.splitlines()[0]
    assert first.rstrip().endswith(
        "1x   evictions are frozen until shoal resume: too many evictions"
    )
    assert "freeze   too many evictions: shoal resume" in text
    assert "give up  default/p" in text
    assert "keep     default/p  on n2  room is being freed" in text
    assert "evict    default/x1  for default/p" in text
