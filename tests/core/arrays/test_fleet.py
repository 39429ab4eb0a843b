"""What the fleet makes of nodes that change under those who use them."""

from dataclasses import replace

import numpy as np
import pytest

from shoal.core import events as ev
from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.journal import Journal
from shoal.core.validate import check
from shoal.model.node import Node
from shoal.model.request import Request
from shoal.model.workload import Outcome, Placement
from tests.core.build import decide, divided, job, node, share, started, submit, whole, world_of


def test_journal_undoes_to_any_checkpoint() -> None:
    """Nested speculation, kept and undone."""
    journal, array = Journal(), np.zeros(4, dtype=np.int64)
    journal.add(array, 0, 1)
    outer = journal.checkpoint()
    journal.add(array, 1, 2)
    inner = journal.checkpoint()
    journal.add(array, 1, 1)
    journal.add(array, 2, 3)
    assert sorted(journal.rollback(inner)) == [1, 2]
    assert array.tolist() == [1, 2, 0, 0]
    journal.checkpoint()
    journal.add(array, 3, 9)
    journal.keep()
    assert journal.rollback(outer) == [3, 1]
    assert array.tolist() == [1, 0, 0, 0]
    assert not journal.speculating


def test_journal_ends_what_failed_within() -> None:
    """Whoever rolls back to where it began has the state of then, and no speculation goes on."""
    journal, array = Journal(), np.zeros(2, dtype=np.int64)
    outer = journal.checkpoint()
    journal.add(array, 0, 1)
    journal.checkpoint()
    journal.add(array, 1, 1)
    assert journal.rollback(outer) == [1, 0]
    assert array.tolist() == [0, 0]
    assert not journal.speculating


def test_the_fleet_may_not_grow_while_it_speculates() -> None:
    """The journal would put old values back into arrays that nobody reads any more."""
    fleet = Fleet()
    for number in range(16):
        fleet.see(node(f"n{number}"))
    fleet.journal.checkpoint()
    with pytest.raises(AssertionError, match="may not grow during speculation"):
        fleet.see(node("one too many"))


def test_a_lost_node_keeps_what_runs_there_until_it_ended() -> None:
    """Nothing else is placed there; when it comes back, what still runs is still counted."""
    world = world_of(node("n", 2))
    submit(world, job("w", whole(1)))
    world.apply(ev.NodeLost(1, "n"))
    assert started(submit(world, job("x", whole(1)))) == {}
    assert check(world) == {("cpu", "n"): 1000, ("pods", "n"): 1}
    world.apply(ev.NodeSeen(2, node("n", 2)))
    assert sorted(started(decide(world))) == ["x"]
    assert started(submit(world, job("y", whole(1)))) == {}


def test_a_node_that_is_gone_and_empty_leaves_its_row() -> None:
    """Rows are used again."""
    world = world_of(*(node(f"n{i}", 1) for i in range(5)))
    for round_ in range(50):
        world.apply(ev.NodeLost(round_, f"n{round_}"))
        world.apply(ev.NodeSeen(round_, node(f"n{round_ + 5}", 1)))
    assert world.fleet.size == 5
    check(world)


def test_a_lost_device_is_a_debt_of_nobody_who_holds_it_whole() -> None:
    """Shares on it are; it takes no new work, and returns with what is still held."""
    world = world_of(node("n", 2))
    submit(world, job("whole", whole(1)), job("part", share(300, 10)))
    part = world.entries["part"].held[0].leaves[0]
    for device in ("n/0", "n/1"):
        world.apply(ev.DeviceLost(1, "n", device))
    assert check(world) == {
        ("leaf-compute", f"n\0{part}"): 300,
        ("leaf-memory", f"n\0{part}"): 10,
        ("leaf-tenants", f"n\0{part}"): 1,
    }
    assert started(submit(world, job("x", share(100)))) == {}
    world.apply(ev.DeviceReturned(2, "n", part))
    assert sorted(started(decide(world))) == ["x"]
    assert check(world) == {}


def test_repartitioned_devices_keep_what_is_held_by_name() -> None:
    """A leaf that vanished under its holder takes no more; the other leaves are new."""
    before = Node("n", 32_000, 0, 110, (divided("n/0", 2),))
    world = world_of(before)
    submit(world, job("w", share(200)))
    (leaf,) = world.entries["w"].held[0].leaves
    world.apply(ev.NodeSeen(1, replace(before, devices=(divided("n/0", 4),))))
    assert check(world) == {}, "a leaf of the same name, now of a quarter of the device"
    world.apply(ev.NodeSeen(2, replace(before, devices=(divided("n/1", 4),))))
    assert check(world).keys() == {("leaf-compute", f"n\0{leaf}"), ("leaf-tenants", f"n\0{leaf}")}
    assert len(started(submit(world, *(job(f"x{i}", share(200)) for i in range(5))))) == 4


def test_adopted_before_its_node_was_seen() -> None:
    """Whole devices are held whole once their size is known."""
    world = world_of()
    place = Placement(0, "n", ("n/0",))
    world.apply(ev.WorkloadAdopted(0, job("w", whole(1)), (place,)))
    check(world)
    world.apply(ev.NodeSeen(1, node("n", 2)))
    assert check(world) == {}
    assert len(started(submit(world, job("x", whole(1)), job("y", whole(1))))) == 1


def test_adopted_on_more_nodes_than_were_seen() -> None:
    """Label tests cover rows of nodes that have not been seen."""
    world = world_of()
    for number in range(40):
        place = Placement(0, f"n{number}")
        world.apply(ev.WorkloadAdopted(0, job(f"w{number}", Request()), (place,)))
    asked = Request(selector=(("zone", "a"),))
    assert started(submit(world, job("w", asked))) == {}
    world.apply(ev.NodeSeen(1, node("n7", labels={"zone": "a"})))
    assert started(decide(world)) == {"w": ["n7"]}


def test_adopted_with_devices_that_nobody_can_name() -> None:
    """Host resources are booked, devices are not, and all of it is given back."""
    world = world_of(node("n", 2))
    world.apply(ev.WorkloadAdopted(0, job("w", whole(2)), (Placement(0, "n"),)))
    assert check(world) == {}
    assert int(world.fleet.cpu_free[0]) == 31_000
    world.apply(ev.WorkloadEnded(1, "w", Outcome.COMPLETED))
    assert check(world) == {}
    assert sorted(started(submit(world, job("x", whole(2))))) == ["x"]


def test_adopted_over_capacity_is_a_debt() -> None:
    """Two hold the same device whole, as others placed them; both are counted, none is evicted."""
    world = world_of(node("n", 1, cpu=1))
    for uid in ("a", "b"):
        event = ev.WorkloadAdopted(0, job(uid, whole(1)), (Placement(0, "n", ("n/0",)),))
        world.apply(event)
    assert check(world)[("cpu", "n")] == 1000
    assert check(world)[("leaf-compute", "n\0n/0")] == 1000
    world.apply(ev.WorkloadEnded(1, "a", Outcome.FAILED))
    assert check(world) == {}


def test_a_node_that_shrinks_and_grows() -> None:
    """Free is what is left, also below zero."""
    world = world_of(node("n", cpu=8))
    submit(world, job("w", share(0, count=0, cpu=6)))
    world.apply(ev.NodeSeen(1, node("n", cpu=4)))
    assert check(world) == {("cpu", "n"): 2000}
    world.apply(ev.NodeSeen(2, node("n", cpu=16)))
    assert int(world.fleet.cpu_free[0]) == 10_000
