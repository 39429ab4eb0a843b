"""The fields of a queue: what they become, and what is said where they are wrong."""

from datetime import date

import pytest

from shoal.model.queue import Budget, EvictionBounds, Order, Period, Priority, WhenSpent
from shoal.model.workload import WorkloadType
from tests.objects.written import only, priced, problems, queue, read

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US

H100 = "accelerator: H100, micro_per_hour: 2500000, currency: XTS, valid_from: 2026-01-01"
T4 = "accelerator: T4, micro_per_hour: 350000, currency: XTS, valid_from: 2026-01-01"


def test_every_field_has_its_value() -> None:
    read_one = only(
        [
            queue(
                "a",
                "guarantee: {H100: 16}, borrow: {H100: 8}, lend: {H100: 4}, placeable: {H100: 8},"
                " order: fair, aging: 1h, starvationAfter: 12h, maximumWait: {batch: 2d},"
                " eviction: {graceMax: 5m, minimumRun: 30m}, shrinkAfter: 10m, usageHalfLife: 7d",
            )
        ],
        "a",
    )
    assert (read_one.borrow, read_one.lend) == ((("H100", 8),), (("H100", 4),))
    assert read_one.placeable == (("H100", 8),)
    assert read_one.order is Order.FAIR
    assert (read_one.aging_us, read_one.starvation_after_us) == (HOUR_US, 12 * HOUR_US)
    assert read_one.maximum_wait_us == ((WorkloadType.BATCH, 2 * DAY_US),)
    assert read_one.grace_max_us == 5 * MINUTE_US
    assert read_one.eviction == EvictionBounds(minimum_run_us=30 * MINUTE_US)
    assert (read_one.shrink_after_us, read_one.usage_half_life_us) == (10 * MINUTE_US, 7 * DAY_US)


def test_what_is_not_written_has_a_default() -> None:
    read_one = only([queue("a")], "a")
    assert read_one.order is Order.PRIORITY
    assert read_one.starvation_after_us == DAY_US
    assert read_one.shrink_after_us == 5 * MINUTE_US
    assert (read_one.aging_us, read_one.grace_max_us, read_one.usage_half_life_us) == (None,) * 3
    assert read_one.borrow == read_one.lend == read_one.placeable == ()
    assert not read_one.closing


@pytest.mark.parametrize("order", Order)
def test_every_order_can_be_written(order: Order) -> None:
    assert only([queue("a", f"order: {order}")], "a").order is order


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "order: lifo",
            (
                "spec.order: must be 'fifo', 'priority', 'fair', 'shortest' or"
                " 'least-attained-service', not 'lifo'"
            ),
        ),
        (
            "aging: soon",
            (
                "spec.aging: 'soon' is no duration above zero; write whole numbers with d, h, m or"
                " s, in this order, such as 10m or 1h30m, and at most 9999d"
            ),
        ),
        (
            "maximumWait: {job: 1h}",
            (
                "spec.maximumWait.job: must be 'training', 'inference', 'notebook' or 'batch', not"
                " 'job'"
            ),
        ),
        (
            "guarantee: {H100: 4}, lend: {H100: 8}",
            (
                "spec.lend.H100: is 8, more than the guarantee H100 4; lower it to 4 or raise the"
                " guarantee"
            ),
        ),
        (
            "guarantee: {H100: 4}, lend: {T4: 1}",
            "spec.lend.T4: a is guaranteed no T4 that it could lend; it has H100: 4",
        ),
        (
            "guarantee: {H100: 4}, borrow: {H100-SXM5-80GB: 8}",
            (
                "spec.borrow.H100-SXM5-80GB: is only a part of H100, which is guaranteed together;"
                " write H100"
            ),
        ),
        (
            "guarantee: {H100: 4}, placeable: {H100: 8}",
            (
                "spec.placeable.H100: is 8, and 4 are guaranteed; write how many of them lie on one"
                " node, from 1 to 4"
            ),
        ),
        (
            "guarantee: {H100: 4}, placeable: {H100: 0}",
            (
                "spec.placeable.H100: is 0, and 4 are guaranteed; write how many of them lie on one"
                " node, from 1 to 4"
            ),
        ),
        (
            "guarantee: {H100: 16}, placeable: {H100-SXM5-80GB: 8}",
            (
                "spec.placeable.H100-SXM5-80GB: a is not guaranteed H100-SXM5-80GB, only H100: 16;"
                " write a guarantee of the same word"
            ),
        ),
        (
            "placeable: {H100: 8}",
            "spec.placeable.H100: a is not guaranteed H100; write a guarantee of the same word",
        ),
        (
            "lend: {H100: 8}",
            "spec.lend.H100: a is guaranteed no H100 that it could lend; it has nothing",
        ),
        (
            "guarantee: {units: 16}, placeable: {units: 8}",
            ("spec.placeable.units: devices lie on nodes, and units do not; write an accelerator"),
        ),
        (
            "limit: {units: 16, T4: 8}",
            (
                "spec.limit.units: counts every accelerator, T4 as well; write units alone, or"
                " accelerators alone"
            ),
        ),
    ],
)
def test_a_field_that_is_wrong_is_said_with_what_to_write(spec: str, said: str) -> None:
    assert problems([queue("a", spec)]) == [f"q.yaml:5: {said}"]


