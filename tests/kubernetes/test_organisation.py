"""Pools and queues that change while a scheduler runs, and what stays of them for the next one."""

import asyncio
from pathlib import Path

import pytest

from shoal.kubernetes import files as module
from shoal.kubernetes.files import Files
from shoal.kubernetes.memory import content_of
from shoal.kubernetes.metrics import SchedulerMetrics
from shoal.kubernetes.scheduler import SchedulerOptions, now_us
from shoal.kubernetes.wire.kinds import NAMESPACES, NODES, PODS
from shoal.model.meaning import BorrowDebt, Debt, QueueGone, RunsEnded
from shoal.model.queue import Queue, QueueTree
from shoal.model.selector import Selector
from shoal.model.workload import WorkloadType
from shoal.objects.files import Written
from tests.kubernetes.fake_api import in_loop, until
from tests.kubernetes.manifests import Body, namespace, node, pod
from tests.kubernetes.rig import CATALOG, Rig, Shoal
from tests.kubernetes.tenants import H100, in_queue
from tests.objects.written import pool

ROOT = Queue("root")
LAB = Queue("lab", "root", guarantee=((H100, 1),))
DESK = Queue("desk", "root")
EVERYBODY = Queue("everybody", "root", namespaces=Selector())

TEXT = """
apiVersion: shoal.dev/v1alpha1
kind: AcceleratorQueue
metadata: {name: root}
---
apiVersion: shoal.dev/v1alpha1
kind: AcceleratorQueue
metadata: {name: NAME}
spec: {parent: root}
"""


def written(*queues: Queue) -> Written:
    return Written((), QueueTree((ROOT, *queues)) if queues else QueueTree())


@pytest.fixture
def rig() -> Rig:
    """A managed namespace, and a node of four devices."""
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("n1", 4))
    return rig


def begun(rig: Rig, *queues: Queue) -> Shoal:
    return Shoal(rig, options=SchedulerOptions(tick_s=0.0, written=written(*queues)))


def batch(body: Body, queue: str) -> Body:
    """A batch pod of a queue that may borrow, as somebody makes it again."""
    body["metadata"]["annotations"]["shoal.dev/recreate"] = "true"
    return in_queue(body, queue)


def queue_of(shoal: Shoal, uid: str) -> str:
    return str(shoal.world.entries[uid].workload.queue)


@in_loop
async def test_changed_queues_count_at_once_and_end_nothing(rig: Rig) -> None:
    shoal = begun(rig, LAB)
    for name in ("one", "two"):
        rig.put(PODS, batch(pod(name), "lab"))
    await shoal.settle()
    assert sorted(rig.bound()) == ["one", "two"]
    shoal.scheduler._keep_to(written(Queue("lab", "root", limit=((H100, 2),)), DESK))
    rig.put(PODS, batch(pod("three"), "lab"))
    rig.put(PODS, batch(pod("four"), "desk"))
    await shoal.settle()
    assert sorted(rig.bound()) == ["four", "one", "two"]
    assert queue_of(shoal, "uid-one/0") == "lab"


@in_loop
async def test_work_that_was_held_back_waits_in_a_queue_that_comes_to_be(rig: Rig) -> None:
    shoal = begun(rig, LAB)
    rig.put(PODS, batch(pod("early"), "desk"))
    await shoal.settle()
    assert rig.bound() == {}
    shoal.scheduler._keep_to(written(LAB, DESK))
    await shoal.settle()
    assert rig.bound() == {"early": "n1"}


@in_loop
async def test_a_queue_closes_that_is_not_written_any_more_and_goes_when_it_is_empty(
    rig: Rig,
) -> None:
    shoal = begun(rig, LAB, DESK)
    rig.put(PODS, batch(pod("one"), "lab"))
    await shoal.settle()
    shoal.scheduler._keep_to(written(DESK))
    rig.put(PODS, batch(pod("late"), "lab"))
    await shoal.settle()
    assert rig.bound() == {"one": "n1"}
    closing = shoal.world.tenants.tree.get("lab")
    assert closing is not None
    assert closing.closing
    assert shoal.world.tenants.used_units("lab") != {}
    rig.remove(PODS, "one", "ns")
    await shoal.settle()
    assert shoal.world.tenants.tree.get("lab") is None


