"""Budgets: what work will use for which places are kept, in the period in which it is to run."""

import pytest

from shoal.model.fractions import UNIT
from shoal.model.queue import Budget, Period, WhenSpent
from shoal.model.workload import Workload, WorkloadType
from tests.core.build import node
from tests.core.cases import MINUTE_US, clock, queue, tree, work
from tests.core.dated import HOUR_US, Dated, us

DAY = "2026-03-29T00:00+00:00"


def test_places_that_are_kept_count_as_reserved_for_others() -> None:
    """Two devices are kept until running work ends; a third job finds no budget for itself."""
    limit = ((WorkloadType.TRAINING, 2 * HOUR_US),)
    case = Dated(
        [node("n", 2)],
        tree(
            queue(
                "a", 2, budget=Budget(Period.DAY, 9, WhenSpent.NO_NEW_STARTS), maximum_run_us=limit
            )
        ),
    )
    case.at(DAY)
    case.submit(work("a/runs", 1, run_us=HOUR_US))
    case.to(us(DAY) // MINUTE_US + 30)
    case.submit(work("a/both", 2, run_us=2 * HOUR_US))
    assert case.world.entries["a/both"].reserved is not None
    case.world.spending.decides(case.now_us)
    refused = case.world.spending.refusal(work("a/x", 1, run_us=HOUR_US), {"H100": 5 * UNIT})
    assert refused is not None
    assert refused.over.reserved == HOUR_US // 2 + 4 * HOUR_US
    own = case.world.spending.refusal(case.world.entries["a/both"].workload, {"H100": 2 * UNIT})
    assert own is None


def _kept_until(end: str | None, *others: Workload) -> Dated:
    """Places are kept for 8 devices for 10 hours, until what holds them ends, and others come.

    That runs until `end`, or nobody knows for how long, and then they were kept after an hour.
    """
    budget = Budget(Period.MONTH, 100, WhenSpent.NO_NEW_STARTS)
    patience_us = HOUR_US if end is None else 2000 * HOUR_US
    mine = queue("q", budget=budget, starvation_after_us=patience_us)
    case = Dated([node("n1", 8), node("n2", 4)], tree(queue("c", 8), mine))
    case.at("2026-03-02T00:00+00:00")
    run_us = None if end is None else us(end) - case.now_us
    case.submit(work("c/r", 8, run_us=run_us))
    wide = work("q/w8", 8, run_us=10 * HOUR_US)
    if end is None:
        case.submit(wide)
        case.at("2026-03-02T01:00+00:00")
        case.submit(*others)
    else:
        case.submit(wide, *others)
    reserved = case.world.entries["q/w8"].reserved
    assert reserved is not None
    assert reserved.at_us == (None if end is None else us(end))
    return case


@pytest.mark.parametrize("in_one_cycle", [True, False])
def test_what_is_kept_for_the_next_period_takes_nothing_of_this_one(in_one_cycle: bool) -> None:
    longest = work("q/x", 1, run_us=100 * HOUR_US)
    case = _kept_until("2026-04-11T00:00+00:00", *(longest,) * in_one_cycle)
    if not in_one_cycle:
        case.submit(longest)
    assert len(case.starts("q/x")) == 1
    case.at("2026-03-06T04:00+00:00")
    case.end("q/x")
    case.at("2026-04-01T00:00+00:00")
    case.submit(work("q/y", 1, run_us=30 * HOUR_US))
    over = case.verdict("q/y").over_budget
    assert over is not None
    assert (over.used, over.reserved, over.asked) == (0, 80 * HOUR_US, 30 * HOUR_US)
    case.at("2026-04-11T00:00+00:00")
    case.end("c/r")
    assert case.starts("q/w8") == [clock(case.now_us)]


@pytest.mark.parametrize("in_one_cycle", [True, False])
def test_of_what_is_kept_across_the_end_of_a_period_its_part_counts(in_one_cycle: bool) -> None:
    """Kept from four hours before the end of the month, 8 devices use 32 of the 100 hours in it."""
    longest, longer = (work(f"q/x{hours}", 1, run_us=hours * HOUR_US) for hours in (68, 69))
    case = _kept_until("2026-03-31T20:00+00:00", *(longer,) * in_one_cycle)
    if not in_one_cycle:
        case.submit(longer)
    over = case.verdict("q/x69").over_budget
    assert over is not None
    assert (over.reserved, over.asked, over.too_many) == (32 * HOUR_US, 69 * HOUR_US, HOUR_US)
    case.submit(longest)
    assert len(case.starts("q/x68")) == 1


def test_what_is_kept_until_nobody_knows_when_counts_from_now_on() -> None:
    """It may begin at any moment."""
    case = _kept_until(None, work("q/x", 1, run_us=30 * HOUR_US))
    over = case.verdict("q/x").over_budget
    assert over is not None
    assert (over.reserved, over.too_many) == (80 * HOUR_US, 10 * HOUR_US)
