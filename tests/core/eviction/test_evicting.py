"""An eviction that is refused leaves nothing behind: no loss, no count, no mark."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import settings

from shoal.core import events as ev
from shoal.core.decisions import Evict, Start
from shoal.core.eviction.evictions import DAY_US, MOST_EVICTIONS, WINDOW_US
from shoal.core.validate import Validator, check
from shoal.core.world import World
from shoal.model.queue import EvictionBounds
from shoal.model.verdict import Reason
from shoal.model.workload import Placement, WorkloadType
from tests.core.build import node
from tests.core.cases import MINUTE_US, Case, batch, queue, tree, work

HOUR_US = 60 * MINUTE_US
NEVER_US = 10 * DAY_US


def accounts(world: World) -> Any:
    """All that counts of evictions, as a snapshot says it."""
    marks = {
        uid: (entry.was_evicted, entry.evictions_us, entry.underway)
        for uid, entry in world.entries.items()
        if entry.held
    }
    evictions = world.evictions
    return marks, tuple(evictions.all_lost()), tuple(evictions.recent_us)


def at(kept: Any, now_us: int) -> Any:
    """What of that counts at a time."""
    marks, lost, recent_us = kept
    marks = {
        uid: (was, tuple(each for each in times if each > now_us - DAY_US), underway)
        for uid, (was, times, underway) in marks.items()
    }
    lost = tuple(each for each in lost if each[1] > now_us - DAY_US)
    return marks, lost, tuple(each for each in recent_us if each > now_us - WINDOW_US)


def restored(case: Case) -> None:
    """Go on with a world made of a snapshot."""
    snapshot = tuple(case.world.snapshot(case.now_us))
    case.world = World()
    for event in snapshot:
        case.world.apply(event)
    assert tuple(case.world.snapshot(case.now_us)) == snapshot
    case.validator = Validator(case.world)


def refuse(case: Case, *uids: str, allowed: int | None = 0) -> None:
    """The evictions of these are refused; their pods stay, and may not be asked again."""
    case._due.clear()
    for uid in uids:
        entry = case.world.entries[uid]
        budget = ev.DisruptionBudgetSet(0, f"b-{uid}", allowed, (uid,))
        case.feed(replace(budget, at_us=case.now_us))
        pod = min(entry.evicting)
        case.feed(ev.EvictionBlocked(case.now_us, uid, entry.attempt, pod))
    check(case.world)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("later", [0, 3 * 60, 30 * 60])
def test_a_refused_preemption_is_taken_back_whenever_that_is_known(
    again: bool, restarts: bool, later: int
) -> None:
    case = Case([node("n1", 1)], tree(queue("q")))
    case.submit(work("q/low"))
    case.to(10)
    if again:
        case.submit(work("q/first", priority=1))
        case.end("q/first")
        case.to(30)
    case.stops_us = {"q/low": NEVER_US}
    before = accounts(case.world)
    assert before[0]["q/low"][0] is again
    assert len(before[1]) == len(before[0]["q/low"][1]) == again
    case.submit(work("q/high", priority=1))
    counted = accounts(case.world)
    assert sum(lost for _, _, lost in counted[1]) > sum(lost for _, _, lost in before[1])
    assert counted[2][-1:] == (case.now_us,)
    case.now_us += later * MINUTE_US
    if restarts:
        restored(case)
    refuse(case, "q/low")
    assert at(accounts(case.world), case.now_us) == at(before, case.now_us)
    assert case.world.entries["q/high"].group is not None


def test_what_a_refused_eviction_would_have_lost_may_be_lost_by_another() -> None:
    """One hour a day and one preemption a workload: both are there again for the next."""
    bounds = EvictionBounds(device_hours_lost_per_day=1, per_workload_per_day=1)
    case = Case([node("n1", 2)], tree(queue("q", eviction=bounds)))
    case.stops_us = {"q/one": NEVER_US, "q/two": NEVER_US}
    case.submit(batch("q/one"), work("q/two"))
    case.to(45)
    case.submit(work("q/high", priority=1))
    assert [uid for _, uid, _ in case.evictions] == ["q/one"]
    refuse(case, "q/one")
    case.turn()
    assert [uid for _, uid, _ in case.evictions] == ["q/one", "q/two"]
    refuse(case, "q/two")
    case.turn()
    assert len(case.evictions) == 2
    case.to(50)
    case.happen(ev.DisruptionBudgetSet(0, "b-q/one", 1, ("q/one",)))
    assert [uid for _, uid, _ in case.evictions] == ["q/one", "q/two", "q/one"]
    assert case.world.evictions.lost_today("q", case.now_us) == 50 * MINUTE_US


@pytest.mark.parametrize("restarts", [False, True])
def test_what_went_before_it_was_refused_stays_lost_and_nothing_else(restarts: bool) -> None:
    case = Case([node("n1", 4)], tree(queue("q")))
    case.submit(work("q/gang", pods=4, minimum=1))
    entry = case.world.entries["q/gang"]
    case.to(20)
    entry.started[3] = 7 * MINUTE_US
    case.stops_us = {"q/gang": NEVER_US}
    case.submit(work("q/high", devices=2, priority=1))
    assert [pods for _, _, pods in case.evictions] == [(2, 3)]
    assert case.world.evictions.lost_today("q", case.now_us) == (20 + 13) * MINUTE_US
    at_us = case.now_us
    case.to(25)
    case.feed(ev.PodEnded(case.now_us, "q/gang", 3))
    if restarts:
        restored(case)
    refuse(case, "q/gang")
    marks, lost, recent_us = accounts(case.world)
    assert lost == (("q", at_us, 13 * MINUTE_US),)
    assert marks["q/gang"] == (True, (at_us,), ())
    assert recent_us == ()
    assert set(case.world.entries["q/gang"].held) == {0, 1, 2}


def test_two_evictions_of_one_workload_are_taken_back_together() -> None:
    case = Case([node("n1", 4)], tree(queue("q")), stops_us={"q/gang": NEVER_US})
    case.submit(work("q/gang", pods=4, minimum=1))
    before = accounts(case.world)
    for number, minutes in enumerate((10, 20)):
        case.to(minutes)
        case.submit(work(f"q/high{number}", priority=1))
    assert [pods for _, _, pods in case.evictions] == [(3,), (2,)]
    assert len(case.world.entries["q/gang"].underway) == 2
    case.to(21)
    refuse(case, "q/gang")
    assert accounts(case.world) == before
    waits = [case.world.entries[f"q/high{number}"].group for number in range(2)]
    assert None not in waits


def test_a_pod_that_moves_while_it_goes_still_goes() -> None:
    case = Case([node("n1", 1), node("n2", 1)], tree(queue("q")), stops_us={"q/low": NEVER_US})
    case.submit(work("q/low"), work("q/other"))
    before = accounts(case.world)
    case.to(10)
    case.submit(work("q/high", priority=1))
    (uid,) = [uid for _, uid, _ in case.evictions]
    held = case.world.entries[uid].held[0]
    case.feed(ev.PodMoved(case.now_us, uid, held))
    assert len(case.world.entries[uid].underway) == 1
    refuse(case, uid)
    assert accounts(case.world) == before


def test_who_is_gone_before_its_failed_start_is_taken_back_waits_once() -> None:
    """Its pod was told to stop before it ran, then did not start, and is gone: all in one turn."""
    case = Case([node("n1", 1)], tree(queue("q")))
    case.feed(ev.WorkloadSubmitted(0, work("q/low")))
    case.feed(ev.Decided(0, Start("s", "q/low", (Placement(0, "n1", ("n1/0",)),))))
    low = case.world.entries["q/low"]
    evict = Evict("e", "q/low", (0,), (), 0, exact=True, grace_us=0, reason=Reason.RECLAIM)
    case.feed(ev.Decided(0, evict))
    case.feed(ev.StartFailed(0, "q/low", low.attempt, 0))
    case.feed(ev.PodEnded(0, "q/low", 0))
    check(case.world)
    assert (low.failed_on, low.refused) == (None, frozenset({"n1"}))
    case.turn()
    assert case.starts("q/low") == [], "before the node has changed, it is not planned there"
    case.happen(ev.NodeSeen(0, node("n1", 2)))
    assert case.starts("q/low") == ["0:00"]


def test_evictions_that_are_refused_again_and_again_do_not_freeze_those_of_others() -> None:
    """Two workloads that nobody may evict would fill the guard's count within five minutes."""
    case = Case([node("n1", 2)], tree(queue("a", 2), queue("b")), stops_us={"b/x": NEVER_US})
    case.stops_us = {"b/x": NEVER_US, "b/y": NEVER_US}
    case.submit(batch("b/x"), batch("b/y"))
    case.to(1)
    case.submit(work("a/p", 2))
    for _ in range(MOST_EVICTIONS):
        going = [uid for uid, entry in case.world.entries.items() if entry.evicting]
        assert len(going) == 2
        refuse(case, *going, allowed=1)
        case.run_for(20)
    assert not case.world.evictions.frozen
    assert len(case.evictions) >= 2 * MOST_EVICTIONS


