"""What changed queues will mean, in words."""

from string import Formatter

import pytest

from shoal.model.fractions import UNIT
from shoal.model.meaning import (
    BorrowDebt,
    Duration,
    FieldChanged,
    GuaranteeDebt,
    LeafNoMore,
    LendDebt,
    LimitDebt,
    Meaning,
    NeighbourDebt,
    PlaceableDebt,
    PoolChanged,
    PoolHow,
    QueueAdded,
    QueueCloses,
    QueueGone,
    QueueMoved,
    QuotaChanged,
    QuotaField,
    RunsEnded,
    Spending,
    TypeDebt,
    TypesChanged,
    WaitsRefused,
    WeightChanged,
)
from shoal.model.queue import Budget, Period, Priority, WhenSpent
from shoal.model.workload import WorkloadType
from shoal.texts import meanings
from shoal.texts.language import Language
from shoal.texts.meanings import devices_of, meaning_text

EN, ZH = Language.ENGLISH, Language.CHINESE

EACH: list[tuple[Meaning, str]] = [
    (QueueAdded("a", "", 0), "Queue a is new, above all others."),
    (QueueAdded("a", "top", 2), "Queue a is new, under top. 2 that wait for it may start in it."),
    (QueueGone("a", 0), "Queue a goes; nothing runs in it."),
    (
        QueueCloses("a", 2, 3),
        (
            "Queue a closes: what runs in it and below it goes on and is charged to it, 2 in it;"
            " nothing new starts, and it goes when it is empty."
            " 3 that wait in it need another queue."
        ),
    ),
    (QueueMoved("a", "b", "c"), "Queue a moves from b to c."),
    (
        LeafNoMore("a", 1, 2),
        (
            "Queue a has queues below it now: 1 that run in it go on, and 2 that wait in it need"
            " another queue."
        ),
    ),
    (
        QuotaChanged("a", QuotaField.LIMIT, "H100", 8, 4),
        "Queue a: the limit of H100 changes from 8 to 4.",
    ),
    (
        QuotaChanged("a", QuotaField.LEND, "H100", None, 0),
        "Queue a: the limit of what it lends of H100 is 0; there was none.",
    ),
    (
        QuotaChanged("a", QuotaField.GUARANTEE, "H100", 8, None),
        "Queue a: the guarantee of H100, which was 8, goes.",
    ),
    (WeightChanged("a", 1, 2), "Queue a: the weight changes from 1 to 2."),
    (
        TypesChanged("a", (WorkloadType.BATCH,), (WorkloadType.NOTEBOOK, WorkloadType.TRAINING)),
        (
            "Queue a may run batch now. Queue a may run no notebook, training any more; what"
            " runs goes on."
        ),
    ),
    (FieldChanged("a", "namespaces"), "Queue a: namespaces changes."),
    (FieldChanged("a", "order", "fifo", "fair"), "Queue a: order changes from fifo to fair."),
    (
        FieldChanged("a", "eviction.perWorkloadPerDay", 1000, 4),
        "Queue a: eviction.perWorkloadPerDay changes from 1,000 to 4.",
    ),
    (
        FieldChanged("a", "aging", None, Duration(5_400_000_000)),
        "Queue a: aging is 1h30m; it had none of its own.",
    ),
    (
        FieldChanged("a", "reclaimWithin", Duration(90_061_000_000), Duration(0)),
        "Queue a: reclaimWithin changes from 1d1h1m1s to 0s.",
    ),
    (
        FieldChanged("a", "maximumRun.batch", Duration(60_000_000), None),
        "Queue a: maximumRun.batch, which was 1m, goes.",
    ),
    (
        FieldChanged(
            "a",
            "priorities.urgent",
            Priority("urgent", 100, ("user:a", "user:b", "user:c", "user:d")),
            Priority("urgent", 1000),
        ),
        (
            "Queue a: priorities.urgent changes from 100 for user:a, user:b, user:c and 1 more to"
            " 1,000."
        ),
    ),
    (
        FieldChanged("a", "priorities.low", None, Priority("low", -1, ("group:g",))),
        "Queue a: priorities.low is -1 for group:g; it had none of its own.",
    ),
    (
        FieldChanged(
            "a",
            "budget",
            Spending(Budget(Period.MONTH, 5000, WhenSpent.NO_BORROWING), ""),
            Spending(Budget(Period.WEEK, 0, WhenSpent.NO_NEW_STARTS), ""),
        ),
        (
            "Queue a: budget changes from 5,000 device hours a month, then no borrowing to 0 device"
            " hours a week, then no new starts."
        ),
    ),
    (
        FieldChanged(
            "a",
            "budget",
            None,
            Spending(
                Budget(Period.YEAR, None, WhenSpent.WARN, 12_000_500_000, "Europe/Berlin"), "EUR"
            ),
        ),
        (
            "Queue a: budget is 12,000.5 EUR a year (Europe/Berlin), then a warning; it had none of"
            " its own."
        ),
    ),
    (
        RunsEnded("a", WorkloadType.TRAINING, 2, 3_600_000_000),
        (
            "Queue a: work of type training that has run for its new maximum of 1h is ended at"
            " once: 2."
        ),
    ),
    (
        WaitsRefused("a", WorkloadType.BATCH, 1, 86_400_000_000),
        (
            "Queue a: work of type batch that has waited for its new maximum of 1d is refused at"
            " once, unless it starts then: 1."
        ),
    ),
    (
        QueueGone("a", 0, 2),
        "Queue a goes with all queues; 2 that run in it go on and are charged to none.",
    ),
    (
        QuotaChanged("a", QuotaField.PLACEABLE, "H100", None, 8),
        "Queue a: the number on one node of H100 is 8; there was none.",
    ),
    (PoolChanged("p", PoolHow.ADDED), "Pool p is new."),
    (PoolChanged("p", PoolHow.REMOVED), "Pool p goes; what runs on its nodes goes on."),
    (PoolChanged("p", PoolHow.CHANGED), "Pool p is changed."),
    (
        LimitDebt("a", "H100", UNIT * 5 // 2, 4 * UNIT),
        (
            "A debt: queue a holds 6.5 H100, 2.5 above its limit of 4. Nothing is ended for it;"
            " nothing that adds to it starts, and it falls as work ends."
        ),
    ),
    (
        GuaranteeDebt("a", "H100", 4 * UNIT, 2 * UNIT),
        (
            "A debt: 6 H100 in queue a cannot be taken back, 4 more than it is guaranteed (2)."
            " Nothing is ended for it; nothing that adds to it starts."
        ),
    ),
    (
        BorrowDebt("a", "H100", 4 * UNIT, 0),
        (
            "A debt: queue a borrows 4 H100, 4 more than it may (0). Nothing is ended for it;"
            " nothing that adds to it starts, and it falls as work ends."
        ),
    ),
    (
        PlaceableDebt("a", "H100", 8 * UNIT, 16 * UNIT),
        (
            "A debt: of 16 H100 that queue a is guaranteed together on single nodes, 8 are not to"
            " be had so, as other work lies between. Nothing is ended for it; nothing that adds to"
            " it starts, and it falls as work ends."
        ),
    ),
    (
        LendDebt("a", "H100", UNIT, 3 * UNIT),
        (
            "A debt: 3 H100 are not lent, most of them by queue a, and 1 of them are not free."
            " Nothing is ended for it; nothing that adds to it starts, and it falls as work ends."
        ),
    ),
    (
        TypeDebt("p", WorkloadType.NOTEBOOK, 1200),
        (
            "A debt: workloads on nodes of pool p that it does not serve: 1,200 of type notebook."
            " Nothing is ended for it; no such work starts there, and it falls as work ends."
        ),
    ),
    (
        NeighbourDebt("p", 3),
        (
            "A debt: workloads on nodes of pool p that share devices with other queues, which it"
            " does not allow: 3. Nothing is ended for it; no other queue joins them, and it falls"
            " as work ends."
        ),
    ),
    (
        NeighbourDebt("", 3),
        (
            "A debt: workloads on nodes in no pool that share devices with other queues: 3."
            " Nothing is ended for it; no other queue joins them, and it falls as work ends."
        ),
    ),
]


@pytest.mark.parametrize(("said", "text"), EACH)
def test_each_meaning_has_its_sentence(said: Meaning, text: str) -> None:
    assert meaning_text(said) == text
    assert "{" not in meaning_text(said, ZH)


def test_both_languages_say_the_same_with_the_same_parameters() -> None:
    def parameters(text: str) -> set[str]:
        return {name for _, name, _, _ in Formatter().parse(text) if name}

    sentences = meanings._SENTENCES
    assert sentences[EN].keys() == sentences[ZH].keys()
    for key, text in sentences[EN].items():
        assert parameters(text) == parameters(sentences[ZH][key]), key


def test_devices_are_shown_to_the_hundredth() -> None:
    assert [devices_of(n) for n in (0, UNIT, UNIT // 3, 1500 * UNIT, 10 * UNIT)] == [
        *("0", "1", "0.33", "1,500", "10")
    ]
