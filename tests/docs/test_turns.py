"""Whose turn it is, in the examples of the page on queues: the core starts work in that order."""

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Start
from shoal.core.tenancy.shares import fair_shares
from shoal.model.queue import EvictionBounds, Order, Queue
from tests.core.build import node
from tests.core.cases import MINUTE_US, Case, queue, tree, work
from tests.docs.page import Page

PAGE = Page("queues.md")
HOUR_US = 60 * MINUTE_US
DAY = 24 * 60


def begun(case: Case) -> list[str]:
    """The workloads that were started, in order."""
    decisions = [seen.decision for seen in case.seen]
    return [each.workload for each in decisions if isinstance(each, Start)]


def starts(case: Case) -> list[str]:
    """Whose work was started, in order: queues."""
    return [uid.partition("/")[0] for uid in begun(case)]


def three(devices: int) -> Case:
    """p is guaranteed three, q weighs 4 and r 2, each with work waiting; then devices come."""
    case = Case([], tree(queue("p", 3), queue("q", weight=4), queue("r", weight=2)))
    for k in range(devices):
        case.submit(*(work(f"{name}/{k}") for name in "rqp"))
    case.happen(ev.NodeSeen(0, node("n", devices, cpu=100)))
    return case


def test_nine_devices_are_three_and_then_four_to_two() -> None:
    PAGE.says(
        "p gets its three first. The six that are left go to q and r as 4 to 2.",
        "p, which holds three with weight 1, is behind both until q holds twelve.",
    )
    assert starts(three(9))[:3] == ["p", "p", "p"]
    assert [starts(three(9)).count(name) for name in "pqr"] == [3, 4, 2]
    assert [starts(three(21)).count(name) for name in "pqr"] == [3, 12, 6]
    assert [starts(three(28)).count(name) for name in "pqr"] == [4, 16, 8]


def test_past_use_counts_by_halves_of_weeks() -> None:
    """As if a queue held what it held, and half of that a week later."""
    PAGE.says(
        "A queue that held all eight devices for months counts as if it held eight more; a queue"
        " that was idle is served first until it holds eight. A week after the first one stopped,"
        " four of these are left."
    )
    for days_later, first in ((0, 8), (7, 4)):
        root = Queue("root", usage_half_life_us=7 * DAY * MINUTE_US)
        case = Case([node("n", 8)], tree(queue("a"), queue("b"), root=root))
        case.submit(work("a/months", 8))
        case.to(140 * DAY)
        case.end("a/months")
        case.to((140 + days_later) * DAY)
        case.happen(ev.NodeLost(0, "n"))
        for k in range(16):
            case.submit(work(f"a/{k}"), work(f"b/{k}"))
        case.happen(ev.NodeSeen(0, node("n", 16)))
        order = starts(case)[1:]
        assert order[:first] == ["b"] * first
        assert order.count("a") == (16 - first) // 2, "from then on they take turns"


def asking(devices: int, a: Queue, b: Queue) -> Case:
    """b asks for six devices and a, after it, for four."""
    case = Case([node("n", devices)], tree(a, b))
    case.submit(*(work(f"b/{k}") for k in range(6)))
    case.submit(*(work(f"a/{k}") for k in range(4)))
    return case


def test_fair_shares_of_eight_devices() -> None:
    PAGE.says(
        "with two queues without a guarantee, of which one asks for four devices and the other for"
        " six of eight, the shares are four and four; where both are guaranteed all they ask for,"
        " weights divide nothing.",
        "a queue above its share keeps what it has until it ends",
    )
    case = asking(8, queue("a"), queue("b"))
    shares = fair_shares(case.world)
    assert [shares[name]["H100"] for name in "ab"] == [4, 4]
    assert (case.holds("a"), case.holds("b"), case.evictions) == (2000, 6000, [])
    case.end("b/0", "b/1")
    assert (case.holds("a"), case.holds("b")) == (4000, 4000)
    shares = fair_shares(asking(10, queue("a", 4, weight=9), queue("b", 6)).world)
    assert [shares[name]["H100"] for name in "ab"] == [4, 6]


