"""The worked examples of budgets and time limits on the page on queues, lived through."""

from dataclasses import replace

from shoal.core.decisions import Evict
from shoal.model.queue import Budget, Period, Queue, WhenSpent
from shoal.model.verdict import Reason
from shoal.model.workload import WorkloadType
from shoal.texts.verdicts import local_time, over_budget_text
from tests.core.build import node
from tests.core.cases import MINUTE_US, Case, batch, clock, queue, tree, work
from tests.core.dated import HOUR_US, Dated, us
from tests.docs.page import Page

PAGE = Page("queues.md")
BERLIN = "Europe/Berlin"


def budget(hours: int, period: Period = Period.MONTH, zone: str = "UTC") -> Budget:
    """So many device hours, and then no new starts."""
    return Budget(period, hours, WhenSpent.NO_NEW_STARTS, time_zone=zone)


def ninety_used(*, declares: bool) -> Dated:
    """Of 100 device hours 90 are used; two jobs of 8 devices come, which may run an hour or not."""
    run = ((WorkloadType.TRAINING, HOUR_US),) if declares else ()
    made = queue("q", 16, budget=budget(100), maximum_run_us=run)
    case = Dated([node("n1", 8), node("n2", 8)], tree(made))
    case.at("2026-04-01T00:00+00:00")
    case.submit(batch("q/before", pods=9, run_us=10 * HOUR_US))
    case.at("2026-04-01T10:00+00:00")
    case.end("q/before")
    assert case.hours("q") == (90, 0)
    case.at("2026-04-10T12:00+00:00")
    case.submit(work("q/first", 8), work("q/second", 8))
    return case


def told(case: Case, uid: str) -> str:
    """What somebody is told of the budget that does not suffice for him."""
    over = case.verdict(uid).over_budget
    assert over is not None
    return over_budget_text(over)


def test_a_budget_is_kept_by_reserving() -> None:
    case = ninety_used(declares=True)
    assert len(case.starts("q/first")) == 1
    assert case.hours("q") == (90, 8)
    PAGE.says(told(case, "q/second"))
    PAGE.says("With 2 devices it would start, or with 15 minutes.")
    case.submit(work("q/two", 2))
    assert len(case.starts("q/two")) == 1, "it makes a hundred"
    assert case.hours("q") == (90, 10)
    short = ninety_used(declares=True)
    short.submit(work("q/short", 8, run_us=15 * MINUTE_US))
    assert len(short.starts("q/short")) == 1
    assert short.hours("q") == (90, 10)


def test_what_is_not_used_is_free_again_and_the_month_begins_anew() -> None:
    PAGE.says(
        "The first job ends after half an hour: 94 are used, nothing is reserved, and the second"
        " would make 102. It starts on the first of the month.",
    )
    case = ninety_used(declares=True)
    case.at("2026-04-10T12:30+00:00")
    case.end("q/first")
    assert case.hours("q") == (94, 0)
    case.at("2026-04-30T23:59+00:00")
    assert case.starts("q/second") == []
    case.at("2026-05-01T00:00+00:00")
    assert len(case.starts("q/second")) == 1
    assert case.hours("q") == (0, 8)


def test_without_a_declaration_the_rest_of_the_month_is_asked_for() -> None:
    PAGE.says(
        "without any of it the first job would have asked for its 8 devices until the end of the"
        " month, and waited as well"
    )
    case = ninety_used(declares=False)
    assert case.starts("q/first") == []
    over = case.verdict("q/first").over_budget
    assert over is not None
    assert over.asked == 8 * (us("2026-05-01T00:00+00:00") - us("2026-04-10T12:00+00:00"))