@in_loop
async def test_a_scheduler_tells_debts_and_who_is_ended(rig: Rig) -> None:
    shoal = begun(rig, LAB, DESK)
    for name in ("one", "two"):
        rig.put(PODS, batch(pod(name), "lab"))
    await shoal.settle()
    new = written(
        Queue(
            "lab",
            "root",
            guarantee=((H100, 1),),
            borrow=((H100, 0),),
            maximum_run_us=((WorkloadType.BATCH, 1_000_000),),
        ),
        DESK,
    )
    soon_us = now_us() + 5_000_000
    meant = shoal.scheduler.organisation.take(new, soon_us)
    assert RunsEnded("lab", WorkloadType.BATCH, 2, 1_000_000) in meant
    assert [each for each in meant if isinstance(each, Debt)] == [
        BorrowDebt("lab", H100, 840_000, 0)
    ]
    closes = shoal.scheduler.organisation.take(written(), soon_us)
    assert QueueGone("lab", 0, 2) in closes


@in_loop
async def test_the_only_queue_below_another_closes_there(rig: Rig) -> None:
    shoal = begun(rig, LAB)
    rig.put(PODS, batch(pod("one"), "lab"))
    await shoal.settle()
    alone = Written((), QueueTree((Queue("root", limit=((H100, 1),)),)))
    shoal.scheduler._keep_to(alone)
    rig.put(PODS, batch(pod("late"), "root"))
    await shoal.settle()
    assert rig.bound() == {"one": "n1"}, "one device may be held, and lab holds it"
    rig.remove(PODS, "one", "ns")
    await shoal.settle()
    assert sorted(rig.bound()) == ["late"]
    assert shoal.world.tenants.tree.get("lab") is None


@in_loop
async def test_who_leads_next_lets_a_queue_close_that_went_meanwhile(rig: Rig) -> None:
    shoal = begun(rig, LAB, EVERYBODY)
    rig.put(PODS, batch(pod("one"), "lab"))
    await shoal.settle()
    now = shoal.scheduler
    content = content_of(now.world, now.source, now.organisation.written.tree, now_us())
    rig.truths.clear()
    after = begun(rig, EVERYBODY)
    after.scheduler._recalled = content
    await after.settle()
    assert queue_of(after, "uid-one/0") == "lab"
    closing = after.world.tenants.tree.get("lab")
    assert closing is not None
    assert closing.closing
    assert closing.guarantee == ((H100, 1),), "it keeps of its guarantee what it uses"


@in_loop
async def test_running_work_of_no_queue_is_charged_to_that_of_its_namespace(rig: Rig) -> None:
    shoal = begun(rig)
    rig.put(PODS, pod("one"))
    rig.put(PODS, pod("foreign"))
    rig.change(PODS, "foreign", "ns", spec={"nodeName": "n1", "schedulingGates": []})
    await shoal.settle()
    shoal.scheduler._keep_to(written(EVERYBODY))
    await shoal.settle()
    assert {queue_of(shoal, uid) for uid in shoal.world.entries} == {"everybody"}
    assert sum(shoal.world.tenants.used_units("everybody").values()) == 2 * 840_000


# Files ------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow one another at once."""
    monkeypatch.setattr(module, "EVERY_S", 0.001)


def names(taken: list[Written]) -> list[list[str]]:
    return [[queue.name for queue in each.tree.queues] for each in taken]


@in_loop
async def test_files_are_taken_in_when_they_change(tmp_path: Path, quick: None) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(TEXT.replace("NAME", "lab"))
    files, taken = Files((tmp_path,), CATALOG), list[Written]()
    following = asyncio.create_task(files.follow(taken.append))
    file.write_text(TEXT.replace("NAME", "desks"))
    await until(lambda: bool(taken))
    (tmp_path / "more.yaml").write_text(TEXT.split("---")[1].replace("NAME", "extra"))
    await until(lambda: len(taken) == 2)
    following.cancel()
    assert names(taken) == [["root", "desks"], ["root", "extra", "desks"]]


