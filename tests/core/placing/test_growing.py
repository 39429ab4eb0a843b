"""Running elastic work gets the pods that it lacks, out of what nobody who waits can use."""

import pytest

from shoal.core import events as ev
from shoal.model.modes import Cap
from shoal.model.node import Node
from shoal.model.pool import Pool
from shoal.model.queue import Budget as Spending
from shoal.model.queue import Order, Period, WhenSpent
from shoal.model.request import Operator, Requirement
from shoal.model.selector import Selector
from shoal.model.workload import PodSet, Workload, WorkloadType
from tests.core.build import device, node, share, whole
from tests.core.cases import MINUTE_US, Case, queue, tree, work
from tests.core.dated import HOUR_US

TRAINING, INFERENCE = WorkloadType.TRAINING, WorkloadType.INFERENCE


def held(case: Case, uid: str) -> list[int]:
    """The pods that a workload holds places for."""
    return sorted(case.world.entries[uid].held)


def full(devices: int = 4, **more: object) -> Case:
    """A node on which work takes all but one device, and a gang that can do with one of four."""
    case = Case([node("n1", devices)], tree(queue("q", **more)))  # type: ignore[arg-type]
    case.submit(work("q/x", devices - 1))
    case.submit(work("q/e", pods=4, minimum=1))
    return case


# What grows ---------------------------------------------------------------------------------------


def test_a_gang_that_started_with_what_it_needs_grows_when_room_comes() -> None:
    case = full()
    assert held(case, "q/e") == [0]
    case.to(10)
    case.end("q/x")
    assert case.grown == [("10:00", "q/e", (1, 2, 3))]
    assert case.starts("q/e") == ["0:00"], "it went on running"
    assert case.world.lacking == {}
    case.run_on()


def test_it_grows_by_as_many_pods_as_there_is_room_for() -> None:
    case = Case([node("n1", 2), node("n2", 2)], tree(queue("q")))
    case.submit(work("q/x", 2), work("q/y"))
    case.submit(work("q/e", pods=4, minimum=1))
    case.to(10)
    case.end("q/y")
    assert case.grown == [("10:00", "q/e", (1,))]
    case.to(20)
    case.happen(ev.NodeSeen(0, node("n3", 1)))
    assert case.grown[1:] == [("20:00", "q/e", (2,))]
    assert case.nodes_of("q/e")[2] == "n3"
    case.end("q/x")
    assert case.grown[2:] == [("20:00", "q/e", (3,))]


def test_what_was_evicted_of_it_comes_back_when_whoever_it_was_for_is_done() -> None:
    case = Case([node("n1", 4)], tree(queue("hi", 4), queue("lo")))
    case.submit(work("lo/e", pods=4, minimum=1))
    case.to(10)
    case.submit(work("hi/p", 2))
    assert case.evictions == [("10:00", "lo/e", (2, 3))]
    case.run_on()
    case.to(20)
    case.end("hi/p")
    assert case.grown == [("20:00", "lo/e", (2, 3))]
    case.run_on()


def test_pods_come_back_by_the_same_order_as_they_start() -> None:
    sets = (PodSet("small", 2, whole(1), 1), PodSet("large", 2, whole(3), 1))
    case = Case([node("n1", 4), node("n2", 4)], tree(queue("q")))
    case.submit(work("q/x", 4))
    case.submit(Workload("q/e", sets, "q", TRAINING))
    assert held(case, "q/e") == [0, 2]
    case.end("q/x")
    assert case.grown == [("0:00", "q/e", (1, 3))]
    assert case.nodes_of("q/e").count("n1") == 2


def test_what_is_missing_of_a_large_pod_set_does_not_keep_a_small_one_from_growing() -> None:
    sets = (PodSet("small", 3, whole(1), 1), PodSet("large", 2, whole(3), 1))
    case = Case([node("n1", 4), node("n2", 2)], tree(queue("q")))
    case.submit(work("q/x", 2))
    case.submit(Workload("q/e", sets, "q", TRAINING))
    assert held(case, "q/e") == [0, 3]
    case.end("q/x")
    assert case.grown == [("0:00", "q/e", (1, 2))]


