"""`shoal up`: the live screen, the day at the highest speed, stopping and going on."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import BinaryIO

import pytest

from shoal.cli.app import run
from shoal.cli.up import _let_pass
from shoal.loop.disk import Disk
from shoal.loop.inbox import Cancel, InboxClosedError
from shoal.loop.replica import restored
from shoal.simulation.organisation import fleet
from shoal.simulation.platform import RECORDING, BegunWith, Platform, begun_with
from tests.cli.terminal import Terminal
from tests.objects.written import pool, queue
from tests.simulation.crashing import hours

SHOAL = Path(sys.executable).parent / "shoal"


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A socket and a state of this test's own; a socket's path has to be short."""
    with TemporaryDirectory(prefix="shoal-") as short:
        yield {
            "SHOAL_SOCKET": f"{short}/s.sock",
            "SHOAL_STATE": str(tmp_path / "state"),
            "TZ": "UTC",
            "LANG": "C.UTF-8",
        }


@pytest.mark.long
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])
def test_the_screen_shows_fleet_queues_and_decisions_and_lives(
    environment: dict[str, str], columns: int, rows: int
) -> None:
    command: list[str | Path] = [SHOAL, "up", "--demo", "--speed", "120x"]
    queues = [
        re.compile(rf"^{queue} +\d+ +\d+\.\d +\d+ +(-|\d+ )", re.MULTILINE)
        for queue in ("analytics", "nlp", "ranking", "search", "speech", "vision")
    ]
    with Terminal(command, columns, rows, environment) as terminal:
        first = terminal.until(
            lambda text: (
                re.search(r"\n\d\d:\d\d:\d\d  wait ", text)
                and all(queue.search(text) for queue in queues)
            )
        )
        assert terminal.screen.is_alternate
        lines = first.splitlines()
        assert re.fullmatch(r"Shoal Monday \d\d:\d\d:\d\d UTC   120x", lines[0])
        assert re.match(
            r"A100-SXM4-80GB +\d+/64 +H100-SXM5-80GB +\d+/64 +L40S \d+/32 held", lines[1]
        )
        assert len(re.findall(r"\b(?:a100|h100|l40s)-0[1-8] [▁▂▃▄▅▆▇█·x]{4,8}", first)) >= 24
        assert "DECISIONS" in first
        # The clock goes.
        terminal.until(lambda text: text.startswith("Shoal") and text.splitlines()[0] != lines[0])
        assert not terminal.screen.overflowed
        assert terminal.interrupt() == 0
        assert terminal.is_restored
    assert (terminal.screen.is_alternate, terminal.screen.cursor_shown) == (False, True)
    assert "shoal: stopped" in terminal.screen.text()


DECISION = r"\d\d:\d\d:\d\d  \w+ "
"""How a line of the screen begins that tells of a decision."""

FULL_ROWS = 39
"""Rows of a frame on forty: it leaves the last one free."""