def test_each_pod_that_joins_reserves_what_is_left_of_the_run() -> None:
    PAGE.says(
        "With a budget of 12 device hours, one is used and 3 are reserved; each pod that joins"
        " reserves 3 more, so two join, which makes 10, and the third would make 13."
    )
    queues = tree(queue("q", budget=budget(12)), queue("x"))
    case = Dated([node("n", 4)], queues)
    case.at("2026-04-01T00:00+00:00")
    case.submit(work("x/w", 3))
    case.submit(work("q/gang", pods=4, minimum=1, run_us=4 * HOUR_US))
    assert case.hours("q") == (0, 4)
    case.at("2026-04-01T01:00+00:00")
    assert case.hours("q") == (1, 3)
    case.end("x/w")
    assert [pods for _, _, pods in case.grown] == [(1, 2)]
    assert case.hours("q") == (1, 9)


def test_what_runs_into_the_next_period_waits_for_it_unless_no_period_would_do() -> None:
    """Three of six hours are used two hours before midnight; either would use two of the rest."""
    PAGE.says(
        "A start has to fit whole, so that nothing slips in just before the end",
        "Only work for which the budget of a whole period would not do, such as two days",
    )
    for hours, begins in ((4, "2026-04-02T00:00+00:00"), (48, "2026-04-01T22:00+00:00")):
        case = Dated([node("n", 1)], tree(queue("q", budget=budget(6, Period.DAY))))
        case.at("2026-04-01T10:00+00:00")
        case.submit(work("q/before", run_us=3 * HOUR_US))
        case.at("2026-04-01T13:00+00:00")
        case.end("q/before")
        case.at("2026-04-01T22:00+00:00")
        case.submit(work("q/w", run_us=hours * HOUR_US))
        case.at("2026-04-02T01:00+00:00")
        assert case.starts("q/w") == [clock(us(begins))]


def test_in_berlin_a_budget_of_744_hours_is_spent_in_october_and_never_in_march() -> None:
    PAGE.says(
        "one device that is in use all month has used a budget of 744 device hours on 31 October at"
        " 23:00, one hour before the month ends, and never in March."
    )
    for begin, end, spent in (
        ("2026-02-28T23:00+00:00", "2026-03-31T22:00+00:00", []),
        ("2026-09-30T22:00+00:00", "2026-10-31T23:00+00:00", ["2026-10-31 23:00+01:00"]),
    ):
        case = Dated([node("n", 1)], tree(queue("q", 1, budget=budget(744, zone=BERLIN))))
        case.at(begin)
        case.submit(work("q/long", run_us=720 * HOUR_US))
        case.at(end)
        assert [local_time(seen.at_us, BERLIN) for seen in case.warned] == spent


def test_of_time_limits_on_the_path_the_shortest_counts() -> None:
    PAGE.says("under 12 hours for notebooks in the department, 24 hours in a team are 12")

    def limited(name: str, hours: int, guarantee: int = 0) -> Queue:
        limit = ((WorkloadType.NOTEBOOK, hours * HOUR_US),)
        return queue(name, guarantee, maximum_run_us=limit)

    team = replace(limited("team", 24), parent="department")
    case = Case([node("n", 1)], tree(limited("department", 12, guarantee=1), team))
    case.submit(work("team/x", type_=WorkloadType.NOTEBOOK))
    case.to(30 * 60)
    ended = [(clock(s.at_us), s.decision) for s in case.seen if isinstance(s.decision, Evict)]
    assert [(at, each.workload, each.reason) for at, each in ended] == [
        ("720:00", "team/x", Reason.MAXIMUM_RUN)
    ]
    assert "team/x" not in case.world.entries, "it does not come back by itself"


def test_who_declared_a_minute_and_ran_ten_hours_is_expected_to_do_so_again() -> None:
    PAGE.says(
        "multiplied by how much too short it was in nine of ten of the last 16 runs, never by less"
        " than one: who declared one minute and ran ten hours is expected to run for ten hours next"
        " time."
    )
    case = Case([node("n", 1)], tree(queue("q", 1)))
    case.submit(work("q/x", run_us=MINUTE_US, user="eve"))
    case.to(600)
    case.end("q/x")
    again = work("q/y", run_us=MINUTE_US, user="eve")
    assert case.world.declared.expected_us(again) == 10 * HOUR_US
