"""What running pods say of their checkpoints, as the core hears it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from shoal.core.events import CheckpointReported
from shoal.core.eviction.victims import HOUR_US, lost_unit_us
from shoal.kubernetes.scheduler import now_us
from shoal.kubernetes.watching.checkpoints import AHEAD_US
from shoal.kubernetes.wire.kinds import JOBS, NAMESPACES, NODES, PODS
from shoal.model.fractions import UNIT
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import job, namespace, node, pod
from tests.kubernetes.rig import Rig, Shoal
from tests.kubernetes.tenants import OPTIONS, in_queue

MINUTE_US = 60_000_000
BEGAN_US = now_us()


def clock(at_us: int) -> str:
    """A moment as pods write it."""
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).isoformat().replace("+00:00", "Z")


def say(rig: Rig, name: str, at_us: int) -> None:
    rig.change(PODS, name, "ns", metadata={"annotations": {"shoal.dev/checkpoint": clock(at_us)}})


def to(monkeypatch: pytest.MonkeyPatch, minutes: int) -> int:
    at_us = BEGAN_US + minutes * MINUTE_US
    monkeypatch.setattr("shoal.kubernetes.scheduler.now_us", lambda: at_us)
    return at_us


def listening(shoal: Shoal) -> list[tuple[str, int]]:
    """Whatever is reported from now on: of which workload, up to when."""
    heard: list[tuple[str, int]] = []
    known = shoal.scheduler.loop._check
    assert known is not None

    def note(event: Any) -> None:
        known(event)
        if isinstance(event, CheckpointReported):
            heard.append((event.uid, event.taken_us))

    shoal.scheduler.loop._check = note
    return heard


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("n1", 4))
    to(monkeypatch, 0)
    return rig


def gang(rig: Rig, pods: int = 2) -> None:
    owner = rig.put(JOBS, job("train", pods))
    for number in range(pods):
        rig.put(PODS, in_queue(pod(f"train-{number}", owner=owner), "owner"))


@in_loop
async def test_a_pod_says_up_to_when_it_is_saved_and_is_heard_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put(PODS, in_queue(pod("a"), "owner"))
    shoal = Shoal(rig, options=OPTIONS)
    await shoal.settle()
    heard = listening(shoal)
    entry = shoal.world.entries["uid-a/0"]
    now = to(monkeypatch, 60)
    say(rig, "a", now - 10 * MINUTE_US)
    await shoal.settle()
    assert heard == [("uid-a/0", now - 10 * MINUTE_US)]
    assert lost_unit_us(shoal.world, entry, 0, now) == 10 * MINUTE_US * UNIT
    rig.change(PODS, "a", "ns", status={"message": "whatever"})
    await shoal.settle()
    assert len(heard) == 1
    later = to(monkeypatch, 90)
    say(rig, "a", later)
    await shoal.settle()
    assert heard[1:] == [("uid-a/0", later)]
    assert lost_unit_us(shoal.world, entry, 0, later) == 0
    assert rig.bound() == {"a": "n1"}


@in_loop
async def test_a_gang_has_saved_what_all_of_its_pods_have(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang(rig)
    shoal = Shoal(rig, options=OPTIONS)
    await shoal.settle()
    heard = listening(shoal)
    now = to(monkeypatch, 60)
    say(rig, "train-0", now - 5 * MINUTE_US)
    await shoal.settle()
    assert heard == [], "the other one may have saved nothing"
    say(rig, "train-1", now - 20 * MINUTE_US)
    await shoal.settle()
    assert heard == [("uid-train/0", now - 20 * MINUTE_US)]
    say(rig, "train-0", now)
    await shoal.settle()
    assert len(heard) == 1, "the oldest of them has not changed"
    say(rig, "train-1", now - MINUTE_US)
    await shoal.settle()
    assert heard[1:] == [("uid-train/0", now - MINUTE_US)]


@in_loop
async def test_a_pod_that_began_later_than_a_checkpoint_has_nothing_to_say_of_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang(rig)
    shoal = Shoal(rig, options=OPTIONS)
    await shoal.settle()
    entry = shoal.world.entries["uid-train/0"]
    entry.started[1] = to(monkeypatch, 60)
    heard = listening(shoal)
    say(rig, "train-0", BEGAN_US + 50 * MINUTE_US)
    await shoal.settle()
    assert heard == [("uid-train/0", BEGAN_US + 50 * MINUTE_US)]
    now = to(monkeypatch, 100)
    say(rig, "train-0", BEGAN_US + 90 * MINUTE_US)
    await shoal.settle()
    assert len(heard) == 1
    assert lost_unit_us(shoal.world, entry, 1, now) == 40 * MINUTE_US * UNIT


@in_loop
async def test_what_is_written_is_known_again_after_a_restart(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang(rig)
    shoal = Shoal(rig, options=OPTIONS)
    await shoal.settle()
    now = to(monkeypatch, 60)
    for name in ("train-0", "train-1"):
        rig.change(PODS, name, "ns", status={"startTime": clock(BEGAN_US // 10**6 * 10**6)})
        say(rig, name, now - 7 * MINUTE_US)
    await shoal.settle()
    to(monkeypatch, 70)
    rig.truths.clear()
    after = Shoal(rig, options=OPTIONS)
    heard = listening(after)
    await after.settle()
    assert heard == [("uid-train/0", now - 7 * MINUTE_US)]
    for each in (shoal, after):
        assert each.world.entries["uid-train/0"].checkpoint_us == now - 7 * MINUTE_US


@in_loop
async def test_what_cannot_be_true_is_not_believed_before_or_after_a_restart(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put(PODS, in_queue(pod("a"), "owner"))
    shoal = Shoal(rig, options=OPTIONS)
    await shoal.settle()
    now = to(monkeypatch, 60)
    for text in (clock(now + AHEAD_US + MINUTE_US), "2026-02-30T00:00:00Z", "soon"):
        rig.change(PODS, "a", "ns", metadata={"annotations": {"shoal.dev/checkpoint": text}})
        await shoal.settle()
        assert shoal.world.entries["uid-a/0"].checkpoint_us is None
        assert shoal.states() == {"uid-a/0": "running"}
        rig.truths.clear()
        after = Shoal(rig, options=OPTIONS)
        await after.settle()
        assert after.world.entries["uid-a/0"].checkpoint_us is None
    rig.truths.append(shoal.scheduler.source.truth)
    say(rig, "a", now + AHEAD_US)
    await shoal.settle()
    assert shoal.world.entries["uid-a/0"].checkpoint_us == now


@in_loop
async def test_who_has_just_saved_is_evicted_before_who_has_not(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c", "d"):
        body = in_queue(pod(name), "borrower")
        body["metadata"]["annotations"]["shoal.dev/recreate"] = "true"
        rig.put(PODS, body)
    shoal = Shoal(rig, options=OPTIONS)
    await shoal.settle()
    assert len(rig.bound()) == 4
    now = to(monkeypatch, 180)
    say(rig, "c", now - MINUTE_US)
    rig.put(PODS, in_queue(pod("asker", 1), "owner"))
    await shoal.settle()
    assert sorted(rig.bound()) == ["a", "asker", "b", "d"]
    assert now - BEGAN_US == 3 * HOUR_US
