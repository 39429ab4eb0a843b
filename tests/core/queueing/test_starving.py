"""Who has waited too long gets the next places, whatever else comes or stands in the way."""

from dataclasses import replace

import pytest

from shoal.core import events as ev
from shoal.core.budget import Budget
from shoal.core.cycle import cycle
from shoal.core.decisions import GiveUp
from shoal.model.queue import EvictionBounds, Order, Priority, Queue
from shoal.model.request import DeviceRequest, Request
from shoal.model.verdict import Reason, Stage
from shoal.model.workload import Outcome, PodSet, Workload
from tests.core.build import SEED, node, policy, share
from tests.core.cases import MINUTE_US, Case, batch, queue, quota, tree, work

HOUR_MIN = 60
DAY_MIN = 24 * HOUR_MIN


def end_oldest(case: Case, prefix: str) -> None:
    """Whoever of these has run for longest ends."""
    running = [
        (min(entry.started.values()), uid)
        for uid, entry in case.world.entries.items()
        if entry.started and uid.startswith(prefix)
    ]
    if running:
        case.end(min(running)[1])


def test_more_urgent_work_that_does_not_fit_takes_not_every_reservation() -> None:
    """A job of five or six devices always waits, and two of them fit at no time."""
    bounds = EvictionBounds(minimum_run_us=10 * HOUR_MIN * MINUTE_US)
    priorities = Priority("hi", 100), Priority("lo", 0)
    case = Case([node("n1", 8)], tree(queue("q", eviction=bounds, priorities=priorities)))
    case.submit(work("q/gang", 8, run_us=300 * MINUTE_US), batch("q/s0", 5, priority=100))
    case.end("q/gang", outcome=Outcome.CANCELLED)
    case.submit(batch("q/s1", 5, run_us=20 * MINUTE_US, priority=100))
    case.submit(work("q/gang", 8, run_us=300 * MINUTE_US))
    number = 1
    while not case.starts("q/gang")[1:] and number < 100:
        number += 1
        case.submit(batch(f"q/s{number}", 5 + number % 2, run_us=20 * MINUTE_US, priority=100))
        case.to(20 * number)
        end_oldest(case, "q/s")
    waited_min = int(case.starts("q/gang")[-1].partition(":")[0])
    assert DAY_MIN <= waited_min <= DAY_MIN + 60


LIMITS = {"limit": queue("q", limit=4), "borrow": queue("q", borrow=quota(H100=4))}


@pytest.mark.parametrize("what", LIMITS)
@pytest.mark.parametrize("above", [False, True])
def test_what_a_limit_leaves_is_kept_for_who_waits_longest(what: str, above: bool) -> None:
    """Small work would take it at once, whenever some of it ends; also that of a sister."""
    limited = replace(LIMITS[what], order=Order.FIFO)
    queues = [limited, queue("idle")]
    small = big = "q"
    if above:
        queues += [replace(queue(name), parent="q") for name in ("q1", "q2")]
        big, small = "q1", "q2"
    case = Case([node("n1", 8)], tree(*queues))
    case.submit(*(batch(f"{small}/s{n}") for n in range(4)))
    case.to(1)
    case.submit(work(f"{big}/gang", 4))
    number = 4
    for minute in range(10, DAY_MIN + 40, 10):
        case.to(minute)
        end_oldest(case, f"{small}/s")
        number += 1
        case.submit(batch(f"{small}/s{number}"))
    verdict = case.verdict(f"{small}/s{number}")
    assert (verdict.stage, verdict.cause[1]) == (Stage.QUOTA, Reason.KEPT_QUOTA)
    over = verdict.over_quota
    assert over is not None
    assert over.used_units + over.asked_units > over.bound_units
    for _ in range(3):
        end_oldest(case, f"{small}/s")
    assert len(case.starts(f"{big}/gang")) == 1
    case.end(f"{big}/gang")
    assert len(case.starts(f"{small}/s{number}")) == 1


def test_what_was_kept_of_a_limit_counts_once_when_it_is_taken() -> None:
    """Of six devices it has four then, on another node; one is of who runs on, and one is left."""
    nodes = [node("n1", 4), node("n2", 4)]
    case = Case(nodes, tree(queue("q", limit=6, order=Order.FIFO), queue("x", 4)))
    case.submit(work("x/w", 4))
    case.submit(*(batch(f"q/s{n}") for n in range(3)))
    case.submit(work("q/gang", 4))
    case.to(DAY_MIN)
    case.submit(batch("q/late"))
    assert case.starts("q/late") == []
    for uid in ("x/w", "q/s0", "q/s1"):
        case.feed(ev.WorkloadEnded(case.now_us, uid, Outcome.COMPLETED))
    came = cycle(case.world, policy(), case.now_us, SEED, Budget(100))
    assert [each.key for each in came.decisions] == ["start/q/gang/1", "start/q/late/1"]