@pytest.mark.parametrize(("hours", "first"), [(5, "old"), (3, "old"), (2, "young")])
def test_aging_counts_each_hour_like_a_point_and_gives_no_right_to_evict(
    hours: int, first: str
) -> None:
    PAGE.says(
        "with `aging: 1h`, work of priority 0 that came five hours before work of priority 3 is"
        " ahead of it by two points.",
        "Aging changes the order and gives nobody a right to evict",
    )
    bounds = EvictionBounds(minimum_run_us=HOUR_US)
    q = queue("q", aging_us=HOUR_US, order=Order.PRIORITY, eviction=bounds)
    case = Case([node("n", 1)], tree(q))
    case.submit(work("q/runs", priority=3))
    case.submit(work("q/old"))
    case.to(60 * hours)
    case.submit(work("q/young", priority=3))
    assert case.evictions == []
    case.end("q/runs")
    assert case.starts(f"q/{first}") == [f"{60 * hours}:00"]
    assert begun(case) == ["q/runs", f"q/{first}"]


@pytest.mark.parametrize(
    ("minutes", "expected", "evicted"),
    [(0, ["q/young", "q/old"], []), (10, ["q/old", "q/young"], [("130:00", "q/old", 10)])],
)
def test_who_is_first_without_a_minimum_run_does_not_start_to_be_evicted_at_once(
    minutes: int, expected: list[str], evicted: list[tuple[str, str, int]]
) -> None:
    PAGE.says(
        "With `minimumRun: 10m` the first starts at 12:00, and goes for the second at 12:10.",
        "the second starts, and the first when that has ended",
    )
    bounds = EvictionBounds(minimum_run_us=minutes * 60_000_000)
    case = Case([node("n", 1)], tree(queue("q", order=Order.FIFO, eviction=bounds)))
    case.submit(work("q/runs", priority=9))
    case.submit(work("q/old"))
    case.to(60)
    case.submit(work("q/young", priority=3))
    case.to(120)
    case.end("q/runs")
    case.to(140)
    case.end("q/young")
    assert begun(case)[1:3] == expected
    assert case.evicted == evicted


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (Order.FIFO, ["old", "urgent", "short"]),
        (Order.PRIORITY, ["urgent", "old", "short"]),
        (Order.SHORTEST, ["short", "old", "urgent"]),
    ],
)
def test_the_order_of_a_queue_says_who_is_first(order: Order, expected: list[str]) -> None:
    PAGE.says("| `fifo` | the oldest |", "work that declares none comes last")
    case = Case([node("n", 1)], tree(queue("q", order=order)))
    case.submit(work("q/runs", priority=9))
    higher = 5 if order is Order.PRIORITY else 0
    asked = (("old", 0, 9 * HOUR_US), ("urgent", higher, None), ("short", 0, HOUR_US))
    for minute, (name, priority, run_us) in enumerate(asked, 1):
        case.to(minute)
        case.submit(work(f"q/{name}", priority=priority, run_us=run_us))
    for name in ("runs", *expected):
        case.end(f"q/{name}")
    assert begun(case)[1:] == [f"q/{name}" for name in expected]


def test_fair_is_by_user_and_least_attained_service_by_what_was_had() -> None:
    PAGE.says("| `fair` | work of the user who holds least of the fleet, then as above |")
    case = Case([node("n", 2)], tree(queue("q", order=Order.FAIR)))
    case.submit(work("q/1", user="ann"), work("q/2", user="bob"))
    case.submit(work("q/3", user="ann"), work("q/4", user="bob"))
    case.end("q/2")
    assert (case.starts("q/3"), case.starts("q/4")) == ([], ["0:00"])
    PAGE.says("what has had the least device time so far, in all its starts")
    case = Case([node("n", 1)], tree(queue("q", order=Order.LEAST_ATTAINED_SERVICE), queue("o", 1)))
    case.submit(work("q/had"))
    case.to(60)
    case.submit(work("o/back"), work("q/new"))
    assert case.evicted == [("60:00", "q/had", 60)]
    case.end("o/back")
    assert (len(case.starts("q/had")), len(case.starts("q/new"))) == (1, 1)
