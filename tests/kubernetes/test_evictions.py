"""Evictions on a small cluster in memory: written first, carried out, refused, and survived."""

from typing import Any

import msgspec
import pytest

from shoal.core.events import DisruptionBudgetSet
from shoal.core.validate import check
from shoal.kubernetes.api.errors import Status, StatusCause, StatusDetails
from shoal.kubernetes.executing.plans import read_note
from shoal.kubernetes.scheduler import SchedulerOptions, now_us
from shoal.kubernetes.watching.budgets import REFUSED_US
from shoal.kubernetes.wire.kinds import (
    DEVICE_CLASSES,
    DISRUPTION_BUDGETS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_SLICES,
)
from shoal.model.hold import HoldReason
from shoal.model.queue import Queue, QueueTree
from shoal.model.refusal import RefusalCode
from shoal.model.workload import WorkloadType
from shoal.objects.files import Written
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import Body, job, namespace, node, pod, replica_set, slice_of
from tests.kubernetes.rig import START, Rig, Shoal
from tests.kubernetes.tenants import OPTIONS, Owners, in_queue, names, settle, web

BLOCKED = Status(
    429,
    "TooManyRequests",
    "Cannot evict pod as it would violate the pod's disruption budget.",
    StatusDetails(causes=(StatusCause("DisruptionBudget", "The disruption budget b needs 1"),)),
)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("n1", 2))
    return rig


@in_loop
async def test_a_guarantee_is_given_back_and_the_evicted_come_back_in_their_place(
    rig: Rig,
) -> None:
    owners = web(rig)
    shoal = Shoal(rig, options=OPTIONS)
    await settle(rig, shoal, owners)
    assert len(rig.bound()) == 2
    came = {uid: e.workload.created_us for uid, e in shoal.world.entries.items()}
    rig.lingers = True
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    await settle(rig, shoal, owners)
    evicted = [write for write in rig.writes if write.startswith("evict")]
    assert len(evicted) == 2
    # What is evicted, and for whom, was written before anything was evicted.
    assert sorted(rig.writes[-4:-2]) == sorted(each.replace("evict", "patch") for each in evicted)
    assert sorted(rig.writes[-2:]) == sorted(evicted)
    notes = [n for p in rig.pods() if (n := note(p)) is not None and n.eviction is not None]
    assert [each.eviction.beneficiaries for each in notes] == [("uid-asker/0",)] * 2
    # The pods that their controller makes at once wait for those that they replace.
    reasons = {hold.reason for hold in shoal.scheduler.source.holds.values()}
    assert reasons == {HoldReason.FOLLOWS}
    assert shoal.states()["uid-asker/0"] == "waiting"
    rig.finish()
    await settle(rig, shoal, owners)
    assert names(rig) == ["asker"]
    assert shoal.states() == {
        "uid-asker/0": "running",
        "uid-web/0": "waiting",
        "uid-web/1": "waiting",
    }
    assert {uid: shoal.world.entries[uid].workload.created_us for uid in came} == came
    assert shoal.scheduler.source.holds == {}
    rig.lingers = False
    rig.remove(PODS, "asker", "ns")
    await settle(rig, shoal, owners)
    assert len(rig.bound()) == 2
    assert [write for write in rig.writes if write.startswith("evict")] == evicted


@in_loop
async def test_who_waits_in_the_place_of_the_evicted_takes_no_second_one(rig: Rig) -> None:
    owners = web(rig)
    shoal = Shoal(rig, options=OPTIONS)
    await settle(rig, shoal, owners)
    came = {uid: e.workload.created_us for uid, e in shoal.world.entries.items()}
    rig.lingers = True
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    await shoal.step()
    first, second = names(rig)
    # A successor comes, and those that were evicted go, one after the other.
    owner = rig.get(REPLICA_SETS, "web", "ns")
    for successor, gone in (("web-x", first), ("web-y", second)):
        rig.put(PODS, in_queue(pod(successor, owner=owner, owner_kind="ReplicaSet"), "borrower"))
        await shoal.step()
        rig.remove(PODS, gone, "ns")
        await shoal.step()
        shoal.scheduler.source.mark_owner("uid-web")
        await shoal.step()
    evicted = {uid: e for uid, e in shoal.world.entries.items() if e.was_evicted}
    assert {uid: e.workload.created_us for uid, e in evicted.items()} == came
    pods = [shoal.scheduler.source.units.waiting[uid].pods for uid in came]
    assert sorted(pods) == [("uid-web-x",), ("uid-web-y",)]


