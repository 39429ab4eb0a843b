"""The recording: what happened and what was decided, in order, version 1.

A recording is the eight bytes `SHOALREC` and then records. A record is

    length of the body (4 bytes), kind (1), CRC-32 of these five bytes (4), body, CRC-32 of it (4)

with integers little-endian and the body in MessagePack. The first record is a `Header`. A snapshot
is a `SnapshotBegins` with the number of events that follow and make the world anew, so that reading
may begin at any snapshot. A file that ends within a record is read up to there, which is what a
crash leaves; a byte that changed anywhere before is an error.
"""

import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO

import msgspec

from shoal.core import events as ev
from shoal.core.decisions import Retract, Start, Wait
from shoal.core.policies import Policy

MAGIC = b"SHOALREC"
VERSION = 1

_HEAD = Struct("<IB")
_CHECK = Struct("<I")
_OVERHEAD = _HEAD.size + 2 * _CHECK.size


class RecordingError(Exception):
    """A recording that cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a recording was made with."""

    version: int
    seed: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class SnapshotBegins:
    """The next `events` events make a new world equal to the one recorded so far."""

    at_us: int
    events: int


Record = Header | SnapshotBegins | ev.Event

_KINDS: dict[int, type] = {
    1: Header,
    2: SnapshotBegins,
    16: ev.NodeSeen,
    17: ev.NodeLost,
    18: ev.NodeCordoned,
    19: ev.DeviceLost,
    20: ev.DeviceReturned,
    21: ev.MaskSet,
    22: ev.PricesSet,
    32: ev.WorkloadSubmitted,
    33: ev.WorkloadAdopted,
    34: ev.WorkloadEnded,
    35: ev.PodStarted,
    36: ev.PodEnded,
    37: ev.StartFailed,
    48: ev.Cycled,
    49: ev.WorkloadRestored,
    50: ev.GroupRestored,
    51: ev.RoomRestored,
    52: ev.DemandRestored,
}
_DECISION_KINDS: dict[int, type] = {64: Start, 65: Retract, 66: Wait}
"""A `Decided` is recorded as the time and the decision, under the decision's kind."""

_KIND_OF = {kind: number for number, kind in (_KINDS | _DECISION_KINDS).items()}
_DECODERS: dict[int, msgspec.msgpack.Decoder[Any]] = {
    number: msgspec.msgpack.Decoder(kind) for number, kind in _KINDS.items()
} | {
    number: msgspec.msgpack.Decoder(tuple.__class_getitem__((int, kind)))
    for number, kind in _DECISION_KINDS.items()
}
_ENCODER = msgspec.msgpack.Encoder()


def encode(record: Record) -> bytes:
    """Return a record as bytes, checksums and all."""
    if isinstance(record, ev.Decided):
        kind = _KIND_OF[type(record.decision)]
        body = _ENCODER.encode((record.at_us, record.decision))
    else:
        kind = _KIND_OF[type(record)]
        body = _ENCODER.encode(record)
    head = _HEAD.pack(len(body), kind)
    return b"".join((head, _CHECK.pack(zlib.crc32(head)), body, _CHECK.pack(zlib.crc32(body))))


class FileRecorder:
    """Writes a recording. With `durable`, `sync` waits until the disk has it."""

    def __init__(self, path: Path, header: Header, *, durable: bool = True) -> None:
        self._durable = durable
        self._file: BinaryIO = path.open("xb")
        self._file.write(MAGIC)
        self._file.write(encode(header))
        self.sync()

    def record(self, event: ev.Event) -> None:
        """Write an event."""
        self._file.write(encode(event))

    def snapshot(self, at_us: int, events: Iterable[ev.Event]) -> None:
        """Write a snapshot, from which a reader may begin."""
        listed = list(events)
        self._file.write(encode(SnapshotBegins(at_us, len(listed))))
        for event in listed:
            self._file.write(encode(event))

    def sync(self) -> None:
        """Write out what is buffered."""
        self._file.flush()
        if self._durable:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Sync and close the file."""
        self.sync()
        self._file.close()


def read(data: bytes) -> Iterator[Record]:
    """Yield the records of a recording, up to where it may be cut off in the middle of one.

    Raises `RecordingError` where it is damaged, or is none.
    """
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise RecordingError("This is no recording: it does not begin with SHOALREC.")
    at = len(MAGIC)
    while at + _OVERHEAD <= len(data):
        head = data[at : at + _HEAD.size]
        length, kind = _HEAD.unpack(head)
        body_at = at + _HEAD.size + _CHECK.size
        _verify(head, data, at + _HEAD.size, at)
        if body_at + length + _CHECK.size > len(data):
            return
        body = data[body_at : body_at + length]
        _verify(body, data, body_at + length, at)
        yield _decode(kind, body, at)
        at = body_at + length + _CHECK.size


def read_file(path: Path) -> Iterator[Record]:
    """Yield the records of a file; see `read`."""
    return read(path.read_bytes())


def from_last_snapshot(records: Iterable[Record]) -> tuple[Header, list[ev.Event]]:
    """Return the header, and the events from the last whole snapshot on (or from the start)."""
    header: Header | None = None
    events: list[ev.Event] = []
    snapshot_from: int | None = None
    snapshot_events = 0
    for record in records:
        if isinstance(record, Header):
            header = record
        elif isinstance(record, SnapshotBegins):
            snapshot_from, snapshot_events = len(events), record.events
        else:
            events.append(record)
        if snapshot_from is not None and len(events) == snapshot_from + snapshot_events:
            del events[:snapshot_from]
            snapshot_from = None
    if snapshot_from is not None:
        del events[snapshot_from:]
    if header is None:
        raise RecordingError("This recording has no header; it was cut off before its beginning.")
    return header, events


def _verify(part: bytes, data: bytes, check_at: int, record_at: int) -> None:
    (check,) = _CHECK.unpack_from(data, check_at)
    if zlib.crc32(part) != check:
        raise RecordingError(f"The record at byte {record_at} is damaged: its checksum is wrong.")


def _decode(kind: int, body: bytes, at: int) -> Record:
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise RecordingError(
            f"The record at byte {at} is of kind {kind}, which this version of Shoal cannot read."
        )
    try:
        value = decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise RecordingError(f"The record at byte {at} cannot be read: {error}.") from error
    if kind in _DECISION_KINDS:
        at_us, decision = value
        return ev.Decided(at_us, decision)
    if isinstance(value, Header) and value.version != VERSION:
        raise RecordingError(f"This recording has version {value.version}; expected {VERSION}.")
    record: Record = value
    return record
