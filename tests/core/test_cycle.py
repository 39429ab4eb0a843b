"""What a cycle decides: order, gangs, verdicts, who is looked at again, budgets, failed starts."""

import pytest

from shoal.core import events as ev
from shoal.core.arrays.shape import Shapes
from shoal.core.budget import Budget
from shoal.core.cycle import Cycle, cycle
from shoal.core.decisions import Retract, Start, Wait
from shoal.core.placing.placement import hardest_first
from shoal.core.world import InvalidTransitionError, State, World
from shoal.model.node import Node
from shoal.model.request import Request
from shoal.model.verdict import Obstacle, Reason, Stage, Wake
from shoal.model.workload import Outcome, PodSet, Workload
from tests.core.build import (
    SEED,
    decide,
    divided,
    job,
    node,
    policy,
    share,
    started,
    submit,
    whole,
    world_of,
)


def waits(came: Cycle) -> dict[str, Reason]:
    """The reason that each workload was told."""
    told = [d for d in came.decisions if isinstance(d, Wait)]
    return {uid: decision.reason for decision in told for uid in decision.workloads}


def end(world: World, *uids: str) -> None:
    """End workloads."""
    for uid in uids:
        world.apply(ev.WorkloadEnded(9, uid, Outcome.COMPLETED))


def test_order_is_priority_then_age_then_uid() -> None:
    """One device, four who want it."""
    world = world_of(node("n", 1))
    one = (PodSet("main", 1, whole(1)),)
    for uid, priority, created in (("d", 0, 1), ("c", 1, 5), ("b", 1, 5), ("a", 1, 6)):
        workload = Workload(uid, one, priority=priority, created_us=created)
        world.apply(ev.WorkloadSubmitted(0, workload))
    order = []
    while world.entries:
        (uid,) = started(decide(world))
        order.append(uid)
        end(world, uid)
    assert order == ["b", "c", "a", "d"]


def test_one_that_does_not_fit_does_not_stop_the_next() -> None:
    """A large workload waits, the smaller one behind it starts."""
    world = world_of(node("n", 2))
    came = submit(world, job("large", whole(3)), job("small", whole(1)))
    assert started(came) == {"small": ["n"]}
    assert waits(came) == {"large": Reason.WHOLE_DEVICES}


def test_a_gang_starts_whole() -> None:
    """Three pods of two devices need three such nodes."""
    world = world_of(*(node(f"n{i}", 2) for i in range(3)))
    came = submit(world, job("gang", whole(2), pods=3))
    assert sorted(started(came)["gang"]) == ["n0", "n1", "n2"]
    assert [p.pod for p in came.decisions[0].placements] == [0, 1, 2]  # type: ignore[union-attr]


def test_a_gang_one_device_short_is_not_started_at_all() -> None:
    """Its verdict says how many of its pods had found a place, and what the next one met."""
    world = world_of(node("n0", 2), node("n1", 2), node("n2", 1))
    came = submit(world, job("gang", whole(2), pods=3))
    (decision,) = came.decisions
    assert isinstance(decision, Wait)
    verdict = decision.verdict
    assert (verdict.stage, verdict.placed_pods, verdict.pods) == (Stage.PLACE, 2, 3)
    assert verdict.obstacles == (Obstacle(Reason.WHOLE_DEVICES, 3),)
    assert verdict.wakes == (Wake.CAPACITY, Wake.NODES)
    assert int(world.fleet.whole_free.sum()) == 5


def test_the_hardest_pods_of_a_gang_are_placed_first() -> None:
    """The head pod would take a device of the only node on which the worker fits."""
    world = world_of(node("n", 2, cpu=9))
    sets = (PodSet("head", 1, Request(1000)), PodSet("worker", 1, whole(2, 8)))
    came = submit(world, Workload("w", sets))
    assert started(came) == {"w": ["n", "n"]}
    assert world.entries["w"].held[1].leaves == ("n/0", "n/1")
    assert [p.pod for p in came.decisions[0].placements] == [0, 1]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("larger", "smaller"),
    [
        pytest.param(whole(2), whole(1), id="more devices"),
        pytest.param(whole(1), share(500), id="whole before parts"),
        pytest.param(share(700), share(500), id="larger parts"),
        pytest.param(share(300, count=3), share(800), id="more parts"),
        pytest.param(whole(1, 1), Request(9000), id="devices before CPU"),
        pytest.param(Request(6000), Request(3000, 9), id="more CPU"),
        pytest.param(Request(1000, 600), Request(1000, 500), id="more memory"),
    ],
)
def test_the_order_of_placing(larger: Request, smaller: Request) -> None:
    """Pod sets of larger pods first; equal ones as they are written."""
    shapes = Shapes()
    asked = tuple(shapes.of(request) for request in (smaller, larger, smaller))
    assert hardest_first(asked) == [1, 0, 2]