@in_loop
async def test_what_is_submitted_anew_while_it_waits_keeps_its_past(rig: Rig) -> None:
    owners = web(rig)
    shoal = Shoal(rig, options=OPTIONS)
    await settle(rig, shoal, owners)
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    await settle(rig, shoal, owners)
    source = shoal.scheduler.source
    before = source.pasts()
    assert len(before) == 2
    source.units.refused("uid-web", "n1", now_us())
    source.mark_owner("uid-web")
    await shoal.step()
    assert all(shoal.world.entries[uid].refused == {"n1"} for uid in before)
    assert source.pasts() == before
    for uid in before:
        for event in source.units.submit_again(uid, now_us()):
            shoal.scheduler.loop.feed(event)
    assert source.pasts() == before


@in_loop
async def test_a_replica_that_stops_in_good_order_comes_back_in_its_place(rig: Rig) -> None:
    owner = rig.put(REPLICA_SETS, replica_set("web", 1, restartPolicy="Always"))
    owners = Owners(rig, (owner, "ReplicaSet", "borrower"))
    shoal = Shoal(rig, options=OPTIONS)
    await settle(rig, shoal, owners)
    came_us = shoal.world.entries["uid-web/0"].workload.created_us
    rig.lingers = True
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    await settle(rig, shoal, owners)
    rig.change(PODS, names(rig)[0], "ns", status={"phase": "Succeeded"})
    await settle(rig, shoal, owners)
    assert shoal.states()["uid-web/0"] == "waiting"
    assert shoal.world.entries["uid-web/0"].workload.created_us == came_us


def note(body: Body) -> Any:
    return read_note(PODS.read(msgspec.json.encode(body)))


@in_loop
async def test_a_gang_is_evicted_whole_and_its_job_counts_nothing(rig: Rig) -> None:
    owner = rig.put(JOBS, job("train", 2))
    owners = Owners(rig, (owner, "Job", "borrower"))
    shoal = Shoal(rig, options=OPTIONS)
    await settle(rig, shoal, owners)
    assert len(rig.bound()) == 2
    came_us = shoal.world.entries["uid-train/0"].workload.created_us
    rig.lingers = True
    rig.put(PODS, in_queue(pod("asker", 1), "owner"))
    await settle(rig, shoal, owners)
    leaving = [p for p in rig.pods() if "deletionTimestamp" in p["metadata"]]
    assert len(leaving) == 2
    assert all(not p["metadata"]["finalizers"] for p in leaving)
    assert [h.reason for h in shoal.scheduler.source.holds.values()] == [HoldReason.FOLLOWS]
    rig.finish()
    await settle(rig, shoal, owners)
    assert names(rig) == ["asker"]
    assert shoal.states() == {"uid-asker/0": "running", "uid-train/0": "waiting"}
    assert shoal.world.entries["uid-train/0"].workload.created_us == came_us
    rig.remove(PODS, "asker", "ns")
    await settle(rig, shoal, owners)
    assert len(rig.bound()) == 2


@in_loop
async def test_a_guarantee_is_given_back_on_the_dra_channel_too() -> None:
    rig = Rig()
    rig.put(NAMESPACES, namespace(channel="dra"))
    rig.put(DEVICE_CLASSES, {"metadata": {"name": "gpu.nvidia.com"}, "spec": {}})
    rig.put(NODES, node("n1", 0))
    rig.put(RESOURCE_SLICES, slice_of("n1", 2))
    owner = rig.put(REPLICA_SETS, replica_set("web", 2, dra=True))
    owners = Owners(rig, (owner, "ReplicaSet", "borrower"))
    shoal = Shoal(rig, options=OPTIONS)
    await settle(rig, shoal, owners)
    assert len(rig.bound()) == 2
    rig.lingers = True
    rig.put(PODS, in_queue(pod("asker", 1, dra=True), "owner"))
    await settle(rig, shoal, owners)
    assert "asker" not in rig.bound()
    rig.finish()
    await settle(rig, shoal, owners)
    assert len(rig.bound()) == 2
    assert "asker" in rig.bound()
    check(shoal.world)


def elastic(body: Body, minimum: int) -> Body:
    body["metadata"]["annotations"]["shoal.dev/minimum"] = str(minimum)
    return body


