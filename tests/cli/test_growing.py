"""A gang that runs without some of its pods, and its growing, as people see them."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from shoal.cli.screen import Place, frame, view_of
from shoal.core import events as ev
from shoal.model.workload import Outcome
from tests.cli.test_platform import Capture, Shell
from tests.server.rig import TWO_QUEUES, platform, served, shrink


@pytest.fixture
def shell(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
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

        shrink(rig, submit)
        yield found


def pods(shell: Shell) -> dict[str, str]:
    """What `shoal get` shows of pods, by workload."""
    heading, *lines = shell("get workloads").splitlines()
    at = heading.index("PODS") + len("PODS")
    return {line.split()[1]: line[:at].split()[-1] for line in lines if line.strip()}


def test_get_shows_how_many_pods_a_gang_holds(shell: Shell) -> None:
    assert pods(shell) == {"big": "4/8", "p": "1"}
    shell.rig.step(ev.WorkloadEnded(shell.rig.now_us, shell.rig.uid("p"), Outcome.COMPLETED))
    assert pods(shell)["big"] == "8"


def test_the_screen_tells_that_it_grows(shell: Shell) -> None:
    shell.rig.step(ev.WorkloadEnded(shell.rig.now_us, shell.rig.uid("p"), Outcome.COMPLETED))
    console = Console(file=StringIO(), width=110, record=True)
    console.print(frame(view_of(shell.rig.standing.doors), Place("state", "1x"), 110, 30))
    assert "grow     default/big  4 more pods on n2" in console.export_text()
