"""The cases O03, O04 and Q08 on a cluster: queues that go, namespaces that change hands, gangs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from shoal.kubernetes.executing.deadlines import DeadlineOptions
from shoal.kubernetes.scheduler import SchedulerOptions
from shoal.kubernetes.wire.kinds import JOBS, NAMESPACES, NODES, PODS
from shoal.model.fractions import UNIT
from shoal.model.queue import Budget, Order, Period, Queue, QueueTree, WhenSpent
from shoal.model.request import Operator, Requirement
from shoal.model.selector import Selector
from shoal.objects.files import Written
from shoal.texts.refusals import refusal_text
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import Body, job, namespace, node, pod
from tests.kubernetes.rig import START, Rig, Shoal
from tests.kubernetes.tenants import H100, Owners, in_queue

MINUTE_US = 60 * 10**6
BEGAN_US = int(START.timestamp()) * 10**6
To = Callable[[int], None]


def of_team(name: str) -> Queue:
    """A queue of the namespaces that are labelled with a team, whose use is counted."""
    chosen = Selector((Requirement("team", Operator.IN, (name,)),))
    counted = Budget(Period.YEAR, 10_000, WhenSpent.WARN)
    return Queue(name, "root", chosen, budget=counted, order=Order.FIFO)


TREE = QueueTree(
    (Queue("root"), of_team("vision"), of_team("nlp"), Queue("boss", "root", None, ((H100, 2),)))
)
OPTIONS = SchedulerOptions(tick_s=0.0, written=Written((), TREE))


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.put(NODES, node("n1", 2))
    rig.put(NAMESPACES, labelled("vision"))
    rig.put(NAMESPACES, namespace("bosses"))
    return rig


@pytest.fixture
def to(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> To:
    """Let so many minutes have gone by, for Shoal and the control plane."""
    time = {"us": BEGAN_US}

    def go(minute: int) -> None:
        time["us"] = BEGAN_US + minute * MINUTE_US
        rig.seconds = minute * 60

    for module in ("scheduler", "picture"):
        monkeypatch.setattr(f"shoal.kubernetes.{module}.now_us", lambda: time["us"])
    return go


def labelled(team: str, uid: str = "first") -> Body:
    """The namespace `ns` of a team, or of none."""
    body = namespace()
    body["metadata"] |= {"uid": uid, "labels": body["metadata"]["labels"] | {"team": team}}
    if not team:
        del body["metadata"]["labels"]["team"]
    return body


class Jobs(Owners):
    """Jobs of one batch pod in the namespace, which say nothing of a queue."""

    def make(self) -> None:
        known = {each["metadata"]["name"] for each in self.rig.pods()}
        for owner, kind, _ in self.owners:
            self.rig.replace(owner, kind)
        for each in self.rig.pods():
            if each["metadata"]["name"] not in known:
                each["metadata"]["annotations"]["shoal.dev/type"] = "batch"
                self.rig.put(PODS, each)


async def settle(rig: Rig, shoal: Shoal, jobs: Jobs) -> None:
    """Let everybody work until nothing changes any more."""
    for _ in range(30):
        before = rig.version
        jobs.make()
        await shoal.settle()
        if rig.version == before:
            return
    raise AssertionError("it does not come to rest")


def seen(shoal: Shoal, name: str) -> tuple[str, str, float]:
    """Of the workload of a Job: state, queue, and the minute that it counts as having come."""
    uid = f"uid-{name}/0"
    workload = shoal.world.entries[uid].workload
    came_us = workload.created_us - BEGAN_US
    return shoal.states()[uid], workload.queue, came_us // MINUTE_US


def charged(shoal: Shoal) -> dict[str, int]:
    """Devices that are charged to each team now."""
    used = shoal.world.tenants.used_units
    return {name: sum(used(name).values()) // UNIT for name in ("vision", "nlp")}


def used(shoal: Shoal, minute: int) -> dict[str, int]:
    """Device minutes that count in the budget of each team by then."""
    found = {}
    for name in ("vision", "nlp"):
        account = shoal.world.spending.accounts[name]
        over = account.over(account.used_at(BEGAN_US + minute * MINUTE_US), 0, 0)
        found[name] = round(over.used / MINUTE_US)
    return found


async def two_jobs(rig: Rig, to: To) -> tuple[Shoal, Jobs]:
    """Minutes 0 and 1: w1 runs on both devices, and w2 waits, both in the queue vision."""
    to(0)
    shoal = Shoal(rig, options=OPTIONS)
    first = rig.put(JOBS, job("w1", 1, devices=2))
    await settle(rig, shoal, Jobs(rig, (first, "Job", "")))
    to(1)
    jobs = Jobs(rig, (first, "Job", ""), (rig.put(JOBS, job("w2", 1, devices=2)), "Job", ""))
    await settle(rig, shoal, jobs)
    assert seen(shoal, "w1") == ("running", "vision", 0)
    assert seen(shoal, "w2") == ("waiting", "vision", 1)
    return shoal, jobs


@in_loop
async def test_o04_a_namespace_that_changes_hands(rig: Rig, to: To) -> None:
    shoal, jobs = await two_jobs(rig, to)
    to(10)
    rig.put(NAMESPACES, labelled("nlp"))
    await settle(rig, shoal, jobs)
    assert seen(shoal, "w1") == ("running", "vision", 0)
    assert seen(shoal, "w2") == ("waiting", "nlp", 1), "it keeps when it came"
    assert charged(shoal) == {"vision": 2, "nlp": 0}
    to(20)
    asker = pod("asker", 2, namespace="bosses")
    rig.put(PODS, in_queue(asker, "boss"))
    await settle(rig, shoal, jobs)
    assert list(rig.bound()) == ["asker"]
    assert seen(shoal, "w1") == ("waiting", "nlp", 0)
    assert shoal.world.entries["uid-w1/0"].was_evicted
    assert charged(shoal) == {"vision": 0, "nlp": 0}
    to(25)
    rig.remove(PODS, "asker", "bosses")
    await settle(rig, shoal, jobs)
    assert seen(shoal, "w1") == ("running", "nlp", 0), "it is the older one there"
    assert seen(shoal, "w2") == ("waiting", "nlp", 1)
    assert charged(shoal) == {"vision": 0, "nlp": 2}
    assert used(shoal, 30) == {"vision": 40, "nlp": 10}, "what was used before stays with vision"


@in_loop
async def test_o04_a_namespace_that_comes_back_by_its_name_has_nothing_of_the_old_one(
    rig: Rig, to: To
) -> None:
    shoal, jobs = await two_jobs(rig, to)
    to(10)
    rig.put(NAMESPACES, labelled("nlp"))
    await settle(rig, shoal, jobs)
    to(30)
    for each in rig.pods():
        rig.remove(PODS, each["metadata"]["name"], "ns")
    for name in ("w1", "w2"):
        rig.remove(JOBS, name, "ns")
    rig.remove(NAMESPACES, "ns")
    await shoal.settle()
    assert shoal.world.entries == {}
    assert charged(shoal) == {"vision": 0, "nlp": 0}
    to(35)
    rig.put(NAMESPACES, labelled("vision", uid="second"))
    again = job("w1", 1, devices=2)
    again["metadata"]["uid"] = "uid-other"
    await settle(rig, shoal, Jobs(rig, (rig.put(JOBS, again), "Job", "")))
    assert seen(shoal, "other") == ("running", "vision", 35)
    entry = shoal.world.entries["uid-other/0"]
    assert (entry.was_evicted, entry.served_device_us) == (False, 0)
    assert used(shoal, 40) == {"vision": 60 + 10, "nlp": 0}, "nothing between 30 and 35"


@in_loop
async def test_o04_variant_the_label_is_removed(rig: Rig, to: To) -> None:
    shoal, jobs = await two_jobs(rig, to)
    to(10)
    rig.put(NAMESPACES, labelled(""))
    await settle(rig, shoal, jobs)
    assert seen(shoal, "w1") == ("running", "vision", 0)
    (hold,) = shoal.scheduler.source.holds.values()
    assert hold.refusal is not None
    assert refusal_text(hold.refusal) == (
        "namespace ns belongs to no queue; have it labelled (team=vision, team=nlp), or write"
        " shoal.dev/queue (it may use: boss)"
    )
    assert "uid-w2/0" not in shoal.world.entries
    (running,) = rig.bound()
    to(20)
    rig.change(PODS, running, "ns", status={"phase": "Succeeded"})
    await shoal.settle()
    assert rig.bound() == {running: "n1"}, "nothing starts in its place"
    assert charged(shoal) == {"vision": 0, "nlp": 0}
    assert not [write for write in rig.writes if write.startswith("evict")]


LAB, OTHER = (Queue(name, "root", guarantee=((H100, 4),)) for name in ("lab", "other"))
"""As they are written in the case O03."""


def written(*queues: Queue) -> Written:
    return Written((), QueueTree((Queue("root"), *queues)))


def inside(shoal: Shoal, name: str) -> tuple[int, int, int]:
    """Of a queue, as its status shows it: running, devices held, waiting."""
    entries = [e for e in shoal.world.entries.values() if e.workload.queue == name]
    devices = sum(shoal.world.tenants.used_units(name).values()) // UNIT
    running = [entry for entry in entries if entry.held]
    held_back = [hold for hold in shoal.scheduler.source.holds.values() if hold.refusal is not None]
    waiting = [entry for entry in entries if not entry.held]
    return len(running), devices, len(waiting) + len(held_back)


def told(shoal: Shoal) -> set[str]:
    """What those are told who are held back."""
    holds = shoal.scheduler.source.holds.values()
    return {refusal_text(hold.refusal) for hold in holds if hold.refusal is not None}


@in_loop
async def test_o03_a_queue_that_is_deleted_with_work_in_it(rig: Rig, to: To) -> None:
    to(0)
    rig.put(NODES, node("n1", 8))
    rig.put(NAMESPACES, namespace())
    shoal = Shoal(rig, options=SchedulerOptions(tick_s=0.0, written=written(LAB, OTHER)))

    async def comes(name: str, devices: int, queue: str) -> None:
        made = in_queue(pod(name, devices), queue)
        made["metadata"]["annotations"]["shoal.dev/recreate"] = "true"
        rig.put(PODS, made)
        await shoal.settle()

    async def ends(name: str) -> None:
        rig.change(PODS, name, "ns", status={"phase": "Succeeded"})
        await shoal.settle()

    for name, devices in (("a", 1), ("b", 2), ("c", 6), ("d", 6), ("e", 6)):
        await comes(name, devices, "lab")
    for number in range(12):
        await comes(f"o{number}", 1, "other")
    assert inside(shoal, "lab") == (2, 3, 3)
    assert inside(shoal, "other")[:2] == (5, 5)
    to(10)
    shoal.scheduler._keep_to(written(OTHER))
    await shoal.settle()
    assert inside(shoal, "lab") == (2, 3, 3)
    (said,) = told(shoal)
    assert said == (
        "shoal.dev/queue is 'lab', and that queue is being deleted; nothing new starts in it. This"
        " namespace may use: other"
    )
    assert shoal.world.tenants.guarantee("lab", H100).units == 3 * UNIT
    to(20)
    await ends("a")
    assert inside(shoal, "lab") == (1, 2, 3)
    assert inside(shoal, "other")[:2] == (6, 6), "the rest is lent"
    to(30)
    await ends("b")
    assert shoal.world.tenants.tree.get("lab") is None, "it goes at once"
    (said,) = told(shoal)
    assert said == ("shoal.dev/queue is 'lab', which is no queue of this namespace. Nearest: other")
    assert len(shoal.scheduler.source.holds) == 3
    assert inside(shoal, "other")[:2] == (8, 8)
    to(40)
    shoal.scheduler._keep_to(written(LAB, OTHER))
    await shoal.settle()
    assert told(shoal) == set()
    assert inside(shoal, "lab") == (0, 0, 3)
    for number in range(12):
        await ends(f"o{number}")
    back = [
        (uid[4], entry.state.value, entry.workload.created_us < BEGAN_US + MINUTE_US)
        for uid, entry in sorted(shoal.world.entries.items())
        if entry.workload.queue == "lab"
    ]
    assert back == [("c", "running", True), ("d", "waiting", True), ("e", "waiting", True)]


@in_loop
async def test_q08_a_gang_of_which_a_pod_cannot_be_bound_is_taken_back_with_the_reason(
    rig: Rig, to: To, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six workers of a Job; the first one's volume does not exist, and 60 s are waited for it."""
    missing = 'persistentvolumeclaim "data" not found'
    bind, broken = rig._place, list[str]()
    monkeypatch.setattr(
        rig, "_place", lambda pod: missing if pod["metadata"]["name"] in broken else bind(pod)
    )

    def limited(devices: int) -> Written:
        return written(replace(LAB, guarantee=None, limit=((H100, devices),)))

    to(0)
    rig.put(NODES, node("n1", 8))
    rig.put(NAMESPACES, namespace())
    patience = DeadlineOptions(refused_us=MINUTE_US)
    options = SchedulerOptions(tick_s=0.0, written=limited(4), deadlines=patience)
    shoal = Shoal(rig, options=options)
    owners = Owners(rig, (rig.put(JOBS, job("ray", 6)), "Job", "lab"))
    owners.make()
    broken.append(min(each["metadata"]["name"] for each in rig.pods()))
    await shoal.settle()
    assert all(each["spec"]["schedulingGates"] for each in rig.pods())
    to(5)
    shoal.scheduler._keep_to(limited(6))
    await shoal.settle()
    assert len(rig.bound()) == 5
    assert shoal.states() == {"uid-ray/0": "starting"}
    to(7)
    await shoal.settle()
    assert rig.bound() == {}
    assert shoal.held("n1") == 0
    said = {pod: note for pod, reason, note in shoal.said if reason == "StartFailed"}
    (name,) = broken
    assert said.pop(f"uid-{name}") == f"Not started on node n1: {missing}"
    assert len(said) == 5
    assert set(said.values()) == {
        f"Taken back, as pod {name} did not start on node n1: {missing}",
    }
