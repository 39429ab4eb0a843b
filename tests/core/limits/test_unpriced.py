"""Budgets in money, and accelerators without a price, whose use they cannot count."""

from dataclasses import replace

import pytest

from shoal.model.queue import Budget, Period, Queue, QueueTree, WhenSpent
from shoal.model.verdict import Reason, Stage, Wake
from tests.core.build import node
from tests.core.cases import batch, queue, tree, work
from tests.core.dated import HOUR_US, Dated

DAY = "2026-03-02T00:00+00:00"


def _money(euros: int, what: WhenSpent) -> Budget:
    return Budget(Period.MONTH, None, what, money_micro=euros * 1_000_000)


def _priced(made: QueueTree, **prices: int) -> QueueTree:
    micro = tuple((name, euros * 1_000_000) for name, euros in sorted(prices.items()))
    return replace(made, prices_micro=micro, currency="EUR")


def _case(made: QueueTree) -> Dated:
    """Four H100 at 2 EUR, and eight A100 that nobody wrote a price of."""
    nodes = [node("h", 4), node("a", 8, accelerator="A100")]
    case = Dated(nodes, _priced(made, H100=2))
    case.at(DAY)
    return case


def _a(what: WhenSpent, euros: int = 1) -> Queue:
    return queue("a", 4, budget=_money(euros, what))


def test_nothing_starts_on_what_has_no_price_where_nothing_starts_that_is_not_paid_for() -> None:
    case = _case(tree(_a(WhenSpent.NO_NEW_STARTS), queue("b")))
    case.submit(batch("a/w", 8, accelerators=("A100",)))
    verdict = case.verdict("a/w")
    assert case.starts("a/w") == []
    assert (verdict.cause, verdict.wakes) == ((Stage.BUDGET, Reason.NO_PRICE), (Wake.QUEUES,))
    case.submit(batch("b/w", 8, accelerators=("A100",)))
    assert len(case.starts("b/w")) == 1


def test_it_is_said_also_where_none_of_them_is_free_and_nobody_goes_for_it() -> None:
    case = _case(tree(_a(WhenSpent.NO_NEW_STARTS), queue("b")))
    case.submit(batch("b/w", 8, accelerators=("A100",)))
    case.submit(work("a/w", accelerators=("A100",)))
    assert case.verdict("a/w").cause == (Stage.BUDGET, Reason.NO_PRICE)
    assert case.evictions == []


def test_where_another_accelerator_will_do_its_price_decides() -> None:
    """One of the two could be paid for; what is said of the other is that it could not be."""
    case = _case(tree(_a(WhenSpent.NO_NEW_STARTS, 2)))
    case.submit(batch("a/1", run_us=HOUR_US), batch("a/2", run_us=HOUR_US))
    assert case.nodes_of("a/1") == ["h"]
    assert case.starts("a/2") == []
    assert case.verdict("a/2").cause == (Stage.BUDGET, Reason.BUDGET)
    assert Wake.PERIOD in case.verdict("a/2").wakes


def test_who_may_not_borrow_holds_of_it_what_is_guaranteed() -> None:
    made = replace(_a(WhenSpent.NO_BORROWING, 1000), guarantee=(("A100", 2), ("H100", 2)))
    case = _case(tree(made))
    case.submit(*(batch(f"a/{n}", accelerators=("A100",), run_us=HOUR_US) for n in range(3)))
    assert [len(case.starts(f"a/{n}")) for n in range(3)] == [1, 1, 0]
    assert case.verdict("a/2").cause == (Stage.BUDGET, Reason.NO_PRICE)
    case.submit(batch("a/h", 4, accelerators=("H100",), run_us=HOUR_US))
    assert case.starts("a/h") == [case.starts("a/0")[0]]
    case.end("a/0")
    assert len(case.starts("a/2")) == 1


@pytest.mark.parametrize("what", [WhenSpent.WARN, WhenSpent.LOWER_WEIGHT])
def test_what_forbids_no_start_lets_it_run_and_cannot_count_it(what: WhenSpent) -> None:
    case = _case(tree(_a(what)))
    case.submit(batch("a/w", 8, accelerators=("A100",)))
    assert len(case.starts("a/w")) == 1
    assert case.hours("a") == (0, 0)


def test_device_hours_need_no_price() -> None:
    budget = Budget(Period.MONTH, 8, WhenSpent.NO_NEW_STARTS)
    case = _case(tree(queue("a", budget=budget), queue("b", budget=_money(1, WhenSpent.WARN))))
    case.submit(batch("a/w", 8, accelerators=("A100",), run_us=HOUR_US))
    assert len(case.starts("a/w")) == 1


def test_a_budget_further_up_and_a_price_that_is_written_count() -> None:
    root = Queue("root", budget=_money(100, WhenSpent.NO_NEW_STARTS))
    made = tree(queue("a"), root=root)
    case = _case(made)
    case.submit(batch("a/w", 8, accelerators=("A100",), run_us=HOUR_US))
    over = case.verdict("a/w").over_budget
    assert over is not None
    assert (over.queue, over.unpriced) == ("root", "A100")
    case.set_queues(_priced(made, A100=1, H100=2))
    assert len(case.starts("a/w")) == 1
    assert case.world.spending.accounts["root"].reserved_at(case.now_us) > 0


def test_a_gang_grows_by_no_pod_that_has_lost_its_price() -> None:
    made = tree(_a(WhenSpent.NO_NEW_STARTS, 1000), queue("b"))
    case = Dated([node("h", 4), node("a", 2, accelerator="A100")], _priced(made, A100=1, H100=2))
    case.at(DAY)
    case.submit(work("b/w", accelerators=("A100",)))
    case.submit(work("a/g", pods=2, minimum=1, accelerators=("A100",), run_us=HOUR_US))
    assert len(case.nodes_of("a/g")) == 1
    case.set_queues(_priced(made, H100=2))
    case.end("b/w")
    assert len(case.nodes_of("a/g")) == 1
    case.set_queues(_priced(made, A100=1, H100=2))
    assert len(case.nodes_of("a/g")) == 2
