"""What is kept for who waits within a guarantee until others are protected no longer."""

import pytest

from shoal.core.decisions import GiveUp, Reserve
from shoal.model.queue import EvictionBounds, Queue
from shoal.model.verdict import Reason
from tests.core.build import node
from tests.core.cases import MINUTE_US, Case, batch, queue, tree, us, work

PROTECTED = Queue("root", eviction=EvictionBounds(minimum_run_us=30 * MINUTE_US))


def lent(runs_min: int, guaranteed: int, nodes: int = 1) -> Case:
    """Jobs of one device borrow everything, each begun when another has ended, and more wait.

    Each is protected for half an hour, on borrowed devices for the ten minutes of `reclaimWithin`.
    """
    lender = queue("a", guaranteed)
    case = Case([node(f"n{n}", 8) for n in range(nodes)], tree(lender, queue("b"), root=PROTECTED))
    devices = 8 * nodes
    for minute in range(devices):
        case.to(minute)
        case.submit(batch(f"b/first-{minute}"))
    case.submit(*(batch(f"b/next-{number}") for number in range(100)))
    for minute in range(devices, 40):
        _go_on(case, minute, runs_min)
    return case


def _go_on(case: Case, minute: int, runs_min: int) -> None:
    """A minute passes, and whoever has run for long enough ends."""
    case.to(minute)
    done = [
        uid
        for uid, entry in case.world.entries.items()
        if uid.startswith("b/")
        and entry.started
        and case.now_us - min(entry.started.values()) >= runs_min * MINUTE_US
    ]
    case.end(*done)


@pytest.mark.parametrize("runs_min", [5, 9, 20, 60])
@pytest.mark.parametrize(("guaranteed", "asked", "nodes"), [(8, 8, 1), (4, 4, 1), (12, 10, 2)])
def test_a_gang_has_its_guarantee_back_in_time_although_others_come_all_the_time(
    runs_min: int, guaranteed: int, asked: int, nodes: int
) -> None:
    """What becomes free is not lent again, or its new borrowers would be protected anew."""
    case = lent(runs_min, guaranteed, nodes)
    case.submit(work("a/gang", pods=asked))
    for minute in range(41, 51):
        _go_on(case, minute, runs_min)
    (start,) = case.starts("a/gang")
    assert int(start.partition(":")[0]) <= 50


def test_two_gangs_have_theirs_at_the_same_time() -> None:
    """Each within the guarantee has a place of its own."""
    case = lent(60, 8)
    case.submit(work("a/g1", pods=4), work("a/g2", pods=4))
    for minute in range(41, 51):
        _go_on(case, minute, 60)
    assert len(case.starts("a/g1")) == len(case.starts("a/g2")) == 1


def test_the_record_says_until_when_and_for_what_a_place_is_kept() -> None:
    """Who began last, at 7:00, may go at 17:00, and three go then that lose least."""
    case = Case([node("n1", 8)], tree(queue("a", 3), queue("b"), root=PROTECTED))
    for minute in range(8):
        case.to(minute)
        case.submit(batch(f"b/{minute}"))
    case.submit(work("a/gang", pods=3))
    (kept,) = (each.decision for each in case.seen if isinstance(each.decision, Reserve))
    assert (kept.workload, kept.reason, kept.evicted) == ("a/gang", Reason.RECLAIM, ())
    assert kept.at_us == 17 * MINUTE_US
    case.to(9)
    case.to(13)
    assert case.starts("a/gang") == ["12:00"]
    assert sorted(uid for _, uid, _ in case.evictions) == ["b/0", "b/1", "b/2"]


def test_who_ends_before_may_use_what_is_kept() -> None:
    """And who does not end before, or says nothing, may not."""
    case = Case([node("n1", 2)], tree(queue("a", 2), queue("b"), root=PROTECTED))
    case.submit(batch("b/old"))
    case.submit(batch("b/short", run_us=MINUTE_US))
    case.submit(work("a/gang", 2))
    case.to(1)
    case.end("b/short")
    case.submit(batch("b/says-nothing"), batch("b/quick", run_us=5 * MINUTE_US))
    case.submit(batch("b/long", run_us=30 * MINUTE_US))
    assert [case.starts(f"b/{name}") for name in ("says-nothing", "quick", "long")] == [
        [],
        ["1:00"],
        [],
    ]
    case.to(6)
    case.end("b/quick")
    case.to(10)
    assert case.starts("a/gang") == ["10:00"]
    assert [uid for _, uid, _ in case.evictions] == ["b/old"]