@in_loop
async def test_files_that_are_wrong_change_nothing_and_are_told(
    tmp_path: Path, quick: None, rig: Rig
) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(TEXT.replace("NAME", "lab"))
    options = SchedulerOptions(tick_s=0.0, written=written(LAB), files=(file,))
    shoal = Shoal(rig, options=options)
    await shoal.step()
    following = asyncio.create_task(shoal.scheduler.files.follow(shoal.scheduler._keep_to))
    file.write_text("kind: [")
    await until(lambda: bool(shoal.scheduler.files.refused))
    await shoal.step()
    assert shoal.world.tenants.tree.get("lab") is not None
    assert refused_metric(shoal) == 1
    file.write_text(TEXT.replace("NAME", "desks"))
    await until(lambda: not shoal.scheduler.files.refused)
    await shoal.step()
    assert shoal.world.tenants.tree.get("desks") is not None
    assert refused_metric(shoal) == 0
    file.unlink()
    await until(lambda: bool(shoal.scheduler.files.refused))
    assert shoal.world.tenants.tree.get("desks") is not None
    following.cancel()


@in_loop
async def test_files_that_would_put_a_node_into_two_pools_are_taken_in_when_its_labels_allow_it(
    tmp_path: Path, quick: None, rig: Rig
) -> None:
    rig.put(NODES, node("n2", 4))
    for name, key in (("n1", "one"), ("n2", "both")):
        rig.change(NODES, name, metadata={"labels": {key: "yes"}})
    file = tmp_path / "pools.yaml"
    file.write_text(pool("one", "nodes: {matchLabels: {one: 'yes'}}"))
    shoal = Shoal(rig, options=SchedulerOptions(tick_s=0.0, files=(file,)))
    await shoal.step()
    scheduler = shoal.scheduler
    following = asyncio.create_task(scheduler.files.follow(scheduler._keep_to))
    pools = [pool(name, f"nodes: {{matchLabels: {{{name}: 'yes'}}}}") for name in ("one", "both")]
    rig.change(NODES, "n1", metadata={"labels": {"both": "yes"}})
    await shoal.step()
    file.write_text("".join(pools))
    await until(lambda: bool(scheduler.files.refused))
    (said,) = scheduler.files.refused
    assert said == (
        "node n1 is in the pools both and one; a node is in one pool: change its labels or the"
        " pools' spec.nodes"
    )
    assert (refused_metric(shoal), shoal.world.fleet.pools) == (1, ())
    rig.change(NODES, "n1", metadata={"labels": {"both": "no"}})
    await shoal.step()
    await until(lambda: not scheduler.files.refused)
    await shoal.step()
    assert [each.name for each in shoal.world.fleet.pools] == ["both", "one"]
    # A node that comes to be in two pools by its labels is no reason to refuse other files.
    rig.change(NODES, "n1", metadata={"labels": {"both": "yes"}})
    await shoal.step()
    file.write_text(f"{''.join(pools)}---{TEXT}".replace("NAME", "lab"))
    await until(lambda: shoal.scheduler.organisation.written.tree.get("lab") is not None)
    following.cancel()
    assert refused_metric(shoal) == 0


@in_loop
async def test_a_mounted_config_map_is_swapped_as_a_whole(tmp_path: Path, quick: None) -> None:
    for version, name in (("v1", "lab"), ("v2", "desks")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "queues.yaml").write_text(TEXT.replace("NAME", name))
    (tmp_path / "..data").symlink_to("v1")
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "queues.yaml").symlink_to(tmp_path / "..data" / "queues.yaml")
    files, taken = Files((mounted,), CATALOG), list[Written]()
    following = asyncio.create_task(files.follow(taken.append))
    (tmp_path / "..new").symlink_to("v2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    await until(lambda: bool(taken))
    following.cancel()
    assert names(taken) == [["root", "desks"]]


def refused_metric(shoal: Shoal) -> float:
    (found,) = (
        each
        for each in SchedulerMetrics(shoal.scheduler, None)._world()  # type: ignore[arg-type]
        if each.name == "shoal_files_refused"
    )
    return float(found.samples[0].value)
