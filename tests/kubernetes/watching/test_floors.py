"""Which replicas of a service are its floor, and what becomes of those that it can do without."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.kubernetes.watching.floors import ALL, Slots
from shoal.kubernetes.wire.kinds import NODES, PODS, REPLICA_SETS
from shoal.model.refusal import RefusalCode
from shoal.model.workload import WorkloadType
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import Body, node, pod, replica_set
from tests.kubernetes.rig import Rig, Shoal
from tests.kubernetes.services import (
    KINDS,
    OPTIONS,
    QUICK,
    Service,
    about,
    five_devices,
    floor,
    notes,
    reclaimed,
    shrunk,
    slots,
    states,
    told,
)


@pytest.fixture
def rig() -> Rig:
    return five_devices()


@pytest.mark.parametrize("kind", KINDS)
@in_loop
async def test_replicas_above_the_minimum_borrow_and_the_others_keep_to_the_guarantee(
    rig: Rig, kind: str
) -> None:
    service, shoal = Service(rig, kind), Shoal(rig, options=OPTIONS)
    events = told(shoal)
    await service.settle(shoal)
    assert slots(shoal) == {0: False, 1: False, 2: True, 3: True, 4: True}
    assert states(shoal) == ["running"] * 5
    assert [type(each) for each in events] == [ev.WorkloadSubmitted] * 5, "each is told once"


@in_loop
async def test_without_a_minimum_all_keep_to_the_guarantee(rig: Rig) -> None:
    service, shoal = Service(rig, minimum=None), Shoal(rig, options=OPTIONS)
    await service.settle(shoal)
    assert floor(shoal) == [0, 1, 2, 3, 4]
    assert states(shoal).count("running") == 2


@in_loop
async def test_a_service_may_have_fewer_replicas_than_its_minimum_for_now(rig: Rig) -> None:
    service, shoal = Service(rig, replicas=1), Shoal(rig, options=OPTIONS)
    await service.settle(shoal)
    assert shoal.scheduler.source.holds == {}
    assert floor(shoal) == [0]
    events = told(shoal)
    service.scale(4)
    await service.settle(shoal)
    assert floor(shoal) == [0, 1]
    assert [type(each) for each in events] == [ev.WorkloadSubmitted] * 3


@pytest.mark.parametrize("kind", KINDS)
@in_loop
async def test_a_controller_may_want_as_many_replicas_as_kubernetes_can_write(
    rig: Rig, kind: str
) -> None:
    """Slots are counted, not gone through: two billion of them would take for ever."""
    service, shoal = Service(rig, kind, replicas=3), Shoal(rig, options=OPTIONS)
    await service.settle(shoal)
    service.scale(2**31 - 1)
    await shoal.settle()
    assert slots(shoal) == {0: False, 1: False, 2: True}
    await Shoal(rig, options=OPTIONS).settle()


_NUMBERS = st.frozensets(st.integers(0, 12), max_size=8)


@given(_NUMBERS, _NUMBERS, st.integers(0, 6), st.integers(0, 14) | st.just(ALL))
def test_the_lowest_slots_are_those_that_going_through_them_finds(
    used: frozenset[int], gone: frozenset[int], coming: int, most: int
) -> None:
    given_up = used & gone
    found = Slots(sorted(used), given_up, coming, 0, 0)
    free = itertools.islice((n for n in itertools.count() if n not in used), coming)
    lowest = sorted({*(used - given_up), *free})[:most]
    assert found.take(most) == len(lowest)
    assert found.highest == max(lowest, default=-1)


@pytest.mark.parametrize("kind", KINDS)
@in_loop
async def test_a_lender_takes_spare_replicas_back_and_they_return_to_their_slots(
    rig: Rig, kind: str
) -> None:
    service, shoal = Service(rig, kind), Shoal(rig, options=OPTIONS)
    await service.settle(shoal)
    came = {uid: entry.workload.created_us for uid, entry in shoal.world.entries.items()}
    floor_pods = [service.pod_in(shoal, slot) for slot in (0, 1)]
    rig.lingers = True
    rig.put(PODS, pod("asker", 2, notes=notes("lender", type_="batch")))
    await service.settle(shoal)
    leaving = {
        each["metadata"]["name"] for each in rig.pods() if "deletionTimestamp" in each["metadata"]
    }
    assert len(leaving) == 2
    assert not leaving & set(floor_pods)
    assert floor(shoal) == [0, 1]
    events = told(shoal)
    rig.finish()
    await service.settle(shoal)
    assert "asker" in rig.bound()
    assert {name for name in rig.bound() if name in floor_pods} == set(floor_pods)
    assert slots(shoal) == {0: False, 1: False, 2: True, 3: True, 4: True}
    assert sorted(states(shoal)) == ["running"] * 3 + ["waiting"] * 2
    ours = {uid: shoal.world.entries[uid].workload.created_us for uid in came}
    assert ours == came, "they kept their places in the queue"
    assert [entry.was_evicted for uid, entry in shoal.world.entries.items() if uid in came].count(
        True
    ) == 2
    assert not any(isinstance(each, ev.WorkloadRestored) for each in events)
    rig.lingers = False
    rig.remove(PODS, "asker", "ns")
    await service.settle(shoal)
    assert states(shoal) == ["running"] * 5
    assert floor(shoal) == [0, 1]


@in_loop
async def test_the_example_of_the_page_on_evictions(rig: Rig) -> None:
    service, shoal = Service(rig), Shoal(rig, options=OPTIONS)

    async def running() -> list[int]:
        await service.settle(shoal)
        assert floor(shoal) == [0, 1]
        return [slot for slot, state in enumerate(states(shoal)) if state == "running"]

    assert await running() == [0, 1, 2, 3, 4]
    for name, devices, left in (("first", 2, 3), ("second", 1, 2), ("third", 1, 2)):
        rig.put(PODS, pod(name, devices, notes=notes("lender", type_="training")))
        found = await running()
        assert (len(found), found[:2]) == (left, [0, 1])
    assert {"first", "second"} < rig.bound().keys()
    assert "third" not in rig.bound()
    rig.remove(PODS, "first", "ns")
    found = await running()
    assert (len(found), found[:2]) == (3, [0, 1])
    assert "third" in rig.bound()


@pytest.mark.parametrize("kind", KINDS)
@in_loop
async def test_while_a_replica_of_the_floor_is_replaced_no_other_joins_it(
    rig: Rig, kind: str
) -> None:
    service, shoal = Service(rig, kind), Shoal(rig, options=OPTIONS)
    await service.settle(shoal)
    events = told(shoal)
    name = service.pod_in(shoal, 0)
    rig.change(PODS, name, "ns", metadata={"deletionTimestamp": rig.stamp()})
    await shoal.step()
    assert floor(shoal) == [0, 1]
    service.make()
    await shoal.step()
    assert floor(shoal) == [0, 1]
    rig.remove(PODS, name, "ns")
    await shoal.step()
    assert floor(shoal) in ([0, 1], [1]), "its slot is empty, or the next pod's"
    await service.settle(shoal)
    assert slots(shoal) == {0: False, 1: False, 2: True, 3: True, 4: True}
    assert states(shoal) == ["running"] * 5
    # A ReplicaSet makes the next pod at once; it waits in a slot of its own before it moves.
    assert {about(each) for each in events} <= {"uid-web/0", "uid-web/5"}


@in_loop
async def test_after_low_slots_are_scaled_away_those_left_are_the_floor(rig: Rig) -> None:
    service, shoal = Service(rig), Shoal(rig, options=OPTIONS)
    await service.settle(shoal)
    gone = [service.pod_in(shoal, slot) for slot in (0, 2)]
    events = told(shoal)
    service.scale(3)
    await shoal.step()
    for name in gone:
        rig.change(PODS, name, "ns", metadata={"deletionTimestamp": rig.stamp()})
    await shoal.step()
    assert slots(shoal) == {0: True, 1: False, 2: True, 3: False, 4: True}, "3 stays, 0 goes"
    assert [about(each) for each in events if isinstance(each, ev.WorkloadRestored)] == [
        *("uid-web/0", "uid-web/3")
    ]
    for name in gone:
        rig.remove(PODS, name, "ns")
    await service.settle(shoal)
    assert slots(shoal) == {1: False, 3: False, 4: True}
    assert states(shoal) == ["running"] * 3
    entry = shoal.world.entries["uid-web/3"]
    assert entry.started[0] > 0
    assert len([each for each in events if isinstance(each, ev.WorkloadRestored)]) == 2
    service.scale(4)
    await service.settle(shoal)
    assert slots(shoal) == {0: False, 1: False, 3: True, 4: True}


@in_loop
async def test_whoever_waits_is_told_as_well(rig: Rig) -> None:
    rig.put(PODS, pod("holder", 2, notes=notes("lender", type_="batch")))
    service, shoal = Service(rig, replicas=4), Shoal(rig, options=OPTIONS)
    await service.settle(shoal)
    assert states(shoal) == ["running"] * 3 + ["waiting"]
    rig.change(NODES, "n1", spec={"unschedulable": True})  # so that no seat is kept
    await service.settle(shoal)
    service.scale(2)
    for slot in (0, 1):
        rig.remove(PODS, service.pod_in(shoal, slot), "ns")
    events = told(shoal)
    await service.settle(shoal)
    assert slots(shoal) == {2: False, 3: False}
    assert states(shoal) == ["running", "waiting"]
    submitted = [each for each in events if isinstance(each, ev.WorkloadSubmitted)]
    assert [about(each) for each in submitted] == ["uid-web/3"]


@in_loop
async def test_pods_that_were_there_before_are_of_the_floor(rig: Rig) -> None:
    owner = rig.put(REPLICA_SETS, replica_set("web", 5))
    service = Service(rig)
    before = pod("before", owner=owner, owner_kind="ReplicaSet", gated=False, notes=service.notes)
    before["spec"]["nodeName"] = "n1"
    rig.put(PODS, before)
    shoal = Shoal(rig, options=OPTIONS)
    await service.settle(shoal)
    assert slots(shoal) == {0: False, 1: True, 2: True, 3: True}
    rig.remove(PODS, "before", "ns")
    await service.settle(shoal)
    assert slots(shoal) == {0: False, 1: False, 2: True, 3: True, 4: True}


@in_loop
async def test_a_start_of_the_floor_that_is_taken_back_lets_no_other_join_it(rig: Rig) -> None:
    service, shoal = Service(rig, replicas=3), Shoal(rig, options=QUICK)
    service.make()
    await shoal.step()
    assert slots(shoal) == {0: False, 1: False, 2: True}
    name = service.pod_in(shoal, 0)
    for each in rig.pods():
        if each["metadata"]["name"] != name:
            rig.change(PODS, each["metadata"]["name"], "ns", spec={"nodeName": "n1"})
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    rig.change(PODS, name, "ns", status={"conditions": [said]})
    rig.put(NODES, node("n2", 1))
    events = told(shoal)
    await service.settle(shoal)
    assert ("ns", name) not in rig.objects[PODS.resource]
    assert slots(shoal) == {0: False, 1: False, 2: True}
    assert states(shoal) == ["running"] * 3
    assert {about(each) for each in events} == {"uid-web/0"}


@in_loop
async def test_while_a_deployment_is_rolled_out_the_old_replicas_stay_its_floor(rig: Rig) -> None:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-d"}
    sets: list[Body] = []
    for name, replicas in (("old", 5), ("new", 0)):
        body = replica_set(name, replicas, notes=notes("services", 2))
        body["metadata"]["ownerReferences"] = [deployment | {"controller": True}]
        sets.append(rig.put(REPLICA_SETS, body))
    shoal = Shoal(rig, options=OPTIONS)

    async def to(old: int, new: int) -> list[str]:
        for name, replicas in (("old", old), ("new", new)):
            rig.change(REPLICA_SETS, name, "ns", spec={"replicas": replicas})
            mine = [f for uid, f in shoal.scheduler.source.flights.items() if name in uid]
            for flight in sorted(mine, key=lambda flight: flight.uid)[replicas:]:
                rig.remove(PODS, flight.seats[0].name, "ns")
        found = [(rig.get(REPLICA_SETS, name, "ns"), "ReplicaSet") for name in ("old", "new")]
        await shoal.settle(found)
        assert set(shoal.states().values()) == {"running"}
        return sorted(uid for uid, e in shoal.world.entries.items() if not e.workload.spare)

    assert await to(5, 0) == ["uid-old/0", "uid-old/1"]
    assert await to(4, 1) == ["uid-old/0", "uid-old/1"], "the new one borrows meanwhile"
    assert await to(2, 3) == ["uid-old/0", "uid-old/1"]
    assert await to(1, 4) == ["uid-new/0", "uid-old/0"]
    assert await to(0, 5) == ["uid-new/0", "uid-new/1"]
    after = Shoal(rig, leads=False, options=OPTIONS)
    await after.step()
    assert [e.workload.spare for e in after.world.entries.values()].count(False) == 2


@in_loop
async def test_a_replica_set_that_is_seen_late_joins_its_deployment_then(rig: Rig) -> None:
    rig.put(NODES, node("n2", 5))
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-d"}

    def replicas(name: str) -> Body:
        body = replica_set(name, 2, notes=notes("services", 2))
        body["metadata"]["ownerReferences"] = [deployment | {"controller": True}]
        return body

    shoal = Shoal(rig, options=OPTIONS)
    old = rig.put(REPLICA_SETS, replicas("old"))
    await shoal.settle([(old, "ReplicaSet")])

    def spare() -> dict[str, bool]:
        return {uid: e.workload.spare for uid, e in shoal.world.entries.items()}

    new = replicas("new")
    rig.put(PODS, pod("new-0", owner=new, owner_kind="ReplicaSet", notes=notes("services", 2)))
    await shoal.settle()
    assert spare() == {"uid-old/0": False, "uid-old/1": False, "uid-new/0": False}
    rig.put(REPLICA_SETS, new)
    await shoal.settle()
    assert spare() == {"uid-old/0": False, "uid-old/1": False, "uid-new/0": True}
    rig.remove(REPLICA_SETS, "old", "ns")
    await shoal.settle()
    assert spare() == {"uid-old/0": False, "uid-old/1": False, "uid-new/0": False}


@in_loop
async def test_a_pod_that_says_nothing_of_a_minimum_is_needed(rig: Rig) -> None:
    service, shoal = Service(rig, "StatefulSet", replicas=3), Shoal(rig, options=OPTIONS)
    service.make()
    service.notes = notes("services")
    service.scale(4)
    rig.put(NODES, node("n2", 5))
    await service.settle(shoal)
    assert slots(shoal) == {0: False, 1: False, 2: True, 3: False}
    rig.remove(PODS, "web-2", "ns")
    await service.settle(shoal)
    assert slots(shoal) == {0: False, 1: False, 2: False, 3: False}


@in_loop
async def test_nothing_is_kept_of_a_service_that_is_gone(rig: Rig) -> None:
    service, shoal = Service(rig), Shoal(rig, options=OPTIONS)
    await service.settle(shoal)
    reclaimed(rig, service, shoal)
    await service.settle(shoal)
    service.scale(0)
    for each in rig.pods():
        rig.remove(PODS, each["metadata"]["name"], "ns")
    await service.settle(shoal)
    rig.remove(REPLICA_SETS, "web", "ns")
    await shoal.settle()
    floors = shoal.scheduler.source.floors
    assert (floors._slots, floors._owners_of, floors._service_of, floors._touched) == ({},) * 4
    assert shoal.scheduler.source.units.numbers.of("uid-web") == []


@in_loop
async def test_nothing_is_told_where_nothing_changed(rig: Rig) -> None:
    service, shoal = Service(rig), Shoal(rig, options=OPTIONS)
    await service.settle(shoal)
    events = told(shoal)
    for each in rig.pods():
        rig.change(PODS, each["metadata"]["name"], "ns", metadata={"labels": {"a": "b"}})
    rig.change(REPLICA_SETS, "web", "ns", metadata={"labels": {"a": "b"}})
    await service.settle(shoal)
    assert events == []


@pytest.mark.parametrize("remade", [True, False])
@in_loop
async def test_an_evicted_replica_comes_back_to_its_slot_and_to_no_lower_one(
    rig: Rig, remade: bool
) -> None:
    service, shoal = Service(rig), Shoal(rig, options=OPTIONS)
    await service.settle(shoal)
    shrunk(rig, service, shoal)
    await service.settle(shoal)
    events = told(shoal)
    rig.put(PODS, pod("asker", 3, notes=notes("lender", type_="batch")))
    await shoal.step()
    if remade:
        await service.settle(shoal)
    assert slots(shoal) == {1: False, 3: False, 4: True}
    assert shoal.states()["uid-web/4"] == "waiting"
    assert {about(each) for each in events} <= {"uid-web/4"}


@pytest.mark.parametrize("type_", [each for each in WorkloadType if each != "inference"])
@in_loop
async def test_only_replicas_of_inference_have_a_minimum(rig: Rig, type_: WorkloadType) -> None:
    service, shoal = Service(rig, replicas=1), Shoal(rig, options=OPTIONS)
    service.notes = notes("services", 1, type_.value)
    rig.put(PODS, pod("bare", notes=notes("services", 1)))
    other: Any = {"metadata": {"name": "x", "uid": "uid-x"}}
    rig.put(PODS, pod("of-x", owner=other, owner_kind="Other", notes=notes("services", 1)))
    await service.settle(shoal)
    refused = [hold.refusal for hold in shoal.scheduler.source.holds.values()]
    assert [each.code for each in refused if each] == [RefusalCode.NOT_A_GANG] * 3
    assert rig.bound() == {}