def test_who_is_within_his_own_guarantee_is_not_kept_from_a_limit_that_both_share() -> None:
    top = queue("q", 4, limit=4)
    sisters = replace(queue("q1", 0), parent="q"), replace(queue("q2", 2), parent="q")
    case = Case([node("n1", 8)], tree(top, *sisters))
    case.submit(batch("q1/s"))
    case.submit(work("q1/gang", 4))
    case.to(DAY_MIN)
    assert case.world.entries["q1/gang"].reserved is not None
    case.submit(work("q2/w"))
    assert len(case.starts("q2/w")) == 1
    case.submit(batch("q1/late"))
    assert case.starts("q1/late") == []


def test_who_has_waited_longest_goes_first_where_two_starve_under_one_limit() -> None:
    top = queue("q", limit=4)
    sisters = [replace(queue(name), parent="q") for name in ("q1", "q2")]
    case = Case([node("n1", 8)], tree(top, *sisters))
    case.submit(batch("q1/s"))
    case.submit(work("q2/first", 4))
    case.to(1)
    case.submit(work("q1/second", 4))
    case.to(DAY_MIN + 1)
    assert list(case.world.reserving) == ["q2/first"]
    case.end("q1/s")
    assert (len(case.starts("q2/first")), case.starts("q1/second")) == (1, [])
    case.end("q2/first")
    assert len(case.starts("q1/second")) == 1


def far_away(days: int) -> Case:
    """On n1 runs what declares so many days; on n2 one small job follows the other.

    lab/w8 asks for eight devices, lab/g4 for four.
    """
    case = Case([node("n1", 8), node("n2", 8)], tree(queue("c", 8), queue("lab")))
    case.submit(work("c/r", 8, run_us=days * DAY_MIN * MINUTE_US))
    case.submit(*(batch(f"lab/s{n}") for n in range(8)))
    case.to(1)
    case.submit(work("lab/w8", 8))
    case.to(2)
    case.submit(work("lab/g4", 4))
    return case


def small_ones(case: Case, until_min: int) -> None:
    """Every ten minutes one of the small jobs ends, and another comes."""
    number = 8
    for minute in range(10, until_min, 10):
        case.to(minute)
        end_oldest(case, "lab/s")
        case.submit(batch(f"lab/s{number}"))
        number += 1


def test_who_starves_does_not_wait_as_long_again_for_what_is_kept_far_away() -> None:
    """Both get places on n2, one after the other, where nobody knows when the others end."""
    case = far_away(days=30)
    assert case.world.entries["lab/w8"].reserved is not None
    small_ones(case, 2 * DAY_MIN)
    (start,) = case.starts("lab/w8")
    assert DAY_MIN < int(start.partition(":")[0]) <= DAY_MIN + 90
    assert case.nodes_of("lab/w8") == ["n2"]


