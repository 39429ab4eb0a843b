"""A replica: a world and a story of its own, made from a recording by the code that made them."""

from pathlib import Path
from threading import RLock

from shoal.core.world import World
from shoal.loop.following import Follower, NotThereError
from shoal.loop.records import Header, Record, RecordingError, SnapshotEnds
from shoal.loop.story import Acting, EndedLife, Guard, LifeRestored, Noted, Stopping, Story


class Replica:
    """Follows a recording. One thread calls `catch_up`; others hold `lock` while they read.

    `world` and `story` may be replaced by others while the lock is not held. Raises `NotThereError`
    where there is no recording.
    """

    def __init__(self, folder: Path) -> None:
        self.lock = RLock()
        self._folder = folder
        self._begin()

    def _begin(self) -> None:
        self.world = World()
        self.story = Story()
        self.header: Header | None = None
        """What the recording was made with; there once a snapshot was read."""
        self.offset = 0
        """Items taken in so far."""
        self.at_us = 0
        """When the newest of them happened."""
        self._follower = Follower(self._folder)
        self._in_snapshot = True

    @property
    def sequence(self) -> int:
        """The number of the segment that was read last."""
        return self._follower.sequence

    def catch_up(self, most: int = 10_000) -> int:
        """Take in what was written since, at most so many records; return how many there were.

        A replica that fell behind what the recording keeps begins anew with the newest snapshot.
        Raises `RecordingError` where the recording is damaged.
        """
        with self.lock:
            taken = 0
            try:
                for record in self._follower.poll():
                    self._take(record)
                    taken += 1
                    if taken >= most:
                        break
            except NotThereError:
                self._begin()
                taken += 1
            return taken

    def _take(self, record: Record) -> None:
        match record:
            case Header():
                self.header = record
            case SnapshotEnds():
                self.offset, self.at_us = record.offset, record.at_us
                self._in_snapshot = False
            case LifeRestored() | EndedLife() | Guard() | Noted():
                self.story.restore(record)
            case _:
                if not self._in_snapshot:
                    self.offset += 1
                    self.at_us = record.at_us
                if not isinstance(record, Acting | Stopping):
                    self.world.apply(record)
                self.story.apply(self.offset, record)


def restored(folder: Path) -> Replica:
    """Return a replica of all that a recording holds, to go on from.

    Raises `NotThereError` where there is no recording, and `RecordingError` where it is damaged.
    """
    replica = Replica(folder)
    while replica.catch_up():
        pass
    if replica.header is None:
        raise RecordingError(f"{folder}: the newest segment has no whole snapshot.")
    return replica
