"""A platform that lives: what comes of a seed, of people's wishes, and of failures."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.core import events as ev
from shoal.core.validate import Validator, check
from shoal.loop.disk import FastDisk, LockedError
from shoal.loop.inbox import (
    CAPACITY,
    Act,
    Answer,
    Cancel,
    InboxClosedError,
    InboxFullError,
    KeepTo,
    Refused,
    Submit,
)
from shoal.loop.replica import restored
from shoal.loop.steps import Step
from shoal.model.pool import Pool
from shoal.model.queue import Queue, QueueTree
from shoal.model.request import Operator, Requirement
from shoal.model.selector import Selector
from shoal.model.workload import Outcome, Workload, WorkloadType
from shoal.simulation.organisation import fleet
from shoal.simulation.platform import (
    RECORDING,
    TICK_US,
    BegunWith,
    Clock,
    DifferentError,
    Platform,
    begun_with,
)
from shoal.simulation.usage import uses
from tests.core.build import job, share, whole
from tests.simulation.crashing import begin, hours, items

QUIET = BegunWith(5, "pack", False, fleet())
"""Nothing comes in by itself."""


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[Platform]:
    platform = Platform(tmp_path, QUIET, disk=FastDisk())
    yield platform
    platform.close()


def ask(platform: Platform, *asks: Submit | Cancel | Act | KeepTo) -> list[Answer]:
    """Ask, let a tick pass, and return the answers."""
    futures = [platform.inbox.put(each) for each in asks]
    platform.run_until(platform.now_us + TICK_US)
    return [future.result(timeout=0) for future in futures]


def later(platform: Platform, minutes: float) -> None:
    """Let time pass."""
    platform.run_until(platform.now_us + int(minutes * 60e6))


def test_a_seed_gives_one_day_however_it_is_cut(tmp_path: Path) -> None:
    in_one_go = begin(tmp_path / "one", FastDisk())
    in_one_go.run_until(hours(2))
    in_one_go.close()
    for part in range(1, 9):
        again = begin(tmp_path / "parts", FastDisk())
        again.run_until(hours(part / 4))
        again.close()
    assert items(tmp_path / "parts") == items(tmp_path / "one")
    other = begin(tmp_path / "other", FastDisk(), seed=8)
    other.run_until(hours(2))
    other.close()
    assert items(tmp_path / "other") != items(tmp_path / "one")


def test_every_rule_is_kept_through_a_morning(tmp_path: Path) -> None:
    validators: list[Validator] = []

    def validate(event: ev.Event) -> None:
        for each in validators:
            each.applied(event)

    what = BegunWith(3, "fragmentation", True, fleet())
    platform = Platform(tmp_path, what, disk=FastDisk(), check=validate)
    validators.append(Validator(platform.world))
    for hour in range(5):
        platform.run_until(hours(hour))
        check(platform.world)
    assert platform.metrics.decisions["Start"] > 100
    assert platform.metrics.decisions["Wait"] > 10
    platform.close()


def test_work_that_is_submitted_starts_runs_and_ends(quiet: Platform) -> None:
    (answer,) = ask(quiet, Submit((job("mine", whole(2)),)))
    assert answer.refused is None
    life = quiet.story.lives["mine"]
    assert life.workload.created_us == answer.at_us
    later(quiet, 5)
    steps = [moment.step for moment in life.moments]
    assert steps == [Step.SUBMITTED, Step.STARTED, Step.RUNNING]
    later(quiet, 60 * 24)
    ended = quiet.story.ended["mine"]
    assert ended.outcome is not None
    assert ended.ended_us is not None
    assert not quiet.world.entries


def test_what_is_known_or_unknown_is_said_so(quiet: Platform) -> None:
    both = Submit((job("a", whole(1)), job("b", whole(1))))
    first, second, third = ask(
        quiet, both, Submit((job("c", whole(1)), job("b", whole(1)))), Cancel("d")
    )
    assert (first.refused, second.refused, third.refused) == (None, Refused.KNOWN, Refused.UNKNOWN)
    assert set(quiet.story.lives) == {"a", "b"}


def test_cancelled_work_ends_soon_whether_it_waits_or_runs(quiet: Platform) -> None:
    ask(quiet, Submit((job("runs", whole(1)), job("waits", whole(64)))))
    later(quiet, 5)
    ask(quiet, Cancel("waits"), Cancel("runs"))
    assert quiet.story.ended["waits"].outcome is Outcome.CANCELLED
    assert quiet.story.lives["runs"].moments[-1].step is Step.STOPPING
    later(quiet, 1)
    assert quiet.story.ended["runs"].outcome is Outcome.CANCELLED


def test_a_wish_to_cancel_outlives_the_process(tmp_path: Path) -> None:
    platform = Platform(tmp_path, QUIET, disk=FastDisk())
    ask(platform, Submit((job("runs", whole(1)),)))
    later(platform, 5)
    ask(platform, Cancel("runs"))
    platform.close()
    again = Platform(tmp_path, QUIET, disk=FastDisk())
    later(again, 1)
    assert again.story.ended["runs"].outcome is Outcome.CANCELLED
    again.close()


def test_released_it_decides_nothing_until_it_is_resumed_also_after_a_restart(
    tmp_path: Path,
) -> None:
    platform = Platform(tmp_path, QUIET, disk=FastDisk())
    ask(platform, Act(acts=False), Submit((job("mine", whole(1)),)))
    platform.close()
    again = Platform(tmp_path, QUIET, disk=FastDisk())
    later(again, 1)
    assert again.world.entries["mine"].attempt == 0
    ask(again, Act(acts=True))
    assert again.world.entries["mine"].attempt == 1
    again.close()


def test_what_is_answered_is_safe_and_a_replica_shows_it(quiet: Platform) -> None:
    (answer,) = ask(quiet, Submit((job("mine", whole(1)),)))
    replica = restored(quiet.folder / RECORDING)
    assert replica.offset >= answer.offset
    assert "mine" in replica.world.entries


def test_a_full_or_closed_inbox_takes_nothing(quiet: Platform) -> None:
    first, *_ = [quiet.inbox.put(Cancel(str(number))) for number in range(CAPACITY)]
    with pytest.raises(InboxFullError):
        quiet.inbox.put(Cancel("one too many"))
    quiet.inbox.close()
    with pytest.raises(InboxClosedError):
        first.result(timeout=0)
    with pytest.raises(InboxClosedError):
        quiet.inbox.put(Cancel("x"))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_work_that_loses_its_node_or_device_is_sent_again(tmp_path: Path) -> None:
    platform = begin(tmp_path, FastDisk(), seed=2)
    platform.run_until(hours(24))
    platform.close()
    recorded = items(tmp_path)
    kinds = {type(each) for each in recorded}
    assert {ev.DeviceLost, ev.DeviceReturned, ev.NodeLost, ev.NodeSeen, ev.StartFailed} <= kinds
    again = [
        each.workload
        for each in recorded
        if isinstance(each, ev.WorkloadSubmitted) and "~" in each.workload.uid
    ]
    assert again
    before = {
        each.workload.uid: each.workload
        for each in recorded
        if isinstance(each, ev.WorkloadSubmitted)
    }
    for workload in again:
        root = before[workload.uid.partition("~")[0]]
        assert workload.pod_sets == root.pod_sets
        assert workload.created_us > root.created_us


def test_use_is_a_function_of_time_and_within_bounds(tmp_path: Path) -> None:
    platform = begin(tmp_path, FastDisk())
    platform.run_until(hours(1))
    chance = platform.embedded.chance
    types = {uid: entry.workload.type for uid, entry in platform.world.entries.items()}
    busy: dict[str, list[float]] = {}
    for second in range(0, 7_200, 170):
        at_us = hours(1) + second * 1_000_000
        found = uses(chance, platform.world, platform.story, at_us)
        assert found == uses(chance, platform.world, platform.story, at_us)
        for use in found:
            assert 0 <= use.compute_pct <= 100
            assert 0 <= use.memory_mib <= 81_920 * len(use.leaves)
            busy.setdefault(types[use.uid].value, []).append(use.compute_pct)
    mean = {kind: sum(values) / len(values) for kind, values in busy.items()}
    assert mean["training"] > 70
    assert 20 > mean["inference"] > mean["notebook"]
    assert min(busy["training"]) < 10, "checkpoints are saved"
    assert busy["notebook"].count(0) > len(busy["notebook"]) / 3
    platform.close()


def test_one_process_runs_a_platform_and_it_stays_what_it_was(quiet: Platform) -> None:
    with pytest.raises(LockedError):
        Platform(quiet.folder, QUIET)
    assert begun_with(quiet.folder) == QUIET
    with pytest.raises(DifferentError):
        Platform(quiet.folder, BegunWith(6, "pack", False, fleet()))


def test_live_it_answers_at_once_and_follows_its_clock(quiet: Platform) -> None:
    stop = threading.Event()
    clock = Clock(quiet.now_us, 100)
    thread = threading.Thread(target=quiet.live, args=(clock, stop))
    thread.start()
    workload: Workload = job("mine", share(100))
    answer = quiet.inbox.put(Submit((workload,))).result(timeout=200)
    assert answer.refused is None
    assert quiet.story.life("mine") is not None
    stop.set()
    quiet.inbox.ring()
    thread.join()
    assert quiet.now_us <= clock.now_us()


def test_live_it_ends_when_it_is_told_to(quiet: Platform) -> None:
    quiet.live(Clock(quiet.now_us, 10_000), threading.Event(), quiet.now_us + 60_000_000)
    assert quiet.now_us == QUIET_END_US


QUIET_END_US = hours(0) + 60_000_000


# Queues ---------------------------------------------------------------------------------------


def test_O03_a_closing_queue_goes_when_its_last_work_has_ended(quiet: Platform) -> None:
    top, lab = Queue("top"), Queue("lab", "top", closing=True)
    quiet.keep_to((), QueueTree((top, replace(lab, closing=False), Queue("other", "top"))))
    ask(quiet, Submit((replace(job("w", whole(2)), queue="lab"),)))
    closing = QueueTree((top, lab, Queue("other", "top")))
    (answer,) = ask(quiet, KeepTo((), closing))
    assert answer.refused is None
    assert quiet.world.tenants.tree == closing
    ask(quiet, Cancel("w"))
    later(quiet, 30)
    assert "w" not in quiet.world.entries
    assert quiet.world.tenants.tree == QueueTree((top, Queue("other", "top")))


NOTEBOOKS = Pool(
    "shared",
    Selector((Requirement("shoal.dev/block", Operator.IN, ("h100", "a100")),)),
    (WorkloadType.NOTEBOOK,),
    (),
)
TREE = QueueTree((Queue("top"),))


def test_pools_and_queues_that_do_not_change_are_no_event(quiet: Platform) -> None:
    ask(quiet, KeepTo((NOTEBOOKS,), TREE))
    first = ask(quiet, KeepTo((NOTEBOOKS,), TREE))[0].offset
    assert ask(quiet, KeepTo((NOTEBOOKS,), TREE))[0].offset == first
    quiet.keep_to((NOTEBOOKS,), TREE)
    assert ask(quiet, KeepTo((NOTEBOOKS,), TREE))[0].offset == first


def test_pools_and_queues_change_together_before_anything_is_decided(quiet: Platform) -> None:
    """However much else happens at that time: no work starts by the one without the other."""
    waits = replace(job("w", whole(2)), queue="top")
    ask(quiet, KeepTo((), QueueTree((Queue("nobody"),))), Submit((waits,)))
    assert not quiet.world.entries["w"].held
    recorded = len(items(quiet.folder))
    begins = [replace(job(f"n{k}", whole(1)), queue="elsewhere") for k in range(20)]
    ask(quiet, *(Submit((each,)) for each in begins), KeepTo((NOTEBOOKS,), TREE))
    kinds = [type(each).__name__ for each in items(quiet.folder)[recorded:]]
    at = kinds.index("PoolsSet")
    assert kinds[at : at + 2] == ["PoolsSet", "QueuesSet"]
    assert quiet.world.entries["w"].held[0].node.startswith("l40s"), "others are for notebooks"


def test_pools_hold_after_the_platform_began_anew(tmp_path: Path) -> None:
    platform = Platform(tmp_path, QUIET, disk=FastDisk())
    platform.keep_to((NOTEBOOKS,), TREE)
    ask(platform, Submit((replace(job("t", whole(8)), queue="top"),)))
    assert not platform.world.entries["t"].held, "only nodes with four devices are left to it"
    platform.close()
    again = Platform(tmp_path, QUIET, disk=FastDisk())
    assert again.world.fleet.pools == (NOTEBOOKS,)
    ask(again, Submit((replace(job("u", whole(8)), queue="top"),)))
    assert not again.world.entries["u"].held
    ask(again, KeepTo((), TREE))
    assert again.world.entries["u"].held, "when the pools go, nothing is in the way"
    again.close()