# Who goes first -----------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", ["q/w", "r/w"])
def test_work_that_waits_and_can_use_the_room_goes_first(waits: str) -> None:
    case = Case([node("n1", 4)], tree(queue("q"), queue("r")))
    case.submit(work("q/x", 2), work("q/y"))
    case.submit(work("q/e", pods=4, minimum=1))
    case.submit(work(waits, 2))
    case.to(10)
    case.end("q/x")
    assert case.starts(waits) == ["10:00"]
    assert case.grown == []
    case.to(20)
    case.end("q/y")
    assert case.grown == [("20:00", "q/e", (1,))]


def test_it_takes_what_is_too_small_for_whoever_waits() -> None:
    case = Case([node("n1", 4)], tree(queue("q")))
    case.submit(work("q/x", 2), work("q/y"))
    case.submit(work("q/e", pods=4, minimum=1))
    case.submit(work("q/w", 3))
    case.to(10)
    case.end("q/y")
    assert case.grown == [("10:00", "q/e", (1,))]
    assert case.world.entries["q/w"].group is not None


def test_queues_grow_by_their_claims_a_pod_at_a_time() -> None:
    """a is below its guarantee until it holds five; then b, which came first, has its turn."""
    case = Case([node("n1", 8)], tree(queue("a", 5), queue("b")))
    case.adopt(work("b/e", pods=8, minimum=1), "n1")
    case.adopt(work("b/x", 6), "n1")
    case.adopt(work("a/e", pods=8, minimum=1), "n1")
    case.end("b/x")
    assert (len(held(case, "a/e")), len(held(case, "b/e"))) == (5, 3)
    case.end("a/e")
    assert held(case, "b/e") == list(range(8))


def test_in_a_queue_the_first_in_its_order_grows_first() -> None:
    case = Case([node("n1", 8)], tree(queue("q", order=Order.PRIORITY)))
    case.adopt(work("q/x", 6), "n1")
    case.adopt(work("q/old", pods=4, minimum=1), "n1")
    case.adopt(work("q/urgent", pods=6, minimum=1, priority=1), "n1")
    case.end("q/x")
    assert (len(held(case, "q/old")), len(held(case, "q/urgent"))) == (2, 6)


def test_users_have_their_turns_where_a_queue_gives_them() -> None:
    case = Case([node("n1", 6)], tree(queue("q", order=Order.FAIR)))
    case.adopt(work("q/x", 4, user="x"), "n1")
    for user in ("a", "b"):
        case.adopt(work(f"q/{user}", pods=4, minimum=1, user=user), "n1")
    case.end("q/x")
    assert (len(held(case, "q/a")), len(held(case, "q/b"))) == (3, 3)


# What it may not have -----------------------------------------------------------------------------


def test_it_grows_into_no_place_that_is_kept_for_somebody() -> None:
    """Two devices are free from minute 10 on, and kept for r/w, which starts in minute 30."""
    case = Case([node("n1", 4), node("n2", 4)], tree(queue("q"), queue("r")))
    for minutes in (20, 30):
        case.adopt(work(f"r/y{minutes}", 2, run_us=minutes * MINUTE_US), "n2")
    case.adopt(work("q/x", 3), "n1")
    case.adopt(work("q/e", pods=4, minimum=1), "n1")
    case.submit(work("r/w", 4))
    reserved = case.world.entries["r/w"].reserved
    assert reserved is not None
    assert [place.node for place in reserved.placements] == ["n2"]
    case.to(10)
    case.end("r/y20")
    assert case.grown == []
    case.to(20)
    case.end("q/x")
    assert case.grown == [("20:00", "q/e", (1, 2, 3))]
    assert set(case.nodes_of("q/e")) == {"n1"}
    case.to(30)
    case.end("r/y30")
    assert case.starts("r/w") == ["30:00"]


def test_limits_hold_and_it_grows_when_they_are_raised() -> None:
    case = full(limit=5)
    case.to(10)
    case.set_queues(tree(queue("q", limit=3)))
    case.end("q/x")
    assert case.grown == [("10:00", "q/e", (1, 2))]
    case.to(20)
    case.set_queues(tree(queue("q", limit=4)))
    assert case.grown[1:] == [("20:00", "q/e", (3,))]


def test_a_gang_that_quota_made_start_small_gets_what_its_quota_leaves_at_once() -> None:
    case = Case([node("n1", 8)], tree(queue("q", limit=3)))
    case.submit(work("q/e", pods=8, minimum=2))
    assert held(case, "q/e") == [0, 1, 2]
    assert case.grown == [("0:00", "q/e", (2,))]


