"""Bounds, budgets, rights and kept places where several things happen at once, or time passes."""

from dataclasses import replace

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Evict, GiveUp
from shoal.core.world import World
from shoal.model.node import UNSCHEDULABLE
from shoal.model.queue import EvictionBounds, Priority, Queue
from shoal.model.request import Toleration, TolerationOperator
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, Workload, WorkloadType
from tests.core.build import decide, node
from tests.core.cases import MINUTE_US, Case, batch, queue, tree, us, work

HOUR_US = 60 * MINUTE_US
DAY = 24 * 60


def test_what_a_queue_may_lose_in_a_day_bounds_all_that_goes_in_one_cycle() -> None:
    bounds = EvictionBounds(device_hours_lost_per_day=1)
    case = Case([node("n1", 2)], tree(queue("q", eviction=bounds)))
    case.submit(work("q/l1"), work("q/l2"))
    case.to(60)
    case.submit(work("q/h1", priority=1), work("q/h2", priority=1))
    assert len(case.evictions) == 1


def test_a_gang_takes_no_more_than_a_disruption_budget_allows_where_that_is_enough() -> None:
    case = Case([node("n1", 4)], tree(queue("a", 2), queue("b")))
    case.submit(*(batch(f"b/v{n}") for n in range(4)))
    covered = ("b/v0", "b/v1", "b/v2")
    case.happen(ev.DisruptionBudgetSet(0, "one", 1, covered))
    case.to(10)
    case.submit(work("a/p", pods=2))
    assert case.starts("a/p") == ["10:00"]
    assert len(case.evictions) == 2


def test_one_pod_takes_others_where_a_disruption_budget_does_not_allow_the_cheapest() -> None:
    case = Case([node("n1", 3)], tree(queue("a", 2), queue("b")))
    case.submit(batch("b/old"))
    case.to(5)
    case.submit(batch("b/v0"), batch("b/v1"))
    case.happen(ev.DisruptionBudgetSet(0, "one", 1, ("b/v0", "b/v1")))
    case.to(10)
    case.submit(work("a/p", 2))
    assert case.starts("a/p") == ["10:00"]
    gone = {uid for _, uid, _ in case.evictions}
    assert len(gone) == 2
    assert "b/old" in gone


def test_a_gang_takes_no_more_than_its_queue_may_lose_where_that_is_enough() -> None:
    bounds = EvictionBounds(device_hours_lost_per_day=2)
    case = Case([node("n1", 4)], tree(queue("q", eviction=bounds)))
    case.submit(*(work(f"q/l{n}") for n in range(4)))
    case.to(60)
    case.submit(work("q/h", pods=2, priority=1))
    assert case.starts("q/h") == ["60:00"]
    assert len(case.evictions) == 2


def test_pods_that_still_go_count_in_a_disruption_budget() -> None:
    stops_us = {"b/v0": MINUTE_US, "b/v1": MINUTE_US}
    case = Case([node("n1", 2)], tree(queue("a", 2), queue("b")), stops_us=stops_us)
    case.submit(batch("b/v0"), batch("b/v1"))
    case.happen(ev.DisruptionBudgetSet(0, "one", 1, ("b/v0", "b/v1")))
    case.to(10)
    case.submit(work("a/p"))
    case.to("10:10")
    case.submit(work("a/q"))
    assert len(case.evictions) == 1


def _tolerant(uid: str, devices: int) -> Workload:
    made = work(uid, devices)
    (pods,) = made.pod_sets
    tolerations = (Toleration(UNSCHEDULABLE.key, TolerationOperator.EXISTS),)
    request = replace(pods.request, tolerations=tolerations)
    return replace(made, pod_sets=(replace(pods, request=request),))


