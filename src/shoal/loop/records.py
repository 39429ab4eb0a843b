"""What a recording is made of: its kinds of records, and each of them as bytes.

A record is the length of its body (4 bytes, little-endian), its kind (1 byte) and the body in
MessagePack. `recording` puts records into frames, compresses those and guards them by checksums.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any

import msgspec

from shoal.core import events as ev
from shoal.core.decisions import (
    Evict,
    Freeze,
    GiveUp,
    Refuse,
    Reserve,
    Resize,
    Retract,
    Start,
    Wait,
    Warn,
)
from shoal.core.policies import Policy
from shoal.loop.story import Acting, EndedLife, Guard, LifeRestored, Noted, Part, Stopping

_HEAD = Struct("<IB")


class RecordingError(Exception):
    """A recording that cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a recording was made with: the seed, and the placement policy."""

    seed: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class SnapshotEnds:
    """What stands before it makes a world and a story equal to those after `offset` items."""

    at_us: int
    offset: int


Item = ev.Event | Acting | Stopping
"""What a recording counts: its offset is the number of items before a place in it."""

Record = Header | SnapshotEnds | Item | Part

_KINDS: dict[int, type] = {
    1: Header,
    2: SnapshotEnds,
    8: Acting,
    9: Stopping,
    10: LifeRestored,
    11: EndedLife,
    12: Guard,
    16: ev.NodeSeen,
    17: ev.NodeLost,
    18: ev.NodeCordoned,
    19: ev.DeviceLost,
    20: ev.DeviceReturned,
    21: ev.MaskSet,
    22: ev.PricesSet,
    23: ev.QueuesSet,
    24: ev.PoolsSet,
    32: ev.WorkloadSubmitted,
    33: ev.WorkloadAdopted,
    34: ev.WorkloadEnded,
    35: ev.PodStarted,
    36: ev.PodEnded,
    37: ev.StartFailed,
    38: ev.PodMoved,
    39: ev.EvictionBlocked,
    40: ev.EvictionsResumed,
    41: ev.DisruptionBudgetSet,
    42: ev.CheckpointReported,
    43: ev.PeriodBegan,
    44: ev.PrioritySet,
    48: ev.Cycled,
    49: ev.WorkloadRestored,
    50: ev.GroupRestored,
    51: ev.RoomRestored,
    52: ev.DemandRestored,
    53: ev.EvictionsRestored,
    54: ev.UsageRestored,
    56: ev.GuaranteesRestored,
    57: ev.SpendingRestored,
    58: ev.DeclaredRestored,
    59: ev.EndingRestored,
}
_DECISION_KINDS: dict[int, type] = {
    64: Start,
    65: Retract,
    66: Wait,
    67: Reserve,
    68: GiveUp,
    69: Evict,
    70: Freeze,
    71: Refuse,
    72: Warn,
    73: Resize,
}
"""A `Decided` is recorded as the time and the decision, under the decision's kind."""

_NOTED = 64
"""A `Noted` is recorded under its decision's kind plus this number."""

_KIND_OF = {kind: number for number, kind in (_KINDS | _DECISION_KINDS).items()}
_DECODERS: dict[int, msgspec.msgpack.Decoder[Any]] = (
    {number: msgspec.msgpack.Decoder(kind) for number, kind in _KINDS.items()}
    | {
        number: msgspec.msgpack.Decoder(tuple.__class_getitem__((int, kind)))
        for number, kind in _DECISION_KINDS.items()
    }
    | {
        number + _NOTED: msgspec.msgpack.Decoder(tuple.__class_getitem__((int, int, int, kind)))
        for number, kind in _DECISION_KINDS.items()
    }
)
_ENCODER = msgspec.msgpack.Encoder()


def encode(record: Record) -> bytes:
    """Return a record as bytes."""
    if isinstance(record, ev.Decided):
        kind = _KIND_OF[type(record.decision)]
        body = _ENCODER.encode((record.at_us, record.decision))
    elif isinstance(record, Noted):
        kind = _KIND_OF[type(record.decision)] + _NOTED
        body = _ENCODER.encode((record.offset, record.at_us, record.workloads, record.decision))
    else:
        kind = _KIND_OF[type(record)]
        body = _ENCODER.encode(record)
    return _HEAD.pack(len(body), kind) + body


def decode(data: bytes, only: type | None = None) -> Iterator[Record]:
    """Yield the records in `data`, or those of one kind, which passes over the others quickly.

    Raises `RecordingError` where it is not made of whole ones.
    """
    wanted = None if only is None else _KIND_OF[only]
    at = 0
    while at < len(data):
        body_at = at + _HEAD.size
        length, kind = _HEAD.unpack_from(data, at) if body_at <= len(data) else (0, 0)
        if body_at + length > len(data):
            raise RecordingError("a record is cut off")
        if wanted is None or kind == wanted:
            yield _decode(kind, data[body_at : body_at + length])
        at = body_at + length


def _decode(kind: int, body: bytes) -> Record:
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise RecordingError(f"a record is of kind {kind}, which this version of Shoal cannot read")
    try:
        value = decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise RecordingError(f"a record of kind {kind} cannot be read: {error}") from error
    if kind in _DECISION_KINDS:
        at_us, decision = value
        return ev.Decided(at_us, decision)
    if kind - _NOTED in _DECISION_KINDS:
        offset, at_us, workloads, decision = value
        return Noted(offset, at_us, decision, workloads)
    record: Record = value
    return record