def test_it_borrows_no_more_than_may_be_borrowed_and_lent() -> None:
    case = Case(
        [node("n1", 8)],
        tree(queue("a", 4, lend=(("H100", 1),)), queue("b", 2, borrow=(("H100", 3),))),
    )
    case.submit(work("a/x", 3))
    case.submit(work("b/e", pods=8, minimum=1))
    assert len(held(case, "b/e")) == 5
    case.end("a/x")
    assert len(held(case, "b/e")) == 5
    case.set_queues(tree(queue("a", 4, lend=(("H100", 1),)), queue("b", 2)))
    assert len(held(case, "b/e")) == 5, "a keeps three of its four"
    case.set_queues(tree(queue("a", 4), queue("b", 2)))
    assert len(held(case, "b/e")) == 8


def test_devices_promised_together_stay_so() -> None:
    """What began within its guarantee does not grow into the node that another was promised."""
    case = Case(
        [node("n1", 4), node("n2", 4)],
        tree(queue("a", 4, placeable=(("H100", 4),)), queue("b", 4)),
    )
    case.adopt(work("b/x", 3), "n1")
    case.adopt(work("b/e", pods=8, minimum=1), "n1")
    case.turn()
    assert held(case, "b/e") == [0]
    case.end("b/x")
    assert set(case.nodes_of("b/e")) == {"n1"}
    assert len(held(case, "b/e")) == 4
    case.submit(work("a/p", 4))
    assert case.starts("a/p") == ["0:00"]


def test_what_is_of_no_use_to_its_type_stays_free() -> None:
    nodes = [node("n1", 2), node("n2", 2, labels={"zone": "services"})]
    case = Case(nodes, tree(queue("q")))
    zone = Selector((Requirement("zone", Operator.IN, ("services",)),))
    case.happen(ev.PoolsSet(0, (Pool("services", zone, (INFERENCE,), ()),)))
    case.submit(work("q/e", pods=4, minimum=1))
    assert set(case.nodes_of("q/e")) == {"n1"}
    assert len(held(case, "q/e")) == 2
    case.happen(ev.PoolsSet(0, (Pool("services", zone, (INFERENCE, TRAINING), ()),)))
    assert len(held(case, "q/e")) == 4


def test_replicas_of_a_service_do_not_come_together_on_a_device() -> None:
    cards = tuple(device(f"n1/{n}", cap=Cap.DRIVER) for n in range(2))
    case = Case([Node("n1", 32_000, 1000, 110, cards)], tree(queue("q", 4)))
    case.submit(work("q/x"))
    serve = Workload("q/s", (PodSet("main", 3, share(100, 8), 1),), "q", INFERENCE)
    case.submit(serve)
    assert len(held(case, "q/s")) == 1
    case.end("q/x")
    leaves = [place.leaves for place in case.world.entries["q/s"].held.values()]
    assert len(leaves) == len(set(leaves)) == 2


def test_what_is_needed_of_a_service_is_guaranteed_and_the_rest_may_be_taken_back() -> None:
    case = Case([node("n1", 4)], tree(queue("a", 3), queue("b", 1)))
    case.submit(work("a/x", 3))
    case.submit(work("b/s", pods=3, minimum=1, type_=INFERENCE))
    case.end("a/x")
    assert case.grown == [("0:00", "b/s", (1, 2))]
    case.submit(work("a/p", 3))
    assert case.evictions == [("0:00", "b/s", (1, 2))]


def test_a_queue_that_closes_grows_no_more() -> None:
    case = full()
    case.set_queues(tree(queue("q", closing=True)))
    case.end("q/x")
    assert case.grown == []


@pytest.mark.parametrize(
    ("minutes", "pods"), [(9, ()), (10, (1, 2, 3)), (60, (1, 2, 3))], ids=["late", "just", "early"]
)
def test_work_past_its_time_is_granted_nothing(minutes: int, pods: tuple[int, ...]) -> None:
    case = Case([node("n1", 4)], tree(queue("q")))
    case.submit(work("q/x", 3))
    case.submit(work("q/e", pods=4, minimum=1, run_us=minutes * MINUTE_US + 1))
    case.to(10)
    case.end("q/x")
    assert [each for _, _, each in case.grown] == ([pods] if pods else [])


