"""Work that is evicted: it stops in its grace, waits again, and goes on from its checkpoint."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Decision, Evict, Freeze, Start
from shoal.core.policies import Policy
from shoal.core.validate import check
from shoal.core.world import State
from shoal.loop.disk import FastDisk
from shoal.loop.inbox import Act, Cancel, Submit
from shoal.loop.replica import restored
from shoal.loop.steps import Step
from shoal.loop.story import Life
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, PodSet, Workload, WorkloadType
from shoal.simulation import embedded
from shoal.simulation.organisation import fleet
from shoal.simulation.platform import RECORDING, TICK_US, BegunWith, Platform
from shoal.simulation.progress import (
    SAVE_EVERY_US,
    SAVING_US,
    leaves_us,
    length_us,
    next_save_us,
    saves,
)
from shoal.simulation.usage import uses
from shoal.simulation.virtual import VirtualTime
from tests.core.build import job, node, whole
from tests.simulation.crashing import SMALL
from tests.simulation.evicting import MINUTE_US, evict

QUIET = BegunWith(5, "pack", False, fleet())
"""Nothing comes in by itself."""


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[Platform]:
    platform = Platform(tmp_path, QUIET, disk=FastDisk(), rotation=SMALL)
    yield platform
    platform.close()


def ask(platform: Platform, *asks: Submit | Cancel | Act) -> None:
    """Ask, and let a tick pass."""
    for each in asks:
        platform.inbox.put(each)
    platform.run_until(platform.now_us + TICK_US)


def later(platform: Platform, length_us: int) -> None:
    """Let time pass."""
    platform.run_until(platform.now_us + length_us)


def decided(platform: Platform, decision: Decision) -> None:
    """Have a decision become state, and carry it out."""
    platform._writer.step(platform.now_us, [ev.Decided(platform.now_us, decision)])
    platform.embedded.carry_out(decision)


def training(
    platform: Platform, *, saving: bool, pods: int = 1, minimum: int | None = None
) -> Life:
    """Have a training start that does or does not save, and run to its last pod."""
    for number in range(100):
        uid = f"t{number}"
        work = replace(job(uid, whole(1), pods), type=WorkloadType.TRAINING)
        work = replace(work, pod_sets=(replace(work.pod_sets[0], minimum=minimum),))
        chance = platform.embedded.chance
        long = length_us(chance, work) > 3 * SAVE_EVERY_US
        if long and saves(chance, work) is saving:
            ask(platform, Submit((work,)))
            while platform.world.entries[uid].state is not State.RUNNING:
                later(platform, 10_000_000)
            return platform.story.lives[uid]
    raise AssertionError("no such uid")


def run_to_end(platform: Platform, uid: str) -> Life:
    """Let time pass until a workload has ended."""
    while uid in platform.world.entries:
        later(platform, 10 * MINUTE_US)
    return platform.story.ended[uid]


def test_what_saves_goes_on_from_its_last_checkpoint(quiet: Platform) -> None:
    """Evicted 40 minutes after it began, without the time to save: ten minutes are lost."""
    life = training(quiet, saving=True)
    uid, began_us = life.workload.uid, life.running_us or 0
    created_us = quiet.world.entries[uid].workload.created_us
    quiet.run_until(began_us + 40 * MINUTE_US)
    assert life.checkpoint_us == quiet.world.entries[uid].checkpoint_us == began_us + SAVE_EVERY_US
    decided(quiet, evict(uid, (0,)))
    assert life.moments[-1].step is Step.EVICTED
    ask(quiet)
    entry = quiet.world.entries[uid]
    assert (entry.attempt, entry.workload.created_us) == (2, created_us)
    assert life.done_us == SAVE_EVERY_US
    steps = [moment.step for moment in life.moments]
    assert steps[-3:] == [Step.EVICTED, Step.WAITS_AGAIN, Step.STARTED]
    ended = run_to_end(quiet, uid)
    left_us = length_us(quiet.embedded.chance, life.workload) - SAVE_EVERY_US
    ran_us = (ended.ended_us or 0) - (ended.running_us or 0)
    assert left_us + 2_000_000 <= ran_us <= left_us + 15_000_000


def test_what_is_given_the_time_saves_once_more(quiet: Platform) -> None:
    """Of two minutes of grace it takes 45 s at least, and nothing is lost."""
    life = training(quiet, saving=True)
    uid = life.workload.uid
    quiet.run_until((life.running_us or 0) + 40 * MINUTE_US)
    at_us = quiet.now_us
    decided(quiet, evict(uid, (0,), 120_000_000))
    later(quiet, SAVING_US - 1)
    assert quiet.world.entries[uid].state is State.RUNNING
    later(quiet, 1)
    assert quiet.world.entries[uid].checkpoint_us == at_us
    later(quiet, 120_000_000 - SAVING_US)
    assert quiet.world.entries[uid].attempt == 2
    assert life.done_us == 40 * MINUTE_US


def test_what_never_saves_begins_anew(quiet: Platform) -> None:
    life = training(quiet, saving=False)
    uid = life.workload.uid
    quiet.run_until((life.running_us or 0) + 100 * MINUTE_US)
    assert life.checkpoint_us is None
    decided(quiet, evict(uid, (0,), 120_000_000))
    later(quiet, 120_000_000)
    assert life.done_us == 0
    ended = run_to_end(quiet, uid)
    ran_us = (ended.ended_us or 0) - (ended.running_us or 0)
    assert ran_us > length_us(quiet.embedded.chance, life.workload)


def test_of_elastic_work_some_pods_go_and_it_runs_on(quiet: Platform) -> None:
    life = training(quiet, saving=True, pods=4, minimum=2)
    uid, running_us = life.workload.uid, life.running_us
    decided(quiet, evict(uid, (3, 2), 60_000_000))
    entry = quiet.world.entries[uid]
    while entry.evicting:
        assert not entry.joining, "nothing grows while some of it goes"
        later(quiet, TICK_US)
    assert (sorted(entry.held), entry.state, entry.attempt) == ([0, 1, 2, 3], State.RUNNING, 1)
    assert (life.running_us, life.evicting) == (running_us, ())
    assert life.evicted is not None
    assert [each.step for each in life.moments[-2:]] == [Step.EVICTED, Step.GROWN]
    assert life.joining.keys() == entry.joining == {2, 3}
    assert len(uses(quiet.embedded.chance, quiet.world, quiet.story, quiet.now_us)) == 2
    later(quiet, 2 * MINUTE_US)
    assert (len(entry.started), life.joining, life.running_us) == (4, {}, running_us)
    assert run_to_end(quiet, uid).outcome in (Outcome.COMPLETED, Outcome.FAILED)


def test_who_joins_does_so_at_the_same_time_after_a_restart(tmp_path: Path) -> None:
    began: list[dict[int, int]] = []
    for stops in (False, True):
        folder = tmp_path / str(stops)
        platform = Platform(folder, QUIET, disk=FastDisk(), rotation=SMALL)
        uid = training(platform, saving=True, pods=4, minimum=2).workload.uid
        decided(platform, evict(uid, (3, 2), 60_000_000))
        while not platform.world.entries[uid].joining:
            later(platform, TICK_US)
        if stops:
            platform.close()
            platform = Platform(folder, QUIET, disk=FastDisk(), rotation=SMALL)
        later(platform, 2 * MINUTE_US)
        began.append(platform.world.entries[uid].started)
        platform.close()
    assert began[0] == began[1]
    assert len(began[0]) == 4


def test_a_pod_that_does_not_join_leaves_the_gang_as_it_was_and_is_tried_elsewhere(
    quiet: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = training(quiet, saving=True, pods=4, minimum=2)
    uid, entry = life.workload.uid, quiet.world.entries[life.workload.uid]
    monkeypatch.setattr(embedded, "FAILED_STARTS", 1.0)
    decided(quiet, evict(uid, (3,)))
    later(quiet, TICK_US)
    first = entry.held[3].node
    later(quiet, MINUTE_US)
    assert first in entry.refused
    assert (entry.state, entry.attempt, sorted(entry.started)) == (State.RUNNING, 1, [0, 1, 2])
    assert entry.held[3].node != first
    assert Step.FAILED_START in [each.step for each in life.moments]


def test_pods_that_never_started_leave_too(quiet: Platform) -> None:
    work = job("young", whole(1), 2)
    ask(quiet, Submit((work,)))
    decided(quiet, evict("young", (0, 1), 1_000_000))
    later(quiet, 2_000_000)
    assert quiet.world.entries["young"].attempt == 2
    assert not any(isinstance(each, ev.PodStarted) for each in quiet.embedded.due(quiet.now_us))
    assert run_to_end(quiet, "young").outcome is not None


def test_a_gang_runs_when_those_are_gone_that_it_still_waited_for(quiet: Platform) -> None:
    work = replace(job("gang", whole(1), 3), type=WorkloadType.TRAINING)
    work = replace(work, pod_sets=(replace(work.pod_sets[0], minimum=1),))
    ask(quiet, Submit((work,)))
    entry = quiet.world.entries["gang"]
    while len(entry.started) < 1:
        later(quiet, TICK_US)
    left = tuple(sorted(entry.held.keys() - entry.started.keys()))
    assert left
    decided(quiet, evict("gang", left))
    later(quiet, TICK_US)
    assert entry.state is State.RUNNING
    assert run_to_end(quiet, "gang").ended_us is not None


def test_what_nobody_makes_again_ends_evicted(quiet: Platform) -> None:
    ask(quiet, Submit((replace(job("bare", whole(1)), recreated=False),)))
    decided(quiet, evict("bare", (0,)))
    later(quiet, MINUTE_US)
    assert quiet.story.ended["bare"].outcome is Outcome.EVICTED
    assert "bare" not in quiet.world.entries


def test_who_cancels_what_is_being_evicted_sees_it_end(quiet: Platform) -> None:
    ask(quiet, Submit((job("mine", whole(1)),)))
    later(quiet, 2 * MINUTE_US)
    ask(quiet, Cancel("mine"))
    decided(quiet, evict("mine", (0,)))
    later(quiet, MINUTE_US)
    assert quiet.story.ended["mine"].outcome is Outcome.CANCELLED


def test_frozen_evictions_go_on_when_a_person_resumes_and_it_is_known_who(
    quiet: Platform,
) -> None:
    decided(quiet, Freeze("freeze/1", 11, 10, Reason.TOO_MANY_EVICTIONS))
    assert quiet.story.guard.frozen_us == quiet.now_us
    ask(quiet, Act(acts=True, by="user:ada"))
    assert not quiet.world.evictions.frozen
    guard = restored(quiet.folder / RECORDING).story.guard
    assert (guard.frozen, guard.by, guard.resumed_us) == (None, "user:ada", quiet.now_us)
    ask(quiet, Act(acts=True, by="user:bob"))
    assert quiet.story.guard.by == "user:ada", "there was nothing to resume"


def test_the_next_checkpoint_is_half_an_hour_after_the_last() -> None:
    first_us = SAVE_EVERY_US + SAVING_US
    assert next_save_us(0, 0) == first_us
    assert next_save_us(0, first_us - 1) == first_us
    assert next_save_us(0, first_us) == first_us + SAVE_EVERY_US


@pytest.mark.parametrize("grace_us", [0, 1_000_000, SAVING_US, 600_000_000])
def test_nothing_takes_longer_to_leave_than_its_grace(quiet: Platform, grace_us: int) -> None:
    for number in range(200):
        work = replace(job(f"w{number}", whole(1)), type=WorkloadType.TRAINING)
        chance = quiet.embedded.chance
        taken_us = leaves_us(chance, work, f"{work.uid}\0{number}", grace_us)
        assert 0 <= taken_us <= grace_us
        if saves(chance, work) and grace_us >= SAVING_US:
            assert taken_us >= SAVING_US


# Virtual time -------------------------------------------------------------------------------------


def test_in_virtual_time_pods_stop_within_their_grace_and_work_starts_again() -> None:
    time = VirtualTime((node("n", 2),), Policy("pack"), 1, stop_us=30_000_000)
    work = Workload("w", (PodSet("main", 2, whole(1)),))
    time.feed(ev.WorkloadSubmitted(0, work))
    assert [type(each) for each in time.turn()] == [Start]
    time.run_until(10_000_000)
    for grace_us, began_us in ((20_000_000, 10_000_000), (60_000_000, 40_000_000)):
        attempt = time.world.entries["w"].attempt
        order = evict("w", (0, 1), grace_us, attempt)
        time.feed(ev.Decided(began_us, order))
        time.carry_out(order)
        ends_us = began_us + min(30_000_000, grace_us)
        assert not time.run_until(ends_us - 1)
        (again,) = time.run_until(ends_us)
        assert isinstance(again, Start)
        check(time.world)


def test_in_virtual_time_pods_stop_at_once_unless_it_is_said_otherwise() -> None:
    time = VirtualTime((node("n", 1),), Policy("pack"), 1)
    time.feed(ev.WorkloadSubmitted(0, job("w", whole(1))))
    time.turn()
    order: Evict = evict("w", (0,), 60_000_000)
    time.run_until(5)
    time.feed(ev.Decided(5, order))
    time.carry_out(order)
    (again,) = time.run_until(5)
    assert isinstance(again, Start)
