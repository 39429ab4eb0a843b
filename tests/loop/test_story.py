"""The story: bounded, in order, and the same however it came about."""

from dataclasses import replace

from shoal.core import events as ev
from shoal.core.decisions import (
    Evict,
    Freeze,
    GiveUp,
    Refuse,
    Reserve,
    Resize,
    Start,
    Wait,
    Warn,
)
from shoal.loop.metrics import LoopMetrics
from shoal.loop.steps import Step
from shoal.loop.story import (
    ENDED_KEPT,
    MOMENTS_KEPT,
    NAMED,
    NOTED_KEPT,
    Acting,
    Guard,
    Story,
)
from shoal.model.verdict import Obstacle, OverBudget, Reason, Stage, Verdict
from shoal.model.workload import Outcome, Placement, Workload
from tests.core.build import job, share, whole

VERDICT = Verdict(Stage.PLACE, (Obstacle(Reason.CPU, 3),), 0, 1, ())
WORK = job("w", share(100))


def told(story: Story, *items: ev.Event) -> Story:
    """Tell a story more."""
    for item in items:
        offset = max((each.offset for each in story.noted), default=0) + 1
        story.apply(offset, item)
    return story


def submitted(workload: Workload) -> ev.Event:
    return ev.WorkloadSubmitted(1, workload)


def test_a_wait_about_many_names_a_few_and_counts_all() -> None:
    uids = tuple(f"w{number}" for number in range(100))
    story = told(Story(), *(submitted(replace(WORK, uid=uid)) for uid in uids))
    told(story, ev.Decided(2, Wait("k", uids, VERDICT)))
    (noted,) = story.noted
    assert isinstance(noted.decision, Wait)
    assert (noted.decision.workloads, noted.workloads) == (uids[:NAMED], 100)
    assert {life.moments[-1].reason for life in story.lives.values()} == {Reason.CPU}


def test_it_is_bounded_in_every_direction() -> None:
    story = Story()
    for number in range(ENDED_KEPT + 10):
        uid = f"w{number}"
        told(
            story,
            submitted(replace(WORK, uid=uid)),
            ev.WorkloadEnded(number, uid, Outcome.COMPLETED),
        )
    assert len(story.ended) == ENDED_KEPT
    assert story.life("w9") is None
    assert story.life("w10") is not None
    told(story, submitted(WORK))
    for number in range(NOTED_KEPT + 10):
        told(story, ev.Decided(number, Wait(str(number), ("w",), VERDICT)))
    assert len(story.noted) == NOTED_KEPT
    life = story.lives["w"]
    assert len(life.moments) == MOMENTS_KEPT
    assert life.moments[0].step is Step.SUBMITTED
    assert life.moments[-1].at_us == NOTED_KEPT + 9


def test_decisions_are_listed_from_any_offset() -> None:
    story = told(Story(), submitted(WORK))
    for offset in (3, 5, 8):
        story.apply(offset, ev.Decided(offset, Wait(str(offset), ("w",), VERDICT)))
    assert [each.offset for each in story.noted_after(0)] == [3, 5, 8]
    assert [each.offset for each in story.noted_after(3)] == [5, 8]
    assert story.noted_after(8) == []


def test_late_and_repeated_items_change_nothing() -> None:
    placements = (Placement(0, "n", ("n/0",)),)
    story = told(
        Story(),
        submitted(WORK),
        ev.Decided(2, Start("start/w/1", "w", placements)),
        ev.PodStarted(3, "w", 0),
    )
    before = list(story.snapshot(0))
    told(
        story,
        submitted(WORK),
        ev.PodStarted(4, "w", 0),
        ev.StartFailed(4, "w", 7, 0),
        ev.PodEnded(5, "w", 9),
        ev.PodStarted(5, "unknown", 0),
        ev.WorkloadEnded(6, "unknown", Outcome.FAILED),
    )
    assert list(story.snapshot(0)) == before
    assert story.lives["w"].nodes == ("n",)
    told(story, ev.PodEnded(7, "w", 0), ev.PodEnded(8, "w", 0))
    assert story.ended["w"].ended_us == 7
    assert story.ended["w"].outcome is None


# Evictions ----------------------------------------------------------------------------------------

TWO = job("w", whole(1), 2)
PLACES = (Placement(0, "n", ("n/0",)), Placement(1, "n", ("n/1",)))


def eviction(*pods: int, at_us: int = 50, reason: Reason = Reason.RECLAIM) -> ev.Event:
    evict = Evict(f"evict/{at_us}", "w", pods, ("p",), 7, True, 30, reason)
    return ev.Decided(at_us, evict)


