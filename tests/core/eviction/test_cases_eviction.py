"""The cases of evictions, by their ids."""

from dataclasses import replace
from typing import Any

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Evict, Freeze, Reserve
from shoal.core.eviction.evictions import Evictions
from shoal.model.queue import EvictionBounds, Queue, QueueTree
from shoal.model.verdict import Obstacle, Reason, Stage
from shoal.model.workload import Outcome
from tests.core.build import node
from tests.core.cases import MINUTE_US, SECOND_US, Case, batch, queue, quota, tree, work


def _e01() -> Case:
    case = Case(
        [node("n1", 6)],
        tree(queue("a", 4), queue("b", 2)),
        stops_us={"b/wB": 10 * SECOND_US, "b/wC": 90 * SECOND_US},
    )
    case.submit(work("b/wA", 2))
    case.to(2)
    case.submit(work("b/wC", 2))
    case.to(4)
    case.submit(work("b/wB", 2))
    case.to(10)
    case.submit(work("a/p", 4))
    return case


def test_e01_victims_that_stop_at_different_speeds_do_not_take_turns() -> None:
    case = _e01()
    assert sorted(case.evicted) == [("10:00", "b/wB", 12), ("10:00", "b/wC", 16)]
    case.to("10:30")
    entry = case.world.entries["b/wB"]
    assert entry.group is not None
    verdict = case.verdict("b/wB")
    assert (verdict.stage, verdict.obstacles) == (Stage.PLACE, (Obstacle(Reason.WHOLE_DEVICES, 1),))
    (kept,) = (seen.decision for seen in case.seen if isinstance(seen.decision, Reserve))
    assert (kept.workload, kept.reason) == ("a/p", Reason.RECLAIM)
    assert sum(len(place.leaves) for place in kept.placements) == 4
    assert (case.holds("a"), case.holds("b")) == (4000, 2000), "two are free, and charged to a"
    case.to(60)
    assert case.starts("a/p") == ["11:30"]
    assert len(case.evictions) == 2
    assert case.starts("b/wA") == ["0:00"]
    case.run_on()


def test_e01_variant_the_asker_is_deleted() -> None:
    case = _e01()
    case.to("10:30")
    case.end("a/p", outcome=Outcome.CANCELLED)
    assert case.starts("b/wB") == ["4:00", "10:30"]
    case.to(60)
    assert len(case.evictions) == 2


def test_e02_recreated_pods_in_a_tree_with_a_guarantee_above_the_leaf() -> None:
    case = Case(
        [node("n1", 6)],
        tree(
            queue("g", 6),
            replace(queue("main"), parent="g"),
            queue("x"),
            queue("y"),
        ),
    )
    case.submit(batch("x/x1", 2), batch("y/y1"))
    case.to(1)
    case.submit(batch("y/y2"))
    case.to(2)
    case.submit(batch("x/x2", 2))
    case.to(10)
    case.submit(work("main/m1"))
    assert case.evicted == [("10:00", "y/y2", 9)]
    case.to(20)
    case.submit(work("main/m2", 2))
    assert case.evicted[1:] == [("20:00", "x/x2", 36)]
    assert [case.holds(name) for name in ("x", "y", "main")] == [2000, 1000, 3000]
    assert case.world.entries["y/y2"].workload.created_us == MINUTE_US
    case.run_on(1000)


def test_e03_no_eviction_unless_the_asker_then_starts() -> None:
    case = Case([node(f"n{n}", 8) for n in range(1, 5)], tree(queue("q")))
    for n in range(1, 5):
        for i in range(6):
            case.adopt(work(f"q/h{n}{i}", priority=100), f"n{n}")
    for k in range(1, 9):
        case.to(k - 1)
        case.adopt(work(f"q/l{k}"), f"n{(k + 1) // 2}")
    case.to(10)
    case.submit(work("q/w8", 8, priority=100))
    assert case.evictions == []
    verdict = case.verdict("q/w8")
    assert (verdict.stage, verdict.obstacles) == (Stage.PLACE, (Obstacle(Reason.WHOLE_DEVICES, 4),))
    case.to(11)
    case.submit(work("q/s1", priority=100))
    assert case.evicted == [("11:00", "q/l8", 4)]
    assert case.starts("q/s1") == ["11:00"]
    case.run_on()


