"""How long work may run and wait: it is ended when that has passed, and does not come back."""

from dataclasses import replace

import pytest

from shoal.core import events as ev
from shoal.core.budget import Budget
from shoal.core.cycle import cycle
from shoal.core.decisions import Evict, Refuse, Reserve
from shoal.core.world import World
from shoal.model.queue import Queue, QueueTree
from shoal.model.verdict import Reason
from shoal.model.workload import WorkloadType
from tests.core.build import SEED, node, policy
from tests.core.cases import MINUTE_US, Case, batch, clock, queue, tree, work

RUN = ((WorkloadType.NOTEBOOK, 60 * MINUTE_US), (WorkloadType.BATCH, 30 * MINUTE_US))
WAIT = ((WorkloadType.BATCH, 20 * MINUTE_US),)


def _ends(case: Case) -> list[tuple[str, str]]:
    """When whom was ended for having run for too long."""
    return [
        (clock(seen.at_us), seen.decision.workload)
        for seen in case.seen
        if isinstance(seen.decision, Evict) and seen.decision.reason is Reason.MAXIMUM_RUN
    ]


def _refusals(case: Case) -> list[tuple[str, str, int]]:
    """When who was refused, and how many minutes it had waited."""
    return [
        (clock(seen.at_us), seen.decision.workload, seen.decision.waited_us // MINUTE_US)
        for seen in case.seen
        if isinstance(seen.decision, Refuse)
    ]


def test_work_that_ran_for_its_maximum_is_ended_and_does_not_wait_again() -> None:
    case = Case([node("n", 4)], tree(queue("a", 4, maximum_run_us=RUN)))
    case.to(5)
    notebook = work("a/note", type_=WorkloadType.NOTEBOOK, recreated=False)
    case.submit(work("a/train"), batch("a/batch", pods=2), notebook)
    case.to(100)
    assert _ends(case) == [("35:00", "a/batch"), ("65:00", "a/note")]
    assert set(case.world.entries) == {"a/train"}
    assert case.world.limits.ending == {}
    (evict,) = [s.decision for s in case.seen if s.at_us == 35 * MINUTE_US]
    assert isinstance(evict, Evict)
    assert (evict.pods, evict.for_, evict.lost_device_us) == ((0, 1), (), 0)


def test_the_shortest_limit_on_the_path_counts() -> None:
    below = replace(
        queue("low", maximum_run_us=((WorkloadType.BATCH, 50 * MINUTE_US),)), parent="high"
    )
    high = queue("high", 4, maximum_run_us=RUN)
    case = Case([node("n", 4)], QueueTree((Queue("root"), high, below)))
    case.submit(batch("low/w"))
    case.to(60)
    assert _ends(case) == [("30:00", "low/w")]


def test_the_time_runs_anew_after_an_eviction() -> None:
    case = Case([node("n", 1)], tree(queue("a", maximum_run_us=RUN), queue("b", 1)))
    case.submit(batch("a/w"))
    case.to(20)
    case.submit(batch("b/w"))
    assert [evicted[1] for evicted in case.evictions] == ["a/w"]
    case.to(25)
    case.end("b/w")
    assert case.starts("a/w") == ["0:00", "25:00"]
    case.to(60)
    assert _ends(case) == [("55:00", "a/w")]


def test_nobody_is_ended_while_evictions_are_frozen() -> None:
    case = Case([node("n", 1)], tree(queue("a", 1, maximum_run_us=RUN)))
    case.submit(batch("a/w"))
    case.world.evictions.frozen = True
    case.to(40)
    assert _ends(case) == []
    case.happen(ev.EvictionsResumed(0, "somebody"))
    assert _ends(case) == [("40:00", "a/w")]


def test_it_is_asked_again_after_a_minute_where_a_disruption_budget_refuses() -> None:
    case = Case(
        [node("n", 1)], tree(queue("a", 1, maximum_run_us=RUN)), stops_us={"a/w": 3600 * 10**6}
    )
    case.submit(batch("a/w"))
    case.to(30)
    attempt = case.world.entries["a/w"].attempt
    case.happen(ev.EvictionBlocked(0, "a/w", attempt, 0))
    snapshot = tuple(case.world.snapshot(case.now_us))
    again = World()
    for event in snapshot:
        again.apply(event)
    assert tuple(again.snapshot(case.now_us)) == snapshot
    case.to(40)
    assert _ends(case) == [("30:00", "a/w"), ("31:00", "a/w")]


def test_what_is_being_ended_is_remembered_in_a_snapshot() -> None:
    case = Case(
        [node("n", 1)], tree(queue("a", 1, maximum_run_us=RUN)), stops_us={"a/w": MINUTE_US}
    )
    case.submit(batch("a/w"))
    case.to(30)
    again = World()
    for event in case.world.snapshot(case.now_us):
        again.apply(event)
    again.apply(ev.PodEnded(case.now_us + 1, "a/w", 0))
    assert again.entries == {}


def test_many_that_end_at_once_do_not_freeze_evictions() -> None:
    case = Case([node("n", 8), node("m", 8)], tree(queue("a", 16, maximum_run_us=RUN)))
    case.submit(*(batch(f"a/w{number}") for number in range(16)))
    case.to(31)
    assert len(_ends(case)) == 16
    assert not case.world.evictions.frozen


def test_work_that_waited_for_its_maximum_is_refused() -> None:
    case = Case([node("n", 1)], tree(queue("a", 1, maximum_wait_us=WAIT)))
    case.submit(work("a/runs"))
    case.to(3)
    case.submit(batch("a/one"), work("a/patient"))
    case.to(10)
    case.submit(batch("a/two"))
    case.to(60)
    assert _refusals(case) == [("23:00", "a/one", 20), ("30:00", "a/two", 20)]
    assert set(case.world.entries) == {"a/runs", "a/patient"}


def test_who_can_start_at_the_last_moment_does() -> None:
    case = Case([node("n", 1)], tree(queue("a", 1, maximum_wait_us=WAIT)))
    case.submit(work("a/runs"))
    case.submit(batch("a/w"))
    case.schedule(20 * MINUTE_US, ev.PodEnded(20 * MINUTE_US, "a/runs", 0))
    case.to(30)
    assert case.starts("a/w") == ["20:00"]
    assert _refusals(case) == []


def test_who_was_evicted_waits_anew() -> None:
    case = Case([node("n", 1)], tree(queue("a", maximum_wait_us=WAIT), queue("b", 1)))
    case.submit(batch("a/w"))
    case.to(50)
    case.submit(work("b/w"))
    case.to(100)
    assert _refusals(case) == [("70:00", "a/w", 20)]


def test_a_limit_that_is_written_later_counts_for_those_who_are_there() -> None:
    case = Case([node("n", 1)], tree(queue("a", 1)))
    case.submit(batch("a/runs"), batch("a/waits"))
    case.to(10)
    case.set_queues(tree(queue("a", 1, maximum_run_us=RUN, maximum_wait_us=WAIT)))
    case.to(29)
    assert _refusals(case) == [("20:00", "a/waits", 20)]
    case.set_queues(tree(queue("a", 1)))
    case.to(60)
    assert _ends(case) == []


@pytest.mark.parametrize("at", [19, 20, 21])
def test_a_cycle_says_when_it_has_to_look_again(at: int) -> None:
    case = Case([node("n", 1)], tree(queue("a", 1, maximum_run_us=RUN, maximum_wait_us=WAIT)))
    case.submit(batch("a/runs"), batch("a/waits"))
    came = cycle(case.world, policy(), at * MINUTE_US, SEED, Budget(10))
    expected = 20 if at < 20 else 30
    assert came.look_again_us == expected * MINUTE_US


def test_nobody_is_refused_for_whom_others_are_going() -> None:
    """Its place is certain, however long the pods there take to stop."""
    limit = ((WorkloadType.TRAINING, 5 * MINUTE_US),)
    queues = tree(queue("a", 1, maximum_wait_us=limit), queue("b"))
    case = Case([node("n", 1)], queues, stops_us={"b/x": 10 * MINUTE_US})
    case.submit(batch("b/x"))
    case.to(10)
    case.submit(work("a/asker"))
    case.to(30)
    assert _refusals(case) == []
    assert case.starts("a/asker") == ["20:00"]


def test_nothing_is_kept_for_whom_it_is_time_to_refuse() -> None:
    """It starves in the same minute; what would be kept for it would be kept in vain."""
    late = queue("a", 1, maximum_wait_us=WAIT, starvation_after_us=20 * MINUTE_US)
    case = Case([node("n", 1)], tree(late))
    case.adopt(work("x/fixed", recreated=False), "n")
    case.submit(batch("a/w"))
    case.to(20)
    assert _refusals(case) == [("20:00", "a/w", 20)]
    assert not [seen for seen in case.seen if isinstance(seen.decision, Reserve)]


def test_the_place_of_whoever_is_refused_is_for_others_at_once() -> None:
    """The free device was kept for a gang that has waited too long, and waits in vain."""
    limit = ((WorkloadType.TRAINING, 90 * MINUTE_US),)
    late = queue("a", maximum_wait_us=limit, starvation_after_us=60 * MINUTE_US)
    case = Case([node("n", 2)], tree(late, queue("b")))
    case.adopt(work("x/fixed", recreated=False), "n")
    case.submit(work("a/gang", 2))
    case.to(61)
    case.submit(batch("b/w"))
    case.to(100)
    assert _refusals(case) == [("90:00", "a/gang", 90)]
    assert case.starts("b/w") == ["90:00"]


def test_whoever_is_ended_or_refused_is_not_all_there_is_to_decide() -> None:
    """Others are woken by that, and are looked at then and not when something else happens."""
    case = Case([node("n", 1)], tree(queue("a", 1, maximum_run_us=RUN, maximum_wait_us=WAIT)))
    case.submit(batch("a/runs"), batch("a/waits"))
    for minute, more in ((19, False), (20, True), (30, True)):
        case.now_us = minute * MINUTE_US
        assert cycle(case.world, policy(), case.now_us, SEED, Budget(10)).complete is not more
        case.turn()
