"""Budgets and limits of time where time passes by itself: in virtual time, and on a platform."""

from dataclasses import replace
from pathlib import Path

from shoal.core import events as ev
from shoal.core.decisions import Evict, Refuse, Start, Warn
from shoal.core.policies import Policy
from shoal.core.validate import check
from shoal.loop.disk import FastDisk
from shoal.loop.inbox import KeepTo, Submit
from shoal.loop.steps import Step
from shoal.model.queue import Budget, Period, Queue, QueueTree, WhenSpent
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, Workload, WorkloadType
from shoal.simulation.organisation import fleet
from shoal.simulation.platform import BegunWith, Platform
from shoal.simulation.virtual import VirtualTime
from tests.core.build import job, node, whole

HOUR_US = 3_600_000_000
RUN = ((WorkloadType.BATCH, 2 * HOUR_US),)
WAIT = ((WorkloadType.BATCH, 5 * HOUR_US),)


def _queues(hours: int) -> QueueTree:
    budget = Budget(Period.DAY, hours, WhenSpent.NO_NEW_STARTS)
    return QueueTree(
        (Queue("root"), Queue("a", "root", budget=budget, maximum_run_us=RUN, maximum_wait_us=WAIT))
    )


def _job(uid: str, devices: int = 1) -> Workload:
    return replace(job(uid, whole(devices)), queue="a")


def test_in_virtual_time_work_ends_waits_for_the_next_day_and_is_refused() -> None:
    """Of a day's 4 device hours one job of 2 devices has all; 20 hours later comes the next day."""
    virtual = VirtualTime((node("n", 4),), Policy("pack"), 1)
    virtual.feed(ev.QueuesSet(0, _queues(4)))
    virtual.feed(ev.WorkloadSubmitted(0, _job("first", 2)))
    virtual.run_until(20 * HOUR_US)
    virtual.feed(ev.WorkloadSubmitted(20 * HOUR_US, _job("second", 2)))
    virtual.feed(ev.WorkloadSubmitted(20 * HOUR_US, _job("large", 3)))
    decided = list(virtual.turn()) + list(virtual.run_until(30 * HOUR_US))
    assert [each.workload for each in decided if isinstance(each, Start)] == ["second"]
    assert [each.workload for each in decided if isinstance(each, Refuse)] == ["large"]
    (end,) = [each for each in decided if isinstance(each, Evict)]
    assert (end.workload, end.reason) == ("second", Reason.MAXIMUM_RUN)
    assert end.key.endswith(str(26 * HOUR_US))
    (warning,) = [each for each in decided if isinstance(each, Warn)]
    assert warning.queue == "a"
    assert virtual.world.entries == {}


def _begin(folder: Path) -> Platform:
    return Platform(folder, BegunWith(5, "pack", False, fleet()), disk=FastDisk())


def test_on_a_platform_budgets_have_their_periods_also_after_it_began_anew(tmp_path: Path) -> None:
    """It begins at eight in the morning; what is written at work counts at once."""
    platform = _begin(tmp_path)
    begin_us = platform.now_us
    platform.inbox.put(KeepTo((), _queues(6)))
    platform.inbox.put(Submit((_job("one", 3),)))
    platform.run_until(begin_us + HOUR_US)
    account = platform.world.spending.accounts["a"]
    assert (account.begin_us, account.end_us) == (begin_us - 8 * HOUR_US, begin_us + 16 * HOUR_US)
    platform.inbox.put(Submit((_job("two"),)))
    platform.run_until(begin_us + 3 * HOUR_US)
    assert check(platform.world) == {}
    one = platform.story.ended["one"]
    assert one.outcome in (Outcome.EVICTED, Outcome.COMPLETED, Outcome.FAILED)
    used, reserved = account.used_at(platform.now_us), account.reserved_at(platform.now_us)
    platform.close()
    again = _begin(tmp_path)
    account = again.world.spending.accounts["a"]
    assert account.used_at(again.now_us) == used > 0
    assert account.reserved_at(again.now_us) == reserved
    again.run_until(begin_us + 17 * HOUR_US)
    assert account.begin_us == begin_us + 16 * HOUR_US
    two = again.story.ended["two"]
    assert two.moments[-1].step is Step.ENDED
    again.close()