@in_loop
async def test_e04_an_elastic_gang_runs_with_what_there_is_and_shrinks_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Whatever this machine's date, the pods have been there for long enough to be all of a wave.
    later_us = int(START.timestamp()) * 10**6 + HOUR_US
    monkeypatch.setattr("shoal.kubernetes.scheduler.now_us", lambda: later_us)
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("n1", 3))
    owner = rig.put(JOBS, job("train", 4))

    class Elastic(Owners):
        def make(self) -> None:
            super().make()
            for each in self.rig.pods():
                made = each["metadata"]["name"].startswith("train")
                if made and "shoal.dev/minimum" not in each["metadata"]["annotations"]:
                    self.rig.put(PODS, elastic(each, 1))

    owners = Elastic(rig, (owner, "Job", "borrower"))
    shoal = Shoal(rig, options=OPTIONS)
    await settle(rig, shoal, owners)
    assert len(rig.bound()) == 3
    assert not shoal.world.entries["uid-train/1"].was_evicted
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    await settle(rig, shoal, owners)
    assert len(rig.bound()) == 2
    assert "asker" in rig.bound()
    # What is left of the gang has not been touched.
    assert len([write for write in rig.writes if write.startswith("evict")]) == 2
    assert shoal.states()["uid-train/0"] == "running"
    # The pods that the Job made again wait as work of their own, and start when there is room.
    assert shoal.states()["uid-train/1"] == "waiting"
    wave = shoal.world.entries["uid-train/1"]
    assert wave.workload.pods == 3
    assert wave.was_evicted, "it evicts nobody when it comes back"
    rig.remove(PODS, "asker", "ns")
    await settle(rig, shoal, owners)
    assert shoal.states() == {
        "uid-train/0": "running",
        "uid-train/1": "running",
        "uid-train/2": "waiting",
    }
    assert len(rig.bound()) == 3
    assert len(shoal.world.entries["uid-train/0"].held) == 1
    assert shoal.world.lacking == {}, "the core gives it no pods of its own"
    check(shoal.world)


@in_loop
async def test_a_minimum_is_for_gangs_that_are_as_large(rig: Rig) -> None:
    rig.put(PODS, elastic(in_queue(pod("bare", 1), "owner"), 1))
    owner = rig.put(JOBS, job("train", 2))
    for n in range(2):
        rig.put(PODS, elastic(in_queue(pod(f"train-{n}", owner=owner), "owner"), 3))
    shoal = Shoal(rig, options=OPTIONS)
    await shoal.settle()
    holds = shoal.scheduler.source.holds
    assert {key: hold.refusal.code for key, hold in holds.items() if hold.refusal} == {
        "uid-bare": RefusalCode.NOT_A_GANG,
        "uid-train": RefusalCode.MINIMUM_ABOVE_COUNT,
    }


@in_loop
async def test_what_nobody_makes_again_is_never_evicted_unless_it_asks_for_it(rig: Rig) -> None:
    rig.put(PODS, in_queue(pod("bare", 1), "borrower"))
    shoal = Shoal(rig, options=OPTIONS)
    await shoal.settle()
    assert rig.bound() == {}, "it could not be given back"
    rig.remove(PODS, "bare", "ns")
    again = in_queue(pod("again", 1), "borrower")
    again["metadata"]["annotations"]["shoal.dev/recreate"] = "true"
    rig.put(PODS, again)
    await shoal.settle()
    assert names(rig) == ["again"]
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    await shoal.settle()
    assert names(rig) == ["asker"]
    assert shoal.states() == {"uid-asker/0": "running"}


