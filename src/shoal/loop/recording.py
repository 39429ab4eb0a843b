"""The recording: what happened and what was decided, in order, version 2; how it is written.

A recording is a folder of segments named `SEQUENCE-OFFSET.shoal`: their number, and how many items
the recording has before them. A segment is the eight bytes `SHOALREC`, the version (4 bytes) and
then frames. A frame is

    length of the chunk (4 bytes), CRC-32 of these four (4), chunk, CRC-32 of the chunk (4)

with integers little-endian. The chunks of a segment are one zlib stream, flushed at the end of each
frame, so that all frames up to any place can be read. What they hold are records (`records`).

A segment begins with a snapshot: a `Header`, the events that make the world anew, what makes the
story anew, and a `SnapshotEnds`. Behind it each frame holds what one `sync` made safe, so either
all of that is there or nothing. A segment gets its name when its snapshot is whole; so reading may
begin at any segment, and older ones may go. One that ends within a frame is read up to there, which
is what a crash leaves; a byte that changed anywhere before is an error.

A snapshot of a large world is written in pieces, between cycles. What is recorded meanwhile is
still written to the segment before, and again behind the snapshot: whoever reads on passes over the
items that he has had.
"""

import errno
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Protocol

from shoal.core.world import World
from shoal.loop.disk import Disk
from shoal.loop.records import Header, Item, Record, SnapshotEnds, encode
from shoal.loop.story import Story

MAGIC = b"SHOALREC"
VERSION = 2

NUMBER = Struct("<I")
PREAMBLE = MAGIC + NUMBER.pack(VERSION)

_LEVEL = 1
"""Of zlib: the fastest, which halves the time of the next one and loses a tenth of its effect."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a segment ends, and how many are kept.

    A segment ends when it holds `least_bytes` and `times_snapshot` times what its snapshot took
    (before compression), so that snapshots are a fixed part of what is written. `piece_bytes` of a
    snapshot are written between two cycles. `segments` are kept; beyond that the oldest go.
    """

    least_bytes: int = 16 << 20
    times_snapshot: int = 4
    piece_bytes: int = 1 << 18
    segments: int = 64


DEFAULT_ROTATION = Rotation()


class Reached(Protocol):
    """Where a recording stands: what a reader who is at its end knows."""

    @property
    def world(self) -> World:
        """The state."""
        ...

    @property
    def story(self) -> Story:
        """The story."""
        ...

    @property
    def offset(self) -> int:
        """Items recorded."""
        ...

    @property
    def at_us(self) -> int:
        """When the newest of them happened."""
        ...

    @property
    def sequence(self) -> int:
        """The number of the newest segment."""
        ...


class SegmentWriter:
    """Writes frames to one segment. It has no name until `publish`."""

    def __init__(self, disk: Disk, folder: Path, sequence: int, offset: int) -> None:
        self._disk = disk
        self._name = segment_name(sequence, offset)
        self._part = folder / f"{sequence:08}.part"
        self._file: BinaryIO = disk.create(self._part)
        self._zlib = zlib.compressobj(_LEVEL)
        disk.append(self._file, PREAMBLE)

    def frame(self, records: Iterable[bytes]) -> None:
        """Write encoded records as one frame."""
        chunk = self._zlib.compress(b"".join(records)) + self._zlib.flush(zlib.Z_SYNC_FLUSH)
        length = NUMBER.pack(len(chunk))
        self._disk.append(
            self._file,
            b"".join(
                (
                    length,
                    NUMBER.pack(zlib.crc32(length)),
                    chunk,
                    NUMBER.pack(zlib.crc32(chunk)),
                )
            ),
        )

    def sync(self) -> None:
        """Return when the frames are safe."""
        self._disk.sync(self._file)

    def publish(self) -> None:
        """Make what was written safe, and give the segment its name."""
        self.sync()
        self._disk.publish(self._part, self._name)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Begun:
    """A segment whose snapshot is being written."""

    def __init__(self, segment: SegmentWriter, records: Iterable[Record], piece_bytes: int) -> None:
        self.segment = segment
        self.snapshot_bytes = 0
        self.items: list[bytes] = []
        """What was recorded since the snapshot was taken."""
        self._frames = _frames(records, piece_bytes)
        self._next: list[bytes] | None = next(self._frames)

    def is_whole(self) -> bool:
        """Write the next piece of the snapshot, and return whether it was the last."""
        if self._next is not None:
            self.segment.frame(self._next)
            self.snapshot_bytes += sum(map(len, self._next))
            self._next = next(self._frames, None)
        return self._next is None


