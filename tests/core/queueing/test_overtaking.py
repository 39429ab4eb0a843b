"""Work is not started where more urgent work of its queue would evict it at once."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.core.decisions import Evict, GiveUp, Reserve, Start
from shoal.core.queueing.order import in_turn
from shoal.core.world import World
from shoal.model.queue import EvictionBounds, Order, Queue
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, Workload, WorkloadType
from tests.core.build import decide, node
from tests.core.cases import MINUTE_US, Case, batch, queue, tree, work

HOUR_US = 60 * MINUTE_US
NOTEBOOK = WorkloadType.NOTEBOOK
AGING: dict[str, Any] = {"order": Order.PRIORITY, "aging_us": 10 * MINUTE_US}
ORDERS: list[dict[str, Any]] = [
    AGING,
    {"order": Order.FIFO},
    {"order": Order.SHORTEST},
    {"order": Order.LEAST_ATTAINED_SERVICE},
    {"order": Order.FAIR},
]


def decided(case: Case, since: float) -> list[tuple[str, str]]:
    """What was decided about whom from a time on, but that somebody waits."""
    return [
        (type(seen.decision).__name__, seen.decision.workload)
        for seen in case.seen
        if seen.at_us >= since * MINUTE_US
        and isinstance(seen.decision, Start | Evict | Reserve | GiveUp)
    ]


def bounced(case: Case) -> list[tuple[int, str]]:
    """Who was evicted by preemption at the very time at which he was started."""
    found = []
    started: dict[str, int] = {}
    for seen in case.seen:
        if isinstance(seen.decision, Start):
            started[seen.decision.workload] = seen.at_us
        elif isinstance(seen.decision, Evict) and seen.decision.reason is Reason.PREEMPTION:
            uid = seen.decision.workload
            if started[uid] == seen.at_us:
                found.append((seen.at_us, uid))
    return found


def waiting_behind(q: Queue, *workloads: Workload, nodes: int = 1) -> Case:
    """Work that comes hour by hour while the most urgent of all has the devices, until 6:00."""
    case = Case([node(f"n{number}", 1) for number in range(nodes)], tree(q))
    case.submit(*(work(f"q/top{number}", priority=99) for number in range(nodes)))
    for hour, workload in enumerate(workloads, start=1):
        case.to(60 * hour)
        case.submit(workload)
    case.to(360)
    return case


# In the order of a queue ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ORDERS)
def test_who_would_evict_another_at_once_goes_first(how: dict[str, Any]) -> None:
    """The older one is ahead in every order, and would be evicted in the same second."""
    low = work("q/low", priority=0, run_us=3 * MINUTE_US)
    high = work("q/high", priority=2, run_us=9 * MINUTE_US, user="ann")
    case = waiting_behind(queue("q", **how), low, high)
    case.end("q/top0")
    assert decided(case, 360) == [("Start", "q/high")]
    case.to(370)
    case.end("q/high")
    assert decided(case, 370) == [("Start", "q/low")]


def test_ten_that_come_later_and_are_more_urgent_start_one_by_one_without_any_eviction() -> None:
    case = waiting_behind(queue("q", order=Order.FIFO), work("q/low"))
    case.submit(*(work(f"q/h{number}", priority=3) for number in range(10)))
    case.end("q/top0")
    for number in range(10):
        case.to(370 + 10 * number)
        case.end(f"q/h{number}")
    assert case.evictions == []
    assert case.starts("q/low") == ["460:00"]


@pytest.mark.parametrize(
    "low",
    [
        work("q/low", type_=NOTEBOOK),
        work("q/low", recreated=False),
    ],
)
def test_what_is_never_evicted_keeps_its_place(low: Workload) -> None:
    case = waiting_behind(queue("q", 2, order=Order.FIFO), low, work("q/high", priority=2))
    case.end("q/top0")
    assert decided(case, 360) == [("Start", "q/low")]


def test_what_a_minimum_run_protects_keeps_its_place() -> None:
    protected = EvictionBounds(minimum_run_us=10 * MINUTE_US)
    q = queue("q", order=Order.FIFO, eviction=protected)
    case = waiting_behind(q, work("q/low"), work("q/high", priority=2))
    case.end("q/top0")
    assert (case.starts("q/low"), case.starts("q/high")) == (["360:00"], [])
    case.to(380)
    assert case.evicted == [("370:00", "q/low", 10)]


def test_what_no_disruption_budget_lets_go_keeps_its_place() -> None:
    case = waiting_behind(queue("q", order=Order.FIFO), work("q/low"), work("q/high", priority=2))
    case.happen(ev.DisruptionBudgetSet(0, "b", 0, ("q/low",)))
    case.end("q/top0")
    assert decided(case, 360) == [("Start", "q/low")]


def test_what_may_not_be_preempted_again_today_keeps_its_place() -> None:
    """It has gone once at 1:00, for the work that ends at 6:00."""
    q = queue("q", order=Order.FIFO, eviction=EvictionBounds(per_workload_per_day=1))
    case = Case([node("n1", 1)], tree(q))
    case.submit(work("q/low"))
    case.to(60)
    case.submit(work("q/top", priority=9))
    case.to(120)
    case.submit(work("q/high", priority=2))
    case.to(360)
    case.end("q/top")
    assert decided(case, 360) == [("Start", "q/low")]
    case.run_on()


def test_what_was_evicted_before_and_evicts_nobody_keeps_its_place() -> None:
    """The first has waited longest; the more urgent one that was evicted has no right to go first.

    Both are started in the order in which they came.
    """
    case = Case([node("n1", 1)], tree(queue("q", order=Order.FIFO)))
    case.submit(batch("q/evicted", priority=5))
    case.to(10)
    case.submit(work("q/top", priority=9))
    assert [uid for _, uid, _ in case.evictions] == ["q/evicted"]
    case.to(20)
    case.submit(work("q/low"))
    waiting = [case.world.entries[uid] for uid in ("q/low", "q/evicted")]
    assert [e.workload.uid for e in in_turn(case.world, "q", waiting)] == ["q/evicted", "q/low"]


def test_only_who_can_be_placed_goes_first() -> None:
    """Two devices are free nowhere together: the small one starts beside what waits for two."""
    case = waiting_behind(
        queue("q", order=Order.FIFO), work("q/low"), work("q/high", 2, priority=2)
    )
    case.end("q/top0")
    assert decided(case, 360) == [("Start", "q/low")]
    case.run_on()


def test_of_several_the_most_urgent_goes_first_and_the_others_keep_their_order() -> None:
    """Among equals the older one; what nobody can evict is not put off by them."""
    case = waiting_behind(
        queue("q", 9, order=Order.FIFO),
        work("q/low"),
        work("q/notebook", type_=NOTEBOOK),
        work("q/b", priority=2),
        work("q/a", priority=2),
        work("q/most", priority=3),
    )
    waiting = [entry for entry in case.world.entries.values() if entry.group is not None]
    said = [each.workload.uid for each in in_turn(case.world, "q", waiting)]
    assert said == ["q/most", "q/b", "q/a", "q/low", "q/notebook"]
    running = "q/top0"
    for minute, uid in enumerate(said):
        case.to(361 + minute)
        case.end(running)
        assert decided(case, 361 + minute) == [("Start", uid)]
        running = uid


def test_more_urgent_work_of_another_user_takes_the_turn_of_who_holds_less() -> None:
    """Ann holds one of two devices and Ben none, whose work Ann's would evict at once."""
    q = queue("q", order=Order.FAIR)
    case = waiting_behind(
        q,
        work("q/low", user="ben"),
        work("q/high", user="ann", priority=2),
        work("q/cleo", user="cleo", priority=1),
        nodes=2,
    )
    case.end("q/top0")
    case.end("q/high")
    case.to(361)
    assert decided(case, 360) == [("Start", "q/high"), ("Start", "q/cleo")]