def test_places_on_a_closed_node_are_kept_for_what_may_run_there() -> None:
    case = Case([node("n1", 2)], tree(queue("a", 2), queue("b")), stops_us={"b/v": MINUTE_US})
    case.submit(batch("b/v", 2))
    case.happen(ev.NodeCordoned(0, "n1", True))
    case.to(10)
    case.submit(_tolerant("a/p", 2))
    case.to(20)
    assert case.starts("a/p") == ["11:00"]
    assert not [seen for seen in case.seen if isinstance(seen.decision, GiveUp)]


def test_places_are_given_up_where_the_node_is_no_longer_for_the_workload() -> None:
    case = Case([node("n1", 2)], tree(queue("a", 2), queue("b")), stops_us={"b/v": MINUTE_US})
    case.submit(batch("b/v", 2))
    case.to(10)
    asker = work("a/p", 2)
    (pods,) = asker.pod_sets
    masked = replace(pods, request=replace(pods.request, mask="m"))
    case.happen(ev.MaskSet(0, "m", ("n1",)))
    case.submit(replace(asker, pod_sets=(masked,)))
    case.happen(ev.MaskSet(0, "m", ()))
    case.to(20)
    assert case.starts("a/p") == []


def test_whoever_waits_for_a_protection_to_end_is_not_put_off_until_work_ends() -> None:
    bounds = EvictionBounds(minimum_run_us=30 * MINUTE_US)
    case = Case([node("n1", 2)], tree(queue("a", 2), queue("b", eviction=bounds)))
    case.submit(batch("b/v", 2, run_us=10 * HOUR_US))
    case.to(1)
    case.submit(work("a/p", 2))
    case.to(60)
    assert case.starts("a/p") == ["10:00"]


def test_work_past_its_declared_end_loses_its_minimum_run_at_once() -> None:
    bounds = EvictionBounds(minimum_run_us=60 * MINUTE_US)
    case = Case([node("n1", 1)], tree(queue("q", eviction=bounds)))
    case.submit(work("q/low", run_us=20 * MINUTE_US))
    case.to(1)
    case.submit(work("q/high", priority=1))
    case.to(30)
    assert case.starts("q/high") == ["20:00"]


def test_a_workload_may_be_preempted_again_when_a_day_has_passed() -> None:
    bounds = EvictionBounds(per_workload_per_day=1)
    case = Case([node("n1", 1)], tree(queue("q", eviction=bounds)))
    case.submit(work("q/low"))
    case.to(10)
    case.submit(work("q/h1", priority=1))
    case.to(20)
    case.end("q/h1")
    case.to(30)
    case.submit(work("q/h2", priority=1))
    case.to(DAY + 60)
    assert case.starts("q/h2") == [f"{DAY + 10}:00"]


def test_losses_of_a_queue_are_forgotten_when_a_day_has_passed() -> None:
    bounds = EvictionBounds(device_hours_lost_per_day=1, checkpoint_interval_us=HOUR_US)
    case = Case([node("n1", 1)], tree(queue("q", eviction=bounds)))
    case.submit(work("q/low"))
    case.to(60)
    case.submit(work("q/h1", priority=1))
    case.to(70)
    case.end("q/h1")
    case.to(80)
    case.submit(work("q/h2", priority=1))
    case.to(DAY + 120)
    assert case.starts("q/h2") == [f"{DAY + 60}:00"]


def test_a_checkpoint_may_bring_a_victim_within_the_bounds() -> None:
    bounds = EvictionBounds(device_hours_lost_per_day=1)
    case = Case([node("n1", 4)], tree(queue("q", eviction=bounds)))
    case.submit(work("q/low", 4))
    case.to(60)
    case.submit(work("q/high", priority=1))
    assert case.starts("q/high") == []
    case.to(70)
    case.happen(ev.CheckpointReported(0, "q/low", us(69)))
    assert case.starts("q/high") == ["70:00"]


def test_a_lower_priority_of_what_runs_counts_from_the_next_cycle() -> None:
    priorities = (Priority("high", 10), Priority("low", 0))
    case = Case([node("n1", 1)], tree(queue("q", priorities=priorities)))
    case.submit(work("q/w", priority_name="high"))
    case.submit(work("q/h", priority_name="high"))
    case.to(10)
    case.happen(ev.PrioritySet(0, "q/w", "low"))
    assert case.starts("q/h") == ["10:00"]


