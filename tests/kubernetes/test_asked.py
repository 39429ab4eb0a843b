"""What the scheduler makes of who asked: users, priorities, turns, and pods of strangers."""

import pytest

from shoal.kubernetes.scheduler import SchedulerOptions
from shoal.kubernetes.wire.kinds import JOBS, NAMESPACES, NODES, PODS, REPLICA_SETS
from shoal.model.hold import HoldReason
from shoal.model.queue import Order, Priority, Queue, QueueTree
from shoal.objects.files import Written
from shoal.texts.holds import hold_text
from shoal.texts.language import Language
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import Body, job, node, pod, replica_set
from tests.kubernetes.noted import Api, by, guarded, made, owned, owner
from tests.kubernetes.rig import Rig, Shoal
from tests.kubernetes.tenants import H100

LEADS = QueueTree(
    (
        Queue(
            "work",
            guarantee=((H100, 8),),
            order=Order.FAIR,
            priorities=(Priority("normal", 0), Priority("urgent", 100, ("group:leads",))),
        ),
    )
)
OPTIONS = SchedulerOptions(tick_s=0.0, written=Written((), LEADS))


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.put(NAMESPACES, guarded())
    return rig


def in_work(body: Body, priority: str = "") -> Body:
    notes = body["metadata"].setdefault("annotations", {})
    notes["shoal.dev/queue"] = "work"
    if priority:
        notes["shoal.dev/priority"] = priority
    return body


async def scheduler(rig: Rig, api: Api | None = None) -> Shoal:
    shoal = Shoal(rig, options=OPTIONS)
    await shoal.scheduler.askers.begin(api or Api())  # type: ignore[arg-type]
    return shoal


def holds(shoal: Shoal) -> dict[str, str]:
    """What is said of each pod that is held back."""
    return {
        pod: hold_text(hold) for hold in shoal.scheduler.source.holds.values() for pod in hold.pods
    }


@in_loop
async def test_a_workload_has_its_user_and_a_priority_that_only_his_group_may_ask_for(
    rig: Rig,
) -> None:
    rig.put(PODS, in_work(by(pod("hers"), "ann", "leads"), "urgent"))
    rig.put(PODS, in_work(by(pod("his"), "bob"), "urgent"))
    rig.put(PODS, in_work(pod("old"), "urgent"))
    shoal = await scheduler(rig)
    await shoal.step()
    workload = shoal.world.entries["uid-hers/0"].workload
    assert (workload.user, workload.priority) == ("ann", 100)
    said = holds(shoal)
    assert set(said) == {"uid-his", "uid-old"}
    assert "for which only group:leads may ask in queue work" in said["uid-his"]
    assert "it is not known who asked for this" in said["uid-old"]
    assert "提交者未知" in hold_text(shoal.scheduler.source.holds["uid-old"], Language.CHINESE)


@in_loop
async def test_pods_of_one_template_are_read_by_who_asked_for_each(rig: Rig) -> None:
    """A pod of somebody else that names the same owner is not taken for one of its pods."""
    sets = by(replica_set("web", 2), "ann", "leads")
    rig.put(REPLICA_SETS, sets)
    hers = in_work(pod("a", owner=sets, owner_kind="ReplicaSet"), "urgent")
    rig.put(PODS, made(hers, "replicaset-controller"))
    his = in_work(pod("b", owner=sets, owner_kind="ReplicaSet"), "urgent")
    rig.put(PODS, by(his, "eve"))
    shoal = await scheduler(rig)
    await shoal.step()
    assert [each.workload.user for each in shoal.world.entries.values()] == ["ann"]
    assert holds(shoal) == {
        "uid-b": "It names ReplicaSet web as its controller, but somebody else than that controller"
        " made it, or it was made for another owner. It starts neither with the pods of ReplicaSet"
        " web nor in the name of who asked for them: create it without that owner."
    }


@in_loop
async def test_a_strangers_pod_does_not_start_with_a_gang(rig: Rig) -> None:
    rig.put(NODES, node("n1"))
    jobs = by(job("j", 3), "ann", "leads")
    rig.put(JOBS, jobs)
    rig.put(PODS, in_work(by(pod("guest", owner=jobs), "eve")))
    for name in ("a", "b"):
        rig.put(PODS, made(in_work(pod(name, owner=jobs), "urgent"), "job-controller"))
    shoal = await scheduler(rig)
    await shoal.settle()
    assert sorted(rig.bound()) == ["a", "b"]
    assert set(holds(shoal)) == {"uid-guest"}
    # When it goes, the Job makes the pod that it lacked.
    rig.remove(PODS, "guest", "ns")
    rig.put(PODS, made(in_work(pod("c", owner=jobs), "urgent"), "job-controller"))
    await shoal.settle()
    assert sorted(rig.bound()) == ["a", "b", "c"]
    assert holds(shoal) == {}


@in_loop
async def test_work_is_held_until_its_owner_has_been_read_and_nobody_is_told(rig: Rig) -> None:
    rig.put(NODES, node("n1"))
    api = Api(by(owner("s"), "ann", "leads"))
    shoal = await scheduler(rig, api)
    body = in_work(owned(pod("a"), "apps/v1", "StatefulSet", "s"), "urgent")
    rig.put(PODS, made(body, "statefulset-controller"))
    await shoal.settle()
    (hold,) = shoal.scheduler.source.holds.values()
    assert hold.reason is HoldReason.ASKER_UNREAD
    assert hold_text(hold).startswith("StatefulSet s is being read")
    assert shoal.said == []
    shoal.scheduler._know_askers(
        await shoal.scheduler.askers._read_wanted(api)  # type: ignore[arg-type]
    )
    await shoal.settle()
    assert rig.bound() == {"a": "n1"}
    assert shoal.world.entries["uid-s/0"].workload.user == "ann"


@in_loop
async def test_work_that_runs_keeps_its_priority_when_nobody_is_known_any_more(rig: Rig) -> None:
    rig.put(NODES, node("n1"))
    rig.put(PODS, in_work(by(pod("a"), "ann", "leads"), "urgent"))
    await (await scheduler(rig)).settle()
    later = Shoal(rig, options=OPTIONS)
    await later.settle()
    workload = later.world.entries["uid-a/0"].workload
    assert (workload.user, workload.queue, workload.priority) == ("", "work", 100)


@in_loop
async def test_who_changes_a_job_that_waits_has_asked_for_it(rig: Rig) -> None:
    jobs = by(job("j", 1), "ann", "leads")
    rig.put(JOBS, jobs)
    rig.put(PODS, made(in_work(pod("a", owner=jobs), "urgent"), "job-controller"))
    shoal = await scheduler(rig)
    await shoal.step()
    assert [each.workload.user for each in shoal.world.entries.values()] == ["ann"]
    notes = {"shoal.dev/user": "bob", "shoal.dev/groups": ""}
    rig.change(JOBS, "j", "ns", metadata={"annotations": notes})
    await shoal.step()
    assert shoal.world.entries == {}
    assert "only group:leads may ask" in holds(shoal)["uid-a"]


@in_loop
async def test_in_a_fair_queue_whoever_has_less_goes_first(rig: Rig) -> None:
    rig.put(NODES, node("n1", 2))
    rig.put(PODS, in_work(by(pod("a1"), "ann", "leads")))
    shoal = await scheduler(rig)
    await shoal.settle()
    rig.put(PODS, in_work(by(pod("a2"), "ann", "leads")))
    rig.put(PODS, in_work(by(pod("b1"), "bob")))
    await shoal.settle()
    assert sorted(rig.bound()) == ["a1", "b1"]
