"""Whoever leads next goes on with the evictions of an earlier leader, and evicts nobody else."""

import pytest

from shoal.core.eviction.victims import HOUR_US
from shoal.core.validate import check
from shoal.kubernetes.api.errors import Status
from shoal.kubernetes.memory import content_of
from shoal.kubernetes.scheduler import SchedulerOptions, now_us
from shoal.kubernetes.wire.kinds import JOBS, NAMESPACES, NODES, PODS, REPLICA_SETS
from shoal.model.queue import Priority, Queue, QueueTree
from shoal.objects.files import Written
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import job, namespace, node, pod, replica_set
from tests.kubernetes.rig import Crash, Rig, Shoal
from tests.kubernetes.tenants import H100, OPTIONS, Owners, in_queue, names, settle, web


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("n1", 2))
    return rig


@pytest.mark.parametrize("kind", ["ReplicaSet", "Job"])
@in_loop
async def test_a_crash_at_any_moment_of_a_reclaim_evicts_nobody_else(kind: str) -> None:
    crash_at, crashed = 0, True
    while crashed:
        rig = Rig()
        rig.put(NAMESPACES, namespace())
        for name in ("n1", "n2"):
            rig.put(NODES, node(name, 2))
        if kind == "Job":
            made = [rig.put(JOBS, job(f"train-{n}", 1)) for n in range(4)]
        else:
            made = [rig.put(REPLICA_SETS, replica_set("web", 4))]
        owners = Owners(rig, *((each, kind, "borrower") for each in made))
        first = Shoal(rig, options=OPTIONS)
        await settle(rig, first, owners)
        assert len(rig.bound()) == 4
        rig.lingers = True
        rig.put(PODS, in_queue(pod("asker", 2), "owner"))
        rig.crash_at = len(rig.writes) + crash_at
        crashed = False
        try:
            await settle(rig, first, owners)
        except Crash:
            crashed = True
        for task in first.scheduler.executor.running:
            task.cancel()
        rig.truths.clear()
        rig.crash_at = None
        second = Shoal(rig, options=OPTIONS)
        await settle(rig, second, owners)
        rig.finish()
        await settle(rig, second, owners)
        assert "asker" in rig.bound(), crash_at
        assert len(rig.bound()) == 3, crash_at
        evicted = {write for write in rig.writes if write.startswith("evict")}
        assert len(evicted) == 2, (crash_at, evicted)
        crash_at += 1
    assert crash_at >= 4


@in_loop
async def test_an_eviction_that_was_not_written_down_before_the_lead_was_lost_did_not_happen(
    rig: Rig,
) -> None:
    owners = web(rig)
    shoal = Shoal(rig, options=OPTIONS)
    await settle(rig, shoal, owners)
    running = names(rig)
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    shoal.scheduler.step()
    assert all(shoal.world.entries[f"uid-web/{n}"].evicting for n in range(2))
    shoal.leader.is_leader = False
    await settle(rig, shoal, owners)
    assert not any(shoal.world.entries[f"uid-web/{n}"].evicting for n in range(2))
    assert names(rig) == running
    shoal.leader.is_leader = True
    await settle(rig, shoal, owners)
    assert names(rig) == ["asker"]


@in_loop
async def test_a_standby_follows_an_eviction_and_its_refusal(rig: Rig) -> None:
    owners = web(rig)
    standby, leader = Shoal(rig, leads=False, options=OPTIONS), Shoal(rig, options=OPTIONS)
    await settle(rig, leader, owners)
    await standby.step()
    rig.lingers = True
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    await settle(rig, leader, owners)
    await standby.step()
    assert standby.states() == leader.states()
    asker = standby.world.entries["uid-asker/0"]
    assert asker.reserved is not None
    assert asker.reserved.placements == leader.world.entries["uid-asker/0"].reserved.placements
    for n in range(2):
        evicting = leader.world.entries[f"uid-web/{n}"].evicting
        assert standby.world.entries[f"uid-web/{n}"].evicting == evicting == {0: ("uid-asker/0",)}
    check(standby.world)
    # It takes over in the middle of it.
    rig.truths.remove(leader.scheduler.source.truth)
    standby.leader.is_leader = True
    await settle(rig, standby, owners)
    rig.finish()
    await settle(rig, standby, owners)
    assert names(rig) == ["asker"]
    assert len([write for write in rig.writes if write.startswith("evict")]) == 2


LAB = SchedulerOptions(
    tick_s=0.0,
    written=Written(
        (),
        QueueTree(
            (
                Queue("root"),
                Queue("lab", "root", guarantee=((H100, 2),), priorities=(Priority("high", 1),)),
            )
        ),
    ),
)


def urgent(rig: Rig, devices: int) -> None:
    body = in_queue(pod("urgent", devices), "lab")
    body["metadata"]["annotations"]["shoal.dev/priority"] = "high"
    rig.put(PODS, body)


def counted(shoal: Shoal) -> tuple[object, ...]:
    """What counts of evictions, in the world and for whoever leads next."""
    evictions = shoal.world.evictions
    past = {uid: (e.was_evicted, e.evictions_us) for uid, e in shoal.world.entries.items()}
    lost = tuple(evictions.all_lost())
    return past["uid-train/0"], lost, tuple(evictions.recent_us), shoal.scheduler.source.pasts()


def running_gang(rig: Rig) -> Owners:
    return Owners(rig, (rig.put(JOBS, job("train", 2)), "Job", "lab"))


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """By how much the clock is ahead, in microseconds."""
    ahead = {"us": 0}
    real = now_us
    monkeypatch.setattr("shoal.kubernetes.scheduler.now_us", lambda: real() + ahead["us"])
    return ahead


@in_loop
async def test_a_refused_preemption_is_counted_nowhere(rig: Rig, ahead: dict[str, int]) -> None:
    owners = running_gang(rig)
    shoal = Shoal(rig, options=LAB)
    await settle(rig, shoal, owners)
    before = counted(shoal)
    ahead["us"] = 3 * HOUR_US
    for name in names(rig):
        rig.eviction_refusals[name] = Status(403, "Forbidden", "a policy forbids it")
    urgent(rig, 1)
    shoal.scheduler.step()
    assert shoal.world.evictions.all_lost() != ()
    assert counted(shoal) != before
    await settle(rig, shoal, owners)
    assert counted(shoal) == before == ((False, ()), (), (), {})


@in_loop
async def test_what_a_leader_counted_and_did_not_write_down_whole_is_counted_by_nobody(
    rig: Rig, ahead: dict[str, int]
) -> None:
    owners = running_gang(rig)
    first = Shoal(rig, options=LAB)
    await settle(rig, first, owners)
    before = counted(first)
    ahead["us"] = 3 * HOUR_US
    rig.crash_at = len(rig.writes) + 1
    urgent(rig, 2)
    with pytest.raises(Crash):
        await settle(rig, first, owners)
    for task in first.scheduler.executor.running:
        task.cancel()
    kept = content_of(first.world, first.scheduler.source, QueueTree(), now_us())
    assert counted(first) != before
    rig.truths.clear()
    rig.crash_at = None
    for name in names(rig):
        rig.eviction_refusals[name] = Status(403, "Forbidden", "a policy forbids it")
    second = Shoal(rig, options=LAB)
    second.scheduler._recalled = kept
    await settle(rig, second, owners)
    assert not second.world.entries["uid-train/0"].evicting
    assert counted(second) == before
