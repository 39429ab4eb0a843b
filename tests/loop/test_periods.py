"""The calendar of budgets, in places where clocks change and where they do not."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.core.world import World
from shoal.loop.periods import is_time, look_again_us, period_at, periods_due
from shoal.model.queue import Budget, EvictionBounds, Period, Queue, QueueTree, WhenSpent
from tests.core.build import node
from tests.core.cases import MINUTE_US, Case, batch, queue, tree, work

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",
    "America/Santiago",
    "Asia/Kolkata",
    "Asia/Beirut",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Cairo",
)
HOUR_US = 3_600_000_000


def us(written: str) -> int:
    """A time with its offset, in microseconds since the epoch."""
    return int(datetime.fromisoformat(written).timestamp()) * 1_000_000


def local(at_us: int, zone: str) -> datetime:
    """The time on a clock in a zone."""
    return datetime.fromtimestamp(at_us // 1_000_000, ZoneInfo(zone))


@pytest.mark.parametrize(
    ("period", "zone", "at", "begin", "end"),
    [
        (Period.MONTH, "Europe/Berlin", "2026-03-15 00", "2026-02-28 23", "2026-03-31 22"),
        (Period.MONTH, "Europe/Berlin", "2026-10-31 22", "2026-09-30 22", "2026-10-31 23"),
        (Period.MONTH, "UTC", "2026-12-31 23", "2026-12-01 00", "2027-01-01 00"),
        (Period.WEEK, "UTC", "2026-11-29 12", "2026-11-23 00", "2026-11-30 00"),
        (Period.QUARTER, "Europe/Lisbon", "2026-05-05 00", "2026-03-31 23", "2026-06-30 23"),
        (Period.YEAR, "America/New_York", "2026-05-05 00", "2026-01-01 05", "2027-01-01 05"),
        (Period.DAY, "America/Havana", "2026-03-08 12", "2026-03-08 05", "2026-03-09 04"),
        (Period.DAY, "America/Havana", "2026-11-01 12", "2026-11-01 04", "2026-11-02 05"),
    ],
)
def test_periods_begin_and_end_at_midnight(
    period: Period, zone: str, at: str, begin: str, end: str
) -> None:
    """In Havana clocks change at midnight: one day begins at one o'clock, one has two midnights.

    Hours are those of UTC.
    """
    at_us, begin_us, end_us = (us(f"{each}:00Z") for each in (at, begin, end))
    assert period_at(period, zone, at_us) == (begin_us, end_us)


@given(
    st.sampled_from(list(Period)),
    st.sampled_from(ZONES),
    st.integers(us("2000-01-01T00:00Z"), us("2037-01-01T00:00Z")),
)
def test_periods_follow_on_one_another_without_gap_or_overlap(
    period: Period, zone: str, at_us: int
) -> None:
    begin_us, end_us = period_at(period, zone, at_us)
    assert begin_us <= at_us < end_us
    assert period_at(period, zone, begin_us) == (begin_us, end_us)
    assert period_at(period, zone, end_us - 1) == (begin_us, end_us)
    assert period_at(period, zone, end_us)[0] == end_us
    assert period_at(period, zone, begin_us - 1)[1] == begin_us


@given(st.sampled_from(ZONES), st.dates(date(2000, 1, 1), date(2036, 12, 31)))
def test_every_day_is_as_long_as_clocks_say(zone: str, day: date) -> None:
    """All instants of a day have its date, and those beside it have not."""
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(zone))
    if noon.astimezone(UTC).astimezone(ZoneInfo(zone)).date() != day:
        return  # Apia skipped a day
    begin_us, end_us = period_at(Period.DAY, zone, int(noon.timestamp()) * 1_000_000)
    assert local(begin_us, zone).date() == local(end_us - 1, zone).date() == day
    assert timedelta(hours=22) < timedelta(microseconds=end_us - begin_us) < timedelta(hours=26)


def _world(*queues: Queue) -> World:
    world = World()
    world.apply(ev.QueuesSet(us("2026-03-10T00:00Z"), QueueTree((Queue("root"), *queues))))
    return world


def _queue(name: str, period: Period, zone: str = "UTC") -> Queue:
    return Queue(name, "root", budget=Budget(period, 10, WhenSpent.WARN, time_zone=zone))


def test_each_budget_is_told_its_period_once_and_then_when_it_ends() -> None:
    world = _world(_queue("a", Period.DAY), _queue("b", Period.MONTH, "Europe/Berlin"))
    now_us = us("2026-03-10T00:00Z")
    begun = list(periods_due(world, now_us))
    assert [(event.queue, event.begin_us) for event in begun] == [
        ("a", us("2026-03-10T00:00Z")),
        ("b", us("2026-02-28T23:00Z")),
    ]
    for event in begun:
        world.apply(event)
    assert list(periods_due(world, now_us)) == []
    assert look_again_us(world) == us("2026-03-11T00:00Z")
    assert not is_time(world, us("2026-03-10T23:59Z"))
    assert is_time(world, us("2026-03-11T00:00Z"))
    assert [event.queue for event in periods_due(world, us("2026-03-11T00:00Z"))] == ["a"]


def test_a_budget_with_another_calendar_is_told_anew() -> None:
    world = _world(_queue("a", Period.DAY))
    now_us = us("2026-03-10T12:00Z")
    for event in periods_due(world, now_us):
        world.apply(event)
    tree = QueueTree((Queue("root"), _queue("a", Period.DAY, "Asia/Kolkata")))
    world.apply(ev.QueuesSet(now_us, tree))
    (event,) = periods_due(world, now_us)
    assert event.begin_us == us("2026-03-09T18:30Z")


def test_it_is_time_when_a_guarantee_shrinks() -> None:
    """Nothing happens when a device has been out of order for `shrinkAfter`."""
    queues = tree(queue("a", 1), queue("b", 1))
    case = Case([node("n", 2)], queues)
    case.to(1)
    case.happen(ev.DeviceLost(0, "n", "n/0"))
    shrinks_us = case.now_us + Queue("root").shrink_after_us
    assert look_again_us(case.world) == shrinks_us
    assert not is_time(case.world, shrinks_us - 1)
    case.to(shrinks_us / MINUTE_US)
    assert look_again_us(case.world) is None


def test_it_is_time_when_those_are_late_for_whose_end_somebody_waits() -> None:
    """Then others may be evicted for it."""
    case = Case([node("n", 2)], tree(queue("q", starvation_after_us=1000 * HOUR_US)))
    case.submit(batch("q/x", run_us=HOUR_US), batch("q/y", run_us=HOUR_US))
    case.submit(batch("q/big", 2))
    assert case.world.entries["q/big"].reserved is not None
    assert look_again_us(case.world) == HOUR_US + 1
    case.to(61)
    assert look_again_us(case.world) == 1000 * HOUR_US, "then it has waited too long"


def test_it_is_time_when_others_may_be_evicted_from_a_place_that_is_kept_for_later() -> None:
    """Those who began first are protected no longer, before all of the place is open."""
    lender = queue("a", 2, reclaim_within_us=HOUR_US)
    protected = queue("b", eviction=EvictionBounds(minimum_run_us=HOUR_US))
    case = Case([node("n", 2)], tree(lender, protected))
    case.submit(batch("b/x"))
    case.to(10)
    case.submit(batch("b/y"))
    case.submit(work("a/gang", pods=2))
    assert case.world.entries["a/gang"].reserved is not None
    assert look_again_us(case.world) == HOUR_US
