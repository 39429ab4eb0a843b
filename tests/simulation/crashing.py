"""A disk that lets the process end at any moment, and a day lived with such a disk."""

from functools import cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO

from shoal.catalog.load import load_catalog
from shoal.loop.disk import Disk
from shoal.loop.following import SegmentReader
from shoal.loop.recording import Rotation, segments_in
from shoal.loop.records import Item, SnapshotEnds
from shoal.model.pool import Pool
from shoal.model.queue import QueueTree
from shoal.objects.files import read_objects
from shoal.objects.quotas import names_of
from shoal.objects.tree import resolved
from shoal.simulation.organisation import DAY_US, FIRST_MORNING_US, fleet
from shoal.simulation.platform import RECORDING, TICK_US, BegunWith, Platform

SMALL = Rotation(least_bytes=60_000, times_snapshot=1, piece_bytes=60_000, segments=100_000)
"""So many segments that crashes meet every part of a rotation."""


class CrashError(Exception):
    """The process ends here."""


class CrashingDisk(Disk):
    """Ends the process before or within its operation number `at`.

    What was written and not synced may be lost in part: as much of it stays as `seed` says.
    """

    def __init__(self, at: int, seed: int) -> None:
        self._left = at
        self._seed = seed
        self._unsynced: dict[str, int] = {}
        """How many bytes of a file are safe, by its name."""
        self.operations = 0
        self._open: list[BinaryIO] = []

    def lock(self, path: Path) -> BinaryIO:
        """Lock a folder, until the process ends."""
        self._open.append(super().lock(path))
        return self._open[-1]

    def create(self, path: Path) -> BinaryIO:
        """Make a file."""
        self._may_crash(None, b"")
        self._open.append(super().create(path))
        return self._open[-1]

    def append(self, file: BinaryIO, data: bytes) -> None:
        """Write."""
        self._may_crash(file, data)
        super().append(file, data)

    def sync(self, file: BinaryIO) -> None:
        """Forget what was not safe."""
        self._may_crash(file, b"")
        self._unsynced[file.name] = file.tell()

    def publish(self, path: Path, name: str) -> None:
        """Rename."""
        self._may_crash(None, b"")
        path.replace(path.with_name(name))

    def remove(self, path: Path) -> None:
        """Remove."""
        self._may_crash(None, b"")
        super().remove(path)

    def _may_crash(self, file: BinaryIO | None, data: bytes) -> None:
        self.operations += 1
        self._left -= 1
        if self._left >= 0:
            return
        if file is not None:
            safe = self._unsynced.get(file.name, 0)
            super().append(file, data[: self._part(len(data))])
            length = file.tell()
            file.truncate(safe + self._part(length - safe))
        for each in self._open:
            each.close()
        raise CrashError

    def _part(self, length: int) -> int:
        """Return a number from 0 to `length`."""
        draw = blake2b(f"{self._seed}/{self.operations}".encode(), digest_size=8).digest()
        return int.from_bytes(draw, "little") % (length + 1)


@cache
def objects() -> tuple[tuple[Pool, ...], QueueTree]:
    """Return the demo's pools and tenant tree."""
    catalog = load_catalog()
    written = read_objects([Path(str(files("shoal.simulation") / "demo.yaml"))], catalog)
    return written.pools, resolved(written.tree, names_of(catalog))


def begin(folder: Path, disk: Disk | None = None, seed: int = 7) -> Platform:
    """Begin the demo, or go on with it."""
    what = BegunWith(seed, "fragmentation", True, fleet())
    platform = Platform(folder, what, disk=disk, rotation=SMALL)
    platform.keep_to(*objects())
    return platform


def hours(count: float) -> int:
    """Return the time so many hours after the beginning."""
    return FIRST_MORNING_US + int(count * DAY_US / 24)


def at_a_tick(at_us: int) -> int:
    """Return the first time from then on at which a platform decides."""
    return -(-at_us // TICK_US) * TICK_US


def items(folder: Path) -> list[Item]:
    """Everything that a platform recorded, from its first segment on."""
    found: list[Item] = []
    for (_, offset), path in segments_in(folder / RECORDING):
        reader = SegmentReader(path)
        records = [record for frame in iter(reader.frame, None) for record in frame]
        ends = next(i for i, each in enumerate(records) if isinstance(each, SnapshotEnds))
        again = len(found) - offset
        assert again >= 0, "something was lost between two segments"
        own = records[ends + 1 :]
        assert own[:again] == found[offset:], "what is written twice differs"
        found += own[again:]  # type: ignore[arg-type]
    return found
