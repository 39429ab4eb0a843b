"""The recording format: any prefix is readable, any changed byte is found."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.core.decisions import Decision
from shoal.core.world import World
from shoal.loop.engine import Loop
from shoal.loop.recording import (
    MAGIC,
    VERSION,
    FileRecorder,
    Header,
    Record,
    RecordingError,
    SnapshotBegins,
    encode,
    from_last_snapshot,
    read,
    read_file,
)
from shoal.loop.replay import replay
from shoal.model.workload import Outcome
from tests.core.build import SEED, job, node, policy, share, whole


class Nobody:
    """Carries nothing out."""

    def carry_out(self, decision: Decision) -> None:
        """Do nothing."""


def record_a_day(path: Path, *, snapshot: bool = False) -> World:
    """Record starts, waits, a failed start and an end; return the world."""
    header = Header(VERSION, str(SEED), policy("fgd"))
    recorder = FileRecorder(path, header, durable=False)
    loop = Loop(World(), policy("fgd"), SEED, Nobody(), recorder)
    for number in range(3):
        loop.feed(ev.NodeSeen(number, node(f"n{number}", 2, labels={"zone": "ä"})))
    for number, asked in enumerate([whole(2), whole(2), share(500), whole(2), whole(1), whole(1)]):
        loop.feed(ev.WorkloadSubmitted(10 + number, job(f"w{number}", asked)))
        loop.turn(10 + number)
    if snapshot:
        recorder.snapshot(20, loop.world.snapshot(20))
    loop.feed(ev.StartFailed(21, "w0", 1, 0))
    loop.turn(21)
    loop.feed(ev.WorkloadEnded(22, "w1", Outcome.COMPLETED))
    loop.turn(22)
    recorder.close()
    return loop.world


def recorded(records: list[Record]) -> list[ev.Event]:
    """The events among records."""
    return [r for r in records if not isinstance(r, Header | SnapshotBegins)]


def test_what_is_read_makes_the_same_world_and_decides_alike(tmp_path: Path) -> None:
    """From the start, and from the snapshot."""
    world = record_a_day(tmp_path / "r", snapshot=True)
    records = list(read_file(tmp_path / "r"))
    header = records[0]
    assert isinstance(header, Header)
    assert (header.version, header.seed, header.policy.name) == (VERSION, "42", "fgd")
    assert header.policy.demand == policy("fgd").demand
    _, events = from_last_snapshot(records)
    assert len(events) < len(recorded(records))
    assert isinstance(events[0], ev.NodeSeen)
    again, differences = replay(events, header.policy, int(header.seed))
    assert not differences
    assert list(again.snapshot(0)) == list(world.snapshot(0))


def test_another_policy_decides_otherwise(tmp_path: Path) -> None:
    """And the replay says where."""
    record_a_day(tmp_path / "r")
    events = recorded(list(read_file(tmp_path / "r")))
    _, differences = replay(events, policy("random"), SEED)
    assert differences
    assert differences[0].decided != differences[0].recorded


def test_any_prefix_is_readable(tmp_path: Path) -> None:
    """Cut anywhere, it yields the records that are whole."""
    record_a_day(tmp_path / "r", snapshot=True)
    data = (tmp_path / "r").read_bytes()
    whole_thing = list(read(data))
    counts = []
    for length in range(len(data) + 1):
        part = list(read(data[:length]))
        assert recorded(part) == recorded(whole_thing)[: len(recorded(part))]
        counts.append(len(part))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, len(whole_thing))


def test_any_changed_byte_is_found(tmp_path: Path) -> None:
    """Wherever it is; no record made of it is ever returned."""
    record_a_day(tmp_path / "r")
    data = (tmp_path / "r").read_bytes()
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[at] ^= flip
            with pytest.raises(RecordingError):
                list(read(bytes(damaged)))


@given(junk=st.binary(max_size=200))
def test_junk_is_no_recording(junk: bytes) -> None:
    """Neither at the start nor behind the magic; short junk may be a record cut off."""
    if not MAGIC.startswith(junk[:8]):
        with pytest.raises(RecordingError, match="This is no recording"):
            list(read(junk))
    if len(junk) >= 13:
        with pytest.raises(RecordingError, match="The record at byte 8 is damaged"):
            list(read(MAGIC + junk))


def test_a_snapshot_cut_off_is_not_used(tmp_path: Path) -> None:
    """Reading begins where it began before."""
    path = tmp_path / "r"
    recorder = FileRecorder(path, Header(VERSION, "1", policy()), durable=False)
    recorder.record(ev.NodeLost(1, "a"))
    recorder.snapshot(2, [ev.NodeLost(2, "b"), ev.NodeLost(2, "c")])
    recorder.close()
    data = path.read_bytes()
    _, whole_one = from_last_snapshot(read(data))
    assert whole_one == [ev.NodeLost(2, "b"), ev.NodeLost(2, "c")]
    _, cut = from_last_snapshot(read(data[:-1]))
    assert cut == [ev.NodeLost(1, "a")]


def test_a_newer_version_and_an_unknown_kind_are_refused() -> None:
    """With what is expected."""
    newer = MAGIC + encode(Header(VERSION + 1, "1", policy()))
    with pytest.raises(RecordingError, match="has version 2; expected 1"):
        list(read(newer))
    with pytest.raises(RecordingError, match="no header"):
        from_last_snapshot(read(MAGIC))


def test_a_recording_is_never_overwritten(tmp_path: Path) -> None:
    """The file must be new."""
    record_a_day(tmp_path / "r")
    with pytest.raises(FileExistsError):
        record_a_day(tmp_path / "r")
