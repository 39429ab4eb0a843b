"""The cases of budgets, by their ids."""

from datetime import timedelta

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Warn
from shoal.loop.periods import period_at
from shoal.model.queue import Budget, Period, WhenSpent
from shoal.model.verdict import OverBudget, Reason, Stage, Wake
from shoal.model.workload import Workload, WorkloadType
from shoal.texts.verdicts import local_time, verdict_text
from tests.core.build import node
from tests.core.cases import MINUTE_US, queue, tree, work
from tests.core.dated import HOUR_US, Dated, us

BERLIN = "Europe/Berlin"


def _month(begin: str, run_us: int) -> Dated:
    """A device in use from the first to the last instant of a month, in Berlin."""
    budget = Budget(Period.MONTH, 744, WhenSpent.NO_NEW_STARTS, time_zone=BERLIN)
    case = Dated([node("n", 2)], tree(queue("q", 2, budget=budget)))
    case.at(begin)
    case.submit(work("q/long", run_us=run_us))
    assert len(case.starts("q/long")) == 1
    return case


def test_m04_march_has_743_hours() -> None:
    case = _month("2026-02-28T23:00+00:00", 743 * HOUR_US)
    account = case.world.spending.accounts["q"]
    assert (account.begin_us, account.end_us) == (
        us("2026-02-28T23:00+00:00"),
        us("2026-03-31T22:00+00:00"),
    )
    case.to(us("2026-03-31T22:00+00:00") // MINUTE_US - 1)
    assert account.used_at(account.end_us) == 743 * account.total // 744
    assert case.warned == []
    assert account.total - account.used_at(account.end_us) == account.total // 744
    case.at("2026-03-31T22:00+00:00")
    assert account.begin_us == us("2026-03-31T22:00+00:00")
    assert case.hours("q") == (0, 0)


def test_m04_october_has_745_and_the_budget_is_spent_an_hour_before_it_ends() -> None:
    """It declared 720 hours, and goes on: its use goes on counting."""
    case = _month("2026-09-30T22:00+00:00", 720 * HOUR_US)
    case.at("2026-10-31T23:00+00:00")
    (warned,) = case.warned
    assert warned.at_us == us("2026-10-31T22:00+00:00")
    assert local_time(warned.at_us, BERLIN) == "2026-10-31 23:00+01:00"
    assert isinstance(warned.decision, Warn)
    assert warned.decision.over == OverBudget(
        "q", 744 * HOUR_US, 0, 0, 744 * HOUR_US, us("2026-10-31T23:00+00:00"), BERLIN
    )
    account = case.world.spending.accounts["q"]
    assert account.begin_us == us("2026-10-31T23:00+00:00")
    assert case.hours("q") == (0, 0)


def test_m04_in_the_last_hour_of_october_745_are_used_and_nothing_starts() -> None:
    case = _month("2026-09-30T22:00+00:00", 720 * HOUR_US)
    case.at("2026-10-31T22:30+00:00")
    case.submit(work("q/short", run_us=HOUR_US // 4))
    verdict = case.verdict("q/short")
    assert verdict.cause == (Stage.BUDGET, Reason.BUDGET)
    assert verdict.over_budget is not None
    assert verdict.over_budget.too_many == HOUR_US * 3 // 4
    account = case.world.spending.accounts["q"]
    assert account.used_at(account.end_us) == 745 * account.total // 744
    case.at("2026-10-31T23:00+00:00")
    assert case.seen[-1].at_us == us("2026-10-31T23:00+00:00")
    assert len(case.starts("q/short")) == 1


@pytest.mark.parametrize(
    ("noon", "hours"),
    [
        ("2026-03-28T12:00+01:00", 24),
        ("2026-03-29T12:00+02:00", 23),
        ("2026-03-30T12:00+02:00", 24),
        ("2026-10-24T12:00+02:00", 24),
        ("2026-10-25T12:00+01:00", 25),
        ("2026-10-26T12:00+01:00", 24),
    ],
)
def test_m04_each_day_has_its_own_length(noon: str, hours: int) -> None:
    """A device in use all day uses the whole of the day, and the next day begins with nothing."""
    begin_us, end_us = period_at(Period.DAY, BERLIN, us(noon))
    assert end_us - begin_us == hours * HOUR_US
    budget = Budget(Period.DAY, 100, WhenSpent.NO_NEW_STARTS, time_zone=BERLIN)
    case = Dated([node("n", 1)], tree(queue("q", 1, budget=budget)))
    case.to(begin_us // MINUTE_US)
    case.submit(work("q/long"))
    account = case.world.spending.accounts["q"]
    assert account.used_at(end_us) == hours * account.total // 100
    case.to(end_us // MINUTE_US)
    assert account.begin_us == end_us
    assert case.hours("q")[0] == 0


def test_m04_half_past_two_comes_twice_and_is_written_with_its_offset() -> None:
    first, second = us("2026-10-25T00:30+00:00"), us("2026-10-25T01:30+00:00")
    assert local_time(first, BERLIN) == "2026-10-25 02:30+02:00"
    assert local_time(second, BERLIN) == "2026-10-25 02:30+01:00"
    assert period_at(Period.DAY, BERLIN, first) == period_at(Period.DAY, BERLIN, second)


MONTH_END = "2026-05-01T00:00+00:00"


def _m07() -> Dated:
    """90 of 100 device hours are used; j1 and j2 come in one cycle."""
    budget = Budget(Period.MONTH, 100, WhenSpent.NO_NEW_STARTS)
    run = ((WorkloadType.TRAINING, HOUR_US), (WorkloadType.BATCH, 10 * HOUR_US))
    case = Dated(
        [node("n1", 8), node("n2", 8)], tree(queue("q", 16, budget=budget, maximum_run_us=run))
    )
    case.at("2026-04-01T00:00+00:00")
    case.submit(work("q/before", 1, pods=9, type_=WorkloadType.BATCH))
    case.at("2026-04-01T10:00+00:00")
    assert case.hours("q") == (90, 0)
    case.at("2026-04-10T12:00+00:00")
    case.submit(_job("j1"), _job("j2"))
    return case


def _job(name: str, devices: int = 8, run_us: int | None = None) -> Workload:
    return work(f"q/{name}", devices, run_us=run_us)


def _over(case: Dated, uid: str) -> tuple[float, ...]:
    """Used, reserved, asked, budget, and by how much it is too much, in device hours."""
    over = case.world.spending.refusal(case.world.entries[uid].workload, {"H100": 8 * 840_000})
    assert over is not None
    found = over.over
    amounts = (found.used, found.reserved, found.asked, found.budget, found.too_many)
    return tuple(each / HOUR_US for each in amounts)


def _again_us(case: Dated, uid: str) -> int | None:
    """When time alone lets a workload start that its budget does not allow to."""
    case.world.spending.decides(case.now_us)
    workload = case.world.entries[uid].workload
    found = case.world.spending.refusal(workload, {"H100": 8 * 840_000})
    assert found is not None
    return found.again_us


def _fits(case: Dated, devices: int, minutes: int) -> bool:
    """Whether so many devices could start now for so long."""
    case.world.spending.decides(case.now_us)
    asking = _job("asks", devices, minutes * MINUTE_US)
    return case.world.spending.refusal(asking, {"H100": devices * 840_000}) is None


def test_m07_a_budget_is_kept_by_reserving() -> None:
    case = _m07()
    assert len(case.starts("q/j1")) == 1
    assert case.starts("q/j2") == []
    assert case.hours("q") == (90, 8)
    verdict = case.verdict("q/j2")
    assert (verdict.stage, verdict.wakes) == (Stage.BUDGET, (Wake.QUOTA, Wake.PERIOD))
    hours = 90 * HOUR_US, 8 * HOUR_US, 8 * HOUR_US, 100 * HOUR_US
    assert verdict.over_budget == OverBudget("q", *hours, us(MONTH_END))
    assert verdict.over_budget.too_many == 6 * HOUR_US
    assert verdict_text(verdict).startswith(
        "Queue q has used 90 of 100 device hours until 2026-05-01 00:00+00:00, and 8 more are"
        " reserved; with the 8 asked it would be 6 too many."
    )
    assert _fits(case, 2, 60)
    assert not _fits(case, 3, 60)
    assert _fits(case, 8, 15)
    assert not _fits(case, 8, 16)


def test_m07_what_was_reserved_and_not_used_is_free_again_when_it_ends() -> None:
    case = _m07()
    for minutes in range(30):
        case.to((us("2026-04-10T12:00+00:00")) // MINUTE_US + minutes)
        assert sum(case.hours("q")) == 98
    case.at("2026-04-10T12:30+00:00")
    case.end("q/j1")
    assert case.hours("q") == (94, 0)
    assert case.starts("q/j2") == []
    assert _over(case, "q/j2") == (94, 0, 8, 100, 2)
    assert _fits(case, 6, 60)
    assert not _fits(case, 7, 60)
    assert _fits(case, 8, 45)
    assert not _fits(case, 8, 46)


def test_m07_it_starts_on_the_first_of_the_month_which_was_known() -> None:
    case = _m07()
    assert _again_us(case, "q/j2") == us(MONTH_END)
    case.at("2026-04-10T12:30+00:00")
    case.end("q/j1")
    assert _again_us(case, "q/j2") == us(MONTH_END)
    case.to(us(MONTH_END) // MINUTE_US - 1)
    assert case.starts("q/j2") == []
    case.at(MONTH_END)
    assert len(case.starts("q/j2")) == 1
    assert case.seen[-1].at_us == us(MONTH_END)
    assert case.hours("q") == (0, 8)
    case.to(us(MONTH_END) // MINUTE_US + 60)
    assert case.evictions[-1][1] == "q/j2"
    assert "q/j2" not in case.world.entries


def test_m07_replayed_from_a_snapshot_it_comes_to_the_same() -> None:
    case = _m07()
    snapshot = tuple(case.world.snapshot(case.now_us))
    again = type(case.world)()
    for event in snapshot:
        again.apply(event)
    assert tuple(again.snapshot(case.now_us)) == snapshot
    assert any(isinstance(event, ev.SpendingRestored) for event in snapshot)
    account, kept = again.spending.accounts["q"], case.world.spending.accounts["q"]
    for minutes in (0, 30, 60, 61):
        at_us = case.now_us + minutes * MINUTE_US
        assert account.used_at(at_us) == kept.used_at(at_us)
        assert account.reserved_at(at_us) == kept.reserved_at(at_us)
    assert timedelta(microseconds=again.spending.after(case.now_us) or 0) == timedelta(
        microseconds=case.world.spending.after(case.now_us) or 0
    )