# Where places are kept ------------------------------------------------------------------------


@pytest.mark.parametrize("how", [*ORDERS, {"order": Order.PRIORITY}])
def test_a_place_that_was_kept_until_an_end_goes_to_who_would_evict_at_once(
    how: dict[str, Any],
) -> None:
    """And is kept for nobody else meanwhile: who was ahead waits for the next."""
    case = Case([node("n1", 1)], tree(queue("q", **how)))
    case.submit(work("q/top", priority=9, run_us=HOUR_US))
    case.to(1)
    case.submit(work("q/low"))
    case.to(5)
    case.submit(work("q/high", priority=3))
    case.to(60)
    case.end("q/top")
    assert bounced(case) == []
    assert case.starts("q/high") == ["60:00"]
    case.end("q/high")
    assert case.starts("q/low") == ["60:00"]


def test_a_place_that_was_freed_for_work_goes_to_who_would_evict_it_at_once() -> None:
    """Nobody else comes in between, and what was to start there is not made at all."""
    nodes = [node("n1", 1)]
    case = Case(nodes, tree(queue("q"), queue("r")), stops_us={"q/bottom": MINUTE_US})
    case.submit(batch("q/bottom"))
    case.to(10)
    case.submit(work("q/middle", priority=3))
    case.submit(work("q/top", priority=5), work("r/other"))
    case.to(20)
    assert decided(case, 10) == [
        ("Evict", "q/bottom"),
        ("Reserve", "q/middle"),
        ("GiveUp", "q/middle"),
        ("Start", "q/top"),
    ]
    assert [s.decision.reason for s in case.seen if isinstance(s.decision, GiveUp)] == [
        Reason.PREEMPTION
    ]
    assert case.starts("q/top") == ["11:00"]


