"""What work says about itself, held against what happens."""

import pytest

from shoal.core import events as ev
from shoal.core.limits.declared import LAST_RUNS, declared_end_us, overdue
from shoal.core.placing.ahead import expected_end_us
from shoal.core.queueing.precedence import UNKNOWN_US
from shoal.core.world import World
from shoal.model.queue import Queue
from shoal.model.workload import Outcome, WorkloadType
from tests.core.build import node
from tests.core.cases import MINUTE_US, SECOND_US, Case, batch, queue, tree, work


def _case(*queues: Queue) -> Case:
    return Case([node("n", 8)], tree(*(queues or (queue("a", 8),))))


def _ran(case: Case, uid: str, declared: int, actual: int, user: str = "") -> None:
    """A workload that declared so many minutes runs for so many."""
    case.submit(batch(uid, run_us=declared * MINUTE_US, user=user))
    case.to(case.now_us // MINUTE_US + actual)
    case.end(uid)


def _expected(case: Case, user: str = "", declared: int = 10) -> float | None:
    """For how many minutes a job of a user is expected to run that declares so many."""
    found = case.world.declared.expected_us(batch("a/x", user=user, run_us=declared * MINUTE_US))
    return None if found is None else found / MINUTE_US


def test_work_is_overdue_when_it_is_past_what_was_declared() -> None:
    case = _case()
    case.to(1)
    case.submit(batch("a/w", run_us=10 * MINUTE_US), batch("a/silent"))
    entry, silent = (case.world.entries[uid] for uid in ("a/w", "a/silent"))
    assert declared_end_us(entry) == 11 * MINUTE_US
    assert not overdue(entry, 11 * MINUTE_US)
    assert overdue(entry, 11 * MINUTE_US + 1)
    assert declared_end_us(silent) is None
    assert not overdue(silent, 10**18)


def test_what_an_owner_declares_next_is_corrected_by_what_was_too_short() -> None:
    """One minute was declared and ten hours were run; others are not concerned."""
    case = _case()
    assert _expected(case) == 10
    _ran(case, "a/liar", 1, 600, user="eve")
    assert _expected(case, "eve") == 6_000
    assert _expected(case, "bob") == 10
    assert case.world.declared.expected_us(work("a/none", user="eve")) is None


def test_who_declares_a_second_is_not_believed_for_long() -> None:
    """However little was declared, what it became counts, and numbers stay in 64 bits."""
    case = _case()
    case.submit(batch("a/liar", run_us=SECOND_US, user="eve"))
    case.to(600)
    case.end("a/liar")
    assert _expected(case, "eve", declared=1) == 600 * 60
    assert case.world.declared.expected_us(batch("a/x", user="eve", run_us=SECOND_US)) == (
        600 * MINUTE_US
    )
    endless = batch("a/x", user="eve", run_us=9_999 * 24 * 60 * MINUTE_US)
    expected_us = case.world.declared.expected_us(endless)
    assert expected_us is not None
    assert expected_us < UNKNOWN_US


def test_nobody_s_declaration_is_made_shorter() -> None:
    case = _case()
    _ran(case, "a/careful", 100, 10)
    assert _expected(case) == 10


def test_one_bad_run_among_many_good_ones_is_forgiven() -> None:
    case = _case()
    for number in range(LAST_RUNS - 1):
        _ran(case, f"a/good{number}", 10, 10)
    _ran(case, "a/bad", 10, 70)
    assert _expected(case) == 10
    _ran(case, "a/worse", 10, 70)
    assert _expected(case) == 70
    for number in range(LAST_RUNS - 1):
        _ran(case, f"a/better{number}", 10, 10)
    assert _expected(case) == 10


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED])
def test_work_that_something_else_ended_early_says_nothing(outcome: Outcome) -> None:
    """But where it had run for too long already, it does."""
    case = _case()
    _ran(case, "a/liar", 10, 20)
    for uid, minutes in (("a/early", 5), ("a/late", 30)):
        case.submit(batch(uid, run_us=10 * MINUTE_US))
        case.to(case.now_us // MINUTE_US + minutes)
        case.end(uid, outcome=outcome)
    assert case.world.declared.kept() == (("a", "", (2_000, 3_000)),)


def test_the_maximum_run_of_the_queue_is_the_most_that_is_expected() -> None:
    limit = ((WorkloadType.BATCH, 30 * MINUTE_US),)
    case = _case(queue("a", 8, maximum_run_us=limit))
    assert _expected(case) == 10
    assert _expected(case, declared=40) == 30
    assert case.world.declared.expected_us(batch("a/silent")) == 30 * MINUTE_US
    assert case.world.declared.expected_us(work("a/training")) is None


def test_what_was_learned_survives_a_snapshot() -> None:
    case = _case()
    _ran(case, "a/liar", 1, 7, user="eve")
    _ran(case, "a/other", 1, 2, user="bob")
    again = World()
    for event in case.world.snapshot(case.now_us):
        again.apply(event)
    assert again.declared.kept() == case.world.declared.kept() != ()


def _report(case: Case, uid: str, taken: float) -> int | None:
    """A checkpoint is reported as of so many minutes; up to when work is believed to be safe."""
    case.happen(ev.CheckpointReported(0, uid, int(taken * MINUTE_US)))
    return case.world.entries[uid].checkpoint_us


def test_checkpoints_are_believed_neither_of_the_future_nor_of_the_time_before() -> None:
    case = _case()
    case.to(10)
    case.submit(work("a/w"))
    case.to(20)
    assert _report(case, "a/w", 5) is None
    assert _report(case, "a/w", -5) is None
    assert _report(case, "a/w", 10**9) == 20 * MINUTE_US
    case.to(30)
    assert _report(case, "a/w", 15) == 20 * MINUTE_US
    assert _report(case, "a/w", 29) == 29 * MINUTE_US


def test_checkpoints_count_once_a_minute() -> None:
    """Whoever reports all the time is believed as often as whoever does so each minute."""
    case = _case()
    case.submit(work("a/w"))
    believed = set()
    for tenth in range(1, 100):
        case.to(tenth / 10)
        believed.add(_report(case, "a/w", tenth / 10))
    assert len(believed) == 10
    case.happen(ev.CheckpointReported(0, "nobody", 5))


def test_nobody_plans_with_the_end_of_work_that_is_overdue() -> None:
    """Not with a corrected one either: from then on nothing that its owner says is known."""
    case = _case()
    _ran(case, "a/before", 1, 600, user="eve")
    case.submit(batch("a/again", run_us=10 * MINUTE_US, user="eve"))
    entry = case.world.entries["a/again"]
    since_us = case.now_us
    assert expected_end_us(case.world, entry, since_us) == since_us + 6_000 * MINUTE_US
    overdue_us = since_us + 10 * MINUTE_US + 1
    assert expected_end_us(case.world, entry, overdue_us - 1) is not None
    assert expected_end_us(case.world, entry, overdue_us) is None