def test_work_that_is_found_running_may_be_taken_back_from_at_once() -> None:
    case = Case([node("n1", 1), node("n2", 1)], tree(queue("a", 2), queue("b")))
    case.happen(ev.NodeCordoned(0, "n2", True))
    case.submit(work("a/first"))
    case.submit(work("a/p"))
    case.to(10)
    case.happen(ev.NodeCordoned(0, "n2", False))
    assert case.starts("a/p") == ["10:00"]


def test_an_elastic_gang_takes_back_what_it_needs_where_all_of_it_is_not_guaranteed() -> None:
    case = Case([node("n1", 4)], tree(queue("a", 2), queue("b")))
    case.submit(batch("b/v", 4))
    case.to(10)
    case.submit(work("a/e", pods=4, minimum=1))
    assert case.starts("a/e") == ["10:00"]


def test_a_gang_that_was_made_smaller_and_has_ended_does_not_come_back() -> None:
    case = Case([node("n1", 2)], tree(queue("a", 1), queue("b")), stops_us={"b/e": MINUTE_US})
    case.submit(work("b/e", pods=2, minimum=1))
    case.to(10)
    case.submit(work("a/p"))
    assert case.evictions == [("10:00", "b/e", (1,))]
    case.happen(ev.PodEnded(0, "b/e", 0))
    case.to(20)
    assert case.starts("b/e") == ["0:00"]
    assert "b/e" not in case.world.entries


def test_no_pod_of_a_notebook_goes() -> None:
    case = Case([node("n1", 2)], tree(queue("q", 2)))
    case.submit(work("q/n", pods=2, minimum=1, type_=WorkloadType.NOTEBOOK))
    assert case.starts("q/n") == ["0:00"]
    case.to(10)
    case.submit(work("q/h", priority=1))
    assert case.evictions == []


def test_what_is_on_its_way_is_not_evicted_for_twice() -> None:
    case = Case(
        [node("n1", 8), node("n2", 8)],
        tree(queue("a", 8), queue("b")),
        stops_us={"b/v1": MINUTE_US, "b/v2": MINUTE_US},
    )
    case.submit(batch("b/v1", 8), batch("b/v2", 8))
    case.to(10)
    case.submit(work("a/p", 4), work("a/q", 4))
    case.to(12)
    assert case.starts("a/p") == case.starts("a/q") == ["11:00"]
    assert len(case.evictions) == 1


def test_a_limit_on_borrowing_does_not_keep_urgent_work_from_going_first() -> None:
    case = Case([node("n1", 3)], tree(queue("q", 0, borrow=(("H100", 1),))))
    case.submit(work("q/low"))
    case.to(10)
    case.submit(work("q/high", priority=1))
    assert case.starts("q/high") == ["10:00"]


def test_a_refused_eviction_is_charged_to_nobody() -> None:
    bounds = EvictionBounds(per_workload_per_day=1)
    case = Case([node("n1", 1)], tree(queue("q", eviction=bounds)), stops_us={"q/low": HOUR_US})
    case.submit(work("q/low"))
    case.to(10)
    case.submit(work("q/high", priority=1))
    case.happen(ev.DisruptionBudgetSet(0, "b", 0, ("q/low",)), ev.EvictionBlocked(0, "q/low", 1, 0))
    case.to(11)
    case.happen(ev.DisruptionBudgetSet(0, "b", 1, ("q/low",)))
    evicts = [seen.decision for seen in case.seen if isinstance(seen.decision, Evict)]
    assert len(evicts) == 2
    assert evicts[0].key != evicts[1].key


