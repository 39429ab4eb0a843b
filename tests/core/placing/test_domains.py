"""What pools say of where nodes are taken: their own policies, and gangs in one domain."""

from dataclasses import replace

import pytest

from shoal.core import events as ev
from shoal.core.budget import Budget
from shoal.core.cycle import cycle
from shoal.core.decisions import Start
from shoal.core.placing.domains import TRIED
from shoal.core.policies import Policy
from shoal.core.world import World
from shoal.model.node import Node
from shoal.model.pool import PlacementPolicy, Pool
from shoal.model.request import Operator, Requirement
from shoal.model.selector import Selector
from shoal.model.workload import Placement, PodSet, Workload, WorkloadType
from tests.core.build import SEED, node, share, whole
from tests.core.cases import Case, queue, tree, work

QUEUES = tree(queue("team", 100))


def pool(name: str, placement: PlacementPolicy | None, *levels: str) -> Pool:
    """A pool of the nodes that are labelled with its name."""
    chosen = Selector((Requirement("pool", Operator.IN, (name,)),))
    return Pool(name, chosen, tuple(WorkloadType), (), placement, levels)


def placed(name: str, pool_name: str, devices: int = 4, **labels: str) -> Node:
    """A node of a pool."""
    return node(name, devices, labels={"pool": pool_name, **labels})


def racks(sizes: dict[str, int], devices: int = 4, **blocks: str) -> Case:
    """A pool with so many nodes in each rack, and the racks in blocks."""
    nodes = [
        placed(f"{rack}-{n}", "p", devices, rack=rack, block=blocks.get(rack, "b"))
        for rack, size in sizes.items()
        for n in range(size)
    ]
    case = Case(nodes, QUEUES)
    levels = pool("p", PlacementPolicy.TOPOLOGY, "rack", "block")
    case.happen(ev.PoolsSet(0, (levels,)))
    return case


def racks_of(case: Case, uid: str) -> set[str]:
    """The racks that a workload is in."""
    return {name.partition("-")[0] for name in case.nodes_of(uid)}


def starts(world: World, policy: Policy, *workloads: Workload) -> list[str]:
    """The nodes that workloads of one pod start on, one after the other."""
    nodes = []
    for workload in workloads:
        world.apply(ev.WorkloadSubmitted(0, workload))
        (start,) = cycle(world, policy, 0, SEED, Budget(1000)).decisions
        assert isinstance(start, Start)
        world.apply(ev.Decided(0, start))
        nodes.append(start.placements[0].node)
    return nodes


def world_with(*pools: Pool) -> World:
    """Three nodes of a pool, of which the last one is filled most."""
    world = World()
    for n in range(3):
        world.apply(ev.NodeSeen(0, placed(f"n{n}", "p")))
    for uid, at, devices in (("x", "n1", 1), ("y", "n2", 2)):
        leaves = tuple(f"{at}/{d}" for d in range(devices))
        held = Placement(0, at, leaves)
        world.apply(ev.WorkloadAdopted(0, work(uid, devices), (held,)))
    world.apply(ev.PoolsSet(0, pools))
    return world


@pytest.mark.parametrize(
    ("placement", "policy", "first"),
    [
        (PlacementPolicy.SPREAD, "pack", "n0"),
        (PlacementPolicy.PACK, "spread", "n2"),
        (PlacementPolicy.TOPOLOGY, "spread", "n2"),
        (PlacementPolicy.FRAGMENTATION, "spread", "n1"),
        (None, "pack", "n2"),
        (None, "spread", "n0"),
    ],
)
def test_a_pool_has_a_policy_of_its_own(
    placement: PlacementPolicy | None, policy: str, first: str
) -> None:
    """Without one it has that of the scheduler. `n1` is what `fragmentation` takes by itself."""
    world = world_with(pool("p", placement, "rack"))
    assert starts(world, Policy(policy), work("w")) == [first]


def test_the_policy_of_a_pool_decides_among_its_own_nodes_only() -> None:
    """The scheduler's policy says in which pool a pod goes."""
    world = world_with(pool("p", PlacementPolicy.SPREAD))
    world.apply(ev.NodeSeen(0, node("other", 8)))
    assert starts(world, Policy("pack"), work("w")) == ["n0"]
    assert starts(world, Policy("spread"), work("v")) == ["other"]


def test_a_changed_pool_is_another_policy_at_once() -> None:
    world = world_with(pool("p", PlacementPolicy.SPREAD))
    policy = Policy("pack")
    assert starts(world, policy, work("w")) == ["n0"]
    world.apply(ev.PoolsSet(0, (pool("p", PlacementPolicy.PACK),)))
    assert starts(world, policy, work("v")) == ["n2"]