def test_a_burst_freezes_evictions_also_if_all_of_it_is_refused_later() -> None:
    """What is wanted at once shows a wrong world before anybody has had the time to refuse it."""
    pods = MOST_EVICTIONS + 1
    case = Case([node("n1", pods)], tree(queue("a", pods), queue("b")))
    uids = [f"b/w{number}" for number in range(pods)]
    case.stops_us = dict.fromkeys(uids, NEVER_US)
    case.submit(*(batch(uid) for uid in uids))
    case.to(1)
    case.submit(*(work(f"a/p{number}") for number in range(pods)))
    going = [uid for uid in uids if case.world.entries[uid].evicting]
    assert len(going) == MOST_EVICTIONS
    assert case.world.evictions.frozen
    refuse(case, *going)
    assert case.world.evictions.frozen
    assert case.world.evictions.lately(case.now_us) == 0


def test_the_end_of_work_that_is_refused_leaves_no_mark() -> None:
    run = ((WorkloadType.BATCH, 30 * MINUTE_US),)
    case = Case([node("n1", 1)], tree(queue("q", maximum_run_us=run)))
    case.stops_us = {"q/w": NEVER_US}
    case.submit(batch("q/w"))
    before = accounts(case.world)
    case.to(30)
    assert case.world.entries["q/w"].was_evicted
    refuse(case, "q/w")
    assert accounts(case.world) == before