def test_what_went_before_a_restart_is_not_evicted_for_again() -> None:
    stops_us = {"b/v1": MINUTE_US}
    case = Case([node("n1", 4), node("n2", 4)], tree(queue("a", 8), queue("b")), stops_us=stops_us)
    case.submit(batch("b/v1", 4), batch("b/v2", 4))
    case.to(10)
    going = case.world.entries["b/v1"]
    case.feed(
        ev.Decided(
            case.now_us,
            Evict("evict/1", "b/v1", (0,), ("a/p",), 0, True, 0, Reason.RECLAIM),
        )
    )
    assert going.rests(0)
    case.schedule(case.now_us + MINUTE_US, ev.PodEnded(case.now_us + MINUTE_US, "b/v1", 0))
    case.submit(work("a/p", 4))
    case.to(20)
    assert case.starts("a/p") == ["11:00"]
    assert case.evictions == []


def test_places_kept_ahead_do_not_put_off_a_reclaim_that_becomes_possible() -> None:
    case = Case([node("n1", 2)], tree(queue("a", 2), queue("b")))
    case.submit(batch("b/v", 2, run_us=10 * HOUR_US))
    case.happen(ev.DisruptionBudgetSet(0, "x", 0, ("b/v",)))
    case.to(1)
    case.submit(work("a/p", 2))
    case.to(5)
    case.happen(ev.DisruptionBudgetSet(0, "x", 1, ("b/v",)))
    case.to(20)
    assert case.starts("a/p") == ["5:00"]


def test_places_kept_ahead_stay_kept_while_late_work_cannot_be_evicted() -> None:
    case = Case([node("n1", 1)], tree(queue("a", 1), queue("b", 1)))
    case.submit(batch("b/v", 1, run_us=10 * MINUTE_US))
    case.to(1)
    case.submit(work("a/p", 1))
    case.to(20)
    case.run_on(20)


def test_a_gang_goes_before_work_of_its_queue_where_others_need_not_give_back_to_it() -> None:
    """What nobody holds of all guarantees together is no right of a queue that has none."""
    case = Case([node("n1", 5)], tree(queue("a", 5), queue("b"), queue("c")))
    case.submit(batch("b/v0"), batch("b/v1"), work("c/low", pods=2))
    case.to(10)
    case.submit(work("c/high", pods=3, priority=1))
    assert case.starts("c/high") == ["10:00"]
    assert [uid for _, uid, _ in case.evictions] == ["c/low"]


def test_a_gang_takes_back_from_outside_its_team_what_its_sister_need_not_give() -> None:
    """Two devices of the team are guaranteed to neither of the sisters; one of them is lent."""
    team = queue("team", 4)
    sisters = [replace(queue(name, 1), parent="team") for name in ("one", "two")]
    case = Case([node("n1", 5)], tree(team, *sisters, queue("b")))
    case.submit(work("b/old"), batch("b/v"), work("two/s1"), work("two/s2"))
    case.to(5)
    case.submit(batch("two/s3"))
    case.end("two/s1")
    case.submit(batch("b/w"))
    case.to(10)
    case.submit(work("one/p", pods=2))
    assert case.starts("one/p") == ["10:00"]
    assert sorted(uid for _, uid, _ in case.evictions) == ["b/v", "b/w"]


def _two_askers() -> Case:
    """Two askers take back one device each from an elastic gang, of pods that stop slowly."""
    case = Case(
        [node("n1", 6)],
        tree(queue("a", 2), queue("b"), queue("c"), root=Queue("root", limit=(("H100", 4),))),
        stops_us={"b/v": 2 * MINUTE_US},
    )
    case.submit(work("b/v", pods=4, minimum=1))
    case.to(10)
    case.submit(work("a/p1"), work("a/p2"))
    assert case.evictions == [("10:00", "b/v", (2, 3))]
    return case


def test_a_pod_that_goes_for_nobody_any_more_is_charged_until_it_is_gone() -> None:
    """Else five devices would be in use where the limit is four."""
    case = _two_askers()
    case.end("a/p1", outcome=Outcome.CANCELLED)
    assert [case.holds(name) for name in ("root", "a", "b")] == [4000, 1000, 3000]
    case.submit(batch("c/w"))
    assert case.starts("c/w") == []
    case.to(20)
    assert case.starts("a/p2") == case.starts("c/w") == ["12:00"]


