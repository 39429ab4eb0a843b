"""Pools on a cluster: the labels of nodes decide, and they change at any time."""

from typing import Any

import pytest

from shoal.core.policies import Policy
from shoal.kubernetes.api.events import Told
from shoal.kubernetes.metrics import SchedulerMetrics
from shoal.kubernetes.picture import Picture, PoolRow
from shoal.kubernetes.scheduler import SchedulerOptions
from shoal.kubernetes.wire.kinds import NAMESPACES, NODES, PODS, REPLICA_SETS
from shoal.model.pool import Pool
from shoal.model.request import Operator, Requirement
from shoal.model.selector import Selector
from shoal.model.verdict import Obstacle, Reason
from shoal.model.workload import WorkloadType
from shoal.objects.files import Written
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import Body, namespace, node, pod, replica_set
from tests.kubernetes.rig import CATALOG, Rig, Shoal

BATCH, NOTEBOOK = WorkloadType.BATCH, WorkloadType.NOTEBOOK


def pool(name: str, *types: WorkloadType, label: str = "pool") -> Pool:
    """A pool of the nodes that have its name as a label."""
    return Pool(name, Selector((Requirement(label, Operator.IN, (name,)),)), types, ())


POOLS = (pool("big", BATCH), pool("books", NOTEBOOK), pool("other", NOTEBOOK, BATCH, label="also"))
OPTIONS = SchedulerOptions(tick_s=0.0, written=Written(POOLS))


@pytest.fixture
def rig() -> Rig:
    """A managed namespace."""
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    return rig


def labelled(name: str, devices: int = 2, **labels: str) -> Body:
    body = node(name, devices)
    body["metadata"]["labels"] |= labels
    return body


def of_type(body: Body, type_: str) -> Body:
    body["metadata"]["annotations"] |= {"shoal.dev/type": type_}
    return body


def verdict(shoal: Shoal, uid: str) -> Any:
    return shoal.world.entries[uid].group.verdict


@in_loop
async def test_a_relabelled_node_takes_other_work_and_keeps_what_runs(rig: Rig) -> None:
    rig.put(NODES, labelled("n1", pool="big"))
    rig.put(PODS, of_type(pod("b"), "batch"))
    rig.put(PODS, of_type(pod("n"), "notebook"))
    shoal = Shoal(rig, options=OPTIONS)
    await shoal.settle()
    assert rig.bound() == {"b": "n1"}
    assert verdict(shoal, "uid-n/0").obstacles == (Obstacle(Reason.POOL, 1),)
    rig.put(NODES, labelled("n1", also="other"))
    await shoal.settle()
    assert rig.bound() == {"b": "n1", "n": "n1"}
    rig.put(NODES, labelled("n1", pool="big"))
    rig.put(PODS, of_type(pod("m"), "notebook"))
    await shoal.settle()
    assert rig.bound() == {"b": "n1", "n": "n1"}, "what runs goes on"
    rig.put(NODES, labelled("n2"))
    await shoal.settle()
    assert rig.bound()["m"] == "n2", "a node in no pool takes every type"


@in_loop
async def test_a_node_that_comes_to_be_in_two_pools_takes_nothing_and_says_so(rig: Rig) -> None:
    told: list[Told] = []
    rig.put(NODES, labelled("n1", pool="big"))
    rig.put(PODS, of_type(pod("a"), "batch"))
    shoal = Shoal(rig, options=OPTIONS)
    shoal.scheduler._tell = type("Tell", (), {"record": staticmethod(told.append)})()
    await shoal.settle()
    rig.put(NODES, labelled("n1", pool="big", also="other"))
    rig.put(PODS, of_type(pod("b"), "batch"))
    await shoal.settle()
    assert rig.bound() == {"a": "n1"}, "what runs goes on, and nothing new starts"
    assert verdict(shoal, "uid-b/0").obstacles == (Obstacle(Reason.SEVERAL_POOLS, 1),)
    await shoal.settle()
    (said,) = told
    assert (said.about.kind, said.about.name, said.warning) == ("Node", "n1", True)
    assert said.note == (
        "Nothing new starts here: node n1 is in the pools big and other; a node is in one pool:"
        " change its labels or the pools' spec.nodes."
    )
    assert gauge(shoal) == 1
    rig.put(NODES, labelled("n1", also="other"))
    await shoal.settle()
    assert rig.bound() == {"a": "n1", "b": "n1"}
    assert gauge(shoal) == 0
    rig.put(NODES, labelled("n1", pool="big", also="other"))
    await shoal.settle()
    assert len(told) == 2, "it is another time"
    rig.remove(NODES, "n1")
    await shoal.settle()
    assert gauge(shoal) == 0


