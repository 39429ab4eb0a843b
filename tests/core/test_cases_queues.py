"""The cases of queues, quota and order, by their ids."""

from dataclasses import replace

from shoal.core.decisions import Reserve
from shoal.model.queue import Order
from shoal.model.verdict import Obstacle, Reason, Stage
from tests.core.build import node
from tests.core.cases import MINUTE_US, SECOND_US, Case, batch, queue, tree, work


def test_q02_guarantees_come_first() -> None:
    case = Case(
        [node("n1", 8), node("n2", 8)],
        tree(queue("p", 8, weight=7), queue("q", 8, weight=9)),
    )
    case.adopt(work("p/p1", 4), "n1")
    for k in range(1, 5):
        case.adopt(work(f"q/q{k}"), "n1")
    for k in range(5, 9):
        case.adopt(work(f"q/q{k}"), "n2")
    case.to(5)
    case.adopt(work("q/q9"), "n2")
    case.to(10)
    case.submit(work("p/w", pods=4))
    assert case.evicted == [("10:00", "q/q9", 5)]
    assert case.nodes_of("p/w") == ["n2"] * 4
    assert (case.holds("p"), case.holds("q")) == (8000, 8000)
    case.run_on()


def test_q03_the_freed_device_goes_to_the_one_it_was_freed_for() -> None:
    case = Case(
        [node("n1", 6)],
        tree(queue("a", 2), queue("b")),
        stops_us={"b/b6": 5 * SECOND_US, "b/b5": 60 * SECOND_US},
    )
    for k in range(1, 7):
        case.to(k - 1)
        case.submit(batch(f"b/b{k}"))
    case.to(6)
    case.submit(*(batch(f"b/b{k}") for k in range(7, 13)))
    case.to(10)
    case.submit(work("a/a1"), work("a/a2"))
    assert case.evicted == [("10:00", "b/b6", 5), ("10:00", "b/b5", 6)]
    case.to(15)
    assert (case.starts("a/a1"), case.starts("a/a2")) == (["10:05"], ["11:00"])
    assert (case.holds("a"), case.holds("b")) == (2000, 4000)
    assert [case.starts(f"b/b{k}") for k in range(7, 13)] == [[]] * 6
    case.run_on()
    case.end("a/a1")
    assert len(case.starts("b/b5")) == 2
    assert [len(case.starts(f"b/b{k}")) for k in (6, 7)] == [1, 0]


def test_q05_fairness_orders_starts_and_does_not_evict() -> None:
    case = Case([node("n1", 8)], tree(queue("a"), queue("b")))
    case.submit(work("a/a1"), work("a/a2"), work("a/a3"), work("b/b1"))
    case.to(5)
    case.submit(work("b/b2", 4))
    assert case.starts("b/b2") == ["5:00"]
    case.to(9)
    case.submit(work("b/b3"))
    case.to(10)
    case.submit(work("a/a4"))
    verdict = case.verdict("a/a4")
    assert (verdict.stage, verdict.obstacles) == (Stage.PLACE, (Obstacle(Reason.WHOLE_DEVICES, 1),))
    assert (case.holds("a"), case.holds("b")) == (3000, 5000), "eight of eight are held"
    assert case.seen[-1].at_us == 10 * MINUTE_US
    case.to(12)
    case.end("b/b1")
    assert case.starts("a/a4") == ["12:00"]
    assert case.starts("b/b3") == []
    assert case.evictions == []
    case.run_on()


def _q06() -> Case:
    case = Case([node("n1", 8), node("n2", 8)], tree(queue("lab"), queue("other")))
    case.adopt(work("other/r1", 4, run_us=60 * MINUTE_US), "n1")
    case.adopt(work("other/r2", 4, run_us=120 * MINUTE_US), "n2")
    case.submit(work("lab/w8", 8))
    case.to(1)
    case.submit(
        work("lab/s1", run_us=30 * MINUTE_US),
        work("lab/s2", run_us=90 * MINUTE_US),
        work("lab/s3"),
        work("lab/s4", 2, run_us=58 * MINUTE_US),
    )
    return case