def test_places_are_free_when_the_pods_are_gone_that_went_for_them() -> None:
    case = _two_askers()
    going = case.world.entries["b/v"].evicting
    case.to(11)
    case.happen(ev.PodEnded(0, "b/v", 2))
    assert len(going) == 1
    assert sorted(case.starts("a/p1") + case.starts("a/p2")) == ["11:00"]
    case.to(20)
    assert sorted(case.starts("a/p1") + case.starts("a/p2")) == ["11:00", "12:00"]


def test_for_whom_each_pod_goes_survives_a_restart() -> None:
    case = _two_askers()
    again = World()
    for event in case.world.snapshot(case.now_us):
        again.apply(event)
    before, after = (world.entries["b/v"].evicting for world in (case.world, again))
    assert after == before == {3: ("a/p1",), 2: ("a/p2",)}


def test_of_many_cheap_victims_on_many_nodes_none_goes_that_could_be_spared() -> None:
    """Every node has work of all ages, so that hundreds go before the first node is clear."""
    names = [f"n{n:02}" for n in range(80)]
    case = Case([node(name, 8, cpu=64) for name in names], tree(queue("a", 16), queue("b")))
    for minute in range(8):
        case.to(minute)
        for name in names:
            case.adopt(batch(f"b/{name}-{minute}"), name)
    case.to(10)
    case.submit(work("a/p", 4, pods=2))
    assert case.starts("a/p") == ["10:00"]
    assert len(case.evictions) == 8


def test_what_becomes_free_lets_more_urgent_work_take_what_it_lacks_beside_it() -> None:
    """Nothing starts in the free device, so nothing else would have made it look again."""
    case = Case([node("n", 2)], tree(queue("q")))
    case.submit(work("q/top", priority=9), batch("q/low"))
    case.to(10)
    case.submit(work("q/both", 2, priority=5))
    case.to(20)
    case.end("q/top")
    assert case.evicted == [("20:00", "q/low", 20)]
    assert case.starts("q/both") == ["20:00"]


def test_a_minimum_run_protects_while_pods_are_being_started() -> None:
    """The pod takes a minute to start, and may go for more urgent work an hour after that."""
    bounds = EvictionBounds(minimum_run_us=HOUR_US)
    world = World()
    world.apply(ev.NodeSeen(0, node("n", 1)))
    world.apply(ev.QueuesSet(0, tree(queue("q", eviction=bounds))))
    world.apply(ev.WorkloadSubmitted(0, work("q/low")))
    decide(world, now_us=0)
    world.apply(ev.WorkloadSubmitted(1, work("q/high", priority=1)))
    came = decide(world, now_us=1)
    assert not [each for each in came.decisions if isinstance(each, Evict)]
    world.apply(ev.PodStarted(MINUTE_US, "q/low", 0))
    came = decide(world, now_us=MINUTE_US)
    assert not [each for each in came.decisions if isinstance(each, Evict)]
    assert came.look_again_us == MINUTE_US + HOUR_US
    came = decide(world, now_us=MINUTE_US + HOUR_US)
    assert [each.workload for each in came.decisions if isinstance(each, Evict)] == ["q/low"]


@pytest.mark.parametrize("later_s", [0, 20])
def test_nobody_goes_where_work_that_ran_for_its_maximum_stops(later_s: int) -> None:
    """Also where it begins to in the same cycle; its place is kept for whoever asks."""
    at_most = ((WorkloadType.BATCH, 60 * MINUTE_US),)
    case = Case([node("n1", 2)], tree(queue("a", 1), queue("b", maximum_run_us=at_most)))
    case.stops_us["b/long"] = MINUTE_US
    case.submit(batch("b/long", grace_us=MINUTE_US))
    case.to(30)
    case.submit(batch("b/other"))
    case.schedule(us(60) + later_s * 1_000_000, ev.WorkloadSubmitted(us(60), work("a/p")))
    case.to(80)
    assert case.evictions == [("60:00", "b/long", (0,))]
    assert case.starts("a/p") == ["61:00"]