def test_after_a_person_resumed_there_is_nothing_left_to_take_back_from_the_count() -> None:
    case = Case([node("n1", 2)], tree(queue("q")))
    case.stops_us = {"q/one": NEVER_US, "q/two": NEVER_US}
    case.submit(work("q/one"), work("q/two"))
    case.to(10)
    case.submit(work("q/high0", priority=1))
    (first,) = [uid for _, uid, _ in case.evictions]
    case.happen(ev.EvictionsResumed(0, "somebody"))
    case.to(11)
    case.submit(work("q/high1", priority=1))
    assert case.world.evictions.lately(case.now_us) == 1
    refuse(case, first)
    assert case.world.evictions.lately(case.now_us) == 1


def lived(seed: int) -> int:
    """A day in which a part of all evictions is refused; how many were.

    Beside the world goes a ledger: what every eviction counted, without those that were refused.
    """
    chance = Random(seed)  # noqa: S311 - a test's
    bounds = EvictionBounds(per_workload_per_day=3, device_hours_lost_per_day=6)
    queues = tree(queue("a", 4), queue("b", 2, eviction=bounds), queue("c"))
    case = Case([node("n1", 4), node("n2", 4)], queues)
    refused: set[int] = set()
    looked_at = 0
    for step in range(40):
        uid = f"{chance.choice('abbcc')}/w{step}"
        case.stops_us[uid] = NEVER_US
        case.to(case.now_us / MINUTE_US + chance.randint(1, 90))
        case.submit(
            work(
                uid,
                chance.choice([1, 1, 2]),
                pods=chance.choice([1, 1, 3]),
                priority=chance.choice([0, 1, 2]),
                type_=chance.choice([WorkloadType.TRAINING, WorkloadType.BATCH]),
            )
        )
        if chance.random() < 0.2:
            restored(case)
        for going in sorted(uid for uid, entry in case.world.entries.items() if entry.evicting):
            if chance.random() < 0.5:
                refused |= {
                    looked_at + number
                    for number, seen in enumerate(case.seen[looked_at:])
                    if isinstance(seen.decision, Evict) and seen.decision.workload == going
                }
                refuse(case, going, allowed=chance.choice([0, 1]))
            else:
                for pod in tuple(case.world.entries[going].evicting):
                    case.feed(ev.PodEnded(case.now_us, going, pod))
        looked_at = len(case.seen)
        case._due.clear()
        case.turn()
        _check_ledger(case, refused)
    return len(refused)


def _check_ledger(case: Case, refused: set[int]) -> None:
    """What counts as lost is what every preemption lost but those that were refused."""
    expected = dict.fromkeys("abc", 0)
    for number, seen in enumerate(case.seen):
        evict = seen.decision
        if number in refused or not isinstance(evict, Evict):
            continue
        if evict.reason is Reason.PREEMPTION and seen.at_us > case.now_us - DAY_US:
            expected[evict.workload.partition("/")[0]] += evict.lost_device_us
    lost_today = case.world.evictions.lost_today
    assert {name: lost_today(name, case.now_us) for name in "abc"} == expected


def test_a_day_with_refusals_counts_just_what_was_not_refused() -> None:
    assert sum(lived(seed) for seed in range(max(5, settings().max_examples // 10))) > 20