def test_e04_reclaim_from_an_elastic_gang() -> None:
    case = Case([node("n1", 4)], tree(queue("hi", 4), queue("lo")))
    case.submit(work("lo/e", pods=4, minimum=1))
    case.to(10)
    case.submit(*(work(f"hi/h{n}") for n in (1, 2, 3)))
    assert case.evictions == [("10:00", "lo/e", (1, 2, 3))]
    assert case.evicted == [("10:00", "lo/e", 30)]
    assert list(case.world.entries["lo/e"].held) == [0]
    assert [case.starts(f"hi/h{n}") for n in (1, 2, 3)] == [["10:00"]] * 3
    assert case.world.evictions.lately(case.now_us) == 0
    case.to(20)
    case.submit(work("hi/h4"))
    assert case.evicted[1:] == [("20:00", "lo/e", 20)]
    assert case.starts("hi/h4") == ["20:00"]
    assert case.verdict("lo/e").obstacles == (Obstacle(Reason.WHOLE_DEVICES, 1),)
    assert case.holds("hi") == 4000, "four of the four that it is guaranteed"
    assert case.world.entries["lo/e"].group is not None
    case.run_on()
    case.end("hi/h1")
    assert case.starts("lo/e")[1:] == ["21:40"]
    assert list(case.world.entries["lo/e"].held) == [0]


def _e05(devices: int, *names: str, v3_stops_us: int = 0) -> Case:
    queues = tree(queue("a", 1), queue("b"))
    case = Case([node("n1", devices)], queues, stops_us={"b/v3": v3_stops_us})
    for minute, name in ((0, "v3"), (4, "v2"), (5, "v1")):
        case.to(minute)
        if name in names:
            case.submit(work(f"b/{name}"))
    case.happen(
        ev.DisruptionBudgetSet(0, "one", 0, ("b/v1",)),
        ev.DisruptionBudgetSet(0, "two", 1, ("b/v2",)),
        ev.DisruptionBudgetSet(0, "three", 1, ("b/v2",)),
    )
    case.to(10)
    case.submit(work("a/p"))
    return case


def test_e05_disruption_budgets_are_seen_before_victims_are_chosen() -> None:
    case = _e05(3, "v1", "v2", "v3")
    assert case.evicted == [("10:00", "b/v3", 10)]
    assert case.starts("a/p") == ["10:00"]
    case.run_on()


def test_e05_variant_a_nobody_may_go() -> None:
    case = _e05(2, "v1", "v2")
    assert case.evictions == []
    verdict = case.verdict("a/p")
    assert (verdict.stage, verdict.obstacles) == (Stage.PLACE, (Obstacle(Reason.WHOLE_DEVICES, 1),))
    assert [case.world.evictions.allowed(f"b/{name}") for name in ("v1", "v2")] == [0, 0]
    case.run_on()
    case.happen(ev.DisruptionBudgetSet(0, "one", 1, ("b/v1",)))
    assert [uid for _, uid, _ in case.evictions] == ["b/v1"]


def test_e05_variant_b_the_call_is_refused() -> None:
    case = _e05(3, "v1", "v2", "v3", v3_stops_us=30 * SECOND_US)
    assert case.evicted == [("10:00", "b/v3", 10)]
    case._due.clear()
    case.happen(
        ev.DisruptionBudgetSet(0, "late", 0, ("b/v3",)), ev.EvictionBlocked(0, "b/v3", 1, 0)
    )
    assert case.world.entries["a/p"].group is not None
    assert case.world.entries["b/v3"].evicting == {}
    assert case.world.evictions.lost == {}
    case.run_on()
    assert len(case.evictions) == 1


def _e06(checkpoint: int | None, **bounds: int) -> Case:
    b = replace(
        queue("b"), eviction=EvictionBounds(minimum_run_us=bounds.get("minimum", 0) * MINUTE_US)
    )
    a = queue("a", 2, reclaim_within_us=bounds.get("within", 10) * MINUTE_US)
    case = Case([node("n1", 4)], tree(a, b))
    case.submit(work("b/old", 2))
    case.to(50)
    case.submit(work("b/new", 2))
    case.to(58)
    if checkpoint is not None:
        case.happen(ev.CheckpointReported(0, "b/old", checkpoint * MINUTE_US))
    case.to(60)
    case.submit(work("a/p", 2))
    return case


