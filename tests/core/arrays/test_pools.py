"""Pools: which nodes take which types of work."""

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Start
from shoal.core.validate import InvariantError, Validator
from shoal.core.world import World
from shoal.loop.records import decode, encode
from shoal.model.pool import Pool
from shoal.model.request import Operator, Requirement
from shoal.model.selector import Selector
from shoal.model.verdict import Obstacle, Reason, Wake
from shoal.model.workload import Placement, WorkloadType
from tests.core.build import node
from tests.core.cases import Case, batch, queue, tree, work

NOTEBOOK = WorkloadType.NOTEBOOK


def pool(name: str, *types: WorkloadType) -> Pool:
    """A pool of the nodes with its name as their label."""
    chosen = Selector((Requirement("pool", Operator.IN, (name,)),))
    return Pool(name, chosen, types, ())


def case_of(*pools: Pool) -> Case:
    """A node of the pool big with four devices, and one of none with one."""
    made = Case(
        [node("n", 4, labels={"pool": "big"}), node("m", 1)], tree(queue("q", 5), queue("r"))
    )
    made.happen(ev.PoolsSet(0, pools))
    return made


def test_a_node_of_a_pool_takes_only_work_of_its_types() -> None:
    case = case_of(pool("big", WorkloadType.BATCH))
    case.submit(*(work(f"q/{k}", type_=NOTEBOOK) for k in range(2)))
    assert [case.starts(f"q/{k}") for k in range(2)] == [["0:00"], []]
    assert case.nodes_of("q/0") == ["m"], "a node in no pool takes everything"
    obstacles = case.verdict("q/1").obstacles
    assert obstacles[0] == Obstacle(Reason.POOL, 1)
    assert case.verdict("q/1").wakes == (Wake.CAPACITY, Wake.NODES, Wake.POOLS)
    case.submit(batch("q/b"))
    assert case.nodes_of("q/b") == ["n"]


def test_the_nodes_that_would_do_in_another_pool_are_what_stands_in_the_way() -> None:
    case = case_of(pool("big", WorkloadType.BATCH))
    case.happen(ev.NodeSeen(0, node("o", 4, accelerator="A100", labels={"pool": "big"})))
    case.submit(work("r/a", 2, accelerators=("A100",)))
    obstacles = case.verdict("r/a").obstacles
    assert obstacles == (Obstacle(Reason.ACCELERATOR, 2), Obstacle(Reason.POOL, 1))


def test_work_starts_when_pools_change() -> None:
    case = case_of(pool("big"))
    case.submit(work("q/a", 2))
    assert case.starts("q/a") == []
    case.happen(ev.PoolsSet(0, (pool("big", WorkloadType.TRAINING),)))
    assert case.starts("q/a") == ["0:00"]
    case.happen(ev.PoolsSet(0, (pool("big", NOTEBOOK),)))
    case.submit(work("q/c", 2))
    assert case.nodes_of("q/a") == ["n"], "what runs goes on"
    assert case.starts("q/c") == []
    case.happen(ev.PoolsSet(0, ()))
    assert case.starts("q/c") == ["0:00"]


def test_a_node_that_changes_its_labels_changes_its_pool() -> None:
    case = case_of(pool("big", NOTEBOOK))
    case.submit(batch("r/b", 2))
    assert case.starts("r/b") == []
    case.happen(ev.NodeSeen(0, node("n", 4, labels={"pool": "small"})))
    assert case.starts("r/b") == ["0:00"]


def test_a_node_in_several_pools_takes_nothing_until_it_is_in_one() -> None:
    case = case_of(pool("big", NOTEBOOK), pool("small", NOTEBOOK))
    case.submit(work("q/a", 2, type_=NOTEBOOK))
    assert case.nodes_of("q/a") == ["n"]
    both = Pool("both", Selector((Requirement("pool", Operator.EXISTS),)), (NOTEBOOK,), ())
    case.happen(ev.PoolsSet(0, (pool("big", NOTEBOOK), both)))
    case.submit(work("q/b", 2, type_=NOTEBOOK))
    assert case.nodes_of("q/a") == ["n"], "what runs goes on"
    assert case.verdict("q/b").obstacles[0] == Obstacle(Reason.SEVERAL_POOLS, 1)
    case.happen(ev.NodeSeen(0, node("n", 4, labels={"pool": "small"})))
    assert case.nodes_of("q/b") == ["n"]


def test_places_that_are_kept_are_lost_with_the_pool() -> None:
    case = case_of(pool("big", WorkloadType.TRAINING))
    case.submit(work("q/n", 2, run_us=600_000_000))
    case.submit(work("q/a", 4))
    assert "q/a" in case.world.reserving
    case.happen(ev.PoolsSet(0, (pool("big", NOTEBOOK),)))
    assert "q/a" not in case.world.reserving
    assert case.verdict("q/a").obstacles[0] == Obstacle(Reason.POOL, 1)
    case.end("q/n")
    assert not case.starts("q/a")


def test_a_start_on_a_node_that_is_closed_to_it_is_found_out() -> None:
    case = case_of(pool("big", NOTEBOOK))
    case.submit(batch("q/b", 2))
    validator = Validator(case.world)
    entry = case.world.entries["q/b"]
    place = Placement(0, "n", tuple(case.world.fleet.leaves[case.world.fleet.row_of["n"]][:2]))
    case.world.wait_no_more(entry)
    case.world.hold(entry, place)
    case.world.begins(entry, 0)
    start = Start("start/q/b/1", "q/b", (place,), borrowed=1)
    with pytest.raises(InvariantError, match="is closed to it"):
        validator.applied(ev.Decided(0, start))


def test_work_of_different_types_that_asks_for_the_same_does_not_wait_together() -> None:
    case = case_of(pool("big", WorkloadType.BATCH))
    case.submit(work("q/t", 2), batch("q/b", 2))
    assert [case.starts(uid) for uid in ("q/t", "q/b")] == [[], ["0:00"]]


def test_pools_are_recorded_and_remembered() -> None:
    case = case_of(pool("big", WorkloadType.BATCH))
    case.submit(work("q/t", 2))
    events = tuple(case.world.snapshot(0))
    assert tuple(decode(b"".join(map(encode, events)))) == events
    again = World()
    for event in events:
        again.apply(event)
    assert tuple(again.snapshot(0)) == events