@pytest.mark.parametrize("field", ["shrinkAfter", "usageHalfLife"])
def test_only_the_root_says_how_the_whole_tree_counts(field: str) -> None:
    assert problems([queue("top"), queue("a", f"parent: top, {field}: 1h")]) == [
        (
            f"q.yaml:10: spec.{field}: counts for the whole tree, so it is written at its root;"
            " write it in the queue without a parent"
        )
    ]


# Grants ---------------------------------------------------------------------------------------

URGENT = "priorities: {urgent: {value: 100, subjects: [group:leads]}, normal: {value: 0}}"


def test_priorities_that_are_not_written_are_the_parents() -> None:
    texts = [queue("top", URGENT), queue("a", "parent: top"), queue("b", "parent: a")]
    assert only(texts, "b").priorities == (
        Priority("normal", 0),
        Priority("urgent", 100, ("group:leads",)),
    )


def test_a_queue_may_grant_less_than_it_was_granted() -> None:
    less = "priorities: {urgent: {value: 50, subjects: [group:leads]}}"
    texts = [queue("top", URGENT), queue("a", f"parent: top, {less}")]
    assert only(texts, "a").priorities == (Priority("urgent", 50, ("group:leads",)),)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("top: {value: 1}", "top: top grants the priorities normal, urgent; write some of those"),
        (
            "urgent: {value: 101, subjects: [group:leads]}",
            "urgent.value: is 101, and top grants 100; write 100 or less",
        ),
        (
            "urgent: {value: 9, subjects: [group:leads, user:eve]}",
            "urgent.subjects: top grants it to group:leads, not to user:eve; write some of those",
        ),
        (
            "urgent: {value: 9}",
            "urgent.subjects: top grants it to group:leads, not to everyone; write some of those",
        ),
    ],
)
def test_nobody_makes_himself_urgent(written: str, said: str) -> None:
    # The queue between them writes nothing of its own, and passes on what it has.
    texts = [queue("top", URGENT), queue("between", "parent: top")]
    texts.append(queue("a", f"parent: between, priorities: {{{written}}}"))
    expected = said.replace("top grants", "between grants")
    assert problems(texts) == [f"q.yaml:15: spec.priorities.{expected}"]


@pytest.mark.parametrize(
    ("granted", "written", "said"),
    [
        (
            "minimumRun: 30m",
            "minimumRun: 1h",
            "minimumRun: is 1h, which protects better than top grants; write 30m or less",
        ),
        (
            "perWorkloadPerDay: 4",
            "perWorkloadPerDay: 0",
            "perWorkloadPerDay: is 0, which protects better than top grants; write 4 or more",
        ),
        (
            "deviceHoursLostPerDay: 20",
            "deviceHoursLostPerDay: 19",
            "deviceHoursLostPerDay: is 19, which protects better than top grants; write 20 or more",
        ),
        (
            "checkpointInterval: 30m",
            "checkpointInterval: 1d1h",
            "checkpointInterval: is 1d1h, which protects better than top grants; write 30m or less",
        ),
        (
            "graceMax: 90s",
            "graceMax: 2m",
            "graceMax: is 2m, which protects better than top grants; write 1m30s or less",
        ),
    ],
)
def test_nobody_makes_himself_impossible_to_evict(granted: str, written: str, said: str) -> None:
    texts = [
        queue("top", f"eviction: {{{granted}}}"),
        queue("between", "parent: top"),
        queue("a", f"parent: between, eviction: {{{written}}}"),
    ]
    assert problems(texts) == [f"q.yaml:15: spec.eviction.{said}"]
    same = [*texts[:2], queue("a", f"parent: between, eviction: {{{granted}}}")]
    assert only(same, "a").parent == "between"


