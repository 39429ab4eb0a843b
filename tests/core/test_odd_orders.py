"""Events in odd orders: late, repeated, or in the middle of something else."""

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Retract, Start, Wait
from shoal.core.validate import check
from shoal.core.world import State, World
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, Placement
from tests.core.build import decide, job, node, started, submit, whole, world_of


def restored(world: World) -> World:
    """An equal world, from a snapshot."""
    again = World()
    for event in world.snapshot(9):
        again.apply(event)
    return again


@pytest.mark.parametrize("restart", [False, True])
def test_a_pod_that_failed_to_start_may_end_before_the_retract(restart: bool) -> None:
    """The start is retracted all the same, away from the node that failed."""
    world = world_of(node("a", 1), node("b", 1), node("c", 1))
    submit(world, job("gang", whole(1), pods=2))
    failed = world.entries["gang"].held[0].node
    world.apply(ev.StartFailed(2, "gang", 1, 0))
    world.apply(ev.PodEnded(2, "gang", 0))
    check(world)
    if restart:
        world = restored(world)
    came = decide(world)
    assert came.decisions == (Retract("retract/gang/1", "gang", failed),)
    check(world)
    assert world.entries["gang"].state is State.WAITING
    assert sorted(started(decide(world))["gang"]) == sorted({"a", "b", "c"} - {failed})


def test_a_gang_that_sleeps_is_looked_at_when_a_retracted_start_made_its_room() -> None:
    """Which the cycle that retracts asks for, by not being complete."""
    world = world_of(node("a", 1), node("b", 1))
    submit(world, job("first", whole(1)))
    assert started(submit(world, job("gang", whole(1), pods=2, priority=1))) == {}
    world.apply(ev.StartFailed(2, "first", 1, 0))
    assert not decide(world).complete
    came = decide(world)
    assert (came.complete, sorted(started(came))) == (True, ["gang"])


def test_newcomers_are_told_once_and_only_if_they_wait_on() -> None:
    """A better placed newcomer starts at once; the other one is told of the reason of today."""
    world = world_of(node("n", 1))
    submit(world, job("holder", whole(1)))
    submit(world, job("old", whole(1)))
    for workload in (job("better", whole(1), priority=1), job("other", whole(1))):
        world.apply(ev.WorkloadSubmitted(1, workload))
    world.apply(ev.WorkloadEnded(2, "holder", Outcome.COMPLETED))
    came = decide(world)
    told = [d.workloads for d in came.decisions if isinstance(d, Wait)]
    assert [d.workload for d in came.decisions if isinstance(d, Start)] == ["better"]
    assert told == [("other",)]


def test_no_two_decisions_have_one_key() -> None:
    """A newcomer joins a sleeping group whose reason changes in the same cycle."""
    world = world_of(node("n", 1, cpu=0))
    assert submit(world, job("old", whole(1))).decisions[0].reason is Reason.CPU
    world.apply(ev.WorkloadSubmitted(1, job("new", whole(1), priority=1)))
    world.apply(ev.NodeSeen(2, node("m", 1, pods=0)))
    (wait,) = decide(world).decisions
    assert isinstance(wait, Wait)
    assert (wait.workloads, wait.reason) == (("new", "old"), Reason.PODS)


def test_a_device_that_returns_ends_the_refusal_of_its_node() -> None:
    """It may have been what made the start fail."""
    world = world_of(node("n", 2))
    submit(world, job("w", whole(2)))
    world.apply(ev.StartFailed(2, "w", 1, 0))
    decide(world)
    assert started(decide(world)) == {}
    world.apply(ev.DeviceLost(3, "n", "n/0"))
    assert started(decide(world)) == {}
    world.apply(ev.DeviceReturned(4, "n", "n/0"))
    assert started(decide(world)) == {"w": ["n"]}


def test_adopting_nothing_changes_nothing() -> None:
    """What holds nothing neither runs nor waits, so it is not there."""
    world = world_of(node("n", 1))
    world.apply(ev.WorkloadAdopted(1, job("w", whole(1)), ()))
    check(world)
    assert "w" not in world.entries
    assert list(restored(world).snapshot(9)) == list(world.snapshot(9))


def test_what_is_asked_for_is_learned_once() -> None:
    """Of every pod that arrives or is found, and not again from a snapshot or a repetition."""
    world = world_of(node("n", 4))
    submit(world, job("gang", whole(1), pods=3))
    world.apply(ev.WorkloadSubmitted(2, job("gang", whole(1), pods=3)))
    world.apply(ev.WorkloadAdopted(3, job("found", whole(1)), (Placement(0, "n", ("n/3",)),)))
    assert world.demand.pods == 4
    assert [each.request for each in world.demand.classes()] == [whole(1)]
    assert restored(world).demand.learned() == world.demand.learned()