def running(workload: Workload = TWO) -> Story:
    """A story in which a workload runs since 10 and is safe up to 40."""
    return told(
        Story(),
        submitted(workload),
        ev.Decided(2, Start("start/w/1", "w", PLACES)),
        ev.PodStarted(5, "w", 0),
        ev.PodStarted(10, "w", 1),
        ev.CheckpointReported(45, "w", 40),
    )


def restored(story: Story) -> Story:
    """A story made from the snapshot of another."""
    again = Story()
    for life in story.lives.values():
        again.apply(
            0,
            ev.WorkloadRestored(9, life.workload, life.attempt, life.placements, (0, 1), None, ()),
        )
    for part in story.snapshot(9):
        if isinstance(part, Acting):
            again.apply(0, part)
        else:
            again.restore(part)
    return again


def test_what_is_evicted_whole_waits_again_and_keeps_what_is_safe() -> None:
    story = told(running(), eviction(0, 1), ev.PodEnded(60, "w", 0))
    life = story.lives["w"]
    assert [each.pod for each in life.placements] == [1]
    assert life.evicting == (life.evicted,)
    assert list(restored(story).snapshot(9)) == list(story.snapshot(9))
    told(story, ev.PodEnded(70, "w", 1))
    life = story.lives["w"]
    assert not life.placements
    assert not life.evicting
    assert life.started_us is None
    assert life.running_us is None
    assert (life.done_us, life.checkpoint_us) == (30, None)
    assert life.evicted is not None
    assert life.evicted.at_us == 50
    assert [(each.step, each.reason, each.detail) for each in life.moments[-2:]] == [
        (Step.EVICTED, Reason.RECLAIM, "p"),
        (Step.WAITS_AGAIN, None, ""),
    ]
    assert list(restored(story).snapshot(9)) == list(story.snapshot(9))
    told(story, ev.Decided(80, Start("start/w/2", "w", PLACES)), ev.PodEnded(90, "w", 0))
    told(story, ev.PodEnded(91, "w", 1))
    assert story.ended["w"].outcome is None, "a later end is no eviction"


def test_a_workload_of_which_some_pods_are_evicted_runs_on() -> None:
    story = told(running(), eviction(1), ev.PodEnded(60, "w", 1))
    life = story.lives["w"]
    assert (life.running_us, life.checkpoint_us, life.evicting) == (10, 40, ())
    assert life.evicted is not None
    told(story, ev.PodEnded(70, "w", 0))
    assert story.ended["w"].outcome is None


def test_what_ended_by_itself_does_not_come_back_for_a_pod_that_it_could_spare() -> None:
    story = told(running(), eviction(1), ev.PodEnded(60, "w", 0))
    assert list(restored(story).snapshot(9)) == list(story.snapshot(9))
    for each in (restored(story), story):
        told(each, ev.PodEnded(70, "w", 1))
        assert each.ended["w"].outcome is None
    spared = told(
        running(), eviction(1), ev.PodEnded(60, "w", 0), ev.EvictionBlocked(61, "w", 1, 1)
    )
    assert not spared.lives["w"].ends


def test_what_nobody_makes_again_or_ran_too_long_ends() -> None:
    bare = told(running(replace(TWO, recreated=False)), eviction(0, 1))
    too_long = told(running(), eviction(0, 1, reason=Reason.MAXIMUM_RUN))
    first, second = eviction(0), eviction(1, at_us=51, reason=Reason.MAXIMUM_RUN)
    in_parts = told(running(), first, second)
    for story in (bare, too_long, in_parts, restored(too_long), restored(in_parts)):
        told(story, ev.PodEnded(60, "w", 1), ev.PodEnded(60, "w", 0))
        assert story.ended["w"].outcome is Outcome.EVICTED


def test_an_eviction_that_is_refused_did_not_happen() -> None:
    story = told(running(), eviction(0, 1), ev.EvictionBlocked(55, "w", 7, 0))
    life = story.lives["w"]
    assert life.evicting, "another start was meant"
    told(story, ev.EvictionBlocked(55, "w", 1, 0))
    assert (life.evicting, life.evicted, life.moments[-1].step) == ((), None, Step.SPARED)
    told(story, ev.PodEnded(60, "w", 0), ev.PodEnded(60, "w", 1))
    assert "w" in story.ended


def test_a_checkpoint_is_of_a_run_not_of_the_future_and_does_not_go_back() -> None:
    story = told(running(), ev.CheckpointReported(50, "w", 90))
    assert story.lives["w"].checkpoint_us == 50
    told(story, ev.CheckpointReported(60, "w", 20), ev.CheckpointReported(60, "unknown", 20))
    assert story.lives["w"].checkpoint_us == 50
    waits = told(Story(), submitted(TWO), ev.CheckpointReported(3, "w", 3))
    assert waits.lives["w"].checkpoint_us is None