@pytest.mark.parametrize(
    "refusal", [BLOCKED, Status(500, "InternalError", "This pod has more than one PodDisr...")]
)
@in_loop
async def test_e05_b_an_eviction_that_is_refused_is_taken_back_and_not_tried_again(
    rig: Rig, refusal: Status
) -> None:
    owner = rig.put(JOBS, job("train", 2))
    owners = Owners(rig, (owner, "Job", "borrower"))
    shoal = Shoal(rig, options=OPTIONS)
    await settle(rig, shoal, owners)
    running = names(rig)
    for name in running:
        rig.eviction_refusals[name] = refusal
    # The budget is there already, but nobody has told of it yet.
    budget = {
        "metadata": {"name": "b", "namespace": "ns", "generation": 1},
        "spec": {"selector": {}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 0},
    }
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    shoal.scheduler.step()
    rig.put(DISRUPTION_BUDGETS, budget)
    await settle(rig, shoal, owners)
    assert names(rig) == running
    assert shoal.states() == {"uid-asker/0": "waiting", "uid-train/0": "running"}
    assert not shoal.world.entries["uid-train/0"].evicting
    for each in rig.pods():
        if each["metadata"]["name"] in running:
            assert each["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
            assert note(each).eviction is None
    tried = [write for write in rig.writes if write.startswith("evict")]
    await settle(rig, shoal, owners)
    assert [write for write in rig.writes if write.startswith("evict")] == tried
    # The budget lets them go: now they do.
    rig.eviction_refusals.clear()
    rig.change(DISRUPTION_BUDGETS, "b", "ns", status={"disruptionsAllowed": 2})
    await settle(rig, shoal, owners)
    assert names(rig) == ["asker"]


@in_loop
async def test_what_is_refused_for_a_reason_of_its_own_is_not_asked_again_and_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = web(rig)
    shoal = Shoal(rig, options=OPTIONS)
    await settle(rig, shoal, owners)
    running = names(rig)
    for name in running:
        rig.eviction_refusals[name] = Status(403, "Forbidden", "a policy forbids it")
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    await settle(rig, shoal, owners)
    assert names(rig) == running
    assert len([write for write in rig.writes if write.startswith("evict")]) == 2
    assert [reason for _, reason, _ in shoal.said if reason.startswith("Evict")] == [
        *("Evicted", "Evicted"),
        *("EvictionRefused", "EvictionRefused"),
    ]
    # After a while it is tried once more.
    rig.eviction_refusals.clear()
    later_us = now_us() + REFUSED_US
    monkeypatch.setattr("shoal.kubernetes.scheduler.now_us", lambda: later_us)
    await settle(rig, shoal, owners)
    assert names(rig) == ["asker"]


@in_loop
async def test_budgets_are_told_with_the_workloads_that_they_cover(rig: Rig) -> None:
    owners = web(rig)
    shoal = Shoal(rig, options=OPTIONS)
    told: list[DisruptionBudgetSet] = []

    def last() -> DisruptionBudgetSet:
        return told[-1]

    check = shoal.scheduler.loop._check
    assert check is not None

    def note_budgets(event: Any) -> None:
        check(event)
        if isinstance(event, DisruptionBudgetSet):
            told.append(event)

    shoal.scheduler.loop._check = note_budgets
    await settle(rig, shoal, owners)
    budget = {
        "metadata": {"name": "b", "namespace": "ns", "generation": 2},
        "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 1},
    }
    rig.put(DISRUPTION_BUDGETS, budget)
    await shoal.step()
    both = ("uid-web/0", "uid-web/1")
    assert [(e.name, e.allowed, e.workloads) for e in told] == [("ns/b", 0, both)]
    rig.change(DISRUPTION_BUDGETS, "b", "ns", status={"observedGeneration": 2})
    await shoal.step()
    assert last().allowed == 1
    rig.change(PODS, names(rig)[0], "ns", metadata={"labels": {"app": "x"}})
    await shoal.step()
    assert len(last().workloads) == 1
    rig.change(DISRUPTION_BUDGETS, "b", "ns", spec={"selector": None})
    await shoal.step()
    assert not last().workloads
    rig.remove(DISRUPTION_BUDGETS, "b", "ns")
    await shoal.step()
    assert last().allowed is None
    before = len(told)
    await shoal.step()
    assert len(told) == before


HOUR_US = 3_600_000_000


def at_hour(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    later_us = now_us() + hours * HOUR_US
    for module in ("scheduler", "picture"):
        monkeypatch.setattr(f"shoal.kubernetes.{module}.now_us", lambda: later_us)


TWO_HOURS = ((WorkloadType.BATCH, 2 * HOUR_US),)


def with_root(owner: Queue) -> SchedulerOptions:
    return SchedulerOptions(tick_s=0.0, written=Written((), QueueTree((Queue("root"), owner))))


@in_loop
async def test_what_runs_for_too_long_is_ended_and_its_job_counts_that(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put(JOBS, job("train", 2))
    for n in range(2):
        owner = rig.get(JOBS, "train", "ns")
        rig.put(PODS, in_queue(pod(f"train-{n}", owner=owner), "owner"))
    shoal = Shoal(rig, options=with_root(Queue("owner", "root", maximum_run_us=TWO_HOURS)))
    await shoal.settle()
    assert len(rig.bound()) == 2
    rig.lingers = True
    at_hour(monkeypatch, 3)
    await shoal.settle()
    leaving = [p for p in rig.pods() if "deletionTimestamp" in p["metadata"]]
    assert len(leaving) == 2
    assert all(p["metadata"]["finalizers"] for p in leaving)
    rig.finish()
    await shoal.settle()
    assert shoal.states() == {}


@in_loop
async def test_what_waits_for_too_long_is_held_back_and_told_so(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put(PODS, in_queue(pod("big", 4), "owner"))
    shoal = Shoal(rig, options=with_root(Queue("owner", "root", maximum_wait_us=TWO_HOURS)))
    await shoal.settle()
    assert shoal.states() == {"uid-big/0": "waiting"}
    at_hour(monkeypatch, 3)
    await shoal.settle()
    assert shoal.states() == {}
    (hold,) = shoal.scheduler.source.holds.values()
    assert hold.reason is HoldReason.TOO_LATE
    assert shoal.said[-1][:2] == ("uid-big", "HeldBack")
    rig.remove(PODS, "big", "ns")
    small = in_queue(pod("small", 1), "owner")
    small["metadata"]["annotations"]["shoal.dev/recreate"] = "true"
    rig.put(PODS, small)
    await shoal.settle()
    assert names(rig) == ["small"]
    assert shoal.scheduler.source.holds == {}