def test_a_place_stays_with_whom_it_is_kept_for_where_the_more_urgent_has_another() -> None:
    case = Case([node("n1", 1)], tree(queue("q")), stops_us={"q/bottom": MINUTE_US})
    case.submit(batch("q/bottom"))
    case.to(10)
    case.submit(work("q/middle", priority=3))
    case.submit(work("q/top", priority=5))
    case.happen(ev.NodeSeen(case.now_us, node("n2", 1)))
    case.to(20)
    assert (case.starts("q/middle"), case.starts("q/top")) == (["11:00"], ["10:00"])


def test_a_place_goes_with_the_work_beside_it_to_who_would_evict_both() -> None:
    """The more urgent one needs both devices: the free one, and what runs on the other."""
    case = Case([node("n1", 2)], tree(queue("q")), stops_us={"q/bottom": MINUTE_US})
    case.submit(batch("q/bottom"))
    case.submit(batch("q/beside", priority=1))
    case.to(10)
    case.submit(work("q/middle", priority=3))
    case.submit(work("q/top", 2, priority=5))
    case.to(20)
    assert bounced(case) == []
    assert case.starts("q/middle") == []
    assert case.starts("q/top") == ["11:00"]


def freed_for(*workloads: Workload) -> Case:
    """Two devices, whose jobs go at 10:00 for this work of priority 3 and take a minute to stop."""
    stops_us = {"q/one": MINUTE_US, "q/two": MINUTE_US}
    case = Case([node("n1", 2)], tree(queue("q")), stops_us)
    case.submit(batch("q/one"), batch("q/two"))
    case.to(10)
    case.submit(*workloads)
    return case


def test_two_places_go_together_to_who_would_evict_both() -> None:
    case = freed_for(work("q/a", priority=3), work("q/b", priority=3))
    case.submit(work("q/top", 2, priority=5))
    case.to(20)
    assert decided(case, 11) == [("GiveUp", "q/b"), ("GiveUp", "q/a"), ("Start", "q/top")]


def test_of_two_places_one_goes_where_that_is_enough() -> None:
    case = freed_for(work("q/a", priority=3), work("q/b", priority=3))
    case.submit(work("q/top", priority=5))
    case.to(20)
    assert decided(case, 11) == [("GiveUp", "q/a"), ("Start", "q/top"), ("Start", "q/b")]


def test_who_gave_a_place_up_waits_before_less_urgent_work_starts_elsewhere() -> None:
    """The gang loses n1 and starts on the two other nodes, on which the least would be evicted."""
    nodes = [node("n1", 2), node("n2", 1), node("n3", 1)]
    case = Case(nodes, tree(queue("q")), stops_us={"q/low": MINUTE_US})
    case.adopt(work("q/low", 2), "n1")
    for number in (2, 3):
        case.adopt(work(f"q/{number}", priority=9), f"n{number}")
        ended = ev.WorkloadEnded(11 * MINUTE_US, f"q/{number}", Outcome.COMPLETED)
        case.schedule(ended.at_us, ended)
    case.to(10)
    case.submit(work("q/gang", pods=2, priority=3))
    case.submit(work("q/top", 2, priority=5), work("q/least"))
    case.to(20)
    assert decided(case, 10) == [
        ("Evict", "q/low"),
        ("Reserve", "q/gang"),
        ("GiveUp", "q/gang"),
        ("Start", "q/top"),
        ("Start", "q/gang"),
    ]