@pytest.mark.parametrize(
    "field",
    [
        *("parent", "namespaces", "guarantee", "limit", "weight", "types", "priorities"),
        *("eviction", "eviction.minimumRun", "eviction.perWorkloadPerDay", "budget"),
        *("budget.money", "borrow", "lend", "placeable", "order", "aging", "shrinkAfter"),
    ],
)
def test_a_field_with_nothing_behind_it_is_refused_wherever_it_stands(field: str) -> None:
    """Alike for all: one that would mean the default would hide a slip in another."""
    outer, _, inner = field.partition(".")
    rest = "period: month, deviceHours: 1, " if outer == "budget" else ""
    written = f"{outer}: {{{rest}{inner}: }}" if inner else f"{outer}: "
    said = f"q.yaml:5: spec.{field}: is empty; write a value, or remove the field"
    assert problems([queue("a", written)]) == [said]


def test_entries_of_a_list_are_counted_from_one() -> None:
    written = "priorities: {a: {value: 1, subjects: ['user:ann', bob]}}"
    (said,) = problems([queue("a", written)])
    assert said.startswith("q.yaml:5: spec.priorities.a.subjects.2: 'bob' does not")


def test_a_queue_may_write_that_its_work_has_no_minimum_run() -> None:
    """Less than its parent grants; and those below it are granted none by it."""
    top = queue("top", "eviction: {minimumRun: 30m}")
    none = queue("a", "parent: top, eviction: {minimumRun: 0s}")
    assert only([top, none], "a").eviction == EvictionBounds(0)
    below = queue("b", "parent: a, eviction: {minimumRun: 1s}")
    assert problems([top, none, below]) == [
        "q.yaml:15: spec.eviction.minimumRun: is 1s, which protects better than a grants; write 0s"
    ]
    (said,) = problems([queue("top", "eviction: {graceMax: 0s}")])
    assert said.startswith("q.yaml:5: spec.eviction.graceMax: '0s' is no duration above zero;")


def test_what_protects_less_is_free() -> None:
    texts = [
        queue("top", "eviction: {minimumRun: 30m, perWorkloadPerDay: 4}"),
        queue("a", "parent: top, eviction: {minimumRun: 5m, perWorkloadPerDay: 9}"),
    ]
    assert only(texts, "a").eviction == EvictionBounds(5 * MINUTE_US, 9)


# Budgets --------------------------------------------------------------------------------------


def test_a_budget_of_device_hours_needs_no_price() -> None:
    written = "budget: {period: week, timeZone: Europe/Berlin, deviceHours: 744, whenSpent: warn}"
    assert only([queue("a", written)], "a").budget == Budget(
        Period.WEEK, 744, WhenSpent.WARN, None, "Europe/Berlin"
    )


@pytest.mark.parametrize(
    ("money", "micro"),
    [
        ("12000", 12_000_000_000),
        ('"12000.5"', 12_000_500_000),
        ('"0.000001 XTS"', 1),
        ("0", 0),
    ],
)
def test_a_budget_of_money_is_counted_in_millionths(money: str, micro: int) -> None:
    written = f"guarantee: {{H100: 8}}, budget: {{period: month, money: {money}}}"
    tree = read([queue("a", written)], priced(H100, T4)).tree
    budget = tree.queues[0].budget
    assert budget == Budget(Period.MONTH, None, WhenSpent.NO_BORROWING, micro)
    assert tree.currency == "XTS"
    assert dict(tree.prices_micro) == {
        "H100-NVL-94GB": 2_500_000,
        "H100-PCIE-80GB": 2_500_000,
        "H100-SXM5-80GB": 2_500_000,
        "T4": 350_000,
    }


