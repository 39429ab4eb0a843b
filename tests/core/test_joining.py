"""Pods that join running work: when they are looked for, and what becomes of them."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings

from shoal.core import events as ev
from shoal.core.budget import Budget
from shoal.core.cycle import cycle
from shoal.core.decisions import Evict, Resize, Start
from shoal.core.placing import growing
from shoal.core.validate import InvariantError, check
from shoal.core.world import InvalidTransitionError, State, World
from shoal.model.node import Node
from shoal.model.queue import Budget as Spending
from shoal.model.queue import Period, Queue, QueueTree, Quota, WhenSpent
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, Placement, Workload, WorkloadType
from tests.core.build import SEED, node, policy
from tests.core.cases import MINUTE_US, Case, batch, queue, tree, work
from tests.core.dated import HOUR_US
from tests.core.placing.test_growing import full, held

# Failing ------------------------------------------------------------------------------------------


def _joins(nodes: list[Node]) -> tuple[World, Resize]:
    """A gang of two to which one pod is given that does not run yet."""
    world = World()
    for each in (*nodes, node("n0", 1)):
        world.apply(ev.NodeSeen(0, each))
    decide(world, 0)
    for name in ("x", "y"):
        world.apply(ev.NodeCordoned(0, "n1", name == "x"))
        world.apply(ev.NodeCordoned(0, "n2", name == "x"))
        if name == "x":
            world.apply(ev.WorkloadSubmitted(0, work("q/e", pods=2, minimum=1)))
            decide(world, 0)
            world.apply(ev.PodStarted(0, "q/e", 0))
    (joins,) = decide(world, 1)
    assert isinstance(joins, Resize)
    return world, joins


def decide(world: World, now_us: int) -> tuple[object, ...]:
    """Decide until nothing is left to decide."""
    decided: list[object] = []
    complete = False
    while not complete:
        came = cycle(world, policy(), now_us, SEED, Budget(1000))
        for decision in came.decisions:
            world.apply(ev.Decided(now_us, decision))
        world.apply(ev.Cycled(now_us, 1000, came.complete, came.examined))
        decided += came.decisions
        complete = came.complete
    return tuple(decided)


def test_work_runs_while_a_pod_joins_it() -> None:
    world, joins = _joins([node("n1", 1)])
    entry = world.entries["q/e"]
    assert (entry.state, entry.joining) == (State.RUNNING, {1})
    assert joins.key == "resize/q/e/1/1/1"
    world.apply(ev.PodStarted(2, "q/e", 1))
    assert (entry.state, entry.joining) == (State.RUNNING, set())


def test_a_pod_that_does_not_start_is_let_go_and_the_gang_runs_on() -> None:
    world, joins = _joins([node("n1", 1), node("n2", 1)])
    world.apply(ev.StartFailed(2, "q/e", 1, 1))
    entry = world.entries["q/e"]
    assert (sorted(entry.held), entry.state, entry.attempt) == ([0], State.RUNNING, 1)
    assert entry.refused == {joins.placements[0].node}
    check(world)
    (again,) = decide(world, 3)
    assert isinstance(again, Resize)
    assert again.placements[0].node not in entry.refused
    world.apply(ev.StartFailed(4, "q/e", 1, 1))
    assert decide(world, 5) == ()
    world.apply(ev.NodeSeen(6, node(joins.placements[0].node, 2)))
    (third,) = decide(world, 7)
    assert isinstance(third, Resize)
    assert third.placements[0].node == joins.placements[0].node


def test_a_start_that_is_taken_back_takes_those_back_who_joined() -> None:
    world, _ = _joins([node("n1", 1)])
    entry = world.entries["q/e"]
    entry.started.clear()
    world.apply(ev.StartFailed(2, "q/e", 1, 0))
    retract, *_ = decide(world, 3)
    assert type(retract).__name__ == "Retract"
    check(world)


def test_a_pod_that_joins_may_be_evicted_before_it_runs() -> None:
    world, _ = _joins([node("n1", 1)])
    order = Evict("e", "q/e", (1,), (), 0, True, 0, Reason.RECLAIM)
    world.apply(ev.Decided(2, order))
    check(world)
    world.apply(ev.StartFailed(3, "q/e", 1, 1))
    check(world)
    assert sorted(world.entries["q/e"].held) == [0]
    assert not world.entries["q/e"].finishing


def test_a_snapshot_knows_who_joins_and_that_there_may_be_room() -> None:
    world, _ = _joins([node("n1", 1)])
    world.apply(ev.NodeSeen(2, node("n2", 1)))
    for uid in ("q/e", "q/f"):
        world.apply(ev.WorkloadSubmitted(2, work(uid, pods=3, minimum=1)))
    decide(world, 3)
    world.apply(ev.PodEnded(4, "q/f", 0))
    again = World()
    for event in world.snapshot(5):
        again.apply(event)
    assert tuple(again.snapshot(5)) == tuple(world.snapshot(5))
    assert again.entries["q/e"].joining == {1}
    assert again.entries["q/e"].state is State.RUNNING
    assert again.waiting.freed
    check(again)


# Looking ------------------------------------------------------------------------------------------


def test_it_is_looked_at_when_something_came_free_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = full()
    looked: list[int] = []
    inner = growing.Growing.grow

    def counted(of: growing.Growing) -> tuple[Resize, ...]:
        looked.append(case.now_us)
        return inner(of)

    monkeypatch.setattr(growing.Growing, "grow", counted)
    case.run_on()
    case.submit(batch("q/w", 9))
    assert looked == []
    case.end("q/x")
    assert len(looked) == 1
    case.end("q/e", "q/w")
    assert len(looked) == 1, "nothing lacks pods"


def test_a_small_budget_only_takes_more_cycles() -> None:
    case = Case([node("n1", 8)], tree(queue("a"), queue("b")))
    case.adopt(work("a/x", 6), "n1")
    for uid in ("a/e", "b/e"):
        case.adopt(work(uid, pods=4, minimum=1), "n1")
    case.turn()
    case.feed(ev.WorkloadEnded(5, "a/x", Outcome.COMPLETED))
    cycles: list[list[int]] = []
    complete = False
    while not complete:
        now_us = 5 + len(cycles)
        came = cycle(case.world, policy(), now_us, SEED, Budget(1))
        for decision in came.decisions:
            case.feed(ev.Decided(now_us, decision))
        case.feed(ev.Cycled(now_us, 1, came.complete, came.examined))
        cycles.append([len(each.placements) for each in came.decisions if isinstance(each, Resize)])
        complete = came.complete
    assert cycles == [[1]] * 6
    assert (held(case, "a/e"), held(case, "b/e")) == ([0, 1, 2, 3], [0, 1, 2, 3])


def test_a_decision_that_does_not_fit_is_a_defect() -> None:
    case = full()
    place = Placement(1, "n1", ("n1/0",))
    for wrong in (replace(place, pod=0), replace(place, pod=9)):
        with pytest.raises(InvalidTransitionError, match="does not lack"):
            case.world.apply(ev.Decided(1, Resize("r", "q/e", (wrong,))))
    with pytest.raises(InvariantError):
        case.feed(ev.Decided(1, Resize("r", "q/e", (place,))))  # q/x holds the device


def test_a_start_leaves_nothing_for_growing_that_it_could_have_had() -> None:
    case = Case([node("n1", 4)], tree(queue("q")))
    case.submit(work("q/e", pods=4, minimum=1))
    assert case.grown == []
    (start,) = (seen.decision for seen in case.seen)
    assert isinstance(start, Start)
    assert len(start.placements) == 4


# Random days --------------------------------------------------------------------------------------


def _some_tree(chance: Random) -> QueueTree:
    """Two teams of two projects with whatever rules, and now and then no queues at all."""

    def some(most: int, often: float) -> Quota:
        return (("H100", chance.randrange(most)),) if chance.random() < often else ()

    queues = [Queue("root", "")]
    for team in ("a", "b"):
        spending = Spending(Period.DAY, chance.randrange(4, 40), chance.choice(list(WhenSpent)))
        made = Queue(
            team,
            "root",
            guarantee=some(8, 0.6) or None,
            limit=some(14, 0.3),
            lend=some(4, 0.2),
            borrow=some(6, 0.2),
            placeable=(("H100", 2),) if chance.random() < 0.2 else (),
            budget=spending if chance.random() < 0.3 else None,
        )
        queues += [made, *(Queue(f"{team}{n}", team, guarantee=some(4, 0.5)) for n in range(2))]
    return QueueTree(tuple(queues) if chance.random() < 0.9 else ())


def _some_work(chance: Random, number: int) -> Workload:
    pods = chance.choice([1, 2, 4, 8])
    return work(
        f"w{number}",
        chance.choice([1, 1, 2]),
        chance.choice(["a0", "a1", "b0", "b1"]),
        type_=chance.choice([WorkloadType.TRAINING, WorkloadType.BATCH, WorkloadType.INFERENCE]),
        pods=pods,
        minimum=chance.choice([None, 1, max(1, pods // 2)]),
        priority=chance.randrange(2),
        run_us=chance.choice([None, HOUR_US, 3 * HOUR_US]),
    )


def _lived(seed: int) -> Case:
    """A day on which gangs lack pods most of the time; every event and every cycle is checked."""
    chance = Random(seed)  # noqa: S311 - a day has to come again
    case = Case([node(f"n{n}", 4) for n in range(3)], QueueTree())
    case.set_queues(_some_tree(chance))
    for number in range(40):
        case.to(case.now_us // MINUTE_US + chance.choice([0, 5, 20]))
        for name in case.world.spending.accounts:
            case.happen(ev.PeriodBegan(0, name, 0, 24 * HOUR_US))
        running = [uid for uid, entry in case.world.entries.items() if entry.held]
        drawn = chance.random()
        if drawn < 0.45 or not running:
            case.submit(_some_work(chance, number))
        elif drawn < 0.8:
            case.end(chance.choice(running))
        elif drawn < 0.87:
            case.happen(ev.NodeCordoned(0, f"n{chance.randrange(3)}", chance.random() < 0.5))
        elif drawn < 0.94:
            case.happen(ev.NodeSeen(0, node(f"n{chance.randrange(4)}", 4)))
        else:
            case.set_queues(_some_tree(chance))
        _looks_alike(case)
    return case


def _looks_alike(case: Case) -> None:
    """A world made again from a snapshot is equal, and finds nobody to grow whom nothing woke."""
    events = tuple(case.world.snapshot(case.now_us))
    again = World()
    for event in events:
        again.apply(replace(event, freed=True) if isinstance(event, ev.RoomRestored) else event)
    came = cycle(again, policy(), case.now_us, SEED, Budget(1000))
    if not case.world.spending.accounts:  # what these have left changes by time alone
        assert not [each for each in came.decisions if isinstance(each, Resize)]
    again.waiting.freed = case.world.waiting.freed
    assert tuple(again.snapshot(case.now_us)) == events


def test_gangs_grow_through_random_days_and_break_no_rule() -> None:
    days = settings().max_examples
    grown = sum(len(_lived(seed).grown) for seed in range(days))
    assert grown >= days