def test_a_gang_goes_to_one_node_where_there_is_room() -> None:
    """Although it would fill up others, one device each."""
    case = racks({"r1": 2, "r2": 2})
    for name in ("r1-0", "r1-1", "r2-0"):
        case.adopt(work(f"team/{name}", 3), name)
    case.submit(work("team/gang", pods=4))
    assert set(case.nodes_of("team/gang")) == {"r2-1"}


def test_a_gang_goes_to_one_rack_else_to_one_block() -> None:
    case = racks({"r1": 2, "r2": 3, "r3": 2, "r4": 2}, r3="c", r4="c")
    case.submit(work("team/two", 4, pods=2))
    assert len(racks_of(case, "team/two")) == 1
    case.submit(work("team/three", 4, pods=3))
    assert racks_of(case, "team/three") == {"r2"}
    left = {"r1", "r3", "r4"} - racks_of(case, "team/two")
    case.submit(work("team/four", 4, pods=4))
    expected = min({"r3", "r4"}, left)
    assert racks_of(case, "team/four") == expected


def test_of_two_racks_it_takes_the_one_with_less_room() -> None:
    """The other one stays whole for a gang that needs it."""
    case = racks({"r1": 4, "r2": 2, "r3": 4})
    case.submit(work("team/two", 4, pods=2))
    assert racks_of(case, "team/two") == {"r2"}


def test_gangs_take_the_smallest_racks_that_hold_them() -> None:
    """As the documentation has it: racks of 2, 3 and 4 nodes of 8 devices."""
    sizes = {"two": 2, "three": 3, "four": 4}
    case = racks(sizes, 8)
    case.submit(work("team/g16", pods=16))
    case.submit(work("team/g24", 8, pods=3))
    assert (racks_of(case, "team/g16"), racks_of(case, "team/g24")) == ({"two"}, {"three"})
    empty = racks(sizes, 8, two="c", four="d")
    empty.submit(work("team/g40", 8, pods=5))
    assert len(racks_of(empty, "team/g40")) > 1


def test_a_gang_that_fits_in_no_domain_starts_across_several() -> None:
    case = racks({"r1": 1, "r2": 1}, r2="c")
    case.submit(work("team/gang", 4, pods=2))
    assert racks_of(case, "team/gang") == {"r1", "r2"}


def test_what_a_gang_can_do_without_may_be_elsewhere() -> None:
    """As much of it as there is room for starts with the rest, and all of it at once."""
    case = racks({"r1": 1, "r2": 1}, r2="c")
    case.adopt(work("team/x"), "r1-0")
    case.submit(work("team/gang", pods=5, minimum=2))
    (start,) = (each.decision for each in case.seen if isinstance(each.decision, Start))
    assert sorted(place.node for place in start.placements) == ["r1-0"] * 3 + ["r2-0"] * 2


def test_pod_sets_and_shares_of_a_gang_are_together() -> None:
    """Room is counted in compute there, and who lies elsewhere for other reasons is tried next."""
    case = racks({"r1": 1, "r2": 2})
    case.adopt(work("team/x", 2), "r2-1")
    sets = (PodSet("head", 1, whole(1)), PodSet("workers", 2, whole(2)))
    case.submit(replace(work("team/gang"), pod_sets=sets))
    assert racks_of(case, "team/gang") == {"r2"}


def test_a_domain_without_cpu_is_passed() -> None:
    """The scheduler's policy would take the nodes that are filled already, in two racks."""
    nodes = [placed(f"r1-{n}", "p", rack="r1") for n in range(2)]
    nodes = [replace(each, cpu_milli=500) for each in nodes]
    nodes += [placed(f"{rack}-{n}", "p", rack=rack) for rack in ("r2", "r3") for n in range(3)]
    case = Case(nodes, QUEUES)
    case.happen(ev.PoolsSet(0, (pool("p", PlacementPolicy.TOPOLOGY, "rack"),)))
    case.adopt(work("team/x", 2), "r2-0")
    case.adopt(work("team/y", 2), "r3-0")
    case.submit(replace(work("team/gang"), pod_sets=(PodSet("main", 3, whole(2, 1)),)))
    assert len(racks_of(case, "team/gang")) == 1


def of_size(size: str, *sets: PodSet) -> Workload:
    """A gang that goes to nodes of a size only."""
    chosen = (("size", size),)
    asks = (replace(each, request=replace(each.request, selector=chosen)) for each in sets)
    return replace(work("team/gang"), pod_sets=tuple(asks))