def test_kept_places_and_frozen_evictions_are_told() -> None:
    kept = Reserve("r", "w", PLACES, None, ("v",), Reason.PREEMPTION)
    freeze = Freeze("f", 11, 10, Reason.TOO_MANY_EVICTIONS)
    story = told(
        Story(),
        submitted(TWO),
        ev.Decided(3, kept),
        ev.Decided(4, GiveUp("g", "w", Reason.PLACE_LOST)),
        ev.Decided(5, freeze),
    )
    assert [(each.step, each.reason) for each in story.lives["w"].moments[1:]] == [
        (Step.RESERVED, Reason.PREEMPTION),
        (Step.GAVE_UP, Reason.PLACE_LOST),
    ]
    assert story.guard == Guard(frozen_us=5, frozen=freeze)
    assert restored(story).guard == story.guard
    told(story, ev.EvictionsResumed(8, "user:ada"))
    assert story.guard == Guard(resumed_us=8, by="user:ada")


def test_evictions_are_counted_by_reason_with_what_they_cost() -> None:
    metrics = LoopMetrics()
    for reason, lost_us in ((Reason.RECLAIM, 5), (Reason.RECLAIM, 6), (Reason.PREEMPTION, 7)):
        metrics.decided(Evict("e", "w", (0,), (), lost_us, True, 0, reason))
    metrics.decided(Start("s", "w", ()))
    assert metrics.decisions == {"Evict": 3, "Start": 1}
    assert metrics.evictions == {"reclaim": 2, "preemption": 1}
    assert metrics.lost_device_us == {"reclaim": 11, "preemption": 7}


# Limits of time, and budgets ----------------------------------------------------------------------


def test_who_is_refused_has_ended_and_is_told_why() -> None:
    story = told(Story(), submitted(WORK), ev.Decided(9, Refuse("k", "w", 8, 8)))
    life = story.ended["w"]
    assert (story.lives, life.ended_us, life.outcome) == ({}, 9, Outcome.CANCELLED)
    assert (life.moments[-1].step, life.moments[-1].reason) == (Step.ENDED, Reason.MAXIMUM_WAIT)


def test_who_ran_for_as_long_as_it_may_ends_and_does_not_wait_again() -> None:
    evict = Evict("e", "w", (0,), (), 0, True, 5, Reason.MAXIMUM_RUN)
    start = Start("s", "w", (Placement(0, "n"),))
    story = told(Story(), submitted(WORK), ev.Decided(2, start), ev.PodStarted(3, "w", 0))
    told(story, ev.Decided(9, evict), ev.PodEnded(10, "w", 0))
    assert story.ended["w"].outcome is Outcome.EVICTED
    assert story.lives == {}


def test_a_warning_is_noted_and_is_about_no_workload() -> None:
    over = OverBudget("q", 5, 0, 0, 5, 99)
    (noted,) = told(Story(), ev.Decided(2, Warn("k", "q", over))).noted
    assert (noted.decision.reason, noted.workloads) == (Reason.BUDGET, 0)


def test_pods_that_join_are_told_with_when_they_were_to_and_what_came_of_it() -> None:
    places = tuple(Placement(pod, "n", (f"n/{pod}",)) for pod in range(4))
    story = told(
        Story(),
        submitted(WORK),
        ev.Decided(2, Start("s", "w", places[:2])),
        ev.PodStarted(3, "w", 0),
        ev.PodStarted(3, "w", 1),
        ev.Decided(4, Resize("r", "w", (places[3], places[2]))),
    )
    life = story.lives["w"]
    assert (life.placements, life.joining) == (places, {2: 4, 3: 4})
    assert (life.running_us, life.moments[-1].step) == (3, Step.GROWN)
    again = Story()
    told(again, ev.WorkloadRestored(9, WORK, 1, places, (0, 1), None, (), joining=(2, 3)))
    for part in story.snapshot(9):
        if not isinstance(part, Acting):
            again.restore(part)
    assert again.lives["w"] == life
    for each in (story, again):
        told(each, ev.PodMoved(5, "w", Placement(2, "m", ())))
        assert each.lives["w"].placements == places, "what does not run yet is nowhere else"
        told(each, ev.StartFailed(5, "w", 1, 3), ev.PodStarted(6, "w", 2))
        life = each.lives["w"]
        assert (life.placements, life.joining) == (places[:3], {})
        assert (life.running_us, life.moments[-1].step) == (3, Step.FAILED_START)
