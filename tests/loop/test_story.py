"""The story: bounded, in order, and the same however it came about."""

from dataclasses import replace

from shoal.core import events as ev
from shoal.core.decisions import Start, Wait
from shoal.loop.story import ENDED_KEPT, MOMENTS_KEPT, NAMED, NOTED_KEPT, Step, Story
from shoal.model.verdict import Obstacle, Reason, Stage, Verdict
from shoal.model.workload import Outcome, Placement, Workload
from tests.core.build import job, share

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