def test_prices_are_those_of_the_day_and_only_known_where_money_counts() -> None:
    later = "accelerator: H100, micro_per_hour: 3000000, currency: XTS, valid_from: 2026-04-15"
    catalog = priced(H100, later)
    texts = [queue("a", "guarantee: {H100: 8}, budget: {period: month, money: 5}")]
    before = dict(read(texts, catalog, date(2026, 4, 14)).tree.prices_micro)
    after = dict(read(texts, catalog, date(2026, 4, 15)).tree.prices_micro)
    assert (before["H100-SXM5-80GB"], after["H100-SXM5-80GB"]) == (2_500_000, 3_000_000)
    hours = [queue("a", "guarantee: {H100: 8}, budget: {period: month, deviceHours: 5}")]
    assert read(hours, catalog).tree.prices_micro == ()


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (
            "period: month",
            ": is written in deviceHours or in money, one of the two; write one of them",
        ),
        (
            "period: month, deviceHours: 5, money: 5",
            ": is written in deviceHours or in money, one of the two; write one of them",
        ),
        (
            "period: fortnight, deviceHours: 5",
            ".period: must be 'day', 'week', 'month', 'quarter' or 'year', not 'fortnight'",
        ),
        (
            "period: month, deviceHours: 5, timeZone: Europe/Berln",
            (
                ".timeZone: 'Europe/Berln' is no time zone of the IANA database; nearest:"
                " Europe/Berlin, Europe/Bern, Europe/Dublin"
            ),
        ),
        (
            "period: month, money: much",
            (
                ".money: 'much' is no amount of money; write such as 12000, \"12000.50\" or"
                ' "12000.50 EUR"'
            ),
        ),
        (
            'period: month, money: "-5"',
            (
                ".money: '-5' is no amount of money; write such as 12000, \"12000.50\" or"
                ' "12000.50 EUR"'
            ),
        ),
        (
            'period: month, money: "5 EUR"',
            ".money: is in EUR, and the price book in XTS; write the amount in XTS",
        ),
        (
            "period: month, deviceHours: 5, whenSpent: stop",
            (
                ".whenSpent: must be 'warn', 'lower-weight', 'no-borrowing' or 'no-new-starts',"
                " not 'stop'"
            ),
        ),
    ],
)
def test_a_budget_that_is_wrong_is_said_with_what_to_write(budget: str, said: str) -> None:
    found = problems([queue("a", f"budget: {{{budget}}}")], priced(H100, T4))
    if "nearest" in said:
        assert found[0].startswith(f"q.yaml:5: spec.budget{said.partition(' Europe/Berlin')[0]}")
        assert "Europe/Berlin" in found[0]
    else:
        assert found == [f"q.yaml:5: spec.budget{said}"]


def test_money_needs_a_price_of_all_that_the_queue_may_use() -> None:
    written = "guarantee: {A100: 8}, budget: {period: month, money: 5}"
    assert problems([queue("a", written)]) == [
        (
            "q.yaml:5: spec.budget.money: no price is known of A100-PCIE-40GB, A100-PCIE-80GB,"
            " A100-SXM4-40GB, A100-SXM4-80GB; write one in a catalogue file, prices:"
            " [{accelerator: A100-PCIE-40GB, micro_per_hour: ..., currency: ..., valid_from: ...}],"
            " and give that file with --catalog; or write deviceHours"
        )
    ]
    assert "currency: XTS" in problems([queue("a", written)], priced(H100))[0]
    below = [
        queue("top", "limit: {T4: 4}"),
        queue("a", "parent: top, budget: {period: day, money: 5}"),
    ]
    assert "no price is known of T4;" in problems(below, priced(H100))[0]
    assert only(below, "a", priced(T4)).budget is not None
    anything = [queue("a", "budget: {period: day, money: 5}")]
    assert "no price is known of its accelerators;" in problems(anything)[0]


def test_a_budget_counts_one_currency() -> None:
    euros = "accelerator: T4, micro_per_hour: 1, currency: EUR, valid_from: 2026-01-01"
    texts = [queue("a", "guarantee: {H100: 8}, budget: {period: month, money: 5}")]
    assert problems(texts, priced(H100, euros)) == [
        (
            "q.yaml:5: spec.budget.money: the price book is in EUR and XTS, and a budget counts one"
            " currency; write all prices in one"
        )
    ]
