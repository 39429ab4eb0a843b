"""The recording: any prefix is readable, any changed byte is found, nothing is there by halves."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.core.decisions import Resize
from shoal.core.eviction.underway import Underway
from shoal.core.snapshots import snapshot as snapshot_of
from shoal.loop.disk import FastDisk, LockedError
from shoal.loop.engine import Loop
from shoal.loop.following import Follower, NotThereError, SegmentReader
from shoal.loop.recording import (
    NUMBER,
    PREAMBLE,
    FolderRecorder,
    Rotation,
    segments_in,
)
from shoal.loop.records import Item, Record, RecordingError, SnapshotEnds, decode, encode
from shoal.loop.replay import replay
from shoal.loop.replica import Replica, restored
from shoal.loop.story import Acting, Noted, Stopping
from shoal.model.queue import Queue, QueueTree
from shoal.model.request import Request
from shoal.model.verdict import Reason
from shoal.model.workload import Placement, PodSet, Workload
from tests.core.build import SEED, node, policy
from tests.core.cases import Case, queue, tree, work
from tests.loop.day import Day, Nobody

OFTEN = Rotation(least_bytes=300, times_snapshot=0, segments=1000)
"""A new segment every few items."""

PIECEWISE = replace(OFTEN, piece_bytes=500)
"""The same, with snapshots that take several cycles to write."""


def read_into(records: list[Record], path: Path) -> None:
    """Add every record of a segment."""
    reader = SegmentReader(path)
    for frame in iter(reader.frame, None):
        records += frame


def records_in(path: Path) -> list[Record]:
    """Every record of a segment."""
    records: list[Record] = []
    read_into(records, path)
    return records


def followed(folder: Path, offset: int) -> list[Record]:
    """Every item from an offset on."""
    return list(Follower(folder, offset).poll())


def items(folder: Path) -> list[Item]:
    """Every item of a recording that is kept whole."""
    found: list[Item] = []
    for (_, offset), path in segments_in(folder):
        records = records_in(path)
        ends = next(i for i, each in enumerate(records) if isinstance(each, SnapshotEnds))
        own = records[ends + 1 :]
        again = len(found) - offset
        assert own[:again] == found[offset:]
        found += own[again:]  # type: ignore[arg-type]
    return found


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Day:
    """A recording in one segment."""
    return Day(tmp_path_factory.mktemp("day") / "recording").live().close()


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> Day:
    """The same in many."""
    folder = tmp_path_factory.mktemp("segments") / "recording"
    return Day(folder, rotation=OFTEN).live().close()


def test_what_is_read_is_what_was_recorded(day: Day, segments: Day) -> None:
    assert items(day.folder) == day.recorded
    assert items(segments.folder) == segments.recorded == day.recorded
    assert len(segments_in(day.folder)) == 1
    assert len(segments_in(segments.folder)) > 5


def test_what_happens_while_a_snapshot_is_written_is_read_once(tmp_path: Path) -> None:
    day = Day(tmp_path / "recording", PIECEWISE).live().close()
    twice = 0
    for (_, before), (_, path) in pairwise(segments_in(day.folder)):
        own = records_in(path)
        twice += sum(
            1 for each in own if each in records_in(before) and isinstance(each, ev.Cycled)
        )
    assert twice > 0, "nothing happened while a snapshot was written"
    assert items(day.folder) == day.recorded
    for offset in range(len(day.recorded) + 1):
        assert followed(day.folder, offset) == day.recorded[offset:]
    day.assert_equals(restored(day.folder), len(day.recorded))


def test_what_is_read_makes_the_same_world_and_story_from_any_snapshot(segments: Day) -> None:
    for kept in range(1, len(segments_in(segments.folder)) + 1):
        copy = segments.copy()
        for _, path in segments_in(copy)[kept:]:
            path.unlink()
        at_the_end = restored(copy)
        (_, offset), _ = (*segments_in(segments.folder), ((0, len(segments.recorded)), None))[kept]
        segments.assert_equals(at_the_end, offset)
        assert at_the_end.header is not None
        assert at_the_end.header.seed == str(SEED)
        assert at_the_end.header.policy.demand == policy("fgd").demand


def test_a_recording_decides_alike_when_it_is_replayed(day: Day) -> None:
    events = [each for each in items(day.folder) if not isinstance(each, Acting | Stopping)]
    world, differences = replay(events, policy("fgd"), SEED)
    assert not differences
    assert list(world.snapshot(0)) == list(day.world.snapshot(0))
    _, differences = replay(events, policy("random"), SEED)
    assert differences[0].decided != differences[0].recorded


def test_any_prefix_is_readable(day: Day, tmp_path: Path) -> None:
    """Cut anywhere, it yields the frames that are whole: a sync by itself or not at all."""
    ((_, path),) = segments_in(day.folder)
    data = path.read_bytes()
    everything = [encode(record) for record in records_in(path)]
    cut = tmp_path / path.name
    counts = []
    for length in range(len(data) + 1):
        cut.write_bytes(data[:length])
        part = [encode(record) for record in records_in(cut)]
        assert part == everything[: len(part)]
        counts.append(len(part))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, len(everything))
    before_items = len(everything) - len(day.recorded)
    assert set(counts) == {0, before_items, *(before_items + each for each in day.synced)}


def test_any_changed_byte_is_found(day: Day, tmp_path: Path) -> None:
    """Wherever it is; nothing made of it, or behind it, is ever returned."""
    ((_, path),) = segments_in(day.folder)
    data = path.read_bytes()
    everything = [encode(record) for record in records_in(path)]
    damaged = tmp_path / path.name
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[at] ^= flip
            damaged.write_bytes(changed)
            read: list[Record] = []
            with pytest.raises(RecordingError):
                read_into(read, damaged)
            assert [encode(record) for record in read] == everything[: len(read)]


@given(junk=st.binary(max_size=200))
def test_junk_is_no_segment(junk: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("junk") / "junk"
    if not PREAMBLE.startswith(junk[:8]):
        path.write_bytes(junk)
        with pytest.raises(RecordingError, match="is no segment of a recording"):
            records_in(path)
    if len(junk) >= 8:
        path.write_bytes(PREAMBLE + junk)
        with pytest.raises(RecordingError, match=f"frame at byte {len(PREAMBLE)} is damaged"):
            records_in(path)
    with pytest.raises(RecordingError, match="a record"):
        list(decode(junk or b"\0"))


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "newer"
    path.write_bytes(PREAMBLE[:8] + NUMBER.pack(3))
    with pytest.raises(RecordingError, match="has version 3; expected 2"):
        records_in(path)


@given(data=st.data())
def test_a_follower_reads_what_grows_however_it_is_cut(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It takes a few records here and there while the writer goes on, and misses none."""
    rotation = data.draw(st.sampled_from([OFTEN, PIECEWISE, Rotation()]))
    day = Day(tmp_path_factory.mktemp("follow") / "recording", rotation)
    replica = Replica(day.folder)
    try:
        for _ in day.steps():
            if data.draw(st.booleans()):
                replica.catch_up(data.draw(st.integers(1, 30)))
                assert replica.offset <= day.recorder.offset
    finally:
        day.close()  # also where the draws are used up and the example ends here
    while replica.catch_up(7):
        pass
    day.assert_equals(replica, len(day.recorded))


