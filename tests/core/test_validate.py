"""The invariants find what they are there to find: each is broken once."""

from collections.abc import Callable

import pytest

from shoal.core import events as ev
from shoal.core.decisions import GiveUp, Start
from shoal.core.validate import (
    Debt,
    InvariantError,
    Validator,
    check,
    check_answers,
    check_gang,
)
from shoal.core.world import World
from shoal.model.fractions import UNIT
from shoal.model.node import Node
from shoal.model.workload import Placement
from tests.core.build import divided, job, node, share, submit, whole, world_of
from tests.core.cases import MINUTE_US, Case, batch, queue, tree, work


def busy_world() -> World:
    """One node, one workload that runs on it and one that waits."""
    world = world_of(node("n", 2))
    submit(world, job("runs", share(300, 10)), job("waits", whole(3)))
    return world


def corrupt(array: str) -> Callable[[World], None]:
    """Return what adds 1 to an array's first number."""

    def add(world: World) -> None:
        world.fleet.arrays()[array].flat[0] += 1

    return add


@pytest.mark.parametrize(
    "breaks",
    [
        *(
            pytest.param(corrupt(array), id=array)
            for array in (
                "cpu_free",
                "memory_free",
                "pods_free",
                "compute_free",
                "whole_free",
                "holders",
                "present",
                "leaf_compute_free",
                "leaf_memory_free",
                "leaf_tenants_free",
            )
        ),
        pytest.param(lambda w: w.fleet.journal.checkpoint(), id="speculation"),
        pytest.param(lambda w: w.entries["runs"].held.clear(), id="holds nothing, does not wait"),
        pytest.param(
            lambda w: w.entries["runs"].started.setdefault(9, 0), id="a pod that holds nothing"
        ),
        pytest.param(lambda w: w.failed.update({"runs": None}), id="a failure not on the list"),
        pytest.param(lambda w: w.waiting.groups.clear(), id="groups lost"),
        pytest.param(
            lambda w: w.entries["runs"].held.update({0: Placement(0, "m", ("n/0",))}), id="no node"
        ),
    ],
)
def test_a_broken_world_is_found(breaks: Callable[[World], object]) -> None:
    """Sound before, unsound after."""
    world = busy_world()
    check(world)
    breaks(world)
    with pytest.raises(InvariantError):
        check(world)


def test_a_gang_planned_in_part_is_found() -> None:
    """Or on fewer leaves than it asked for."""
    world = world_of(node("n", 4))
    submit(world, job("gang", whole(1), pods=2))
    entry = world.entries["gang"]
    check_gang(world.fleet, entry, entry.held)
    entry.held[1] = Placement(1, "n")
    with pytest.raises(InvariantError, match="for 1 devices"):
        check_gang(world.fleet, entry, entry.held)
    del entry.held[1]
    with pytest.raises(InvariantError, match=r"pods \[1\] are not planned"):
        check_gang(world.fleet, entry, entry.held)


def test_two_leaves_of_one_device_are_found() -> None:
    """They are not the two devices that were asked for."""
    world = world_of(Node("n", 32_000, 0, 110, (divided("n/0", 2), divided("n/1", 2))))
    submit(world, job("w", share(100, count=2)))
    entry = world.entries["w"]
    check_gang(world.fleet, entry, entry.held)
    entry.held[0] = Placement(0, "n", ("n/0/0", "n/0/1"))
    with pytest.raises(InvariantError, match="for 2 devices"):
        check_gang(world.fleet, entry, entry.held)


def test_a_decision_that_overbooks_is_found() -> None:
    """A start on a device that is held whole."""
    world = world_of(node("n", 1))
    submit(world, job("w", whole(1)))
    world.apply(ev.WorkloadSubmitted(1, job("x", whole(1))))
    validator = Validator(world)
    start = ev.Decided(2, Start("start/x/1", "x", (Placement(0, "n", ("n/0",)),)))
    world.apply(start)
    with pytest.raises(InvariantError, match="start/x/1 made debts"):
        validator.applied(start)


def test_inherited_debts_are_listed_with_their_age_and_may_fall() -> None:
    """A node shrinks at 5 and again at 7; a decision elsewhere is not to blame."""
    world = world_of(node("n", cpu=8), node("m", 1))
    submit(world, job("w", share(0, count=0, cpu=8)))
    name = world.entries["w"].held[0].node
    validator = Validator(world)
    for at_us, cpu in ((5, 6), (7, 4)):
        event = ev.NodeSeen(at_us, node(name, cpu=cpu))
        world.apply(event)
        validator.applied(event)
    assert validator.debts == (Debt("cpu", name, 4000, 5),)


def test_who_waits_without_a_verdict_is_found() -> None:
    """Before a cycle has answered."""
    world = world_of()
    world.apply(ev.WorkloadSubmitted(0, job("w", whole(1))))
    with pytest.raises(InvariantError, match=r"no verdict was given to \['w'\]"):
        check_answers(world)
    submit(world)
    check_answers(world)


def test_who_goes_for_nobody_any_more_is_charged_again_which_is_no_new_debt() -> None:
    """b holds one too many, which is booked to a while it goes for it, until the node closes."""
    case = Case([node("n", 1)], tree(queue("a", 1), queue("b", limit=0)), {"b/0": 10 * MINUTE_US})
    case.adopt(batch("b/0"), "n")
    owed = {("limit", "b\0H100"): UNIT}
    assert case.world.tenants.debts() == owed
    case.submit(work("a/0"))
    assert (case.evictions, case.world.tenants.debts()) == ([("0:00", "b/0", (0,))], {})
    case.happen(ev.NodeCordoned(0, "n", cordoned=True))
    assert any(isinstance(each.decision, GiveUp) for each in case.seen)
    assert case.world.tenants.debts() == owed