def test_a_sleeping_group_starts_when_room_comes() -> None:
    """In order, as many as fit, with nothing said to those whose reason is as before."""
    world = world_of(node("n", 2))
    submit(world, job("holder", whole(2)))
    assert waits(submit(world, *(job(f"w{i}", whole(1)) for i in range(4)))) == {
        f"w{i}": Reason.WHOLE_DEVICES for i in range(4)
    }
    assert decide(world).decisions == ()
    end(world, "holder")
    came = decide(world)
    assert sorted(started(came)) == ["w0", "w1"]
    assert waits(came) == {}


def test_newcomers_to_a_sleeping_group_are_told_what_it_was_told() -> None:
    """Without looking at the fleet again."""
    world = world_of(node("n", 1))
    submit(world, job("holder", whole(1)), job("w0", whole(1)))
    world.apply(ev.WorkloadSubmitted(0, job("w1", whole(1))))
    came = cycle(world, policy(), 1, SEED, Budget(0))
    assert came.complete
    assert waits(came) == {"w1": Reason.WHOLE_DEVICES}


def test_a_changed_reason_is_told_to_everybody() -> None:
    """First no node is in the mask, then one that is full, then another one that is full."""
    world = world_of(node("n", 1), node("m", 1))
    submit(world, job("h", whole(1), pods=2))
    request = Request(devices=whole(1).devices, mask="mask")
    came = submit(world, job("w0", request), job("w1", request))
    assert waits(came) == {"w0": Reason.MASK, "w1": Reason.MASK}
    world.apply(ev.MaskSet(2, "mask", ("n",)))
    assert waits(decide(world)) == {"w0": Reason.WHOLE_DEVICES, "w1": Reason.WHOLE_DEVICES}
    world.apply(ev.MaskSet(3, "mask", ("m",)))
    came = decide(world)
    assert waits(came) == {}
    assert [examined.uid for examined in came.examined] == ["w0"]


def test_a_gang_sleeps_until_all_it_lacked_may_have_come() -> None:
    """Two of four pods lack room: one freed node is not worth a look, two are."""
    world = world_of(*(node(f"n{i}", 1) for i in range(4)))
    submit(world, job("h0", whole(1)), job("h1", whole(1)))
    submit(world, job("gang", whole(1), pods=4))
    end(world, "h0")
    assert cycle(world, policy(), 1, SEED, Budget(0)).complete
    assert decide(world).examined == ()
    end(world, "h1")
    assert len(started(decide(world))["gang"]) == 4


@pytest.mark.parametrize(
    ("devices", "asked"),
    [
        pytest.param(2, whole(1), id="a device"),
        pytest.param(4, whole(2), id="two devices"),
        pytest.param(2, share(1000), id="all of a device, shared"),
        pytest.param(2, Request(16_000), id="CPU"),
        pytest.param(2, Request(0, 500), id="host memory"),
    ],
)
def test_a_gang_of_any_kind_wakes(devices: int, asked: Request) -> None:
    """Two pods fit on the node; when those that are there have ended the gang starts.

    That one has ended is worth no look, except that nobody knows how many shares fit.
    """
    world = world_of(node("n", devices))
    submit(world, job("a", asked), job("b", asked))
    assert started(submit(world, job("gang", asked, pods=2))) == {}
    end(world, "a")
    came = decide(world)
    assert came.decisions == ()
    assert bool(came.examined) is (asked == share(1000))
    end(world, "b")
    assert started(decide(world)) == {"gang": ["n", "n"]}


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(ev.NodeSeen(2, node("new", 1)), id="a node joins"),
        pytest.param(ev.NodeCordoned(2, "cordoned", cordoned=False), id="a cordon is lifted"),
        pytest.param(ev.DeviceReturned(2, "broken", "broken/0"), id="a device works again"),
        pytest.param(ev.WorkloadEnded(2, "holder", Outcome.FAILED), id="a workload ends"),
        pytest.param(ev.PodEnded(2, "holder", 0), id="a pod ends"),
    ],
)
def test_what_wakes(event: ev.Event) -> None:
    """Each event that can make room ends the waiting, in the next cycle."""
    world = world_of(node("full", 1), node("cordoned", 1), node("broken", 1))
    world.apply(ev.NodeCordoned(1, "cordoned", cordoned=True))
    world.apply(ev.DeviceLost(1, "broken", "broken/0"))
    submit(world, job("holder", whole(1)))
    assert started(submit(world, job("w", whole(1)))) == {}
    assert decide(world).decisions == ()
    world.apply(event)
    assert sorted(started(decide(world))) == ["w"]