@pytest.mark.parametrize(
    "gang",
    [
        of_size("large", PodSet("main", 4, whole(1))),
        of_size("small", PodSet("main", 2, whole(3))),
        of_size("small", PodSet("head", 1, whole(1)), PodSet("workers", 2, whole(2))),
        of_size("small", PodSet("head", 1, whole(1)), PodSet("workers", 1, whole(4))),
    ],
)
def test_domains_that_can_never_do_are_not_tried(gang: Workload) -> None:
    """There are more of them than are tried, all with less room than those that will do."""
    nodes = [placed(f"s{n}-0", "p", rack=f"s{n}", size="small") for n in range(TRIED + 1)]
    for rack, size in (("a", "small"), ("b", "small"), ("c", "large"), ("d", "large")):
        nodes += [placed(f"{rack}-{n}", "p", rack=rack, size=size) for n in range(3)]
    case = Case(nodes, QUEUES)
    case.happen(ev.PoolsSet(0, (pool("p", PlacementPolicy.TOPOLOGY, "rack"),)))
    for rack in "abcd":
        case.adopt(work(f"team/{rack}", 1), f"{rack}-0")
    case.submit(gang)
    assert len(racks_of(case, "team/gang")) == 1


def test_of_whole_devices_those_count_that_lie_together() -> None:
    """In each of the first racks six devices are free, and no three of them on one node."""
    nodes = [placed(f"s{n}-{k}", "p", 2, rack=f"s{n}") for n in range(TRIED + 1) for k in range(3)]
    nodes += [placed(f"{rack}-{n}", "p", rack=rack) for rack in "ab" for n in range(3)]
    case = Case(nodes, QUEUES)
    case.happen(ev.PoolsSet(0, (pool("p", PlacementPolicy.TOPOLOGY, "rack"),)))
    for rack in "ab":
        case.adopt(work(f"team/{rack}"), f"{rack}-0")
    case.submit(work("team/gang", 3, pods=2))
    assert len(racks_of(case, "team/gang")) == 1


def test_a_gang_of_shares_of_memory_alone_is_together_in_the_pool() -> None:
    case = Case([placed("n0", "p"), placed("n1", "p"), node("other", 2)], QUEUES)
    case.happen(ev.PoolsSet(0, (pool("p", PlacementPolicy.TOPOLOGY, "rack"),)))
    sets = (PodSet("main", 6, share(0, 60)),)
    case.submit(replace(work("team/gang", type_=WorkloadType.BATCH), pod_sets=sets))
    assert len(set(case.nodes_of("team/gang"))) == 2
    case.end("team/gang")
    sets = (PodSet("main", 2, share(0, 60)),)
    case.submit(replace(work("team/gang", type_=WorkloadType.BATCH), pod_sets=sets))
    assert len(set(case.nodes_of("team/gang"))) == 1
    assert case.nodes_of("team/gang")[0] != "other"


def test_nodes_of_another_pool_in_the_same_rack_are_no_part_of_a_domain() -> None:
    nodes = [placed(name, name[0], rack="r") for name in ("p1", "q1", "q2")]
    nodes += [placed(name, "p", rack="s") for name in ("p2", "p3", "p4")]
    case = Case(nodes, QUEUES)
    topology = pool("p", PlacementPolicy.TOPOLOGY, "rack")
    case.happen(ev.PoolsSet(0, (topology, pool("q", None))))
    case.submit(work("team/gang", 4, pods=2))
    assert {name[0] for name in case.nodes_of("team/gang")} == {"p"}
    assert "p1" not in case.nodes_of("team/gang")


def test_only_a_pool_with_topology_keeps_a_gang_together() -> None:
    case = Case([placed(f"n{n}", "p") for n in range(3)], QUEUES)
    case.happen(ev.PoolsSet(0, (pool("p", PlacementPolicy.SPREAD),)))
    case.submit(work("team/gang", pods=3))
    assert len(set(case.nodes_of("team/gang"))) == 3


def test_nodes_are_scored_once_for_each_policy_of_a_pool() -> None:
    world = world_with(pool("p", PlacementPolicy.SPREAD))
    policy = Policy("pack")
    starts(world, policy, work("w"))
    boards = len(world._boards)
    starts(world, policy, work("v"))
    assert len(world._boards) == boards == 2


def test_nodes_without_the_label_are_in_no_domain() -> None:
    nodes = [placed("a", "p"), placed("b", "p"), placed("r1-0", "p", rack="r1")]
    nodes.append(placed("r1-1", "p", rack="r1"))
    case = Case(nodes, QUEUES)
    case.happen(ev.PoolsSet(0, (pool("p", PlacementPolicy.TOPOLOGY, "rack"),)))
    case.submit(work("team/gang", 4, pods=2))
    assert racks_of(case, "team/gang") == {"r1"}