def test_who_comes_to_starve_is_looked_at_by_time_alone() -> None:
    case = far_away(days=30)
    case.to(3 * DAY_MIN)
    given = [
        (seen.at_us // MINUTE_US, seen.decision.workload)
        for seen in case.seen
        if isinstance(seen.decision, GiveUp)
    ]
    assert given[0] == (DAY_MIN + 1, "lab/w8")
    assert case.world.entries["lab/w8"].reserved is not None


def test_who_is_kept_a_place_that_comes_soon_keeps_it() -> None:
    case = far_away(days=1)
    small_ones(case, DAY_MIN - 20)
    case.to(DAY_MIN)
    case.end("c/r")
    assert case.nodes_of("lab/w8") == ["n1"]


def test_one_for_whom_a_place_is_kept_does_not_keep_another_one_starving() -> None:
    """The shorter one comes first and has one that comes soon; the older one starves meanwhile."""
    lab = queue("lab", order=Order.SHORTEST, starvation_after_us=60 * MINUTE_US)
    case = Case([node("n1", 8), node("n2", 8)], tree(queue("c", 8), lab))
    case.submit(work("c/x", 8))
    case.submit(*(batch(f"lab/s{n}") for n in range(8)))
    case.to(1)
    case.submit(work("lab/g4", 4))
    case.to(30)
    case.submit(work("c/r", 8, run_us=70 * MINUTE_US))
    case.end("c/x")
    assert case.nodes_of("c/r") == ["n1"]
    case.submit(work("lab/w8", 8, run_us=MINUTE_US))
    assert list(case.world.reserving) == ["lab/w8"]
    case.to(61)
    assert sorted(case.world.reserving) == ["lab/g4", "lab/w8"]


def test_what_can_never_start_keeps_nobody_else_from_a_place() -> None:
    lab = queue("lab", limit=8, starvation_after_us=60 * MINUTE_US)
    case = Case([node("n1", 8)], tree(lab))
    case.adopt(batch("lab/old"), "n1")
    case.submit(work("lab/huge", pods=9), work("lab/w8", 8))
    case.to(60)
    assert list(case.world.reserving) == ["lab/w8"]


def asks_for_too_much(how: str) -> list[Workload]:
    """Ten that have waited for longest, and that the fleet could not hold if it were empty."""
    made = []
    for number in range(10):
        uid = f"lab/huge{number}"
        if how == "alike":
            made.append(work(uid, 8, pods=3))
        elif how == "cpu":
            sets = (PodSet("main", 1, Request(1_000_000 + number, 0, DeviceRequest(1))),)
            made.append(replace(work(uid), pod_sets=sets))
        elif how == "memory":
            sets = (PodSet("main", 1, Request(0, 10_000 + number, DeviceRequest(1))),)
            made.append(replace(work(uid), pod_sets=sets))
        elif how == "pods":
            sets = (PodSet("main", 400 + number, share(1)),)
            made.append(replace(work(uid), pod_sets=sets))
        else:
            made.append(work(uid, 1 + number % 2, pods=30 + number))
    return made


@pytest.mark.parametrize("how", ["alike", "cpu", "memory", "pods", "devices"])
def test_what_the_fleet_could_not_hold_if_it_were_empty_keeps_nobody_starving(how: str) -> None:
    case = Case([node("n1", 8), node("n2", 8)], tree(Queue("lab", "root")))
    case.submit(*(batch(f"lab/s{number}") for number in range(16)))
    case.submit(*asks_for_too_much(how), work("lab/w8", 8))
    case.to(DAY_MIN)
    assert list(case.world.reserving) == ["lab/w8"]


def test_of_a_queue_that_nobody_waits_in_nothing_is_remembered() -> None:
    """Times of who has come and gone do not gather."""
    lab = Queue("lab", "root")
    case = Case([node("n1", 1)], tree(lab))
    case.adopt(batch("lab/old"), "n1")
    for number in range(3000):
        case.submit(batch(f"lab/{number}"))
        case.end(f"lab/{number}", outcome=Outcome.CANCELLED)
    assert len(case.world.waiting._oldest["lab"]) < 2000


def test_cycles_come_to_an_end_where_nobody_may_use_what_is_kept() -> None:
    """More work sleeps that would fit there than a cycle looks for places for."""
    lab = queue("lab", starvation_after_us=60 * MINUTE_US)
    others = [queue(f"q{number}") for number in range(10)]
    case = Case([node("n1", 8)], tree(lab, *others))
    case.submit(*(batch(f"q0/s{number}") for number in range(8)))
    case.to(1)
    case.submit(work("lab/gang", 8))
    case.submit(*(batch(f"q{number}/w") for number in range(10)))
    case.to(61)
    assert list(case.world.reserving) == ["lab/gang"]
    case.feed(ev.WorkloadEnded(case.now_us, "q0/s0", Outcome.COMPLETED))
    complete: list[bool] = []
    while not any(complete) and len(complete) < 20:
        came = cycle(case.world, policy(), case.now_us, SEED, Budget(4))
        assert not came.decisions
        case.feed(ev.Cycled(case.now_us, 4, came.complete, came.examined))
        complete.append(came.complete)
    assert complete[-1]


def test_who_ends_before_what_is_kept_is_needed_is_looked_at_when_it_becomes_free() -> None:
    """The gang gets the node at 100."""
    case = Case([node("n1", 8)], tree(queue("lab"), queue("q")))
    runs = [batch(f"q/{name}", n, run_us=100 * MINUTE_US) for name, n in (("r", 7), ("s", 1))]
    case.submit(*runs)
    case.to(1)
    case.submit(work("lab/gang", 8))
    case.submit(batch("q/short", run_us=20 * MINUTE_US), batch("q/long", run_us=90 * MINUTE_US))
    case.to(70)
    assert (case.starts("q/short"), list(case.world.reserving)) == ([], ["lab/gang"])
    case.end("q/s")
    assert (case.starts("q/short"), case.starts("q/long")) == (["70:00"], [])
