"""A process that ends at any point loses nothing and doubles nothing."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Evict, Reserve, Start
from shoal.core.validate import check
from shoal.loop.recording import segments_in
from shoal.loop.records import Item
from shoal.loop.replica import Replica, restored
from shoal.model.verdict import Reason
from shoal.simulation.platform import RECORDING
from tests.simulation.crashing import CrashError, CrashingDisk, begin, hours, items
from tests.simulation.evicting import evictions

BEGINNING = 13
"""Operations in which a platform begins: it writes a snapshot in pieces and gives it its name."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Item]:
    """What is recorded in a day without a crash."""
    return whole_day(tmp_path_factory.mktemp("undisturbed"), 24)


def whole_day(folder: Path, length: float) -> list[Item]:
    platform = begin(folder, CrashingDisk(1 << 60, 0))
    platform.run_until(hours(length))
    platform.close()
    return items(folder)


def crash_through(folder: Path, length: float, crashes: int, operations: int, seed: int) -> int:
    """Live a day in which the process ends about `crashes` times, spread over all its writes.

    After each of them the world that the next process begins with is compared with that of a
    replica, which has followed from the first item on. Returns how many crashes there were.
    """
    apart = operations // crashes + BEGINNING
    follower: Replica | None = None
    for number in range(2 * crashes):
        at = (number * 2_654_435_761 + seed) % (2 * apart)
        try:
            platform = begin(folder, CrashingDisk(at, seed + number))
            platform.run_until(hours(length))
        except CrashError:
            follower = compared(folder / RECORDING, follower)
            continue
        platform.close()
        return number
    raise AssertionError("the day never came to its end")


def compared(recording: Path, follower: Replica | None) -> Replica | None:
    """Check that whoever begins anew begins with the world that all items make."""
    if not segments_in(recording):
        return None
    follower = follower or Replica(recording)
    while follower.catch_up():
        pass
    again = restored(recording)
    check(again.world)
    assert again.offset == follower.offset
    assert list(again.world.snapshot(0)) == list(follower.world.snapshot(0))
    assert list(again.story.snapshot(0)) == list(follower.story.snapshot(0))
    return follower


def assert_nothing_is_doubled(recorded: list[Item]) -> None:
    keys = Counter(each.decision.key for each in recorded if isinstance(each, ev.Decided))
    assert max(keys.values()) == 1
    for kind in (ev.WorkloadSubmitted, ev.WorkloadEnded):
        uids = Counter(
            each.workload.uid if isinstance(each, ev.WorkloadSubmitted) else each.uid
            for each in recorded
            if isinstance(each, kind)
        )
        assert max(uids.values()) == 1
    assert any(
        isinstance(each, ev.Decided) and isinstance(each.decision, Start) for each in recorded
    )


def assert_guarantees_and_priorities_are_kept(recorded: list[Item]) -> None:
    """Check that on this day devices are taken back, urgent work goes first, places are kept."""
    decided = [each.decision for each in recorded if isinstance(each, ev.Decided)]
    evicted = {each.reason for each in decided if isinstance(each, Evict)}
    assert evicted == {Reason.RECLAIM, Reason.PREEMPTION}
    kept = {each.reason for each in decided if isinstance(each, Reserve)}
    assert kept == {*evicted, Reason.RESERVED}
    again = {each.workload for each in decided if isinstance(each, Start) and each.key[-2:] == "/2"}
    assert again.intersection(each.workload for each in decided if isinstance(each, Evict))


def test_twenty_crashes_in_an_hour_change_nothing(tmp_path: Path) -> None:
    expected = whole_day(tmp_path / "undisturbed", 1)
    assert crash_through(tmp_path / "crashed", 1, 20, 400, seed=3) >= 15
    assert items(tmp_path / "crashed") == expected


def test_crashes_while_work_is_evicted_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods that are about to stop do so at the same time, and checkpoints are what they were."""
    with evictions(monkeypatch):
        expected = whole_day(tmp_path / "undisturbed", 3)
        evicted = [
            each.decision.workload
            for each in expected
            if isinstance(each, ev.Decided) and isinstance(each.decision, Evict)
        ]
        again = {
            each.decision.workload
            for each in expected
            if isinstance(each, ev.Decided)
            and isinstance(each.decision, Start)
            and each.decision.key.endswith("/2")
        }
        assert len(evicted) >= 20
        assert len(again.intersection(evicted)) >= 10
        assert any(isinstance(each, ev.CheckpointReported) for each in expected)
        assert crash_through(tmp_path / "crashed", 3, 40, 700, seed=5) >= 30
        assert items(tmp_path / "crashed") == expected


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_two_hundred_crashes_in_a_day_change_nothing(
    undisturbed: list[Item], tmp_path: Path
) -> None:
    """Between any two writes and within them: what is recorded at last is what would have been."""
    assert_guarantees_and_priorities_are_kept(undisturbed)
    assert crash_through(tmp_path / "crashed", 24, 210, 5700, seed=11) >= 200
    recorded = items(tmp_path / "crashed")
    assert_nothing_is_doubled(recorded)
    assert recorded == undisturbed


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", range(12))
def test_two_hundred_crashes_in_a_day_wherever_they_fall(
    undisturbed: list[Item], tmp_path: Path, seed: int
) -> None:
    crash_through(tmp_path / "crashed", 24, 210, 5700, seed=1_000_003 * seed)
    assert items(tmp_path / "crashed") == undisturbed


@pytest.mark.long
def test_killed_for_real_it_goes_on(tmp_path: Path, repository: Path) -> None:
    """SIGKILL to a process that writes to a real disk, whenever so much more has been recorded.

    It kills itself after every half hour, so that it is killed however late somebody looks: at a
    tick, as nothing is decided between two of them.
    """
    expected = whole_day(tmp_path / "undisturbed", 3)
    folder = tmp_path / "killed"
    program = (
        "import os, signal, sys; from pathlib import Path; from tests.simulation import crashing\n"
        "platform, end_us = crashing.begin(Path(sys.argv[1])), crashing.hours(3)\n"
        "stop_us = crashing.at_a_tick(platform.now_us) + crashing.hours(0.5) - crashing.hours(0)\n"
        "platform.run_until(min(stop_us, end_us))\n"
        "if stop_us < end_us: os.kill(os.getpid(), signal.SIGKILL)"
    )
    follower: Replica | None = None
    killed = 0
    finished = False
    while not finished:
        child = subprocess.Popen([sys.executable, "-c", program, folder], cwd=repository)
        enough = (follower.offset if follower else 0) + 20 + 31 * killed
        while child.poll() is None and (follower.offset if follower else 0) < enough:
            time.sleep(0.001)
            if follower is None and segments_in(folder / RECORDING):
                follower = Replica(folder / RECORDING)
            if follower is not None:
                follower.catch_up()
        child.kill()
        finished = child.wait() == 0
        killed += not finished
        follower = compared(folder / RECORDING, follower)
    assert killed >= 5
    assert items(folder) == expected
