"""The calendar: which period a budget has now, and when time alone makes a cycle worth while.

Periods begin and end at midnight in the time zone of the budget. A day on which clocks change has
23 or 25 hours, and a month in which they do has one hour less or more than others. Where midnight
is skipped the day begins with what comes in its place; where it comes twice, with the first.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from shoal.core.events import PeriodBegan
from shoal.core.limits.deadlines import earliest
from shoal.core.placing.keeping import times_us
from shoal.core.world import World
from shoal.model.queue import Period

MONTHS_IN_YEAR = 12

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MONTHS = {Period.MONTH: 1, Period.QUARTER: 3, Period.YEAR: MONTHS_IN_YEAR}


def period_at(period: Period, time_zone: str, at_us: int) -> tuple[int, int]:
    """Return when the period begins and ends in which a time lies, in microseconds.

    The next one begins when this one ends. Raises `zoneinfo.ZoneInfoNotFoundError`, where the
    machine does not know the time zone.
    """
    zone = ZoneInfo(time_zone)
    day = datetime.fromtimestamp(at_us // 1_000_000, zone).date()
    first = _first_day(period, day)
    begin_us, end_us = _midnight_us(first, zone), _midnight_us(_next_day(period, first), zone)
    return begin_us, end_us


def periods_due(world: World, now_us: int) -> Iterator[PeriodBegan]:
    """Yield the beginning of the present period of each budget that does not know it yet.

    Each is applied before the next is asked for, as those of a budget that was just set, too.
    """
    for queue, account in sorted(world.spending.accounts.items()):
        if account.end_us <= now_us:
            budget = account.budget
            begin_us, end_us = period_at(budget.period, budget.time_zone, now_us)
            yield PeriodBegan(now_us, queue, begin_us, end_us)


def look_again_us(world: World) -> int | None:
    """Return when time alone may change what is decided, None if it does not.

    Everything that was due when the latest event happened has been decided upon.
    """
    since_us = world.tenants.now_us
    return earliest(
        world.waiting.next_us(),
        None if world.evictions.frozen else world.limits.running.after(since_us),
        world.limits.waiting.after(since_us),
        world.spending.after(since_us),
        world.tenants.shrink_next_us(),
        _kept_us(world, since_us),
    )


def _kept_us(world: World, since_us: int) -> int | None:
    """Return when time alone may change something for those who are kept places until an end."""
    entries = (world.entries[uid] for uid in world.reserving)
    kept = ((entry, entry.reserved) for entry in entries)
    found = (
        at_us
        for entry, each in kept
        if each is not None and each.waits_for_ends
        for at_us in times_us(world, entry, each.at_us, each.look_us)
    )
    return min((at_us for at_us in found if at_us > since_us), default=None)


def is_time(world: World, now_us: int) -> bool:
    """Return whether time alone has changed something since the latest event."""
    at_us = look_again_us(world)
    return at_us is not None and at_us <= now_us


def _first_day(period: Period, day: date) -> date:
    if period is Period.DAY:
        return day
    if period is Period.WEEK:
        return day - timedelta(days=day.weekday())
    months = _MONTHS[period]
    return date(day.year, (day.month - 1) // months * months + 1, 1)


def _next_day(period: Period, first: date) -> date:
    if period in (Period.DAY, Period.WEEK):
        return first + timedelta(days=1 if period is Period.DAY else 7)
    months = first.month - 1 + _MONTHS[period]
    return date(first.year + months // MONTHS_IN_YEAR, months % MONTHS_IN_YEAR + 1, 1)


def _midnight_us(day: date, zone: ZoneInfo) -> int:
    return (datetime(day.year, day.month, day.day, tzinfo=zone) - _EPOCH) // _MICROSECOND