def test_e06_the_victim_is_the_one_that_loses_least() -> None:
    case = _e06(58)
    assert case.evicted == [("60:00", "b/old", 4)]
    assert case.seen[-1].at_us == 60 * MINUTE_US


def test_e06_variant_a_no_checkpoint() -> None:
    case = _e06(None)
    assert case.evicted == [("60:00", "b/new", 20)]


def test_e06_variant_b_protection_is_the_smaller_of_minimum_run_and_reclaim_within() -> None:
    case = _e06(None, minimum=30, within=0)
    assert case.evicted == [("60:00", "b/new", 20)]
    case = _e06(None, minimum=30, within=30)
    assert case.evictions == []
    case.to(90)
    assert case.evicted == [("80:00", "b/new", 60)]
    assert case.starts("a/p") == ["80:00"]


def test_nobody_waits_longer_for_a_cheaper_victim_than_his_guarantee_lets_him() -> None:
    b = replace(queue("b"), eviction=EvictionBounds(minimum_run_us=30 * MINUTE_US))
    case = Case([node("n1", 4)], tree(queue("a", 2, reclaim_within_us=10 * MINUTE_US), b))
    case.submit(work("b/old", 2), work("b/s1"), work("b/s2"))
    case.happen(ev.DisruptionBudgetSet(0, "none", 0, ("b/old", "b/s1", "b/s2")))
    case.to(60)
    case.submit(work("a/p", 2))
    for minute, name in ((68, "s1"), (69, "s2")):
        case.to(minute)
        case.submit(work(f"b/after-{name}"))
        case.end(f"b/{name}")
    assert case.starts("b/after-s2") == [], "what is free is kept until after-s1 may go"
    case.happen(ev.DisruptionBudgetSet(0, "none", 2, ("b/old",)))
    assert case.evicted == [("69:00", "b/old", 138)], "in nine minutes another would lose 10"
    assert case.starts("a/p") == ["69:00"]


@pytest.mark.parametrize("checkpoint", [None, 1])
def test_silence_protects_nobody_for_longer_than_the_checkpoint_interval(
    checkpoint: int | None,
) -> None:
    b = replace(queue("b"), eviction=EvictionBounds(checkpoint_interval_us=5 * MINUTE_US))
    case = Case([node("n1", 3)], tree(queue("a", 1), b))
    case.submit(work("b/old", 1))
    case.to(2)
    if checkpoint is not None:
        case.happen(ev.CheckpointReported(0, "b/old", checkpoint * MINUTE_US))
    case.to(50)
    case.submit(work("b/new", 2))
    case.to(60)
    case.submit(work("a/p", 1))
    assert case.evicted == [("60:00", "b/old", 5)]


def test_what_was_evicted_is_recorded_with_whom_it_was_for() -> None:
    case = _e06(None)
    evicts = [seen.decision for seen in case.seen if isinstance(seen.decision, Evict)]
    assert [(e.for_, e.exact, e.reason) for e in evicts] == [(("a/p",), True, Reason.RECLAIM)]


def test_too_many_evictions_freeze_until_a_person_resumes() -> None:
    case = Case([node("n1", 8), node("n2", 8)], tree(queue("a", 16), queue("b")))
    case.submit(*(batch(f"b/b{k}") for k in range(16)))
    case.to(10)
    case.submit(*(work(f"a/a{k}") for k in range(12)))
    assert len(case.evictions) == 10
    freezes = [seen.decision for seen in case.seen if isinstance(seen.decision, Freeze)]
    assert [(f.count, f.most, f.reason) for f in freezes] == [(11, 10, Reason.TOO_MANY_EVICTIONS)]
    case.to(20)
    assert len(case.evictions) == 10
    case.happen(ev.EvictionsResumed(0, "ada"))
    assert len(case.evictions) == 12
    case.run_on()


def test_a_person_lets_a_gang_have_the_many_evictions_that_it_needs() -> None:
    case = Case([node("n1", 8), node("n2", 8)], tree(queue("a", 16), queue("b")))
    case.submit(*(batch(f"b/b{k}") for k in range(16)))
    case.to(10)
    case.submit(work("a/gang", pods=2, devices=8))
    freezes = [seen.decision for seen in case.seen if isinstance(seen.decision, Freeze)]
    assert [(f.count, f.most) for f in freezes] == [(16, 10)]
    case.to(20)
    case.happen(ev.EvictionsResumed(0, "ada"))
    assert len(case.evictions) == 16
    assert case.starts("a/gang") == ["20:00"]