def test_what_was_evicted_before_takes_no_place_of_others() -> None:
    """It is more urgent than what the place is kept for; who else could take it is too large."""
    case = freed_for(work("q/a", priority=3))
    made = work("q/evicted", priority=5, created_us=case.now_us)
    case.feed(ev.WorkloadSubmitted(case.now_us, made))
    entry = case.world.entries["q/evicted"]
    case.world.wait_no_more(entry)
    entry.was_evicted = True
    case.world.wait(entry)
    case.submit(work("q/large", 3, priority=9))
    looked_at = ev.PrioritySet(11 * MINUTE_US, "q/evicted", "")
    case.schedule(looked_at.at_us, looked_at)
    case.to(20)
    assert decided(case, 11) == [("Start", "q/a")]


# At random ------------------------------------------------------------------------------------


@given(
    st.sampled_from(ORDERS),
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["ann", "ben", "cleo"]),
            st.sampled_from([None, MINUTE_US, HOUR_US]),
            st.sampled_from([NOTEBOOK, WorkloadType.BATCH, WorkloadType.TRAINING]),
            st.booleans(),
        ),
        min_size=2,
        max_size=8,
    ),
)
def test_the_order_that_is_said_is_the_order_of_starts(
    how: dict[str, Any],
    asked: list[tuple[int, str, int | None, WorkloadType, bool]],
) -> None:
    """Also where some go before others, whoever has been evicted before, and with users."""
    world = World()
    world.apply(ev.QueuesSet(0, tree(queue("q", 99, **how))))
    for number, (priority, user, run_us, type_, was_evicted) in enumerate(asked):
        made = work(
            f"q/{number}",
            type_=type_,
            priority=priority,
            user=user,
            run_us=run_us,
            created_us=number,
        )
        world.apply(ev.WorkloadSubmitted(number + 1, made))
        if was_evicted:
            entry = world.entries[made.uid]
            world.wait_no_more(entry)
            entry.was_evicted = True
            world.wait(entry)
    waiting = [entry for entry in world.entries.values() if entry.group is not None]
    said = [entry.workload.uid for entry in in_turn(world, "q", waiting)]
    started = []
    for number in range(len(asked)):
        world.apply(ev.NodeSeen(1000 + number, node(f"n{number}", 1)))
        came = decide(world, now_us=2000 + number)
        started += [each.workload for each in came.decisions if isinstance(each, Start)]
    assert started == said


def random_day(seed: int) -> Case:
    """Work that comes and ends at times of its own, in one queue or in two of whatever order.

    Where there are two they are guaranteed nothing, so nobody takes anything back from the other.
    Nobody declares when work ends, and nobody starves.
    """
    random = Random(seed)  # noqa: S311 - a day has to come again
    pick = random.choice
    nodes = [node(f"n{number}", pick([1, 2, 4])) for number in range(pick([1, 2, 3]))]
    minimum = pick([None, None, 0, 5])
    bounds = EvictionBounds(
        minimum_run_us=None if minimum is None else minimum * MINUTE_US,
        per_workload_per_day=pick([None, None, 1]),
    )
    more: dict[str, Any] = {"eviction": bounds}
    names = pick(["q", "qr"])
    guarantee = 99 if names == "q" else 0
    queues = [queue(name, guarantee, **more, **pick(ORDERS)) for name in names]
    types = [*WorkloadType] if names == "q" else [WorkloadType.BATCH, WorkloadType.TRAINING]
    case = Case(nodes, tree(*queues))
    for minute in range(1, 60):
        case.to(minute)
        if random.random() < 0.6:
            made = work(
                f"{pick(names)}/{minute}",
                pick([1, 1, 2]),
                type_=pick(types),
                priority=random.randrange(4),
                user=pick(["ann", "ben"]),
            )
            case.submit(made)
        case.to(minute + 0.5)
        running = [uid for uid, entry in case.world.entries.items() if entry.held]
        if running and random.random() < 0.4:
            case.end(pick(running))
    return case


@given(st.integers(0, 10**9))
def test_nobody_is_started_and_preempted_at_once_on_random_days(seed: int) -> None:
    assert bounced(random_day(seed)) == []