@given(data=st.data())
def test_reading_resumes_at_any_offset(segments: Day, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(segments.recorded)))
    assert followed(segments.folder, offset) == segments.recorded[offset:]


def test_what_is_gone_is_said_to_be(segments: Day) -> None:
    copy = segments.copy()
    follower = Follower(copy, 0)
    next(follower.poll())
    (_, second), (_, third), *_ = segments_in(copy)[1:]
    for path in (second, third):
        path.unlink()
    with pytest.raises(NotThereError, match="segments 2 to 3 are gone"):
        list(follower.poll())
    for _, path in segments_in(copy)[:3]:
        path.unlink()
    with pytest.raises(NotThereError, match="that reaches back to offset 3"):
        Follower(copy, 3)
    with pytest.raises(NotThereError, match="holds no recording"):
        Follower(copy / "elsewhere")


def test_a_replica_that_fell_behind_begins_anew(segments: Day) -> None:
    copy = segments.copy()
    replica = Replica(copy)
    replica._follower = Follower(copy, 0)
    for _, path in segments_in(copy)[1:3]:
        path.unlink()
    while replica.catch_up():
        pass
    segments.assert_equals(replica, len(segments.recorded))


def test_a_segment_cut_short_by_a_thief_is_found(segments: Day) -> None:
    """What follows says at which offset it begins."""
    copy = segments.copy()
    _, path = segments_in(copy)[2]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RecordingError, match="something is missing"):
        followed(copy, 0)