def test_what_a_person_let_happen_is_over_after_five_minutes() -> None:
    evictions = Evictions()
    evictions.freeze(16)
    evictions.resume(MINUTE_US)
    assert evictions.most({}, 6 * MINUTE_US - 1) == 16
    assert evictions.most({}, 6 * MINUTE_US) == 10


def test_nobody_is_evicted_where_a_fifth_of_the_devices_is_gone() -> None:
    nodes = [node(f"n{n}", 8) for n in range(5)]
    case = Case(nodes, tree(queue("a", 16), queue("b")))
    case.submit(*(batch(f"b/b{k}") for k in range(40)))
    case.to(10)
    case.happen(ev.NodeLost(0, "n4"))
    case.submit(work("a/a1"))
    assert case.evictions == []
    assert [s.decision.reason for s in case.seen if isinstance(s.decision, Freeze)] == [
        Reason.DEVICES_GONE
    ]
    case.to(20)
    case.happen(ev.EvictionsResumed(0, "ada"))
    assert len(case.evictions) == 1


@pytest.mark.parametrize(("running", "most"), [(0, 10), (300, 10), (549, 10), (1_000, 20)])
def test_two_percent_of_what_runs_may_be_evicted_or_ten(running: int, most: int) -> None:
    assert Evictions().most({"q": range(running)}, 0) == most


def test_pods_that_elastic_gangs_can_spare_freeze_nothing() -> None:
    case = Case([node("n1", 8), node("n2", 8)], tree(queue("a", 16), queue("b")))
    case.submit(work("b/big", pods=16, minimum=1))
    case.to(10)
    case.submit(*(work(f"a/a{k}") for k in range(15)))
    assert sum(len(pods) for _, _, pods in case.evictions) == 15
    assert not case.world.evictions.frozen


def test_a_person_who_resumed_has_seen_what_was_gone_and_evicted() -> None:
    """Both count anew from then on, within the same five minutes too."""
    case = Case([node(f"n{n}", 8) for n in range(5)], tree(queue("a", 32), queue("b")))
    case.submit(*(batch(f"b/b{k}") for k in range(40)))
    case.to(10)
    case.submit(*(work(f"a/a{k}") for k in range(10)))
    case.happen(ev.NodeLost(0, "n4"))
    case.submit(work("a/more"))
    assert (len(case.evictions), case.world.evictions.frozen) == (10, True)
    case.to(11)
    case.happen(ev.EvictionsResumed(0, "ada"))
    assert (len(case.evictions), case.world.evictions.frozen) == (11, False)
    case.submit(*(work(f"a/c{k}") for k in range(9)))
    assert (len(case.evictions), case.world.evictions.frozen) == (20, False)


def test_a_few_devices_that_are_gone_freeze_nothing() -> None:
    case = Case([node(f"n{n}", 8) for n in range(6)], tree(queue("a", 16), queue("b")))
    case.submit(*(batch(f"b/b{k}") for k in range(48)))
    case.to(10)
    case.happen(ev.NodeLost(0, "n5"))
    case.submit(work("a/a1"))
    assert len(case.evictions) == 1


def test_work_past_its_declared_end_has_no_minimum_run() -> None:
    bounds = EvictionBounds(minimum_run_us=60 * MINUTE_US)
    q = replace(queue("q"), eviction=bounds)
    case = Case([node("n1", 2)], tree(q))
    case.submit(work("q/honest"), work("q/liar", run_us=MINUTE_US))
    case.to(10)
    case.submit(work("q/urgent", priority=1))
    assert case.evicted == [("10:00", "q/liar", 10)]


