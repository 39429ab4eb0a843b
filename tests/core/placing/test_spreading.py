"""Replicas of a service go to different nodes and zones, where that is possible."""

from dataclasses import replace

import pytest

from shoal.core import events as ev
from shoal.core.placing.spreading import ZONE
from shoal.model.node import Node
from shoal.model.pool import PlacementPolicy, Pool
from shoal.model.selector import Selector
from shoal.model.workload import Placement, Workload, WorkloadType
from tests.core.build import node
from tests.core.cases import Case, batch, queue, tree, work

QUEUES = tree(queue("team", 16))
RACKS = ("x1", "x2", "x3", "y1")


def zoned(name: str, devices: int, zone: str, **labels: str) -> Node:
    """A node in a zone."""
    return node(name, devices, labels={ZONE: zone, **labels})


def service(uid: str, pods: int = 1, *, owner: str = "", **more: object) -> Workload:
    """Inference; replicas that are workloads of their own have an `owner` in common."""
    made = work(uid, pods=pods, type_=WorkloadType.INFERENCE, **more)  # type: ignore[arg-type]
    (pod_set,) = made.pod_sets
    devices = replace(pod_set.request.devices, apart=owner)
    return replace(
        made, pod_sets=(replace(pod_set, request=replace(pod_set.request, devices=devices)),)
    )


def with_levels(*levels: str) -> Pool:
    """A pool of all nodes with these levels, the smallest first."""
    types = tuple(WorkloadType)
    return Pool("p", Selector(()), types, (), PlacementPolicy.TOPOLOGY, levels)


def test_replicas_go_to_different_nodes_although_work_is_packed() -> None:
    case = Case([node(f"n{n}", 4) for n in range(3)], QUEUES)
    case.submit(service("team/s", pods=3), work("team/t", pods=3))
    assert sorted(case.nodes_of("team/s")) == ["n0", "n1", "n2"]
    assert len(set(case.nodes_of("team/t"))) == 1


def test_where_there_are_more_replicas_than_nodes_each_has_as_many() -> None:
    case = Case([node("n0", 8), node("n1", 8)], QUEUES)
    case.submit(service("team/s", pods=6))
    assert sorted(case.nodes_of("team/s")) == ["n0"] * 3 + ["n1"] * 3


def test_a_replica_starts_beside_the_others_rather_than_not_at_all() -> None:
    case = Case([node("n0", 4), node("n1", 1)], QUEUES)
    case.submit(service("team/s", pods=4))
    assert sorted(case.nodes_of("team/s")) == ["n0"] * 3 + ["n1"]


def test_replicas_that_come_one_by_one_are_spread_as_well() -> None:
    """Also those that come later, or instead of one that has ended."""
    case = Case([node(f"n{n}", 4) for n in range(3)], QUEUES)
    for number in range(3):
        case.submit(service(f"team/{number}", owner="web"))
    nodes = [case.nodes_of(f"team/{number}")[0] for number in range(3)]
    assert sorted(nodes) == ["n0", "n1", "n2"]
    case.end("team/1")
    case.submit(service("team/4", owner="web"))
    assert case.nodes_of("team/4") == [nodes[1]]
    case.submit(service("team/other", owner="api"))
    case.submit(batch("team/b"))
    assert case.nodes_of("team/other") == case.nodes_of("team/b")


def test_zones_come_before_nodes() -> None:
    nodes = [zoned("a1", 4, "a"), zoned("a2", 4, "a"), zoned("a3", 4, "a"), zoned("b1", 4, "b")]
    case = Case(nodes, QUEUES)
    case.submit(service("team/s", pods=4))
    where = sorted(case.nodes_of("team/s"))
    assert where[2:] == ["b1", "b1"]
    assert where[0] != where[1]


def test_zones_come_before_the_levels_of_a_pool() -> None:
    """There are three blocks in the one, and one in the other."""
    nodes = [zoned(name, 4, name[0], block=name) for name in ("a1", "a2", "a3", "b1")]
    case = Case(nodes, QUEUES)
    case.happen(ev.PoolsSet(0, (with_levels("block"),)))
    case.submit(service("team/s", pods=4))
    assert [name[0] for name in sorted(case.nodes_of("team/s"))] == ["a", "a", "b", "b"]


def test_larger_levels_of_a_pool_come_before_smaller_ones() -> None:
    """There are three racks in one block, and one in the other."""
    nodes = [node(name, 4, labels={"block": name[0], "rack": name}) for name in RACKS]
    case = Case(nodes, QUEUES)
    case.happen(ev.PoolsSet(0, (with_levels("rack", "block"),)))
    case.submit(service("team/s", pods=4))
    assert [name[0] for name in sorted(case.nodes_of("team/s"))] == ["x", "x", "y", "y"]


def test_racks_of_a_pool_count_where_there_are_several_nodes_in_one() -> None:
    racks = {"n1": "r1", "n2": "r1", "n3": "r1", "n4": "r2"}
    nodes = [node(name, 4, labels={"rack": rack}) for name, rack in racks.items()]
    case = Case(nodes, QUEUES)
    case.happen(ev.PoolsSet(0, (with_levels("rack"),)))
    case.submit(service("team/s", pods=4))
    assert sorted(racks[name] for name in case.nodes_of("team/s")) == ["r1", "r1", "r2", "r2"]


@pytest.mark.parametrize("filled", ["n1", "n2", "n3"])
def test_of_nodes_with_as_few_replicas_the_policy_takes_the_best(filled: str) -> None:
    """Which is here the one that is filled most already."""
    case = Case([node(f"n{n}", 4) for n in range(4)], QUEUES)
    case.adopt(service("team/1", owner="web"), "n0")
    case.adopt(work("team/t", 2), filled)
    case.submit(service("team/2", owner="web"))
    assert case.nodes_of("team/2") == [filled]


def test_replicas_that_were_found_running_count_as_well() -> None:
    case = Case([node("n0", 2), node("n1", 2)], QUEUES)
    made = service("team/1", owner="web")
    case.feed(ev.WorkloadAdopted(0, made, (Placement(0, "n0", ("n0/0",)),)))
    case.submit(service("team/2", owner="web"))
    assert case.nodes_of("team/2") == ["n1"]
