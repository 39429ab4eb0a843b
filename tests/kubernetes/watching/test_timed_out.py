"""Work whose time is up on a cluster: it is ended, or tried no more, until it is made anew."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from shoal.core.policies import Policy
from shoal.kubernetes.memory import content_of
from shoal.kubernetes.picture import Picture
from shoal.kubernetes.scheduler import SchedulerOptions, now_us
from shoal.kubernetes.wire.kinds import JOBS, NAMESPACES, NODES, PODS, REPLICA_SETS, STATEFUL_SETS
from shoal.model.hold import HoldReason
from shoal.model.queue import Queue, QueueTree
from shoal.model.workload import WorkloadType
from shoal.objects.files import Written
from shoal.texts.holds import hold_text
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import Body, job, namespace, node, pod, replica_set
from tests.kubernetes.rig import CATALOG, START, Rig, Shoal
from tests.kubernetes.tenants import H100, Owners, in_queue, names, settle

HOUR_US = 3_600_000_000
BEGAN_US = now_us()
To = Callable[[float], None]


def limits(run: int | None = 2, wait: int | None = None) -> SchedulerOptions:
    """One queue with a limit of so many hours."""
    queue = Queue(
        "lab",
        "root",
        guarantee=((H100, 2),),
        maximum_run_us=((WorkloadType.BATCH, run * HOUR_US),) if run else (),
        maximum_wait_us=((WorkloadType.BATCH, wait * HOUR_US),) if wait else (),
    )
    return SchedulerOptions(tick_s=0.0, written=Written((), QueueTree((Queue("root"), queue))))


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("n1", 2))
    return rig


@pytest.fixture
def to(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> To:
    """Let so many hours have gone by, for Shoal and the control plane."""

    time = {"us": BEGAN_US}

    def go(hours: float) -> None:
        time["us"] = BEGAN_US + int(hours * HOUR_US)
        rig.seconds = time["us"] // 10**6 - int(START.timestamp())

    for module in ("scheduler", "picture"):
        monkeypatch.setattr(f"shoal.kubernetes.{module}.now_us", lambda: time["us"])
    go(0)
    return go


def owners_of(rig: Rig, kind: str, pods: int = 2) -> Owners:
    owner = rig.put(JOBS, job("w", pods)) if kind == "Job" else None
    owner = owner or rig.put(REPLICA_SETS, replica_set("w", pods))
    return Owners(rig, (owner, kind, "lab"))


def held(shoal: Shoal) -> dict[HoldReason, list[str]]:
    """Names of pods that are held back, by reason."""
    found: dict[HoldReason, list[str]] = {}
    for hold in shoal.scheduler.source.holds.values():
        known = (shoal.scheduler.source.pods[uid].metadata.name for uid in hold.pods)
        found.setdefault(hold.reason, []).extend(known)
    return {reason: sorted(found[reason]) for reason in found}


def waiting_names(rig: Rig) -> list[str]:
    return sorted(p["metadata"]["name"] for p in rig.pods() if not p["spec"].get("nodeName"))


async def successor(rig: Rig, shoal: Shoal, owners: Owners, *, remembers: bool = False) -> Shoal:
    """Another process that leads; only one that remembers is told what was in the ConfigMap."""
    content = content_of(shoal.world, shoal.scheduler.source, QueueTree(), now_us())
    rig.truths.clear()
    after = Shoal(rig, options=shoal.scheduler.options)
    after.scheduler._recalled = content if remembers else None
    await settle(rig, after, owners)
    return after


@pytest.mark.parametrize("kind", ["Job", "ReplicaSet"])
@in_loop
async def test_what_a_controller_makes_again_is_held_back_and_holds_nothing(
    rig: Rig, to: To, kind: str
) -> None:
    owners = owners_of(rig, kind)
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, owners)
    first = names(rig)
    assert len(first) == 2
    to(3)
    await settle(rig, shoal, owners)
    assert rig.bound() == {}
    assert shoal.states() == {}
    assert held(shoal) == {HoldReason.TOO_LONG: waiting_names(rig)}
    assert not set(first) & set(waiting_names(rig))
    assert shoal.held("n1") == 0
    said = [note for _, reason, note in shoal.said if reason == "HeldBack"]
    sentence = (
        "It ran for 2h, its maximum in queue lab, and was ended. Create it again, or scale it to 0"
        " and back, to have it run anew."
    )
    assert said[-2:] == [sentence] * 2
    # Whoever looks once is told the same, with and without the queues.
    for queues in (limits().written.tree, QueueTree()):
        truth = replace(rig.truth(), as_if_managed=True)
        picture = Picture(truth, CATALOG, Policy("fragmentation"), 1, Written((), queues))
        answer = picture.why("ns", waiting_names(rig)[0])
        assert answer is not None
        assert answer.hold is not None
        assert hold_text(answer.hold) == sentence
    # It stays so, and others get the devices.
    rig.put(PODS, in_queue(pod("other", 2), "lab"))
    to(6)
    await settle(rig, shoal, owners)
    assert names(rig) == ["other"]
    assert held(shoal) == {HoldReason.TOO_LONG: waiting_names(rig)}


@pytest.mark.parametrize("kind", ["Job", "ReplicaSet"])
@in_loop
async def test_it_stays_held_back_after_a_restart_because_its_pods_say_so(
    rig: Rig, to: To, kind: str
) -> None:
    owners = owners_of(rig, kind)
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, owners)
    to(3)
    await settle(rig, shoal, owners)
    writes = len(rig.writes)
    after = await successor(rig, shoal, owners)
    assert held(after) == {HoldReason.TOO_LONG: waiting_names(rig)}
    assert len(rig.writes) == writes, "what is written already is not written again"
    assert after.scheduler.source.units.timed_out.ended == {}


@pytest.mark.parametrize("kind", ["Job", "ReplicaSet"])
@pytest.mark.parametrize("comes", ["before", "after"])
@in_loop
async def test_what_is_made_while_nobody_leads_is_held_back_too(
    rig: Rig, to: To, kind: str, comes: str
) -> None:
    owners = owners_of(rig, kind)
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, owners)
    to(3)
    nobody = Owners(rig)
    await settle(rig, shoal, nobody)
    assert rig.pods() == []
    assert shoal.scheduler.source.units.timed_out.ended
    if comes == "before":
        owners.make()
    after = await successor(rig, shoal, nobody, remembers=True)
    await settle(rig, after, owners)
    assert held(after) == {HoldReason.TOO_LONG: waiting_names(rig)}
    assert len(waiting_names(rig)) == 2
    assert rig.bound() == {}


@pytest.mark.parametrize("kind", ["Job", "ReplicaSet"])
@in_loop
async def test_who_takes_over_while_it_stops_does_not_let_it_come_back(
    rig: Rig, to: To, kind: str
) -> None:
    owners = owners_of(rig, kind)
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, owners)
    rig.lingers = True
    to(3)
    await settle(rig, shoal, owners)
    assert len(rig.bound()) == 2
    after = await successor(rig, shoal, owners)
    rig.finish()
    await settle(rig, after, owners)
    assert held(after) == {HoldReason.TOO_LONG: waiting_names(rig)}
    assert after.states() == {}


@in_loop
async def test_a_standby_holds_back_the_same(rig: Rig, to: To) -> None:
    owners = owners_of(rig, "ReplicaSet")
    shoal, standby = Shoal(rig, options=limits()), Shoal(rig, leads=False, options=limits())
    await settle(rig, shoal, owners)
    await settle(rig, standby, owners)
    to(3)
    rig.lingers = True
    await settle(rig, shoal, owners)
    await settle(rig, standby, owners)
    rig.finish()
    await settle(rig, shoal, owners)
    await settle(rig, standby, owners)
    assert held(standby) == held(shoal) == {HoldReason.TOO_LONG: waiting_names(rig)}
    shoal.leader.is_leader = False
    standby.leader.is_leader = True
    await settle(rig, standby, owners)
    assert rig.bound() == {}


@in_loop
async def test_scaled_to_0_and_back_it_runs_anew(rig: Rig, to: To) -> None:
    owners = owners_of(rig, "ReplicaSet")
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, owners)
    to(3)
    await settle(rig, shoal, owners)
    assert rig.bound() == {}
    for name in waiting_names(rig):
        rig.remove(PODS, name, "ns")
    await settle(rig, shoal, owners)
    assert len(rig.bound()) == 2
    assert held(shoal) == {}


@in_loop
async def test_a_notebook_that_is_scaled_to_0_as_it_ends_is_not_held_back_later(
    rig: Rig, to: To
) -> None:
    owners = owners_of(rig, "ReplicaSet")
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, owners)
    rig.change(REPLICA_SETS, "w", "ns", spec={"replicas": 0})
    to(3)
    await settle(rig, shoal, Owners(rig))
    assert rig.pods() == []
    assert shoal.scheduler.source.units.timed_out.ended == {}
    rig.change(REPLICA_SETS, "w", "ns", spec={"replicas": 2})
    await settle(rig, shoal, owners)
    assert len(rig.bound()) == 2


@in_loop
async def test_a_job_that_is_created_again_runs_anew(rig: Rig, to: To) -> None:
    owners = owners_of(rig, "Job")
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, owners)
    to(3)
    await settle(rig, shoal, owners)
    rig.remove(JOBS, "w", "ns")
    for name in waiting_names(rig):
        rig.remove(PODS, name, "ns")
    again = job("w", 2)
    again["metadata"]["uid"] = "uid-again"
    owners = Owners(rig, (rig.put(JOBS, again), "Job", "lab"))
    await settle(rig, shoal, owners)
    assert len(rig.bound()) == 2


@in_loop
async def test_one_more_pod_of_a_job_does_not_let_it_run_anew(rig: Rig, to: To) -> None:
    owners = owners_of(rig, "Job")
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, owners)
    to(3)
    await settle(rig, shoal, owners)
    rig.remove(PODS, waiting_names(rig)[0], "ns")
    await settle(rig, shoal, owners)
    assert rig.bound() == {}
    assert held(shoal) == {HoldReason.TOO_LONG: waiting_names(rig)}


@in_loop
async def test_a_pod_that_is_held_back_takes_the_place_of_nobody_who_is_evicted(
    rig: Rig, to: To
) -> None:
    root, lab = limits().written.tree.queues
    owner_queue = Queue("owner", "root", guarantee=((H100, 2),))
    queues = QueueTree((root, replace(lab, guarantee=()), owner_queue))
    options = SchedulerOptions(tick_s=0.0, written=Written((), queues))
    owner = rig.put(REPLICA_SETS, replica_set("w", 1))
    owners = Owners(rig, (owner, "ReplicaSet", "lab"))
    shoal = Shoal(rig, options=options)
    await settle(rig, shoal, owners)
    to(1)
    rig.change(REPLICA_SETS, "w", "ns", spec={"replicas": 2})
    owners.owners = ((rig.get(REPLICA_SETS, "w", "ns"), "ReplicaSet", "lab"),)
    await settle(rig, shoal, owners)
    to(2.5)
    await settle(rig, shoal, owners)
    (held_back,) = held(shoal)[HoldReason.TOO_LONG]
    came_us = shoal.world.entries["uid-w/1"].workload.created_us
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    await settle(rig, shoal, owners)
    assert names(rig) == ["asker"]
    assert held(shoal) == {HoldReason.TOO_LONG: [held_back]}
    assert shoal.states() == {"uid-asker/0": "running", "uid-w/1": "waiting"}
    (successor,) = shoal.scheduler.source.units.waiting["uid-w/1"].pods
    assert successor != f"uid-{held_back}"
    entry = shoal.world.entries["uid-w/1"]
    assert entry.was_evicted
    assert entry.workload.created_us == came_us


@in_loop
async def test_what_cannot_be_read_for_a_while_is_held_back_still(rig: Rig, to: To) -> None:
    owners = owners_of(rig, "ReplicaSet")
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, owners)
    to(3)
    await settle(rig, shoal, owners)
    rig.truths.clear()
    tree = QueueTree((Queue("root"), Queue("other", "root")))
    other = SchedulerOptions(tick_s=0.0, written=Written((), tree))
    await settle(rig, Shoal(rig, options=other), owners)
    assert rig.bound() == {}
    rig.truths.clear()
    after = Shoal(rig, options=limits())
    await settle(rig, after, owners)
    assert held(after) == {HoldReason.TOO_LONG: waiting_names(rig)}


STATEFUL: Body = {"metadata": {"name": "nb", "uid": "uid-nb"}}


def notebook(rig: Rig, number: int, uid: str) -> None:
    body = in_queue(pod(f"nb-{number}", owner=STATEFUL, owner_kind="StatefulSet"), "lab")
    body["metadata"]["uid"] = uid
    rig.put(PODS, body)


@in_loop
async def test_of_a_stateful_set_the_pod_of_the_same_name_is_held_back(rig: Rig, to: To) -> None:
    nobody = Owners(rig)
    notebook(rig, 0, "first")
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, nobody)
    to(1.5)
    notebook(rig, 1, "second")
    await settle(rig, shoal, nobody)
    assert names(rig) == ["nb-0", "nb-1"]
    to(2.1)
    await settle(rig, shoal, nobody)
    assert names(rig) == ["nb-1"]
    notebook(rig, 2, "third")
    await settle(rig, shoal, nobody)
    notebook(rig, 0, "again")
    await settle(rig, shoal, nobody)
    assert names(rig) == ["nb-1", "nb-2"]
    assert held(shoal) == {HoldReason.TOO_LONG: ["nb-0"]}
    rig.remove(PODS, "nb-0", "ns")
    rig.remove(PODS, "nb-2", "ns")
    await settle(rig, shoal, nobody)
    notebook(rig, 0, "once more")
    await settle(rig, shoal, nobody)
    assert names(rig) == ["nb-0", "nb-1"]


@in_loop
async def test_of_a_stateful_set_it_is_known_whether_it_wants_pods(rig: Rig, to: To) -> None:
    rig.put(STATEFUL_SETS, replica_set("nb", 1))
    nobody = Owners(rig)
    notebook(rig, 0, "first")
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, nobody)
    to(2.1)
    await settle(rig, shoal, nobody)
    to(5)
    await settle(rig, shoal, nobody)
    notebook(rig, 0, "late")
    await settle(rig, shoal, nobody)
    assert held(shoal) == {HoldReason.TOO_LONG: ["nb-0"]}
    rig.change(STATEFUL_SETS, "nb", "ns", spec={"replicas": 0})
    rig.remove(PODS, "nb-0", "ns")
    await settle(rig, shoal, nobody)
    rig.change(STATEFUL_SETS, "nb", "ns", spec={"replicas": 1})
    notebook(rig, 0, "anew")
    await settle(rig, shoal, nobody)
    assert names(rig) == ["nb-0"]


@pytest.mark.parametrize(("hours", "runs"), [(2.11, False), (2.2, True)])
@in_loop
async def test_whoever_makes_no_pod_for_a_while_wants_none(
    rig: Rig, to: To, hours: float, runs: bool
) -> None:
    nobody = Owners(rig)
    notebook(rig, 0, "first")
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, nobody)
    to(2.1)
    await settle(rig, shoal, nobody)
    assert rig.pods() == []
    to(hours)
    await settle(rig, shoal, nobody)
    notebook(rig, 0, "again")
    await settle(rig, shoal, nobody)
    assert bool(rig.bound()) is runs


@in_loop
async def test_a_job_that_makes_its_pods_late_is_waited_for(rig: Rig, to: To) -> None:
    owners = owners_of(rig, "Job")
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, owners)
    to(3)
    await settle(rig, shoal, Owners(rig))
    to(3.2)
    await settle(rig, shoal, Owners(rig))
    await settle(rig, shoal, owners)
    assert held(shoal) == {HoldReason.TOO_LONG: waiting_names(rig)}


@pytest.mark.parametrize("hours", [None, 5])
@in_loop
async def test_a_limit_that_is_lifted_lets_it_run(rig: Rig, to: To, hours: int | None) -> None:
    owners = owners_of(rig, "ReplicaSet")
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, owners)
    to(3)
    await settle(rig, shoal, owners)
    assert all("shoal.dev/held" in p["metadata"]["annotations"] for p in rig.pods())
    rig.truths.clear()
    after = Shoal(rig, options=limits(run=hours))
    await settle(rig, after, owners)
    assert len(rig.bound()) == 2
    assert held(after) == {}
    assert not any("shoal.dev/held" in p["metadata"]["annotations"] for p in rig.pods())


@in_loop
async def test_work_that_finishes_while_it_is_ended_is_done(rig: Rig, to: To) -> None:
    owners = owners_of(rig, "Job", 1)
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, owners)
    rig.lingers = True
    to(3)
    await settle(rig, shoal, Owners(rig))
    rig.change(PODS, names(rig)[0], "ns", status={"phase": "Succeeded"})
    await settle(rig, shoal, Owners(rig))
    assert shoal.states() == {}
    assert shoal.scheduler.source.units.timed_out.ended == {}


@in_loop
async def test_a_notebook_that_stops_in_good_order_has_not_finished(rig: Rig, to: To) -> None:
    nobody = Owners(rig)
    notebook(rig, 0, "first")
    rig.change(PODS, "nb-0", "ns", spec={"restartPolicy": "Always"})
    shoal = Shoal(rig, options=limits())
    await settle(rig, shoal, nobody)
    rig.lingers = True
    to(3)
    await settle(rig, shoal, nobody)
    rig.change(PODS, "nb-0", "ns", status={"phase": "Succeeded"})
    await settle(rig, shoal, nobody)
    rig.finish()
    notebook(rig, 0, "again")
    await settle(rig, shoal, nobody)
    assert held(shoal) == {HoldReason.TOO_LONG: ["nb-0"]}


@in_loop
async def test_who_waited_for_too_long_is_not_tried_again_after_a_restart(rig: Rig, to: To) -> None:
    nobody = Owners(rig)
    rig.put(PODS, in_queue(pod("runs", 2), "lab"))
    shoal = Shoal(rig, options=limits(run=None, wait=2))
    await settle(rig, shoal, nobody)
    rig.put(PODS, in_queue(pod("waits", 1), "lab"))
    await settle(rig, shoal, nobody)
    to(3)
    await settle(rig, shoal, nobody)
    assert held(shoal) == {HoldReason.TOO_LATE: ["waits"]}
    after = await successor(rig, shoal, nobody)
    rig.remove(PODS, "runs", "ns")
    await settle(rig, after, nobody)
    assert rig.bound() == {}
    (hold,) = after.scheduler.source.holds.values()
    assert hold_text(hold) == (
        "It waited for 3h, as long as queue lab lets such work wait, and is no longer tried. Create"
        " it again to have it wait anew."
    )
    rig.truths.clear()
    lifted = Shoal(rig, options=limits(run=None))
    await settle(rig, lifted, nobody)
    assert names(rig) == ["waits"]