def test_more_urgent_work_of_the_same_queue_keeps_one_place() -> None:
    """Until the minimum run of what it pushes out has passed; another one waits its turn."""
    q = queue("q", eviction=EvictionBounds(minimum_run_us=30 * MINUTE_US))
    case = Case([node("n1", 8)], tree(q))
    for minute in range(8):
        case.to(minute)
        case.submit(batch(f"q/{minute}"))
    case.to(10)
    case.submit(work("q/urgent", pods=4, priority=5))
    case.to(11)
    case.submit(work("q/other", pods=4, priority=5))
    assert list(case.world.reserving) == ["q/urgent"]
    kept = case.world.entries["q/urgent"].reserved
    assert kept is not None
    assert kept.reason is Reason.PREEMPTION
    case.to(12)
    case.end("q/7")
    case.submit(batch("q/late"))
    assert case.starts("q/late") == []
    case.to(40)
    assert len(case.starts("q/urgent")) == len(case.starts("q/other")) == 1


@pytest.mark.parametrize(("run_min", "starts"), [(5, ["10:00"]), (45, [])])
def test_who_ends_before_a_place_is_due_has_others_evicted_there(
    run_min: int, starts: list[str]
) -> None:
    """b may take devices back after 10 minutes, and a after an hour, from which on it is kept both.

    What goes for b may take ten minutes to stop, and 45 more would be too long.
    """
    root = Queue("root", eviction=EvictionBounds(minimum_run_us=120 * MINUTE_US))
    lenders = queue("a", 2, reclaim_within_us=60 * MINUTE_US), queue("b", 2)
    case = Case([node("n1", 4)], tree(*lenders, queue("z"), root=root))
    for uid in ("b/stays", "x/stays"):
        case.adopt(work(uid, recreated=False), "n1")
    case.submit(batch("z/0"), batch("z/1"))
    case.submit(work("a/gang", 2))
    assert case.world.entries["a/gang"].reserved is not None
    case.submit(work("b/s", run_us=run_min * MINUTE_US))
    case.to(59)
    assert case.starts("b/s") == starts


def test_what_is_kept_beyond_a_guarantee_gives_way_to_what_is_kept_within_one() -> None:
    lab = queue("lab", 1, starvation_after_us=60 * MINUTE_US)
    queues = tree(lab, queue("team", 2), queue("z"), root=PROTECTED)
    case = Case([node("n1", 3)], queues)
    case.adopt(work("lab/stays", recreated=False), "n1")
    case.submit(work("lab/gang", 3))
    case.to(59)
    case.submit(batch("z/0"), batch("z/1"))
    case.to(60)
    assert list(case.world.reserving) == ["lab/gang"]
    case.submit(work("team/gang", pods=2))
    given = [each.decision for each in case.seen if isinstance(each.decision, GiveUp)]
    assert [(each.workload, each.reason) for each in given] == [("lab/gang", Reason.RECLAIM)]
    assert "team/gang" in case.world.reserving
    case.to(69)
    assert case.starts("team/gang") == ["69:00"]


def test_who_loses_a_kept_place_just_when_it_is_looked_at_is_told_why_it_waits() -> None:
    """The other one comes first, as it came at the same time, and takes what has become free."""
    q = queue("q", eviction=EvictionBounds(minimum_run_us=30 * MINUTE_US))
    case = Case([node("n1", 4)], tree(q))
    for minute in range(4):
        case.to(minute)
        case.submit(batch(f"q/{minute}"))
    case.to(10)
    case.submit(work("q/urgent", pods=4, priority=5))
    case.submit(work("q/other", pods=2, priority=5))
    case.to(12)
    case.end("q/0")
    case.to(40)
    assert len(case.starts("q/other")) == 1
    case.end("q/other")
    assert len(case.starts("q/urgent")) == 1


@pytest.mark.parametrize("starves_min", [1, 1000])
@pytest.mark.parametrize("run_min", [None, 60])
@pytest.mark.parametrize("pods", [1, 2])
def test_who_is_kept_a_place_has_his_guarantee_back_by_time_alone(
    starves_min: int, run_min: int | None, pods: int
) -> None:
    """Whatever the place is kept for: a declared end, or that it has waited too long."""
    patient = queue("a", pods, starvation_after_us=us(starves_min))
    protected = queue("b", eviction=EvictionBounds(minimum_run_us=us(8)))
    case = Case([node("n1", pods)], tree(patient, protected))
    run_us = None if run_min is None else us(run_min)
    case.submit(*(batch(f"b/v{number}", run_us=run_us) for number in range(pods)))
    case.to(2)
    case.submit(work("a/p", pods=pods))
    case.to(100)
    assert case.starts("a/p") == ["8:00"]


def test_who_starves_behind_others_of_his_queue_has_the_guarantee_back_by_time_alone() -> None:
    """The other one comes first and can never be placed."""
    patient = queue("a", 2, starvation_after_us=us(3))
    protected = queue("b", eviction=EvictionBounds(minimum_run_us=us(8)))
    case = Case([node("n1", 2)], tree(patient, protected))
    case.submit(batch("b/v0"), batch("b/v1"))
    case.to(1)
    case.submit(work("a/waits", 2))
    case.to(2)
    case.submit(work("a/first", 3, priority=1))
    case.to(4)
    assert case.world.entries["a/waits"].reserved is not None
    case.to(100)
    assert case.starts("a/waits") == ["8:00"]