@pytest.mark.parametrize(
    ("asked", "lacking"),
    [
        pytest.param(whole(1, 2), node("m", 1, cpu=1), id="CPU"),
        pytest.param(Request(0, 9), node("m", memory=8), id="host memory"),
        pytest.param(whole(2), node("m", 1), id="devices"),
        pytest.param(
            share(501), Node("m", 9000, 9, 9, (divided("m/0", 2, "A100"),)), id="compute on a leaf"
        ),
        pytest.param(share(100, 90), node("m", 1), id="memory on a leaf"),
        pytest.param(Request(selector=(("zone", "a"),)), node("m"), id="its label"),
    ],
)
def test_what_a_node_cannot_serve_is_not_looked_at(asked: Request, lacking: Node) -> None:
    """It sleeps on, and the cycle does not search for it."""
    world = world_of()
    assert started(submit(world, job("w", asked))) == {}
    world.apply(ev.NodeSeen(1, lacking))
    assert decide(world).examined == ()
    assert world.waiting.fresh == {}


def test_a_mask_that_changes_wakes_those_who_name_it() -> None:
    """And nobody else."""
    world = world_of(node("n", 1))
    request = Request(devices=whole(1).devices, mask="m")
    came = submit(world, job("w", request))
    assert waits(came) == {"w": Reason.MASK}
    assert isinstance(came.decisions[0], Wait)
    assert Wake.MASK in came.decisions[0].verdict.wakes
    world.apply(ev.MaskSet(1, "other", ("n",)))
    assert decide(world).examined == ()
    world.apply(ev.MaskSet(1, "m", ("n",)))
    assert sorted(started(decide(world))) == ["w"]


def test_a_spent_budget_leaves_the_rest_for_the_next_cycle() -> None:
    """No gang is begun without one left, none is planned in half, and nothing is forgotten."""
    world = world_of(node("n", 8))
    for number in range(4):
        world.apply(ev.WorkloadSubmitted(0, job(f"w{number}", whole(1), pods=2)))
    came = cycle(world, policy(), 1, SEED, Budget(5))
    assert not came.complete
    assert sorted(started(came)) == ["w0", "w1", "w2"]
    for decision in came.decisions:
        world.apply(ev.Decided(1, decision))
    world.apply(ev.Cycled(1, 5, came.complete, came.examined))
    assert sorted(started(decide(world))) == ["w3"]


def test_a_gang_larger_than_the_budget_has_its_turn() -> None:
    """Otherwise it would never start."""
    world = world_of(node("n", 8))
    world.apply(ev.WorkloadSubmitted(0, job("gang", whole(1), pods=8)))
    came = cycle(world, policy(), 1, SEED, Budget(1))
    assert came.complete
    assert sorted(started(came)) == ["gang"]


def test_a_spent_budget_forgets_no_room() -> None:
    """Room that came before an incomplete cycle is still fresh in the next one."""
    world = world_of(node("n", 1))
    submit(world, job("holder", whole(1)), job("w", whole(1)))
    end(world, "holder")
    came = cycle(world, policy(), 1, SEED, Budget(0))
    assert not came.complete
    world.apply(ev.Cycled(1, 0, came.complete, came.examined))
    assert sorted(started(decide(world))) == ["w"]


