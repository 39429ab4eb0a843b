"""A short day, recorded: nodes, starts, waits, failures, ends, and what people asked."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from shoal.core import events as ev
from shoal.core.decisions import Decision
from shoal.core.world import World
from shoal.loop.disk import FastDisk
from shoal.loop.engine import Loop
from shoal.loop.recording import FolderRecorder, Rotation
from shoal.loop.records import Header, Item
from shoal.loop.replica import Replica
from shoal.loop.story import Acting, Stopping, Story
from shoal.model.workload import Outcome, Placement
from tests.core.build import SEED, job, node, policy, share, whole


class Nobody:
    """Carries nothing out."""

    def carry_out(self, decision: Decision) -> None:
        """Do nothing."""


class Noting(FolderRecorder):
    """A recorder whose items are kept in memory too."""

    items: list[Item]
    syncs: list[int]

    def record(self, item: Item) -> None:
        """Keep an item."""
        self.items.append(item)
        super().record(item)

    def sync(self) -> None:
        """Note how many items are safe now."""
        super().sync()
        self.syncs.append(len(self.items))


class Day:
    """Lives in a recording at `folder`; `recorded` and `synced` say what must be in it."""

    def __init__(self, folder: Path, rotation: Rotation | None = None) -> None:
        self.folder = folder
        self.header = Header(str(SEED), policy("fgd"))
        self.recorded: list[Item] = []
        self.synced: list[int] = []
        self.recorder = Noting(
            folder, self.header, disk=FastDisk(), rotation=rotation or Rotation()
        )
        self.recorder.items, self.recorder.syncs = self.recorded, self.synced
        self.loop = Loop(World(), policy("fgd"), SEED, Nobody(), self.recorder)

    @property
    def world(self) -> World:
        """The writer's world."""
        return self.loop.world

    def live(self) -> "Day":
        """Take every step of the day."""
        for _ in self.steps():
            pass
        return self

    def close(self) -> "Day":
        """End the recording."""
        self.recorder.close()
        return self

    def copy(self) -> Path:
        """Return a copy of the recording."""
        place = next(
            path for n in range(1000) if not (path := self.folder.with_name(f"copy{n}")).exists()
        )
        shutil.copytree(self.folder, place)
        return place

    def steps(self) -> Iterator[None]:
        """Let things happen, one after the other."""
        for number in range(3):
            self.loop.feed(ev.NodeSeen(number, node(f"n{number}", 2, labels={"zone": "ä"})))
        for number, asked in enumerate([whole(2), whole(2), share(500), whole(2), whole(1)]):
            self.loop.feed(ev.WorkloadSubmitted(10 + number, job(f"w{number}", asked)))
            self.loop.turn(10 + number)
            yield
        self.loop.feed(ev.WorkloadSubmitted(20, job("gang", share(100), 3)))
        for event in (
            ev.StartFailed(21, "w0", 1, 0),
            ev.WorkloadEnded(22, "w1", Outcome.COMPLETED),
            ev.PodStarted(23, "gang", 0),
            ev.PodStarted(24, "gang", 2),
            ev.DeviceLost(25, "n1", "n1/0"),
            ev.PodStarted(26, "gang", 1),
            ev.PodEnded(27, "gang", 0),
            ev.DeviceReturned(28, "n1", "n1/0"),
            ev.PodEnded(29, "gang", 1),
            ev.PodEnded(30, "gang", 2),
            ev.WorkloadAdopted(31, job("found", share(100)), (Placement(0, "n0", ("n0/0",)),)),
        ):
            self.loop.feed(event)
            self.loop.turn(event.at_us)
            yield
        self.recorder.record(Stopping(32, "found"))
        self.recorder.record(Acting(33, acts=False))
        self.recorder.sync()
        yield

    def assert_equals(self, replica: Replica, offset: int) -> None:
        """Check that a replica is as the items up to `offset` make it."""
        world, story = World(), Story()
        for number, item in enumerate(self.recorded[:offset], start=1):
            if not isinstance(item, Acting | Stopping):
                world.apply(item)
            story.apply(number, item)
        assert replica.offset == offset
        assert list(replica.world.snapshot(0)) == list(world.snapshot(0))
        assert list(replica.story.snapshot(0)) == list(story.snapshot(0))
        assert replica.story._not_running == story._not_running
