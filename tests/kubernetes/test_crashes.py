"""The executor ends between any two of its writes; whoever comes next finishes the work.

After each such end a new process starts from what the API server has. Everything that was asked
for runs in the end, nothing was given twice, and no pod that nobody would make again is lost.
"""

import asyncio
from collections.abc import Callable

import pytest

from shoal.kubernetes.executing.deadlines import DeadlineOptions
from shoal.kubernetes.scheduler import SchedulerOptions
from shoal.kubernetes.wire.kinds import (
    DEVICE_CLASSES,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import Body, job, namespace, node, pod, replica_set, slice_of
from tests.kubernetes.rig import Crash, Rig, Shoal

Controllers = list[tuple[Body, str]]
QUICK = SchedulerOptions(tick_s=0.0, deadlines=DeadlineOptions(refused_us=0, claim_us=0))


def plugin_rig() -> tuple[Rig, Controllers]:
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    for name in ("n1", "n2", "n3"):
        rig.put(NODES, node(name, 2))
    return rig, work(rig, dra=False)


def dra_rig() -> tuple[Rig, Controllers]:
    rig = Rig()
    rig.put(NAMESPACES, namespace(channel="dra"))
    rig.put(DEVICE_CLASSES, {"metadata": {"name": "gpu.nvidia.com"}, "spec": {}})
    for name in ("n1", "n2", "n3"):
        rig.put(NODES, node(name, 0))
        rig.put(RESOURCE_SLICES, slice_of(name, 2))
    return rig, work(rig, dra=True)


def work(rig: Rig, dra: bool) -> Controllers:
    rig.put(PODS, pod("bare", dra=dra))
    train = rig.put(JOBS, job("train", 3, dra=dra))
    web = rig.put(REPLICA_SETS, replica_set("web", 2, dra=dra))
    return [(train, "Job"), (web, "ReplicaSet")]


async def run_until_crash(shoal: Shoal, controllers: Controllers) -> bool:
    try:
        await shoal.settle(controllers)
    except Crash:
        for task in shoal.scheduler.executor.running:
            task.cancel()
        await asyncio.gather(*shoal.scheduler.executor.running, return_exceptions=True)
        return True
    return False


def everything_runs(rig: Rig) -> None:
    bound = rig.bound()
    assert len(bound) == 6
    assert sorted(bound.values()) == ["n1", "n1", "n2", "n2", "n3", "n3"]
    held = [
        result["device"]
        for claim in rig.objects[RESOURCE_CLAIMS.resource].values()
        for result in claim["status"]["allocation"]["devices"]["results"]
    ]
    assert len(held) == len(set(held)) == (6 if held else 0)


@pytest.mark.parametrize("make", [plugin_rig, dra_rig])
@in_loop
async def test_a_crash_between_any_two_writes_loses_nothing(
    make: Callable[[], tuple[Rig, Controllers]],
) -> None:
    rig, controllers = make()
    await Shoal(rig, options=QUICK).settle(controllers)
    everything_runs(rig)
    total = len(rig.writes)
    assert total >= 7
    for crash_at in range(total):
        rig, controllers = make()
        rig.crash_at = crash_at
        first = Shoal(rig, options=QUICK)
        assert await run_until_crash(first, controllers), crash_at
        rig.truths.clear()
        rig.crash_at = None
        second = Shoal(rig, options=QUICK)
        await second.settle(controllers)
        everything_runs(rig)
        assert not any(write.startswith("delete pods") for write in rig.writes), crash_at
        # A third process finds just what the second one has.
        third = Shoal(rig, leads=False)
        await third.settle()
        assert third.states() == second.states()
        assert (third.held("n1"), third.held("n2"), third.held("n3")) == (2, 2, 2)


@pytest.mark.parametrize("make", [plugin_rig, dra_rig])
@in_loop
async def test_a_standby_that_watched_finishes_what_a_dead_leader_began(
    make: Callable[[], tuple[Rig, Controllers]],
) -> None:
    rig, controllers = make()
    await Shoal(rig, options=QUICK).settle(controllers)
    for crash_at in range(len(rig.writes)):
        rig, controllers = make()
        rig.crash_at = crash_at
        standby = Shoal(rig, leads=False, options=QUICK)
        leader = Shoal(rig, options=QUICK)
        await standby.step()
        assert await run_until_crash(leader, controllers), crash_at
        rig.truths.remove(leader.scheduler.source.truth)
        rig.crash_at = None
        await standby.step()
        standby.leader.is_leader = True
        await standby.settle(controllers)
        everything_runs(rig)


@pytest.mark.parametrize("make", [plugin_rig, dra_rig])
@in_loop
async def test_a_crash_while_a_start_is_taken_back_loses_nothing(
    make: Callable[[], tuple[Rig, Controllers]],
) -> None:
    """One node is closed behind Shoal's back just after it was planned on."""
    crash_at = 0
    crashed = True
    while crashed:
        rig, controllers = make()
        for name in ("n4", "n5", "n6"):
            rig.put(NODES, node(name, 2 if make is plugin_rig else 0))
            if make is dra_rig:
                rig.put(RESOURCE_SLICES, slice_of(name, 2))
        for owner, kind in controllers:
            rig.replace(owner, kind)
        rig.remove(PODS, "bare", "ns")
        first = Shoal(rig, options=QUICK)
        await first.step()
        before = len(rig.writes)
        closed = min(place.node for place in first.world.entries["uid-train/0"].held.values())
        rig.change(NODES, closed, spec={"unschedulable": True})
        rig.crash_at = before + crash_at
        crashed = await run_until_crash(first, controllers)
        rig.truths.clear()
        rig.crash_at = None
        second = Shoal(rig, options=QUICK)
        await second.settle(controllers)
        bound = rig.bound()
        assert len(bound) == 5, (crash_at, bound, rig.writes[before:])
        assert closed not in bound.values()
        tracked = "batch.kubernetes.io/job-tracking"
        for each in rig.pods():
            if each["metadata"]["name"].startswith("train"):
                assert tracked in each["metadata"]["finalizers"]
        crash_at += 1
    assert crash_at > 8