def gauge(shoal: Shoal) -> float:
    """How many nodes are in several pools, as the metrics say."""
    (family,) = (
        each
        for each in SchedulerMetrics(shoal.scheduler, None)._world()  # type: ignore[arg-type]
        if each.name == "shoal_nodes_in_several_pools"
    )
    return float(family.samples[0].value)


@in_loop
async def test_who_does_not_lead_tells_nobody_until_it_leads(rig: Rig) -> None:
    told: list[Told] = []
    rig.put(NODES, labelled("n1", pool="big", also="other"))
    shoal = Shoal(rig, leads=False, options=OPTIONS)
    shoal.scheduler._tell = type("Tell", (), {"record": staticmethod(told.append)})()
    await shoal.step()
    assert not told
    shoal.leader.is_leader = True
    await shoal.step()
    assert [each.reason for each in told] == ["SeveralPools"]


@in_loop
async def test_the_place_of_a_deleted_pod_is_not_kept_where_its_type_is_no_longer_served(
    rig: Rig,
) -> None:
    rig.put(NODES, labelled("n1", pool="big"))
    owner = rig.put(REPLICA_SETS, replica_set("web", 1))

    def replace() -> None:
        known = {each["metadata"]["name"] for each in rig.pods()}
        rig.replace(owner, "ReplicaSet")
        for each in rig.pods():
            if each["metadata"]["name"] not in known:
                rig.put(PODS, of_type(each, "batch"))

    shoal = Shoal(rig, options=OPTIONS)
    for _ in range(3):
        replace()
        await shoal.settle()
    (name,) = rig.bound()
    rig.put(NODES, labelled("n1", pool="books"))
    rig.put(NODES, labelled("n2", pool="big"))
    await shoal.settle()
    assert rig.bound() == {name: "n1"}
    rig.remove(PODS, name, "ns")
    for _ in range(3):
        replace()
        await shoal.settle()
    assert list(rig.bound().values()) == ["n2"]


@in_loop
async def test_one_look_shows_pools_and_says_why(rig: Rig) -> None:
    rig.put(NODES, labelled("n1", 2, pool="big"))
    rig.put(NODES, labelled("n2", 4, pool="big", also="other"))
    rig.put(NODES, labelled("n3", 1))
    rig.put(PODS, of_type(pod("n", 2), "notebook"))
    picture = Picture(rig.truth(), CATALOG, Policy("pack"), 1, Written(POOLS))
    assert picture.pools() == [
        PoolRow("big", ("batch",), False, 2, 6, 6),
        PoolRow("books", ("notebook",), False, 0, 0, 0),
        PoolRow("other", ("notebook", "batch"), False, 1, 4, 4),
        PoolRow("no pool", ("training", "inference", "notebook", "batch"), False, 1, 1, 1),
    ]
    assert [(row.node, row.pools, row.state) for row in picture.nodes()] == [
        ("n1", ("big",), "ready"),
        ("n2", ("big", "other"), "in several pools"),
        ("n3", (), "ready"),
    ]
    answer = picture.why("ns", "n")
    assert answer is not None
    assert answer.verdict is not None
    assert [(each.reason, each.nodes) for each in answer.verdict.obstacles] == [
        (Reason.SEVERAL_POOLS, 1),
        (Reason.POOL, 1),
        (Reason.WHOLE_DEVICES, 1),
    ]


@in_loop
async def test_replicas_of_inference_are_spread_and_those_of_others_packed(rig: Rig) -> None:
    for name in ("n1", "n2", "n3"):
        rig.put(NODES, node(name, 8))
    web = rig.put(REPLICA_SETS, replica_set("web", 3, notes={"shoal.dev/type": "inference"}))
    batch = rig.put(REPLICA_SETS, replica_set("batch", 3, notes={"shoal.dev/type": "batch"}))
    shoal = Shoal(rig)
    await shoal.settle([(web, "ReplicaSet"), (batch, "ReplicaSet")])
    bound = rig.bound()
    assert len({node for name, node in bound.items() if name.startswith("web")}) == 3
    assert len({node for name, node in bound.items() if name.startswith("batch")}) == 1