@pytest.mark.long
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_ctrl_c_cuts_off_nothing_that_was_drawn(
    environment: dict[str, str], unbuffered: str
) -> None:
    """Nor does what somebody types meanwhile stand on the screen.

    A terminal shows it otherwise, and throws away at Ctrl-C what it was sent and has not shown; and
    Python, told not to buffer, forgets what a signal keeps it from writing.
    """
    environment |= {"PYTHONUNBUFFERED": unbuffered}
    command: list[str | Path] = [SHOAL, "up", "--demo", "--speed", "120x"]
    with Terminal(command, 120, 40, environment) as terminal:
        # There are more decisions than fit, so that every later frame has as many lines.
        terminal.until(lambda text: len(text.rstrip().splitlines()) == FULL_ROWS)
        terminal.type(b"typed by somebody")
        time.sleep(1.5)  # nobody reads, so that the terminal has more than it has shown
        assert terminal.interrupt() == 0
        assert terminal.is_restored
    last = terminal.screen.last
    assert re.match(r"Shoal Monday \d\d:\d\d:\d\d UTC   120x\n", last)
    assert len(re.findall(r"\b(?:a100|h100|l40s)-0[1-8] [▁▂▃▄▅▆▇█·x]{4,8}", last)) == 24
    drawn = last.rstrip().splitlines()
    assert len(drawn) == FULL_ROWS
    assert re.fullmatch(DECISION + ".+", drawn[-1])
    assert "typed" not in last
    assert "^C" not in last
    assert not terminal.screen.overflowed
    assert terminal.screen.text().startswith("shoal: stopped")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_stopped_or_killed_it_goes_on(environment: dict[str, str]) -> None:
    """Another process takes over what was left, and the commands see it."""
    full = os.environ | environment
    recording = Path(environment["SHOAL_STATE"]) / RECORDING
    reached: list[int] = []
    for end in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        up = subprocess.Popen(
            [SHOAL, "up", "--no-screen", "--speed", "60x", *(() if reached else ("--demo",))],
            env=full,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert up.stderr is not None
        assert up.stderr.readline().startswith("shoal: serving on ")
        listed = subprocess.run(
            [SHOAL, "get", "workloads", "-o", "name"],
            env=full,
            check=True,
            capture_output=True,
            text=True,
        )
        assert not reached or len(listed.stdout.splitlines()) > 50
        other = subprocess.run(
            [SHOAL, "up", "--no-screen"], env=full, capture_output=True, text=True, check=False
        )
        assert other.returncode == 1
        assert "another shoal up runs on" in other.stderr
        while reached and restored(recording).at_us <= reached[-1]:
            pass
        while not reached and restored(recording).at_us < hours(0.025):
            pass
        up.send_signal(end)
        assert up.wait() == (-end if end is signal.SIGKILL else 0)
        up.stderr.close()
        reached.append(restored(recording).at_us)
    assert reached == sorted(reached)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_without_a_terminal_it_runs_one_day_and_says_what_that_came_to() -> None:
    """The same on any machine, but for the last digits of prices."""
    with TemporaryDirectory() as folder:
        done = subprocess.run(
            [SHOAL, "up", "--demo"],
            env={k: v for k, v in os.environ.items() if k != "SHOAL_STATE"} | {"TMPDIR": folder},
            check=True,
            capture_output=True,
            text=True,
        )
        assert list(Path(folder).iterdir()) == [], "it leaves nothing behind"
    assert done.stdout.startswith("1 d 0 h of 24 nodes with 160 devices, seed 1\n")
    for kind in ("training", "inference", "notebook", "batch"):
        assert re.search(rf"^ {kind} +\d+ +\d+ +\d+ +\d+ +\d+ ", done.stdout, re.MULTILINE)
    for accelerator in ("A100-SXM4-80GB", "H100-SXM5-80GB", "L40S"):
        found = re.search(rf"^ {accelerator} +(\d+\.\d) % +(\d+\.\d) %", done.stdout, re.MULTILINE)
        assert found
        assert 50 < float(found[1]) < 100
        assert float(found[2]) < float(found[1])
    assert re.search(
        r"^evicted: \d+ for guarantees, \d+ for higher priority; at most [\d,.]+ device hours"
        r" of work were lost$",
        done.stdout,
        re.MULTILINE,
    )
    assert not done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--speed", "fast"], '--speed expects 1x, 60x or such, or max, found "fast".'),
        (["--speed", "0x"], "--speed expects"),
        (["--for", "soon"], '--for expects a length of time such as 90m, 24h or 7d, found "soon".'),
        (["--fleet", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("shoal", ["up", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_state_folder_stays_what_it_was_begun_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["up", "--state", str(tmp_path), "--for", "1m", "--speed", "max"]
    assert run("shoal", [*common, "--seed", "3"]) == 0
    assert run("shoal", common) == 0
    capsys.readouterr()
    assert run("shoal", [*common, "--demo"]) == 2
    assert "leave --demo out to go on with it" in capsys.readouterr().err
    assert run("shoal", [*common, "--seed", "4"]) == 2


def test_damage_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["up", "--state", str(tmp_path), "--for", "1m", "--speed", "max"]
    assert run("shoal", common) == 0
    (segment,) = (tmp_path / RECORDING).glob("*.shoal")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    capsys.readouterr()
    assert run("shoal", common) == 1
    assert "is damaged: its checksum is wrong. Name another folder" in capsys.readouterr().err


def begun(folder: Path) -> list[str]:
    """Begin a platform in a folder; return the line that goes on with it."""
    common = ["up", "--state", str(folder), "--for", "1m", "--speed", "max"]
    assert run("shoal", common) == 0
    return common


def test_any_changed_byte_of_what_it_was_begun_with_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = begun(tmp_path)
    file = tmp_path / "platform.json"
    whole = file.read_bytes()
    places = [*range(0, len(whole), len(whole) // 40), *range(len(whole) - 12, len(whole))]
    for damaged in (
        b"",
        whole[:-1],
        whole[: len(whole) // 2],
        *(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in places),
    ):
        file.write_bytes(damaged)
        capsys.readouterr()
        assert run("shoal", common) == 1
        said = capsys.readouterr().err
        assert "platform.json is damaged: its checksum is wrong. Name another folder" in said
    file.unlink()
    assert run("shoal", common) == 1
    assert "is gone, and the recording beside it is not. Name another" in capsys.readouterr().err
    file.write_bytes(whole)
    assert run("shoal", common) == 0


@pytest.mark.parametrize("name", ["file", "file/below", "x" * 5000])
def test_a_state_that_can_be_no_folder_is_said(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    common = ["up", "--state", str(tmp_path / name), "--for", "1m", "--speed", "max"]
    assert run("shoal", common) == 1
    assert re.match(
        "shoal: --state .*: (Not a directory|File name too long)", capsys.readouterr().err
    )


def test_a_fleet_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("name,cpu_milli,memory_mib,devices,accelerator\nn1,64000,512000,8,L40S\n")
    common = ["up", "--for", "1m", "--speed", "max", "--state", str(tmp_path / "s")]
    assert run("shoal", [*common, "--fleet", str(nodes)]) == 0
    assert "of 1 nodes with 8 devices" in capsys.readouterr().out


def test_a_full_disk_is_said_and_damages_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ["up", "--demo", "--state", str(tmp_path), "--for", "10m", "--speed", "max"]
    left = 50_000

    def append(file: BinaryIO, data: bytes) -> None:
        nonlocal left
        file.write(data[:left])
        left -= len(data)
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(Disk, "append", staticmethod(append))
        assert run("shoal", common) == 1
    said = capsys.readouterr().err
    assert said == f"shoal: {tmp_path} cannot be written: No space left on device.\n"
    assert run("shoal", common) == 0


def test_nobody_waits_for_an_answer_when_time_has_come_to_its_end(tmp_path: Path) -> None:
    with closing(Platform(tmp_path, BegunWith(1, "pack", False, fleet()))) as platform:
        asked = platform.inbox.put(Cancel("somebody"))
        stopped = Event()
        stopped.set()
        _let_pass(platform, None, stopped, None)
        with pytest.raises(InboxClosedError):
            asked.result(timeout=0)


def test_what_was_applied_last_counts_again_unless_other_files_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"

    def after(*options: str | Path) -> list[str]:
        """Return the names of the pools and queues that the platform has kept to."""
        line = ["up", "--for", "1m", "--state", str(state), *(str(each) for each in options)]
        assert run("shoal", line) == 0, capsys.readouterr()
        world = restored(state / RECORDING).world
        queues = [each.name for each in world.tenants.tree.queues]
        return [each.name for each in world.fleet.pools] + queues

    def pool_of(name: str) -> str:
        return pool(name, "nodes: {matchLabels: {shoal.dev/block: l40s}}, types: [notebook]")

    def applied(*texts: str) -> None:
        what = begun_with(state)
        assert what is not None
        with closing(Platform(state, what)) as platform:
            platform.keep_objects([(f"{n}.yaml", text) for n, text in enumerate(texts)])

    assert after() == []
    applied(pool_of("applied-pool") + queue("applied"))
    assert after() == ["applied-pool", "applied"]
    # Each file by itself is one that can be read; written one behind the other they are not.
    long = f"# {'x' * 700_000}\n"
    applied(f"\ufeff{long}{queue('top')}", f"%YAML 1.1\n---\n{long}{queue('sub', 'parent: top')}")
    assert after() == ["top", "sub"]
    named = tmp_path / "q.yaml"
    named.write_text(pool_of("named-pool") + queue("named"))
    assert after("--queues", named) == ["named-pool", "named"]
    assert after() == []
    applied(queue("again"))
    kept = state / "objects.json"
    kept.write_bytes(kept.read_bytes().replace(b"again", b"other"))
    assert run("shoal", ["up", "--for", "1m", "--state", str(state)]) == 1
    assert capsys.readouterr().err == (
        f"shoal: {kept} is damaged: its checksum is wrong. Name another folder with --state to"
        " begin anew.\n"
    )
    assert after("--queues", named) == ["named-pool", "named"]


def test_prices_are_given_as_files_of_the_catalogue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, prices = tmp_path / "q.yaml", tmp_path / "prices.yaml"
    file.write_text(queue("a", "guarantee: {T4: 1}, budget: {period: day, money: 5}"))
    line = ["up", "--for", "1m", "--queues", str(file)]
    assert run("shoal", line) == 2
    assert "no price is known of T4;" in capsys.readouterr().err
    prices.write_text(
        "schema: shoal.dev/catalog/v1\nprices: [{accelerator: T4, micro_per_hour: 1, currency: XTS,"
        " valid_from: 2026-01-01}]\n"
    )
    assert run("shoal", [*line, "--catalog", str(prices)]) == 0
    capsys.readouterr()
    # Prices are those of the platform's own day, which is in January.
    prices.write_text(prices.read_text().replace("2026-01-01", "2026-03-01"))
    assert run("shoal", [*line, "--catalog", str(prices)]) == 2
    assert "no price is known of T4;" in capsys.readouterr().err
    prices.write_text("schema: shoal.dev/catalog/v0\n")
    assert run("shoal", [*line, "--catalog", str(prices)]) == 2
    assert "the file must say" in capsys.readouterr().err
