"""Budgets: what is used and reserved, against a recomputation from what happened."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.core.decisions import Reserve, Start, Warn
from shoal.core.limits.spending_account import SCALE
from shoal.core.validate import Validator
from shoal.core.world import World
from shoal.loop.periods import period_at
from shoal.model.fractions import UNIT
from shoal.model.node import Node
from shoal.model.queue import Budget, Period, Queue, QueueTree, WhenSpent
from shoal.model.verdict import Reason, Stage
from shoal.model.workload import Outcome, Placement, PodSet
from tests.core.build import node, whole
from tests.core.cases import MINUTE_US, Case, batch, queue, tree, work
from tests.core.dated import HOUR_US, Dated, us

PRICES = (("A100", 2_800_000), ("H100", 3_333_333))
DAY = "2026-03-28T23:00+00:00"
"""Midnight in Berlin, before a day of 23 hours."""


def _budget(hours: int, what: WhenSpent = WhenSpent.NO_NEW_STARTS, **more: object) -> Budget:
    made = Budget(Period.DAY, hours, what, time_zone="Europe/Berlin")
    return replace(made, **more)  # type: ignore[arg-type]


def _nodes() -> list[Node]:
    return [node("n1", 4), node("n2", 4), node("a1", 4, accelerator="A100")]


# Against a recomputation ----------------------------------------------------------------------


@dataclass
class Ran:
    """One run: what it holds, since when and until when, and for how long it was expected to."""

    queue: str
    held: dict[str, int]
    began_us: int
    expected_us: int | None
    ended_us: int | None = None


@dataclass
class Books:
    """All runs, and what follows from them, computed anew each time."""

    case: Dated
    runs: dict[str, Ran] = field(default_factory=dict)
    seen: int = 0

    def read(self) -> None:
        """Take in the starts that were decided lately."""
        for seen in self.case.seen[self.seen :]:
            if isinstance(seen.decision, Start):
                entry = self.case.world.entries[seen.decision.workload]
                held: dict[str, int] = {}
                for placement in seen.decision.placements:
                    name = "A100" if placement.node.startswith("a") else "H100"
                    held[name] = held.get(name, 0) + len(placement.leaves)
                run_us = entry.workload.run_us
                self.runs[seen.decision.workload] = Ran(
                    entry.workload.queue, held, seen.at_us, run_us
                )
        self.seen = len(self.case.seen)

    def sums(self, name: str, now_us: int) -> tuple[int, int]:
        """What of a queue's budget is used and reserved at a time, in its own small unit."""
        begin_us, end_us = period_at(Period.DAY, "Europe/Berlin", now_us)
        budget = self.case.world.spending.accounts[name].budget
        used = reserved = 0
        for ran in self.runs.values():
            path = self.case.world.tenants.path(ran.queue)
            if name not in path or ran.began_us > now_us:
                continue
            prices = dict(PRICES) if budget.money_micro is not None else None
            rate = sum(
                count * UNIT * (1 if prices is None else prices[accelerator])
                for accelerator, count in ran.held.items()
            )
            until_us = now_us if ran.ended_us is None else ran.ended_us
            used += rate * max(0, min(until_us, end_us) - max(ran.began_us, begin_us))
            if ran.ended_us is None:
                known = end_us if ran.expected_us is None else ran.began_us + ran.expected_us
                reserved += rate * max(0, min(known, end_us) - max(now_us, begin_us))
        return used, reserved


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("submit"),
            st.sampled_from(["a", "b"]),
            st.integers(1, 4),
            st.sampled_from([None, 5, 50, 300, 2000]),
            st.booleans(),
        ),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("pass"), st.sampled_from([1, 7, 45, 200, 700])),
        st.tuples(st.just("restart")),
    ),
    min_size=5,
    max_size=40,
)