def test_nobody_goes_where_a_pod_stops_whose_asker_was_cancelled() -> None:
    case = Case([node("n1", 2)], tree(queue("a", 1), queue("b")), {"b/v": 2 * MINUTE_US})
    case.submit(batch("b/v", grace_us=2 * MINUTE_US), work("b/w"))
    case.to(10)
    case.submit(work("a/first"))
    case.to(11)
    case.end("a/first", outcome=Outcome.CANCELLED)
    case.submit(work("a/second"))
    case.to(20)
    assert case.evictions == [("10:00", "b/v", (0,))]
    assert case.starts("a/second") == ["12:00"]


@pytest.mark.parametrize(("stops_min", "evicted"), [(60, ["b/low", "c/x"]), (9, ["b/low"])])
def test_nobody_waits_for_who_stops_later_than_his_guarantee_lets_him(
    stops_min: int, evicted: list[str]
) -> None:
    """Beside who is preempted in b a device comes free, in an hour or in time; c borrows one."""
    case = Case(
        [node("n1", 4)], tree(queue("a", 1), queue("b", 2), queue("c")), {"b/low": us(stops_min)}
    )
    case.submit(work("b/low", 2, grace_us=us(stops_min)), batch("c/x"), work("c/y"))
    case.to(10)
    case.submit(work("b/high", priority=1))
    case.to(11)
    case.submit(work("a/p"))
    case.to(100)
    assert [uid for _, uid, _ in case.evictions] == evicted
    assert case.starts("a/p") == ["11:00" if len(evicted) > 1 else "19:00"]


def test_of_two_who_stop_already_the_one_is_waited_for_that_stops_in_time() -> None:
    at_most = ((WorkloadType.BATCH, us(11)),)
    case = Case(
        [node("n1", 4)],
        tree(queue("a", 1), queue("b", 2), queue("c", maximum_run_us=at_most)),
        {"b/low": us(60), "c/x": us(2)},
    )
    case.submit(work("b/low", 2, grace_us=us(60)))
    case.submit(batch("c/x", grace_us=us(2)), work("c/y"))
    case.to(10)
    case.submit(work("b/high", priority=1))
    case.to(11.5)
    case.submit(work("a/p"))
    case.to(100)
    assert [uid for _, uid, _ in case.evictions] == ["b/low", "c/x"]
    assert case.starts("a/p") == ["13:00"]


def test_of_an_elastic_gang_as_many_go_as_its_queue_may_lose() -> None:
    bounds = EvictionBounds(device_hours_lost_per_day=2)
    case = Case([node("n1", 4)], tree(queue("q", eviction=bounds)))
    case.submit(work("q/elastic", pods=4, minimum=1))
    case.to(60)
    case.submit(work("q/h", priority=1))
    assert case.evictions == [("60:00", "q/elastic", (3,))]


def test_who_needs_several_is_looked_at_when_losses_are_forgotten() -> None:
    """Either of two may go, and both only when what was lost before is a day old."""
    bounds = EvictionBounds(device_hours_lost_per_day=1, checkpoint_interval_us=30 * MINUTE_US)
    patient = queue("q", eviction=bounds, starvation_after_us=100 * DAY * MINUTE_US)
    case = Case([node("n1", 3)], tree(patient))
    case.submit(work("q/l0"), work("q/l1"), work("q/l2"))
    case.to(60)
    case.submit(work("q/h", priority=1))
    case.to(70)
    case.end("q/l0", outcome=Outcome.CANCELLED)
    case.submit(work("q/gang", pods=2, priority=1))
    case.to(2 * DAY)
    assert case.starts("q/gang") == [f"{DAY + 60}:00"]
