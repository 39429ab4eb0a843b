"""The one writer: what people ask is answered when it is safe, and never where it is not."""

import errno
from pathlib import Path
from typing import BinaryIO

import pytest

from shoal.core import events as ev
from shoal.core.world import World
from shoal.loop.disk import Disk, FastDisk
from shoal.loop.engine import Loop
from shoal.loop.inbox import (
    Act,
    Answer,
    Cancel,
    Inbox,
    InboxClosedError,
    InboxFullError,
    Refused,
    Submit,
)
from shoal.loop.recording import FolderRecorder
from shoal.loop.records import Header
from shoal.loop.replica import restored
from shoal.loop.writer import ASKS, Writer
from shoal.model.workload import Outcome
from tests.core.build import SEED, job, node, policy, whole
from tests.loop.day import Nobody


class Platform(Nobody):
    """A writer, what it is asked through, and a fleet of one node with two devices."""

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self.folder = folder
        self.inbox = Inbox()
        self.stopped: list[str] = []
        recorder = FolderRecorder(folder, Header(str(SEED), policy()), disk=disk or FastDisk())
        self.recorder = recorder
        loop = Loop(World(), policy(), SEED, self, recorder)
        self.writer = Writer(loop, recorder, self.inbox, self)
        self.writer.step(0, [ev.NodeSeen(0, node("n", 2))])

    def stop(self, uid: str, _: int) -> None:
        """Note who is to be stopped."""
        self.stopped.append(uid)


class FullDisk(FastDisk):
    """A disk that takes `left` bytes, and then nothing until it is emptied."""

    left = 1 << 60
    syncs = True

    def append(self, file: BinaryIO, data: bytes) -> None:
        """Write as much as there is room for."""
        fits = data[: self.left]
        self.left -= len(fits)
        super().append(file, fits)
        if len(fits) < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def sync(self, _: BinaryIO) -> None:
        """Fail where the disk does."""
        if not self.syncs:
            raise OSError(errno.EIO, "Input/output error")


def test_what_is_asked_is_answered_with_what_came_of_it(tmp_path: Path) -> None:
    platform = Platform(tmp_path / "recording")
    asked = [
        platform.inbox.put(ask)
        for ask in (
            Submit((job("a", whole(2)), job("b", whole(1)))),
            Submit((job("c", whole(1)), job("a", whole(1)))),
            Cancel("b"),
            Cancel("nobody"),
            Act(acts=False),
        )
    ]
    platform.writer.step(7)
    assert [each.result(0).refused for each in asked] == [
        None,
        Refused.KNOWN,
        None,
        Refused.UNKNOWN,
        None,
    ]
    platform.recorder.close()
    again = restored(platform.folder)
    assert again.offset == asked[0].result(0).offset
    assert set(again.world.entries) == {"a"}
    assert again.world.entries["a"].workload.created_us == 7
    assert again.story.ended["b"].outcome is Outcome.CANCELLED
    assert not again.story.acts


def test_what_runs_is_stopped_outside(tmp_path: Path) -> None:
    platform = Platform(tmp_path / "recording")
    platform.inbox.put(Submit((job("a", whole(2)),)))
    platform.writer.step(1)
    answer = platform.inbox.put(Cancel("a"))
    platform.writer.step(2)
    assert answer.result(0).refused is None
    assert platform.stopped == ["a"]
    assert platform.recorder.story.lives["a"].stopping_us == 2
    platform.recorder.close()


def test_whoever_asks_too_much_is_told_to_come_again(tmp_path: Path) -> None:
    """The queue has an end, a step answers a part of it, and who gave up is left out."""
    platform = Platform(tmp_path / "recording")
    platform.inbox = platform.writer._inbox = inbox = Inbox(ASKS + 2)
    asked = [inbox.put(Act(acts=True)) for _ in range(ASKS + 2)]
    with pytest.raises(InboxFullError):
        inbox.put(Act(acts=False))
    asked[0].cancel()
    platform.writer.step(1)
    assert platform.writer.metrics.asking == ASKS + 2
    assert [each.done() for each in asked[1:]] == [True] * (ASKS - 1) + [False] * 2
    inbox.close()
    for each in asked[ASKS:]:
        with pytest.raises(InboxClosedError):
            each.result(0)
    with pytest.raises(InboxClosedError):
        inbox.put(Act(acts=True))
    platform.recorder.close()


@pytest.mark.parametrize("written", [0, 1, 7, 12, 30, None])
def test_a_disk_that_is_full_damages_nothing(tmp_path: Path, written: int | None) -> None:
    """Whatever part of a frame was written: who asked is not told that it is safe."""
    disk = FullDisk()
    platform = Platform(tmp_path / "recording", disk)
    safe = platform.inbox.put(Submit((job("safe", whole(1)),)))
    platform.writer.step(1)
    if written is None:
        disk.syncs = False
    else:
        disk.left = written
    lost = platform.inbox.put(Submit((job("lost", whole(1)),)))
    with pytest.raises(OSError, match=r"No space left|Input/output error"):
        platform.writer.step(2)
    with pytest.raises(InboxClosedError):
        lost.result(0)
    # There is room again; what was left in part stays as it is.
    disk.left, disk.syncs = 1 << 60, True
    platform.recorder.record(ev.NodeSeen(3, node("m", 2)))
    with pytest.raises(OSError, match="could not be written"):
        platform.recorder.sync()
    platform.recorder.close()
    again = restored(platform.folder)
    assert isinstance(safe.result(0), Answer)
    assert {"safe"} <= set(again.world.entries) <= {"safe", "lost"}
    assert set(again.world.fleet.row_of) == {"n"}
    FolderRecorder(platform.folder, Header("", policy()), since=again, disk=disk).close()
    assert restored(platform.folder).offset == again.offset