def _tree(hours: int, money: int) -> QueueTree:
    return QueueTree(
        (
            Queue("root", budget=_budget(0, device_hours=None, money_micro=money)),
            Queue("team", "root", guarantee=(), budget=_budget(hours)),
            Queue("a", "team", budget=_budget(hours // 2)),
            Queue("b", "team"),
        ),
        prices_micro=PRICES,
        currency="EUR",
    )


@settings(deadline=None, max_examples=60)
@given(steps, st.integers(4, 60), st.integers(10_000_000, 200_000_000))
def test_used_and_reserved_are_what_the_runs_say_and_no_start_exceeds_a_budget(
    steps: list[tuple[object, ...]], hours: int, money: int
) -> None:
    case = Dated(_nodes(), _tree(hours, money))
    case.at(DAY)
    books = Books(case)
    for number, step in enumerate(steps):
        if step[0] == "submit":
            _, name, devices, minutes, one_kind = step
            assert isinstance(name, str)
            assert isinstance(devices, int)
            run_us = None if minutes is None else int(str(minutes)) * MINUTE_US
            kinds = ("A100",) if one_kind else ()
            made = work(f"{name}/{number}", devices, name, accelerators=kinds, run_us=run_us)
            # Nobody's declarations are corrected, since nobody has a name twice.
            case.submit(replace(made, user=str(number)))
        elif step[0] == "end":
            holding = [u for u in sorted(case.world.entries) if case.world.entries[u].held]
            if holding:
                uid = holding[int(str(step[1])) % len(holding)]
                books.runs[uid].ended_us = case.now_us
                case.end(uid)
        elif step[0] == "pass":
            case.to(case.now_us // MINUTE_US + int(str(step[1])))
        else:
            _restart(case)
        _compare(books, case)


def _compare(books: Books, case: Dated) -> None:
    """Everything that was decided lately was decided within all budgets; sums are as they are."""
    since = books.seen
    books.read()
    for seen in case.seen[since:]:
        if isinstance(seen.decision, Start):
            for name in ("a", "team", "root"):
                ran = books.runs[seen.decision.workload]
                if name in case.world.tenants.path(ran.queue):
                    committed = sum(books.sums(name, seen.at_us))
                    assert committed <= case.world.spending.accounts[name].total
    for name, account in case.world.spending.accounts.items():
        used, reserved = books.sums(name, case.now_us)
        assert account.used_at(case.now_us) == used
        assert account.reserved_at(case.now_us) == reserved


def _restart(case: Dated) -> None:
    """Go on with a world that is made from a snapshot."""
    snapshot = tuple(case.world.snapshot(case.now_us))
    again = World()
    for event in snapshot:
        again.apply(event)
    assert tuple(again.snapshot(case.now_us)) == snapshot
    for name, account in again.spending.accounts.items():
        kept = case.world.spending.accounts[name]
        for later in (0, HOUR_US, 40 * HOUR_US):
            at_us = case.now_us + later
            assert account.used_at(at_us) == kept.used_at(at_us)
            assert account.reserved_at(at_us) == kept.reserved_at(at_us)
    case.world = again
    case.validator = Validator(again)


# What happens when a budget is spent ----------------------------------------------------------


def _spent(what: WhenSpent) -> Dated:
    """One of two device hours of a queue is used, by a job that goes on and said nothing."""
    case = Dated(_nodes(), tree(queue("a", 1, budget=_budget(2, what)), queue("b")))
    case.at(DAY)
    case.submit(work("a/long", accelerators=("H100",)))
    return case


def _starts(case: Dated, *uids: str) -> Iterator[bool]:
    for uid in uids:
        case.submit(work(uid, accelerators=("H100",), run_us=HOUR_US))
        yield bool(case.starts(uid))


@pytest.mark.parametrize(
    ("what", "started", "lowered"),
    [
        (WhenSpent.WARN, True, False),
        (WhenSpent.LOWER_WEIGHT, True, True),
        (WhenSpent.NO_BORROWING, False, True),
    ],
)
def test_each_way_of_being_spent_includes_the_milder_ones(
    what: WhenSpent, started: bool, lowered: bool
) -> None:
    case = _spent(what)
    assert len(case.starts("a/long")) == 1
    assert case.world.tenants.lowered == set()
    case.to(us(DAY) // MINUTE_US + 180)
    (warned,) = case.warned
    assert warned.at_us == us(DAY) + 2 * HOUR_US
    assert (case.world.tenants.lowered == {"a"}) is lowered
    assert list(_starts(case, "a/more", "b/w")) == [started, True]
    case.to(us(DAY) // MINUTE_US + 23 * 60)
    assert case.world.tenants.lowered == set()


def test_with_no_new_starts_what_cannot_be_paid_for_does_not_start() -> None:
    """A run of which nobody knows how long it takes is reserved until the period ends."""
    case = _spent(WhenSpent.NO_NEW_STARTS)
    assert case.starts("a/long") == []
    assert case.verdict("a/long").cause == (Stage.BUDGET, Reason.BUDGET)
    assert list(_starts(case, "a/short")) == [True]
    case.end("a/short")
    case.to(us(DAY) // MINUTE_US + 23 * 60)
    # Two hours before the end of the day it could pay for all that is left of the day.
    (start,) = [s for s in case.seen if isinstance(s.decision, Start) and "long" in s.decision.key]
    assert start.at_us == us(DAY) + 21 * HOUR_US


def test_who_may_not_borrow_still_has_what_is_guaranteed() -> None:
    case = Dated(
        _nodes(), tree(queue("a", 2, budget=_budget(1, WhenSpent.NO_BORROWING)), queue("b"))
    )
    case.at(DAY)
    assert list(_starts(case, "a/one", "a/two", "a/three")) == [True, True, False]
    over = case.verdict("a/three").over_budget
    assert over is not None
    assert (over.used, over.reserved, over.asked) == (0, 2 * HOUR_US, HOUR_US)
    case.end("a/one")
    assert len(case.starts("a/three")) == 1


def test_every_ancestor_s_budget_binds_and_only_those() -> None:
    root = Queue("root", budget=_budget(3))
    case = Dated(_nodes(), tree(queue("a", budget=_budget(100)), queue("b"), root=root))
    case.at(DAY)
    assert list(_starts(case, "a/1", "b/1", "a/2", "b/2")) == [True, True, True, False]
    over = case.verdict("b/2").over_budget
    assert over is not None
    assert over.queue == "root"
    case.end("a/1")
    assert len(case.starts("b/2")) == 1


def test_where_money_does_not_suffice_for_one_accelerator_another_is_taken() -> None:
    """Five of the cheap ones could be paid for an hour, and only four of the dear ones."""
    budget = _budget(0, device_hours=None, money_micro=14_000_000)
    made = replace(tree(queue("a", budget=budget)), prices_micro=PRICES, currency="EUR")
    case = Dated([node("n", 8), node("c", 8, accelerator="A100")], made)
    case.at(DAY)
    case.submit(work("a/w", 5, run_us=HOUR_US))
    assert case.nodes_of("a/w") == ["c"]
    account = case.world.spending.accounts["a"]
    assert account.reserved_at(case.now_us) == 5 * 2_800_000 * SCALE
    case.submit(work("a/x", run_us=HOUR_US))
    over = case.verdict("a/x").over_budget
    assert over is not None
    assert (over.currency, over.reserved, over.asked) == ("EUR", 14_000_000, 2_800_000)


def test_what_was_kept_of_a_budget_counts_once_when_it_is_taken() -> None:
    """Three of four device hours are for who others go for, and one for who comes as it starts."""
    queues = tree(queue("a", 4, budget=_budget(4)), queue("b"))
    case = Dated([node("n", 4)], queues, stops_us={"b/x": 10 * MINUTE_US})
    case.at(DAY)
    case.submit(batch("b/x", 3))
    case.submit(work("a/first", 3, run_us=HOUR_US))
    assert case.world.entries["a/first"].reserved is not None
    at_us = case.now_us + 10 * MINUTE_US
    case.schedule(at_us, ev.WorkloadSubmitted(at_us, work("a/second", run_us=HOUR_US)))
    case.to(at_us // MINUTE_US)
    assert len(case.starts("a/first")) == 1
    assert len(case.starts("a/second")) == 1


def test_nothing_is_kept_for_who_starves_but_may_not_borrow() -> None:
    """It would be within the guarantee if the other ended, and could not start where it is kept."""
    spent = queue(
        "a", 1, budget=_budget(1, WhenSpent.NO_BORROWING), starvation_after_us=2 * HOUR_US
    )
    case = Dated([node("n", 2)], tree(spent, queue("b")))
    case.at(DAY)
    case.submit(work("a/long"))
    case.to(us(DAY) // MINUTE_US + 61)
    case.submit(work("a/second"))
    case.to(us(DAY) // MINUTE_US + 300)
    assert case.verdict("a/second").stage is Stage.BUDGET
    assert not [seen for seen in case.seen if isinstance(seen.decision, Reserve)]


def test_a_run_that_is_longer_than_a_period_is_judged_by_its_part() -> None:
    """Nothing could ever pay for all of it at once; what ends earlier waits for the next day."""
    case = Dated(_nodes(), tree(queue("a", budget=_budget(24)), queue("b")))
    case.at(DAY)
    case.submit(work("a/two-days", run_us=48 * HOUR_US))
    assert len(case.starts("a/two-days")) == 1
    account = case.world.spending.accounts["a"]
    assert account.reserved_at(case.now_us) == 23 * SCALE
    case.to(us(DAY) // MINUTE_US + 22 * 60)
    case.submit(work("a/two-hours", run_us=2 * HOUR_US))
    assert case.starts("a/two-hours") == []
    case.to(us(DAY) // MINUTE_US + 23 * 60)
    assert case.starts("a/two-hours") == []
    case.end("a/two-days")
    assert len(case.starts("a/two-hours")) == 1


def test_work_past_its_reserve_goes_on_and_goes_on_counting() -> None:
    case = Dated(_nodes(), tree(queue("a", budget=_budget(4))))
    case.at(DAY)
    case.submit(work("a/w", run_us=HOUR_US))
    case.to(us(DAY) // MINUTE_US + 6 * 60)
    assert case.hours("a") == (6, 0)
    assert len(case.warned) == 1
    assert isinstance(case.warned[0].decision, Warn)
    assert case.warned[0].at_us == us(DAY) + 4 * HOUR_US
    assert list(_starts(case, "a/x")) == [False]


# What is found out late -----------------------------------------------------------------------


def test_what_was_running_before_counts_from_when_it_began() -> None:
    """Adopted work, and a budget that is written while work runs."""
    case = Dated(_nodes(), tree(queue("a"), queue("b", budget=_budget(10))))
    case.at(DAY)
    case.to(us(DAY) // MINUTE_US + 120)
    found = batch("b/found", 2)
    placement = Placement(0, "n1", ("n1/0", "n1/1"))
    case.happen(
        ev.WorkloadAdopted(0, found, (placement,), us(DAY) + HOUR_US),
        ev.WorkloadAdopted(0, batch("b/older"), (Placement(0, "n2", ("n2/0",)),), us(DAY) - 1),
    )
    assert case.hours("b")[0] == 2 + 2
    case.submit(work("a/w", 3, accelerators=("H100",)))
    case.to(us(DAY) // MINUTE_US + 240)
    case.set_queues(tree(queue("a", budget=_budget(100)), queue("b", budget=_budget(20))))
    assert case.hours("a")[0] == 6
    assert case.hours("b")[0] == 6 + 4


def test_what_was_used_before_a_crash_is_told_by_whoever_kept_it() -> None:
    """Work that is found running counts only from when its use was last kept."""
    case = Dated(_nodes(), tree(queue("a", budget=_budget(10))))
    case.at(DAY)
    case.to(us(DAY) // MINUTE_US + 300)
    (kept,) = case.world.spending.kept()
    counted_us = us(DAY) + 4 * HOUR_US
    told = replace(kept, used=(5, 0), counted_us=counted_us, watched_us=counted_us)
    case.happen(ev.SpendingRestored(0, (told,)))
    placement = Placement(0, "n1", ("n1/0",))
    case.happen(ev.WorkloadAdopted(0, batch("a/found"), (placement,), us(DAY)))
    assert case.hours("a")[0] == 6


def test_what_another_process_kept_is_taken_in_beside_what_is_found_running() -> None:
    """Five hours were used up to four o'clock; one job runs on, and one began at five."""
    case = Dated(_nodes(), tree(queue("a", budget=_budget(20))))
    case.at(DAY)
    (kept,) = case.world.spending.kept()
    counted_us = us(DAY) + 4 * HOUR_US
    told = replace(kept, used=(5, 0), counted_us=counted_us, watched_us=counted_us)
    case.to(us(DAY) // MINUTE_US + 7 * 60)
    for uid, leaf, hour in (("a/old", "n1/0", 1), ("a/new", "n1/1", 5)):
        placement = Placement(0, "n1", (leaf,))
        since_us = us(DAY) + hour * HOUR_US
        case.happen(ev.WorkloadAdopted(0, batch(uid), (placement,), since_us))
    assert case.hours("a")[0] == 6 + 2
    case.happen(ev.SpendingRestored(0, (told,)))
    assert case.hours("a")[0] == 5 + 3 + 2
    case.to(us(DAY) // MINUTE_US + 8 * 60)
    assert case.hours("a")[0] == 12
    old = replace(told, begin_us=kept.begin_us - HOUR_US, end_us=kept.begin_us, used=(99, 0))
    case.happen(ev.SpendingRestored(0, (old,)))
    assert case.hours("a")[0] == 12


def test_a_run_of_which_a_pod_without_devices_is_left_goes_on_after_a_restart() -> None:
    """A head runs on beside which a worker may run again: it is one run, with one end."""
    case = Dated(_nodes(), tree(queue("a", 4, budget=_budget(10))))
    case.at(DAY)
    head, worker = PodSet("head", 1, whole(0)), PodSet("worker", 1, whole(1))
    case.submit(replace(work("a/ray", run_us=2 * HOUR_US), pod_sets=(head, worker)))
    case.to(us(DAY) // MINUTE_US + 60)
    case.happen(ev.PodEnded(0, "a/ray", 1))
    assert case.world.entries["a/ray"].held.keys() == {0}
    _restart(case)


def test_a_period_that_is_told_again_or_late_changes_nothing() -> None:
    case = Dated(_nodes(), tree(queue("a", budget=_budget(10))))
    case.at(DAY)
    case.submit(work("a/w", run_us=HOUR_US))
    case.to(us(DAY) // MINUTE_US + 30)
    case.end("a/w", outcome=Outcome.COMPLETED)
    account = case.world.spending.accounts["a"]
    begin_us, end_us = account.begin_us, account.end_us
    case.happen(
        ev.PeriodBegan(0, "a", begin_us, end_us),
        ev.PeriodBegan(0, "a", begin_us - 24 * HOUR_US, begin_us),
        ev.PeriodBegan(0, "nobody", begin_us, end_us),
    )
    assert case.hours("a") == (0.5, 0)


def test_what_was_used_between_the_end_of_a_period_and_the_news_of_the_next_counts_there() -> None:
    case = Dated(_nodes(), tree(queue("a", budget=_budget(30))))
    case.at(DAY)
    case.submit(work("a/w", run_us=23 * HOUR_US))
    end_us = us(DAY) + 23 * HOUR_US
    case.feed(ev.PodEnded(end_us + HOUR_US, "a/w", 0))
    assert case.world.spending.accounts["a"].used_at(end_us + HOUR_US) == 23 * SCALE
    case.feed(ev.PeriodBegan(end_us + 2 * HOUR_US, "a", end_us, end_us + 24 * HOUR_US))
    assert case.world.spending.accounts["a"].used_at(end_us + 2 * HOUR_US) == SCALE


def test_what_has_no_budget_for_a_while_is_forgotten() -> None:
    """A world made from a snapshot knows as much as one that has seen everything."""
    budget = _budget(100)
    case = Dated(_nodes(), tree(queue("a", budget=budget), queue("b")))
    case.at(DAY)
    case.submit(work("a/w", run_us=HOUR_US), batch("b/w"))
    case.set_queues(tree(queue("a"), queue("b", budget=budget)))
    _restart(case)
    case.to(us(DAY) // MINUTE_US + 120)
    case.set_queues(tree(queue("a", budget=budget), queue("b", budget=budget)))
    _restart(case)
    assert [case.hours(name) for name in ("a", "b")] == [(2, 0), (2, 21)]


def test_a_budget_that_is_raised_is_not_spent_any_more() -> None:
    case = _spent(WhenSpent.LOWER_WEIGHT)
    case.to(us(DAY) // MINUTE_US + 180)
    assert case.world.tenants.lowered == {"a"}
    case.set_queues(tree(queue("a", 1, budget=_budget(4, WhenSpent.LOWER_WEIGHT)), queue("b")))
    assert case.world.tenants.lowered == set()
    assert case.hours("a")[0] == 3
    case.to(us(DAY) // MINUTE_US + 300)
    assert [seen.at_us for seen in case.warned] == [us(DAY) + 2 * HOUR_US, us(DAY) + 4 * HOUR_US]


def test_a_period_after_a_gap_begins_with_nothing_used() -> None:
    """Nobody said when the periods between them began, and what was used then is over."""
    case = Case(_nodes(), tree(queue("a", budget=_budget(24))))
    case.happen(ev.PeriodBegan(0, "a", 0, HOUR_US))
    case.submit(batch("a/w"))
    case.to(30)
    case.end("a/w")
    account = case.world.spending.accounts["a"]
    assert account.used_at(case.now_us) == SCALE // 2
    case.to(600)
    case.happen(ev.PeriodBegan(0, "a", 10 * HOUR_US, 11 * HOUR_US))
    assert account.used_at(case.now_us) == 0
