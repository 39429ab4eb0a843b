"""Quota and order of the tenant tree: limits, guarantees, what may borrow, whose turn it is."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.core.cycle import Cycle
from shoal.core.decisions import Wait
from shoal.core.validate import check
from shoal.core.world import World
from shoal.model.fractions import UNIT
from shoal.model.node import Node
from shoal.model.queue import Queue, QueueTree
from shoal.model.request import Request
from shoal.model.verdict import OverQuota, Reason, Stage, Wake
from shoal.model.workload import Outcome, Placement, PodSet, Workload, WorkloadType
from tests.core.build import decide, device, divided, node, share, started, submit, whole, world_of

BATCH, TRAINING = WorkloadType.BATCH, WorkloadType.TRAINING
INFERENCE, NOTEBOOK = WorkloadType.INFERENCE, WorkloadType.NOTEBOOK


def tree(*queues: Queue) -> QueueTree:
    """A tree with `root` above queues that name no parent."""
    below = [
        queue
        if queue.parent
        else Queue(
            queue.name,
            "root",
            guarantee=queue.guarantee,
            limit=queue.limit,
            weight=queue.weight,
        )
        for queue in queues
    ]
    return QueueTree((Queue("root"), *below))


def work(
    uid: str,
    queue: str,
    request: Request,
    *,
    pods: int = 1,
    type_: WorkloadType = TRAINING,
    created_us: int = 0,
) -> Workload:
    """A workload of a queue."""
    return Workload(uid, (PodSet("main", pods, request),), queue, type_, 0, created_us)


def with_queues(world: World, *queues: Queue) -> World:
    """The world, with these queues."""
    world.apply(ev.QueuesSet(0, tree(*queues)))
    return world


def over(came: Cycle, uid: str) -> OverQuota | None:
    """Which quota stood in the way of a workload."""
    for decision in came.decisions:
        if isinstance(decision, Wait) and uid in decision.workloads:
            return decision.verdict.over_quota
    return None


def end(world: World, uid: str) -> None:
    """End a workload."""
    world.apply(ev.WorkloadEnded(9, uid, Outcome.COMPLETED))


def test_a_limit_binds_to_the_unit() -> None:
    """Two of limit two start, the third waits, with the sum."""
    world = with_queues(world_of(node("n", 8)), Queue("a", limit=(("H100", 2),)))
    came = submit(world, *(work(f"w{i}", "a", whole(1)) for i in range(3)))
    assert sorted(started(came)) == ["w0", "w1"]
    assert over(came, "w2") == OverQuota(Reason.LIMIT, "a", "H100", 2 * UNIT, UNIT, 2 * UNIT)
    (wait,) = (decision for decision in came.decisions if isinstance(decision, Wait))
    assert (wait.verdict.stage, wait.verdict.wakes) == (Stage.QUOTA, (Wake.QUOTA,))
    assert wait.verdict.cause == (Stage.QUOTA, Reason.LIMIT)
    assert decide(world).decisions == ()
    end(world, "w0")
    assert sorted(started(decide(world))) == ["w2"]


def test_a_limit_binds_everything_below() -> None:
    """Team may hold three, each of its projects too."""
    queues = (
        Queue("team", limit=(("H100", 3),)),
        Queue("x", "team", limit=(("H100", 3),)),
        Queue("y", "team"),
    )
    world = with_queues(world_of(node("n", 8)), *queues)
    came = submit(world, work("wx", "x", whole(2)), work("wy", "y", whole(2)))
    assert sorted(started(came)) == ["wx"]
    found = over(came, "wy")
    assert found is not None
    assert (found.queue, found.used_units, found.asked_units) == ("team", 2 * UNIT, 2 * UNIT)
    end(world, "wx")
    assert sorted(started(decide(world))) == ["wy"]


def test_a_gang_over_its_limit_starts_no_pod() -> None:
    """Q01: four pods of limit three; it starts when the limit is raised, without resubmission."""
    world = with_queues(world_of(node("n", 8)), Queue("a", limit=(("H100", 3),)))
    came = submit(world, work("w4", "a", whole(1), pods=4))
    found = over(came, "w4")
    assert found is not None
    assert (found.used_units, found.asked_units, found.bound_units) == (0, 4 * UNIT, 3 * UNIT)
    assert int(world.fleet.whole_free[0]) == 8
    with_queues(world, Queue("a", limit=(("H100", 4),)))
    assert sorted(started(decide(world))) == ["w4"]


def test_what_a_limit_bars_is_taken_from_another_accelerator() -> None:
    """The queue may have one H100; its next workload would do with an A100 too."""
    world = world_of(node("h", 4), node("a", 4, accelerator="A100"))
    with_queues(world, Queue("q", limit=(("H100", 1),)))
    any_of_them = whole(2, 1)
    assert started(submit(world, work("w", "q", any_of_them))) == {"w": ["a"]}
    assert started(submit(world, work("v", "q", whole(1, 1, "H100")))) == {"v": ["h"]}
    assert over(submit(world, work("u", "q", whole(1, 1, "H100"))), "u") is not None


def test_a_limit_on_a_group_counts_its_accelerators_together() -> None:
    """H100|A100: 3."""
    world = world_of(node("h", 4), node("a", 4, accelerator="A100"))
    with_queues(world, Queue("q", limit=(("H100|A100", 3),)))
    submit(world, work("w", "q", whole(2, 1, "H100")))
    found = over(submit(world, work("v", "q", whole(2, 1, "A100"))), "v")
    assert found == OverQuota(Reason.LIMIT, "q", "H100|A100", 2 * UNIT, 2 * UNIT, 3 * UNIT)


def test_shares_are_charged_the_larger_fraction_rounded_up() -> None:
    """Q04: two shares of 40 GiB of 80 fit a limit of one device; one MiB more does not."""
    cards = tuple(device(f"n/{i}", memory_mib=81_920) for i in range(2))
    for memory_mib, fits in ((40_960, True), (40_961, False), (49_152, False)):
        world = world_of(Node("n", 32_000, 0, 110, cards))
        with_queues(world, Queue("q", limit=(("H100", 1),)))
        came = submit(world, work("w", "q", share(100, memory_mib, count=2)))
        assert bool(started(came)) is fits
        if not fits:
            found = over(came, "w")
            assert found is not None
            assert found.asked_units == 2 * -(-memory_mib * UNIT // 81_920)


def test_a_queue_never_counts_more_of_a_device_than_the_device() -> None:
    """M02: three slices of 7 with memory of a quarter each would add up; the device is one."""
    world = world_of(Node("n", 32_000, 0, 110, (divided("n/0", 2), divided("n/1", 2))))
    with_queues(world, Queue("q", limit=(("A100", 1),)))
    came = submit(world, *(work(f"w{i}", "q", share(100, 40)) for i in range(2)))
    assert sorted(started(came)) == ["w0", "w1"]
    assert world.tenants.used_units("q") == {"A100": UNIT}
    found = over(submit(world, work("w2", "q", share(100, 40))), "w2")
    assert found is not None
    assert found.used_units == UNIT


@pytest.mark.parametrize("type_", [INFERENCE, NOTEBOOK])
def test_only_returnable_work_borrows(type_: WorkloadType) -> None:
    """Q04: with a guarantee of one, what cannot be returned gets one; training gets the rest."""
    world = with_queues(world_of(node("n", 4)), Queue("q", guarantee=(("H100", 1),)), Queue("r"))
    came = submit(world, *(work(f"w{i}", "q", whole(1), type_=type_) for i in range(2)))
    assert sorted(started(came)) == ["w0"]
    assert over(came, "w1") == OverQuota(Reason.GUARANTEE, "q", "H100", UNIT, UNIT, UNIT)
    came = submit(world, work("t0", "q", whole(2)), work("t1", "r", whole(1), type_=BATCH))
    assert sorted(started(came)) == ["t0", "t1"]


def test_guarantees_above_cover_what_no_sibling_is_guaranteed() -> None:
    """Team is guaranteed three, x one of them: y, with none of its own, may use two for good."""
    queues = (
        Queue("team", guarantee=(("H100", 3),)),
        Queue("x", "team", guarantee=(("H100", 1),)),
        Queue("y", "team", guarantee=()),
    )
    world = with_queues(world_of(node("n", 8)), *queues)
    came = submit(world, *(work(f"y{i}", "y", whole(1), type_=NOTEBOOK) for i in range(3)))
    assert sorted(started(came)) == ["y0", "y1"]
    came = submit(world, *(work(f"x{i}", "x", whole(1), type_=NOTEBOOK) for i in range(2)))
    assert sorted(started(came)) == ["x0"]
    end(world, "y0")
    assert len(started(decide(world))) == 1


def test_a_guarantee_that_is_not_written_is_that_of_the_children() -> None:
    """E02: the right lies with the group where it is written, and reaches every leaf below."""
    queues = (Queue("g", guarantee=(("H100", 2),)), Queue("main", "g"))
    world = with_queues(world_of(node("n", 8)), *queues)
    came = submit(world, *(work(f"m{i}", "main", whole(1), type_=NOTEBOOK) for i in range(3)))
    assert sorted(started(came)) == ["m0", "m1"]


def test_guarantees_first_then_what_is_spare_by_weight() -> None:
    """Q02: nine devices; p is guaranteed three; weights of q and r are 2 and 1 for the rest."""
    queues = (Queue("p", guarantee=(("H100", 3),)), Queue("q", weight=4), Queue("r", weight=2))
    world = with_queues(world_of(node("n", 9)), *queues)
    jobs = [work(f"{queue}{i}", queue, whole(1), created_us=i) for queue in "qrp" for i in range(9)]
    submit(world, *jobs)
    held = {queue: world.tenants.used_units(queue).get("H100", 0) // UNIT for queue in "pqr"}
    assert held == {"p": 3, "q": 4, "r": 2}


def test_the_queue_that_holds_least_goes_first() -> None:
    """Q05: a4 starts before b3, although it came later."""
    world = with_queues(world_of(node("n", 8)), Queue("a"), Queue("b"))
    submit(world, *(work(f"a{i}", "a", whole(1)) for i in (1, 2, 3)), work("b1", "b", whole(1)))
    submit(world, work("b2", "b", whole(4)))
    came = submit(
        world, work("b3", "b", whole(1), created_us=9), work("a4", "a", whole(1), created_us=10)
    )
    assert started(came) == {}
    end(world, "b1")
    assert sorted(started(decide(world))) == ["a4"]


def test_an_unknown_queue_says_so_and_wakes_when_it_is_made() -> None:
    """O03: work waits, keeps its time, and starts when the queue is there again."""
    world = with_queues(world_of(node("n", 1)), Queue("a"))
    came = submit(world, work("w", "lab", whole(1)))
    assert over(came, "w") == OverQuota(Reason.NO_QUEUE, "lab")
    assert over(submit(world, work("v", "root", whole(1))), "v") is not None, "no leaf"
    with_queues(world, Queue("a"), Queue("lab"))
    assert sorted(started(decide(world))) == ["w"]


def test_a_queue_that_is_being_deleted_starts_nothing_and_stays_charged() -> None:
    """O03: what runs goes on, what waits says why, and comes in its old order when it is back."""
    lab, other = Queue("lab", "root", guarantee=(("H100", 4),)), Queue("other", "root")
    world = with_queues(world_of(node("n", 8)), lab, other)
    submit(world, work("a", "lab", whole(1)), work("b", "lab", whole(2)))
    with_queues(world, replace(lab, guarantee=(("H100", 3),), closing=True), other)
    waiting = [work(name, "lab", whole(1), created_us=n) for n, name in enumerate("cde")]
    came = submit(world, *waiting)
    assert started(came) == {}
    assert over(came, "c") == OverQuota(Reason.CLOSING, "lab")
    assert world.tenants.used_units("lab") == {"H100": 3 * UNIT}
    submit(world, work("z", "other", whole(4)))
    assert "z" in {uid for uid, entry in world.entries.items() if entry.held}, "the rest is lent"
    end(world, "a")
    end(world, "b")
    assert world.tenants.used_units("lab") == {}
    with_queues(world, other)
    assert over(decide(world), "c") == OverQuota(Reason.NO_QUEUE, "lab")
    with_queues(world, lab, other)
    assert list(started(decide(world))) == ["c", "d", "e"]


def test_a_lowered_limit_is_a_debt_that_only_falls() -> None:
    """What runs goes on; nothing starts until it is paid."""
    world = with_queues(world_of(node("n", 8)), Queue("a", limit=(("H100", 4),)))
    submit(world, *(work(f"w{i}", "a", whole(1)) for i in range(4)))
    with_queues(world, Queue("a", limit=(("H100", 2),)))
    assert check(world) == {("limit", "a\0H100"): 2 * UNIT}
    assert started(submit(world, work("x", "a", whole(1)))) == {}
    for uid in ("w0", "w1"):
        end(world, uid)
        assert started(decide(world)) == {}
    end(world, "w2")
    assert sorted(started(decide(world))) == ["x"]


def test_what_was_found_running_is_charged_to_its_queue() -> None:
    """Also when its node comes into sight later, or the queues do."""
    world = world_of()
    held = work("w", "a", whole(1))
    world.apply(ev.WorkloadAdopted(0, held, (Placement(0, "n", ("n/0",)),)))
    with_queues(world, Queue("a", limit=(("H100", 1),)))
    assert world.tenants.used_units("a") == {}
    world.apply(ev.NodeSeen(1, node("n", 2)))
    assert world.tenants.used_units("a") == {"H100": UNIT}
    world.apply(ev.NodeLost(2, "n"))
    assert world.tenants.used_units("root") == {"H100": UNIT}, "in use until the pod is gone"
    end(world, "w")
    assert world.tenants.used_units("root") == {}


weights = st.integers(1, 4)
small = st.integers(0, 6)


@given(
    fleet=st.integers(1, 12),
    shape=st.lists(
        st.tuples(weights, small, small, st.lists(st.tuples(weights, small, small), max_size=3)),
        min_size=1,
        max_size=3,
    ),
)
def test_one_device_jobs_fill_the_tree_as_water_would(
    fleet: int, shape: list[tuple[int, int, int, list[tuple[int, int, int]]]]
) -> None:
    """Whoever could still start holds at most one job more, for its weight, than who waits."""
    queues: list[Queue] = []
    demands: dict[str, int] = {}
    for t, (weight, demand, _, projects) in enumerate(shape):
        queues.append(Queue(f"t{t}", weight=weight))
        for p, (w, d, _) in enumerate(projects):
            queues.append(Queue(f"t{t}p{p}", f"t{t}", weight=w))
            demands[f"t{t}p{p}"] = d
        if not projects:
            demands[f"t{t}"] = demand
    world = with_queues(world_of(node("n", fleet, cpu=64)), *queues)
    submit(
        world,
        *(
            work(f"{q}/{i}", q, whole(1), created_us=i)
            for q, d in demands.items()
            for i in range(d)
        ),
    )
    held = {q.name: world.tenants.used_units(q.name).get("H100", 0) // UNIT for q in queues}
    assert sum(held[q] for q in demands) == min(fleet, sum(demands.values()))
    waiting = {q for q, d in demands.items() if held[q] < d}
    by_name = {queue.name: queue for queue in queues}

    def waits(name: str) -> bool:
        return any(q == name or by_name[q].parent == name for q in waiting)

    for queue in queues:
        for other in queues:
            if queue.parent == other.parent and queue is not other and waits(other.name):
                mine = Fraction(held[queue.name] - 1, queue.weight)
                assert held[queue.name] == 0 or mine <= Fraction(held[other.name], other.weight)


def test_a_new_accelerator_wakes_those_who_used_up_the_others() -> None:
    """No limit binds it."""
    world = with_queues(world_of(node("h", 2)), Queue("a", limit=(("H100", 0),)))
    assert started(submit(world, work("w", "a", whole(1)))) == {}
    world.apply(ev.NodeSeen(1, node("x", 2, accelerator="A100")))
    assert started(decide(world)) == {"w": ["x"]}


def test_devices_that_turn_out_to_be_others_free_quota() -> None:
    """What runs on them is charged for what they are."""
    world = with_queues(world_of(node("n", 1), node("m", 1)), Queue("a", limit=(("H100", 1),)))
    asked = whole(1, 1, "H100")
    ((mine,),) = started(submit(world, work("w", "a", asked))).values()
    assert started(submit(world, work("v", "a", asked))) == {}
    world.apply(ev.NodeSeen(1, node(mine, 1, accelerator="A100")))
    assert started(decide(world)) == {"v": [({"n", "m"} - {mine}).pop()]}
    check(world)


def test_one_guarantee_on_two_accelerators_is_given_once() -> None:
    """Three devices of each were more than the four that are guaranteed together."""
    world = world_of(node("h", 4), node("x", 4, accelerator="A100"))
    root = Queue("root", guarantee=(("H100|A100", 4),))
    world.apply(ev.QueuesSet(0, QueueTree((root, Queue("a", "root"), Queue("b", "root")))))
    came = submit(
        world,
        work("w", "a", whole(3, 1, "H100"), type_=INFERENCE),
        work("x", "b", whole(3, 1, "A100"), type_=INFERENCE, created_us=1),
        work("y", "b", whole(1, 1, "A100"), type_=INFERENCE, created_us=2),
    )
    assert sorted(started(came)) == ["w", "y"]
    check(world)