class FolderRecorder:
    """Writes a recording; the only one that does, which a lock on the folder sees to.

    A new recording begins in an empty folder; with `since`, one goes on where it was left. Raises
    `FileExistsError` where a recording is and none was expected, and `LockedError` where another
    process writes it.
    """

    def __init__(
        self,
        folder: Path,
        header: Header,
        *,
        since: Reached | None = None,
        disk: Disk | None = None,
        rotation: Rotation = DEFAULT_ROTATION,
    ) -> None:
        self._disk = disk or Disk()
        self._folder = folder
        self._header = header
        self._rotation = rotation
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._disk.lock(folder / "writer.lock")
        if since is None and segments_in(folder):
            self._lock.close()
            raise FileExistsError(folder)
        self.story = since.story if since else Story()
        self.offset = since.offset if since else 0
        """Items recorded so far."""
        self._sequence = since.sequence if since else 0
        self._buffer: list[bytes] = []
        self._written_bytes = 0
        """What the segment holds behind its snapshot, before compression."""
        self._snapshot_bytes = 0
        self._segment: SegmentWriter | None = None
        self._begun: _Begun | None = None
        self._failed = False
        """Whether a sync came to no end."""
        for left in folder.glob("*.part"):
            self._disk.remove(left)
        begun = self._begin(since.at_us if since else 0, since.world if since else World())
        while not begun.is_whole():
            pass
        self._finish(begun)

    def record(self, item: Item) -> None:
        """Keep an item; it is safe after the next `sync`."""
        self.offset += 1
        encoded = encode(item)
        self._buffer.append(encoded)
        if self._begun is not None:
            self._begun.items.append(encoded)
        self.story.apply(self.offset, item)

    def sync(self) -> None:
        """Return when all that was recorded is safe. What came since the last sync is one frame.

        Raises `OSError` where it cannot be written. Nothing is written behind a frame that may be
        there in part: whoever reads takes that for the end, and goes on with the next segment.
        """
        if self._failed:
            raise OSError(errno.EIO, "what was recorded before could not be written")
        if not self._buffer or self._segment is None:
            return
        self._failed = True
        self._written_bytes += sum(map(len, self._buffer))
        self._segment.frame(self._buffer)
        self._buffer.clear()
        self._segment.sync()
        self._failed = False

    def settle(self, at_us: int, world: World) -> None:
        """Begin a new segment with a snapshot of `world` if it is time, or go on with one."""
        enough = self._rotation.times_snapshot * self._snapshot_bytes
        is_time = self._written_bytes >= max(self._rotation.least_bytes, enough)
        if self._begun is None and is_time:
            self._begun = self._begin(at_us, world)
        if self._begun is not None and self._begun.is_whole():
            self.sync()
            self._finish(self._begun)

    def close(self) -> None:
        """Sync, close the files and give up the lock. Where a sync has failed, none is tried."""
        try:
            if not self._failed:
                self.sync()
        finally:
            if self._segment is not None:
                self._segment.close()
            if self._begun is not None:
                self._begun.segment.close()
            self._lock.close()

    def _begin(self, at_us: int, world: World) -> _Begun:
        """Take a snapshot, to be written."""
        self._sequence += 1
        segment = SegmentWriter(self._disk, self._folder, self._sequence, self.offset)
        records = list(self._snapshot(at_us, world))
        return _Begun(segment, records, self._rotation.piece_bytes)

    def _finish(self, begun: _Begun) -> None:
        """Go over to a segment whose snapshot is written; all that is recorded has been synced."""
        if begun.items:
            begun.segment.frame(begun.items)
        begun.segment.publish()
        if self._segment is not None:
            self._segment.close()
        self._segment = begun.segment
        self._begun = None
        self._snapshot_bytes = begun.snapshot_bytes
        self._written_bytes = sum(map(len, begun.items))
        for _, path in segments_in(self._folder)[: -self._rotation.segments]:
            self._disk.remove(path)

    def _snapshot(self, at_us: int, world: World) -> Iterator[Record]:
        yield self._header
        yield from world.snapshot(at_us)
        yield from self.story.snapshot(at_us)
        yield SnapshotEnds(at_us, self.offset)


def segment_name(sequence: int, offset: int) -> str:
    """Return the name of a segment's file."""
    return f"{sequence:08}-{offset:016}.shoal"


def segments_in(folder: Path) -> list[tuple[tuple[int, int], Path]]:
    """Return the segments of a recording in order: sequence and offset, and where each is."""
    found = []
    for path in folder.glob("*-*.shoal"):
        sequence, _, offset = path.stem.partition("-")
        if sequence.isdecimal() and offset.isdecimal():
            found.append(((int(sequence), int(offset)), path))
    return sorted(found)


def _frames(records: Iterable[Record], piece_bytes: int) -> Iterator[list[bytes]]:
    """Yield encoded records in lists of about so many bytes; at least one list."""
    frame: list[bytes] = []
    size = 0
    for record in records:
        encoded = encode(record)
        frame.append(encoded)
        size += len(encoded)
        if size >= piece_bytes:
            yield frame
            frame, size = [], 0
    yield frame