def test_bounds_of_preemption_hold_for_a_workload_and_for_a_queue() -> None:
    bounds = EvictionBounds(per_workload_per_day=1)
    case = Case([node("n1", 1)], tree(replace(queue("q"), eviction=bounds)))
    case.submit(work("q/low"))
    for minute in (10, 20):
        case.to(minute)
        case.submit(work(f"q/high{minute}", priority=1))
        case.to(minute + 5)
        if case.world.entries[f"q/high{minute}"].held:
            case.end(f"q/high{minute}")
    assert case.evicted == [("10:00", "q/low", 10)]
    lost = EvictionBounds(device_hours_lost_per_day=1)
    case = Case([node("n1", 2)], tree(replace(queue("q"), eviction=lost)))
    case.submit(work("q/low1"), work("q/low2"))
    case.to(40)
    case.submit(work("q/high1", priority=1))
    case.to(41)
    case.submit(work("q/high2", priority=1))
    assert len(case.evictions) == 1


def test_what_was_evicted_evicts_nobody_when_it_comes_back() -> None:
    case = Case([node("n1", 1)], tree(queue("q")))
    case.submit(work("q/middle", priority=1))
    case.to(10)
    case.submit(work("q/high", priority=2))
    case.to(20)
    case.submit(work("q/low"))
    case.end("q/high")
    assert case.starts("q/middle") == ["0:00", "20:00"]
    case.end("q/middle")
    case.submit(work("q/middle2", priority=1))
    assert [uid for _, uid, _ in case.evictions] == ["q/middle", "q/low"]


def test_grace_is_the_smaller_of_the_pods_and_the_queues() -> None:
    case = Case([node("n1", 1)], tree(queue("a", 1), queue("b", grace_max_us=30 * SECOND_US)))
    case.submit(batch("b/b1", grace_us=60 * SECOND_US))
    case.to(1)
    case.submit(work("a/a1"))
    (evict,) = (seen.decision for seen in case.seen if isinstance(seen.decision, Evict))
    assert evict.grace_us == 30 * SECOND_US


def test_what_takes_too_long_to_stop_does_not_borrow() -> None:
    lender = queue("a", 1, reclaim_within_us=MINUTE_US)
    case = Case([node("n1", 2)], tree(lender, queue("b")))
    case.submit(batch("b/slow", grace_us=2 * MINUTE_US), batch("b/bare", recreated=False))
    assert case.starts("b/slow") == case.starts("b/bare") == []
    case.submit(batch("b/quick", grace_us=MINUTE_US))
    assert case.starts("b/quick") == ["0:00"]


@pytest.mark.parametrize(
    ("leaf_min", "team", "borrows"),
    [
        (30, {}, True),
        (10, {}, False),
        (30, {"guarantee": quota(H100=3)}, False),
        (30, {"guarantee": quota(H100=3), "reclaim_within_us": 30 * MINUTE_US}, True),
        (30, {"reclaim_within_us": 5 * MINUTE_US}, True),
    ],
)
def test_only_who_lends_says_how_soon_it_has_to_be_back(
    leaf_min: int, team: dict[str, Any], borrows: bool
) -> None:
    """A team that only sums up what its projects are guaranteed lends nothing itself."""
    queues = (
        Queue("root"),
        Queue("team", "root", **team),
        Queue("a", "team", guarantee=quota(H100=2), reclaim_within_us=leaf_min * MINUTE_US),
        Queue("b", "root", reclaim_within_us=MINUTE_US),
    )
    case = Case([node("n1", 4)], QueueTree(queues))
    case.submit(batch("b/x", grace_us=20 * MINUTE_US))
    assert bool(case.starts("b/x")) is borrows


def test_a_start_waits_for_whoever_goes_to_make_the_quota_fit() -> None:
    """The node has room, and the limit of the queue has not until the other has stopped."""
    case = Case([node("n1", 4)], tree(queue("q", limit=2)), stops_us={"q/low": 60 * SECOND_US})
    case.submit(work("q/low", 2))
    case.to(10)
    case.submit(work("q/high", 2, priority=1))
    assert case.evicted == [("10:00", "q/low", 20)]
    case.to(20)
    assert case.starts("q/high") == ["11:00"]


def test_devices_that_come_back_count_from_what_worked_at_most() -> None:
    seen = Evictions()
    for minute, devices in ((0, 10), (1, 6), (2, 8), (3, 8), (4, 7)):
        seen.works(minute * MINUTE_US, devices)
    assert seen.gone(4 * MINUTE_US) == (3, 10)
    assert seen.gone(5 * MINUTE_US) == (3, 10)
    assert seen.gone(7 * MINUTE_US) == (1, 8)
    assert seen.gone(20 * MINUTE_US) == (0, 7)