def test_q06_reserve_and_fill_in_honestly() -> None:
    case = _q06()
    reserves = [seen for seen in case.seen if isinstance(seen.decision, Reserve)]
    ((at_us, reserve),) = [(seen.at_us, seen.decision) for seen in reserves]
    assert isinstance(reserve, Reserve)
    assert (at_us, reserve.at_us) == (0, 60 * MINUTE_US)
    assert [placement.node for placement in reserve.placements] == ["n1"]
    assert (reserve.workload, reserve.reason) == ("lab/w8", Reason.RESERVED)
    assert case.holds("lab") == 5000, "the small ones; it holds no quota while it waits"
    for name in ("s1", "s2", "s3", "s4"):
        assert case.starts(f"lab/{name}") == ["1:00"]
    assert case.nodes_of("lab/s2") == case.nodes_of("lab/s3") == ["n2"]
    case.to(31)
    case.end("lab/s1")
    case.to(59)
    case.end("lab/s4")
    case.to(60)
    case.end("other/r1")
    assert case.starts("lab/w8") == ["60:00"]
    assert case.nodes_of("lab/w8") == ["n1"]
    case.run_on()


def test_q06_what_is_overdue_gives_no_new_time() -> None:
    case = _q06()
    case.to(61)
    entry = case.world.entries["lab/w8"]
    assert entry.reserved is not None
    assert entry.reserved.at_us == 60 * MINUTE_US, "there is no new time"
    assert case.starts("lab/w8") == []
    case.submit(work("lab/s5", run_us=MINUTE_US))
    assert "n1" not in case.nodes_of("lab/s5")
    case.run_on()


def test_q07_changed_priorities_count_and_protection_stays() -> None:
    bounds = {"minimum_run_us": 30 * MINUTE_US}
    q = queue("q")
    q = replace(q, eviction=replace(q.eviction, **bounds))
    case = Case([node("n1", 1)], tree(q))
    case.submit(work("q/job-2", priority=500))
    case.to(1)
    case.submit(work("q/job-1", priority=3000))
    case.to(12)
    case.submit(work("q/job-3", priority=3000))
    assert case.turn().look_again_us == 30 * MINUTE_US, "job-2 may be evicted then"
    assert case.verdict("q/job-1").obstacles == (Obstacle(Reason.WHOLE_DEVICES, 1),)
    assert case.evictions == []
    case.to(30)
    assert case.evicted == [("30:00", "q/job-2", 30)]
    assert case.starts("q/job-1") == ["30:00"]
    case.run_on()


def test_a_gang_that_waited_too_long_gets_the_next_reservation() -> None:
    """Small work that comes all the time would keep it waiting for ever."""
    lab = queue("lab", starvation_after_us=60 * MINUTE_US)
    case = Case([node("n1", 4)], tree(lab))
    for k in range(4):
        case.submit(work(f"lab/s{k}"))
    case.to(1)
    case.submit(work("lab/big", 4))
    for minute in range(2, 60):
        case.to(minute)
        case.submit(work(f"lab/t{minute}"))
        if minute % 10 == 0:
            case.end(min(uid for uid, e in case.world.entries.items() if e.held))
    assert case.starts("lab/big") == []
    case.to(61)
    assert case.world.entries["lab/big"].reserved is not None
    for _ in range(4):
        case.end(min(uid for uid, e in case.world.entries.items() if e.held))
    assert case.starts("lab/big") == ["61:00"]


def test_a_starving_gang_is_kept_a_place_before_what_is_first_in_the_order() -> None:
    """On whatever nodes are nearest to being free, as nobody knows when others end."""
    lab = queue("lab", starvation_after_us=60 * MINUTE_US, order=Order.SHORTEST)
    case = Case([node("n1", 2), node("n2", 2)], tree(lab))
    case.submit(*(work(f"lab/s{k}") for k in range(4)))
    case.submit(work("lab/gang", 2, pods=2, run_us=360 * MINUTE_US))
    case.to(59)
    case.submit(work("lab/shorter", 2, pods=2, run_us=300 * MINUTE_US))
    case.to(60)
    reserving = [s.decision.workload for s in case.seen if isinstance(s.decision, Reserve)]
    assert reserving == ["lab/gang"]
    for k in range(4):
        case.end(f"lab/s{k}")
    assert case.starts("lab/gang") == ["60:00"]


def test_a_queue_has_one_reservation_at_a_time() -> None:
    """Of those that starve the one that has waited longest, although there is room for two."""
    lab = queue("lab", starvation_after_us=60 * MINUTE_US)
    case = Case([node(f"n{n}", 2) for n in range(3)], tree(lab))
    case.submit(*(work(f"lab/s{k}") for k in range(6)))
    case.to(1)
    case.submit(work("lab/w1", 2, pods=2))
    case.to(2)
    case.submit(work("lab/w2", 2))
    case.to(70)
    assert list(case.world.reserving) == ["lab/w1"]
