"""What becomes of the place of a pod that was evicted, until its controller makes another."""

import pytest

from shoal.kubernetes.scheduler import now_us
from shoal.kubernetes.wire.kinds import NAMESPACES, NODES, PODS, REPLICA_SETS
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import Body, namespace, node, pod
from tests.kubernetes.rig import Rig, Shoal
from tests.kubernetes.tenants import OPTIONS, Owners, in_queue, names, settle, web


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("n1", 2))
    return rig


@in_loop
async def test_a_kept_place_in_which_nobody_sits_is_given_up_at_once(rig: Rig) -> None:
    owners = web(rig)
    shoal = Shoal(rig, options=OPTIONS)
    await settle(rig, shoal, owners)
    came = {uid: e.workload.created_us for uid, e in shoal.world.entries.items()}
    rig.remove(PODS, names(rig)[0], "ns")
    await shoal.step()
    assert shoal.held("n1") == 2, "it is kept for the next pod"
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    await shoal.step()
    rig.kube_schedule()
    await shoal.step()
    assert names(rig) == ["asker"]
    await settle(rig, shoal, owners)
    assert shoal.states() == {"uid-asker/0": "running", **dict.fromkeys(came, "waiting")}
    assert {uid: shoal.world.entries[uid].workload.created_us for uid in came} == came
    assert set(shoal.scheduler.source.units.waiting) == set(came)
    rig.remove(PODS, "asker", "ns")
    await settle(rig, shoal, owners)
    assert len(rig.bound()) == 2


@in_loop
async def test_an_evicted_replica_that_is_scaled_away_waits_no_more_while_others_do(
    rig: Rig,
) -> None:
    owners = web(rig, 3)
    shoal = Shoal(rig, options=OPTIONS)
    await settle(rig, shoal, owners)
    assert sorted(shoal.states().values()) == ["running", "running", "waiting"]
    rig.put(PODS, in_queue(pod("asker", 1), "owner"))
    rig.change(REPLICA_SETS, "web", "ns", spec={"replicas": 2})
    await settle(rig, shoal, Owners(rig))
    assert len(rig.pods()) == 3
    assert sorted(shoal.states().values()) == ["running", "running", "waiting"]
    assert all(unit.pods for unit in shoal.scheduler.source.units.waiting.values())


@pytest.mark.parametrize("comes", [True, False])
@in_loop
async def test_pods_of_a_controller_of_which_nothing_is_known_are_waited_for(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, comes: bool
) -> None:
    other: Body = {"metadata": {"name": "x", "uid": "uid-x"}}
    rig.put(PODS, in_queue(pod("x-1", owner=other, owner_kind="Other"), "borrower"))
    shoal = Shoal(rig, options=OPTIONS)
    await shoal.settle()
    came_us = shoal.world.entries["uid-x/0"].workload.created_us
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    await shoal.settle()
    assert shoal.states() == {"uid-asker/0": "running", "uid-x/0": "waiting"}
    if comes:
        rig.put(PODS, in_queue(pod("x-2", owner=other, owner_kind="Other"), "borrower"))
        await shoal.settle()
        assert shoal.scheduler.source.units.waiting["uid-x/0"].pods == ("uid-x-2",)
    later_us = now_us() + shoal.scheduler.source.options.slot_keep_us
    monkeypatch.setattr("shoal.kubernetes.scheduler.now_us", lambda: later_us)
    await shoal.settle()
    assert shoal.states() == {"uid-asker/0": "running"} | ({"uid-x/0": "waiting"} if comes else {})
    if comes:
        entry = shoal.world.entries["uid-x/0"]
        assert (entry.was_evicted, entry.workload.created_us) == (True, came_us)