def test_work_that_does_not_grow_is_left_as_it_is() -> None:
    case = Case([node("n1", 4)], tree(queue("q")))
    case.submit(work("q/x", 3))
    case.submit(work("q/e", pods=4, minimum=1, grows=False))
    case.end("q/x")
    assert case.grown == []
    assert case.world.lacking == {}


def test_nothing_grows_while_some_of_it_goes() -> None:
    case = Case([node("n1", 4)], tree(queue("hi", 4), queue("lo")), stops_us={"lo/e": MINUTE_US})
    case.submit(work("lo/x"), work("lo/e", pods=3, minimum=1))
    case.to(10)
    case.end("lo/x")
    case.submit(work("hi/p", 2))
    assert case.evictions == [("10:00", "lo/e", (2,))]
    case.happen(ev.NodeSeen(0, node("n2", 4)))
    assert case.grown == []
    case.to(12)
    assert case.grown == [("11:00", "lo/e", (2,))]


def test_what_was_to_go_and_could_not_grows_again() -> None:
    case = Case([node("n1", 4)], tree(queue("hi", 4), queue("lo")), stops_us={"lo/e": 9_000_000})
    case.submit(work("lo/x"))
    case.submit(work("lo/e", pods=4, minimum=1))
    assert held(case, "lo/e") == [0, 1, 2]
    case.submit(work("hi/p"))
    assert case.evictions == [("0:00", "lo/e", (2,))]
    assert "lo/e" not in case.world.lacking
    case._due.clear()
    case.happen(ev.DisruptionBudgetSet(0, "b", 0, ("lo/e",)), ev.EvictionBlocked(0, "lo/e", 1, 2))
    assert "lo/e" in case.world.lacking
    case.end("hi/p", "lo/x")
    assert case.grown == [("0:00", "lo/e", (3,))]


def test_a_pod_that_has_ended_by_itself_is_not_started_again() -> None:
    case = Case([node("n1", 4)], tree(queue("q")))
    case.submit(work("q/e", pods=4, minimum=1))
    case.happen(ev.PodEnded(0, "q/e", 3))
    case.happen(ev.NodeSeen(0, node("n2", 4)))
    assert case.grown == []
    case.happen(*(ev.PodEnded(0, "q/e", pod) for pod in range(3)))
    assert "q/e" not in case.world.entries


# Budgets ------------------------------------------------------------------------------------------


def _budgeted(hours: int, run_us: int | None) -> Case:
    """A gang of four, of which one runs since hour 0; from hour 1 on there is room for all."""
    spending = Spending(Period.DAY, hours, WhenSpent.NO_NEW_STARTS)
    case = Case([node("n1", 4)], tree(queue("x"), queue("q", budget=spending)))
    case.happen(ev.PeriodBegan(0, "q", 0, 24 * HOUR_US))
    case.submit(work("x/x", 3))
    case.submit(work("q/e", pods=4, minimum=1, run_us=run_us))
    case.to(60)
    case.end("x/x")
    return case


@pytest.mark.parametrize(("hours", "pods"), [(4, 1), (6, 1), (7, 2), (12, 3), (13, 4), (20, 4)])
def test_a_pod_that_joins_reserves_what_is_left_of_the_run(hours: int, pods: int) -> None:
    """Four hours were declared: one is used and three are reserved, and a pod adds three."""
    case = _budgeted(hours, 4 * HOUR_US)
    assert len(held(case, "q/e")) == pods
    account = case.world.spending.accounts["q"]
    asked = 840_000 * HOUR_US
    assert account.used_at(case.now_us) == asked
    assert account.reserved_at(case.now_us) == 3 * pods * asked


def test_without_a_declaration_it_reserves_until_the_period_ends() -> None:
    assert len(held(_budgeted(46, None), "q/e")) == 1
    assert len(held(_budgeted(47, None), "q/e")) == 2


def test_a_new_period_lets_it_grow() -> None:
    case = _budgeted(24, None)
    assert held(case, "q/e") == [0]
    case.now_us = 24 * HOUR_US
    case.happen(ev.PeriodBegan(0, "q", 24 * HOUR_US, 25 * HOUR_US))
    assert held(case, "q/e") == [0, 1, 2, 3]
