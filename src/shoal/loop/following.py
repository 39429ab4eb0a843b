"""How a recording is read: from its newest snapshot or from an offset, also while it grows."""

import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from shoal.loop.recording import MAGIC, NUMBER, PREAMBLE, VERSION, segments_in
from shoal.loop.records import Record, RecordingError, SnapshotEnds, decode

_READ_BYTES = 1 << 20
_HEAD = 2 * NUMBER.size


class NotThereError(RecordingError):
    """The recording does not reach back, or forward, to the offset that was asked for."""


class SegmentReader:
    """The frames of one segment, as far as it is written. It keeps no file open.

    Whoever knows what the snapshot says already passes over it, up to its `SnapshotEnds`.
    """

    def __init__(self, path: Path, *, passes_snapshot: bool = False) -> None:
        self._path = path
        self._passes = passes_snapshot
        self._data = bytearray()
        self._at = 0
        """Where in the file `_data` begins."""
        self._zlib = zlib.decompressobj()
        self._begun = False

    def frame(self) -> list[Record] | None:
        """Return the records of the next whole frame, None where there is none yet.

        Raises `RecordingError` where the segment is damaged, or is none, and `NotThereError` where
        it is gone.
        """
        while (found := self._parse()) is None:
            more = self._more()
            if not more:
                return None
            self._data += more
        return found

    def _more(self) -> bytes:
        try:
            with self._path.open("rb", buffering=0) as file:
                file.seek(self._at + len(self._data))
                return file.read(_READ_BYTES)
        except FileNotFoundError:
            raise NotThereError(
                f"{self._path} is gone; read on from the newest snapshot."
            ) from None

    def _parse(self) -> list[Record] | None:
        if not self._begun and not self._preamble():
            return None
        data = self._data
        if len(data) < _HEAD:
            return None
        (length,) = NUMBER.unpack_from(data)
        self._verify(bytes(data[: NUMBER.size]), NUMBER.size)
        if len(data) < _HEAD + length + NUMBER.size:
            return None
        chunk = bytes(data[_HEAD : _HEAD + length])
        self._verify(chunk, _HEAD + length)
        try:
            plain = self._zlib.decompress(chunk)
            records = list(decode(plain, SnapshotEnds if self._passes else None))
        except (zlib.error, RecordingError) as error:
            raise RecordingError(f"{self._place()} cannot be read: {error}.") from error
        self._passes = self._passes and not records
        self._drop(_HEAD + length + NUMBER.size)
        return records

    def _preamble(self) -> bool:
        data = self._data
        if data[: len(MAGIC)] != MAGIC[: len(data)]:
            raise RecordingError(
                f"{self._path} is no segment of a recording: it does not begin with SHOALREC."
            )
        if len(data) < len(PREAMBLE):
            return False
        (version,) = NUMBER.unpack_from(data, len(MAGIC))
        if version != VERSION:
            raise RecordingError(f"{self._path} has version {version}; expected {VERSION}.")
        self._drop(len(PREAMBLE))
        self._begun = True
        return True

    def _verify(self, part: bytes, check_at: int) -> None:
        (check,) = NUMBER.unpack_from(self._data, check_at)
        if zlib.crc32(part) != check:
            raise RecordingError(f"{self._place()} is damaged: its checksum is wrong.")

    def _drop(self, count: int) -> None:
        del self._data[:count]
        self._at += count

    def _place(self) -> str:
        return f"{self._path}: the frame at byte {self._at}"


class Follower:
    """Reads a recording while it is written. It holds one frame in memory.

    It begins with the newest snapshot; with `offset`, behind as many items and without a snapshot.
    Raises `NotThereError` where there is no recording, or none that reaches back so far.
    """

    def __init__(self, folder: Path, offset: int | None = None) -> None:
        self._folder = folder
        segments = segments_in(folder)
        if offset is not None:
            segments = [each for each in segments if each[0][1] <= offset]
        if not segments:
            reach = "" if offset is None else f" that reaches back to offset {offset}"
            raise NotThereError(f"{folder} holds no recording{reach}.")
        (self.sequence, self.offset), path = segments[-1]
        """The segment that is being read, and how many items are before the place in it."""
        self._from = self.offset if offset is None else offset
        self._segment = SegmentReader(path, passes_snapshot=offset is not None)
        self._ready: deque[Record] = deque()
        self._in_snapshot = True
        self._wants_snapshot = offset is None

    def poll(self) -> Iterator[Record]:
        """Yield what is there and was not yielded before; ends where nothing more is written yet.

        First comes the snapshot up to its `SnapshotEnds`, if it is wanted, and then items only.
        Whoever stops early goes on there at the next call. Raises `RecordingError` where the
        recording is damaged or lacks something, `NotThereError` where it was not read in time.
        """
        while True:
            while self._ready:
                record = self._ready.popleft()
                if self._is_wanted(record):
                    yield record
            frame = self._segment.frame()
            if frame is None:
                after = self._after()
                # What was written before the next segment appeared is all of this one.
                frame = self._segment.frame()
                if frame is None and after is None:
                    return
                if frame is None and after is not None:
                    self._move_to(*after)
            self._ready.extend(frame or ())

    def _is_wanted(self, record: Record) -> bool:
        if not self._in_snapshot:
            self.offset += 1
            return self.offset > self._from
        if isinstance(record, SnapshotEnds):
            self._in_snapshot = False
            if record.offset > self.offset:
                raise RecordingError(
                    f"{self._folder}: segment {self.sequence} goes on at offset {record.offset},"
                    f" and what is before it ends at {self.offset}; something is missing."
                )
            # What was recorded while the snapshot was written stands behind it once more.
            self._from = max(self._from, self.offset)
            self.offset = record.offset
        return self._wants_snapshot

    def _after(self) -> tuple[int, Path] | None:
        """Return the next segment, if it is there."""
        for (sequence, _), path in segments_in(self._folder):
            if sequence > self.sequence:
                return sequence, path
        return None

    def _move_to(self, sequence: int, path: Path) -> None:
        if sequence != self.sequence + 1:
            raise NotThereError(
                f"{self._folder}: segments {self.sequence + 1} to {sequence - 1} are gone; read on"
                " from the newest snapshot."
            )
        self._segment = SegmentReader(path, passes_snapshot=True)
        self.sequence = sequence
        self._in_snapshot = True
        self._wants_snapshot = False