def test_a_failed_start_is_retracted_whole_and_not_tried_there_again() -> None:
    """Until the node changes."""
    world = world_of(node("a", 1), node("b", 2))
    submit(world, job("w", whole(1)))
    first = world.entries["w"].held[0].node
    world.apply(ev.StartFailed(2, "w", 1, 0))
    came = decide(world)
    assert came.decisions == (Retract("retract/w/1", "w", first),)
    assert world.entries["w"].state is State.WAITING
    (start,) = decide(world).decisions
    assert isinstance(start, Start)
    assert start.key == "start/w/2"
    assert start.placements[0].node != first
    world.apply(ev.StartFailed(3, "w", 2, 0))
    decide(world)
    assert waits(decide(world)) == {"w": Reason.REFUSED_BEFORE}
    world.apply(ev.NodeSeen(4, node(first, 2, labels={"repaired": "yes"})))
    assert started(decide(world)) == {"w": [first]}


def test_what_a_retracted_start_held_is_free_in_the_same_cycle() -> None:
    """Whoever waits behind it starts at once."""
    world = world_of(node("n", 1))
    submit(world, job("first", whole(1)), job("next", whole(1)))
    world.apply(ev.StartFailed(2, "first", 1, 0))
    came = decide(world)
    assert [type(d) for d in came.decisions] == [Retract, Start]
    assert sorted(started(came)) == ["next"]


def test_late_news_of_an_earlier_attempt_or_a_running_pod_changes_nothing() -> None:
    """The attempt is named, and what runs cannot fail to start."""
    world = world_of(node("a", 1), node("b", 1))
    submit(world, job("w", whole(1)))
    world.apply(ev.StartFailed(2, "w", 0, 0))
    world.apply(ev.StartFailed(2, "w", 1, 7))
    world.apply(ev.PodStarted(2, "w", 0))
    world.apply(ev.StartFailed(3, "w", 1, 0))
    assert decide(world).decisions == ()
    assert world.entries["w"].state is State.RUNNING


def test_decisions_that_do_not_fit_the_state_are_refused() -> None:
    """They would be bugs."""
    world = world_of(node("n", 2))
    submit(world, job("w", whole(1)))
    start = Start("start/w/2", "w", ())
    for decision, said in (
        (start, "does not wait"),
        (Start("start/x/1", "x", ()), "no workload x"),
        (Retract("retract/w/1", "w", "n"), "no start of the workload failed"),
    ):
        with pytest.raises(InvalidTransitionError, match=said):
            world.apply(ev.Decided(1, decision))


def test_states_on_the_way() -> None:
    """Waiting, starting until its last pod runs, running, gone with its last pod."""
    world = world_of(node("n", 4))
    world.apply(ev.WorkloadSubmitted(0, job("w", whole(1), pods=2)))
    states = [world.entries["w"].state]
    decide(world)
    for pod in (0, 1):
        world.apply(ev.PodStarted(1, "w", pod))
        states.append(world.entries["w"].state)
    assert states == [State.WAITING, State.STARTING, State.RUNNING]
    world.apply(ev.PodEnded(2, "w", 0))
    world.apply(ev.PodEnded(2, "w", 0))
    assert int(world.fleet.whole_free.sum()) == 3
    world.apply(ev.PodEnded(3, "w", 1))
    assert "w" not in world.entries
    assert int(world.fleet.whole_free.sum()) == 4


def test_a_workload_known_already_is_not_taken_in_twice() -> None:
    """Submitted or adopted again, whatever it says."""
    world = world_of(node("n", 4))
    submit(world, job("w", whole(1)))
    world.apply(ev.WorkloadSubmitted(1, job("w", whole(2))))
    world.apply(ev.WorkloadAdopted(1, job("w", whole(2)), ()))
    assert decide(world).decisions == ()
    assert int(world.fleet.whole_free.sum()) == 3


def test_shares_fill_a_device_and_no_more() -> None:
    """Compute, memory and tenants each bind."""
    world = world_of(node("n", 1))  # 80 MiB, 8 tenants
    jobs = [job(f"c{i}", share(400)) for i in range(3)]
    assert len(started(submit(world, *jobs))) == 2
    end(world, "c0", "c1", "c2")
    jobs = [job(f"m{i}", share(0, memory_mib=30)) for i in range(3)]
    assert len(started(submit(world, *jobs))) == 2
    end(world, "m0", "m1", "m2")
    jobs = [job(f"t{i}", share(1)) for i in range(9)]
    assert len(started(submit(world, *jobs))) == 8