def test_old_segments_go(tmp_path: Path) -> None:
    day = Day(tmp_path / "recording", rotation=Rotation(300, 0, segments=3)).live().close()
    assert len(segments_in(day.folder)) == 3
    day.assert_equals(restored(day.folder), len(day.recorded))


def test_snapshots_are_a_fixed_part_of_what_is_written(tmp_path: Path) -> None:
    day = Day(tmp_path / "recording", rotation=Rotation(least_bytes=0, times_snapshot=2)).live()
    day.close()
    assert 1 < len(segments_in(day.folder)) < len(day.synced) // 2


def test_one_process_writes(tmp_path: Path) -> None:
    day = Day(tmp_path / "recording").live()
    with pytest.raises(LockedError):
        FolderRecorder(day.folder, day.header)
    day.close()
    with pytest.raises(FileExistsError):
        FolderRecorder(day.folder, day.header)


def test_a_recording_goes_on_where_it_was_left(tmp_path: Path) -> None:
    """In a new segment, and a torn frame at the end of the old one is passed over."""
    day = Day(tmp_path / "recording").live().close()
    (_, path) = segments_in(day.folder)[-1]
    path.write_bytes(path.read_bytes() + b"\x07\x00")
    left = tmp_path / "recording" / "00000002.part"
    left.write_bytes(b"a segment that was never whole")
    since = restored(day.folder)
    recorder = FolderRecorder(day.folder, day.header, since=since, disk=FastDisk())
    loop = Loop(since.world, policy("fgd"), SEED, Nobody(), recorder)
    loop.feed(ev.NodeLost(99, "n1"))
    recorder.close()
    assert not left.exists()
    assert items(day.folder) == [*day.recorded, ev.NodeLost(99, "n1")]
    assert followed(day.folder, 0) == items(day.folder)


def test_every_record_reads_back(day: Day) -> None:
    records: list[Record] = [*day.recorded, *day.recorder.story.snapshot(5), SnapshotEnds(5, 7)]
    assert list(decode(b"".join(map(encode, records)))) == records


def test_a_decision_that_work_grows_reads_back() -> None:
    decision = Resize("r", "w", (Placement(3, "n", ("n/0",)),))
    records: list[Record] = [ev.Decided(5, decision), Noted(7, 5, decision, 1)]
    assert list(decode(b"".join(map(encode, records)))) == records


def test_an_eviction_under_way_reads_back_as_it_was_counted() -> None:
    going = ((0, (7, 1)), (2, (9, 0)))
    eviction = Underway(3, Reason.PREEMPTION, going, 5, again=True, gone=(4, 0))
    workload = Workload("w", (PodSet("main", 3, Request()),))
    restored = ev.WorkloadRestored(9, workload, 1, (), (), None, (), underway=(eviction,))
    assert list(decode(encode(restored))) == [restored]


def test_what_an_eviction_loses_is_recorded_however_much_it_is() -> None:
    """Eight devices for 40 days, and 512 for half a day, are more than 64 bits of unit times."""
    minute_us = 60_000_000
    for pods, devices, days in ((1, 8, 40), (64, 8, 1)):
        nodes = [node(f"n{number}", devices) for number in range(pods)]
        case = Case(nodes, tree(queue("q")), stops_us={"q/low": minute_us})
        case.submit(work("q/low", devices, pods=pods))
        case.to(days * 24 * 60)
        case.submit(work("q/high", devices, priority=1))
        assert [uid for _, uid, _ in case.evictions] == ["q/low"]
        case.happen(*(ev.PodEnded(0, "q/low", pod) for pod in range(1, pods)))
        (going,) = case.world.entries["q/low"].underway
        assert (len(going.going), going.gone is not None) == (1, pods > 1)
        snapshot = list(snapshot_of(case.world, case.now_us))
        assert list(decode(b"".join(map(encode, snapshot)))) == snapshot


def test_a_queue_is_recorded_once() -> None:
    tree = QueueTree((Queue("company"), Queue("lab", "company")))
    assert [each.name for each in tree.children("company")] == ["lab"]
    assert tree.get("lab") is not None
    assert encode(ev.QueuesSet(0, tree)).count(b"lab") == 1
