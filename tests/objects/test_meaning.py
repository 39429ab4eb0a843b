"""What changed queues will mean, and which queues stay until they are empty."""

from shoal.model.fractions import UNIT
from shoal.model.meaning import (
    Debt,
    Duration,
    FieldChanged,
    Inside,
    LeafNoMore,
    Meaning,
    NeighbourDebt,
    PoolChanged,
    PoolHow,
    QueueAdded,
    QueueCloses,
    QueueGone,
    QueueMoved,
    QuotaChanged,
    QuotaField,
    Running,
    Spending,
    TypeDebt,
    TypesChanged,
    WeightChanged,
)
from shoal.model.pool import Pool
from shoal.model.queue import Budget, Period, Priority, QueueTree, WhenSpent
from shoal.model.workload import WorkloadType
from shoal.objects.meaning import closing_kept, meaning, pools_meaning, without_closed
from shoal.objects.quotas import names_of
from shoal.objects.tree import resolved
from shoal.texts.meanings import meaning_text
from tests.objects.written import CATALOG, pool, queue, read

NAMES = names_of(CATALOG)
SXM = "H100-SXM5-80GB"
TOP = queue("top", "guarantee: {H100: 16}")


def holds(running: int, devices: float, *, waiting: int = 0) -> Inside:
    """So many workloads on so many H100."""
    return Inside(running, waiting, {SXM: round(devices * UNIT)})


def said(old: list[str], new: list[str], **inside: Inside) -> list[Meaning]:
    return list(meaning(read(old).tree, read(new).tree, inside))


def test_a_tree_that_is_the_same_means_nothing() -> None:
    texts = [TOP, queue("a", "parent: top, guarantee: {H100: 8}, limit: {H100: 8}")]
    assert said(texts, texts, a=holds(3, 12)) == []


def test_what_is_granted_is_told_field_by_field() -> None:
    old = [TOP, queue("a", "parent: top, guarantee: {H100: 8}, limit: {H100: 9}, weight: 2")]
    new = [
        TOP,
        queue(
            "a",
            "parent: top, guarantee: {H100: 4}, limit: {T4: 1}, borrow: {H100: 2}, weight: 3,"
            " placeable: {H100: 4}, types: [training, batch], namespaces: {matchLabels: {a: b}}",
        ),
    ]
    assert said(old, new) == [
        QuotaChanged("a", QuotaField.GUARANTEE, "H100", 8, 4),
        QuotaChanged("a", QuotaField.LIMIT, "H100", 9, None),
        QuotaChanged("a", QuotaField.LIMIT, "T4", None, 1),
        QuotaChanged("a", QuotaField.BORROW, "H100", None, 2),
        QuotaChanged("a", QuotaField.PLACEABLE, "H100", None, 4),
        WeightChanged("a", 2, 3),
        TypesChanged("a", (), (WorkloadType.INFERENCE, WorkloadType.NOTEBOOK)),
        FieldChanged("a", "namespaces"),
    ]


def test_other_fields_are_told_from_what_to_what() -> None:
    old = [
        TOP,
        queue(
            "a",
            "parent: top, maximumRun: {batch: 2h, training: 5h}, aging: 1h,"
            " priorities: {urgent: {value: 100}, low: {value: -1}},"
            " eviction: {minimumRun: 30m, perWorkloadPerDay: 4},"
            " budget: {period: month, deviceHours: 100}",
        ),
    ]
    new = [
        TOP,
        queue(
            "a",
            "parent: top, maximumRun: {batch: 1h, training: 5h}, maximumWait: {batch: 1d},"
            " order: fifo, reclaimWithin: 10s, starvationAfter: 1h,"
            ' priorities: {urgent: {value: 50, subjects: ["user:u"]}},'
            " eviction: {graceMax: 1m, perWorkloadPerDay: 6, deviceHoursLostPerDay: 1},"
            " budget: {period: month, deviceHours: 0, whenSpent: no-new-starts}",
        ),
    ]
    hour = Duration(3_600_000_000)
    month = Budget(Period.MONTH, 100, WhenSpent.NO_BORROWING)
    nothing = Budget(Period.MONTH, 0, WhenSpent.NO_NEW_STARTS)
    found = {each.field: (each.before, each.after) for each in changed(old, new)}
    assert found == {
        "order": ("priority", "fifo"),
        "reclaimWithin": (Duration(600_000_000), Duration(10_000_000)),
        "aging": (hour, None),
        "starvationAfter": (Duration(86_400_000_000), hour),
        "eviction.graceMax": (None, Duration(60_000_000)),
        "eviction.minimumRun": (Duration(1_800_000_000), None),
        "eviction.perWorkloadPerDay": (4, 6),
        "eviction.deviceHoursLostPerDay": (None, 1),
        "maximumRun.batch": (Duration(7_200_000_000), hour),
        "maximumWait.batch": (None, Duration(86_400_000_000)),
        "priorities.urgent": (Priority("urgent", 100), Priority("urgent", 50, ("user:u",))),
        "priorities.low": (Priority("low", -1), None),
        "budget": (Spending(month, ""), Spending(nothing, "")),
    }


def changed(old: list[str], new: list[str]) -> list[FieldChanged]:
    """The fields that change; nothing else does."""
    found = said(old, new)
    assert all(isinstance(each, FieldChanged) for each in found)
    return [each for each in found if isinstance(each, FieldChanged)]


def test_queues_come_move_and_go() -> None:
    old = [TOP, queue("a", "parent: top"), queue("b", "parent: top"), queue("c", "parent: a")]
    new = [TOP, queue("a", "parent: top"), queue("c", "parent: top"), queue("d", "parent: a")]
    assert said(old, new, b=Inside(waiting=2), d=Inside(waiting=1)) == [
        QueueMoved("c", "a", "top"),
        QueueAdded("d", "a", 1),
        QueueGone("b", 2),
    ]


def test_work_in_a_queue_that_is_above_others_now_needs_another() -> None:
    old = [TOP, queue("a", "parent: top")]
    new = [*old, queue("b", "parent: a")]
    assert said(old, new, a=holds(1, 1, waiting=4)) == [
        LeafNoMore("a", 1, 4),
        QueueAdded("b", "a", 0),
    ]


def test_pools_come_change_and_go() -> None:
    one, two = "nodes: {matchLabels: {a: b}}", "nodes: {matchLabels: {a: c}}"
    old = read([pool("p", one), pool("q", one), pool("r", one)]).pools
    new = read([pool("p", two), pool("q", one), pool("s", one)]).pools
    assert list(pools_meaning(old, new, (), {})) == [
        PoolChanged("p", PoolHow.CHANGED),
        PoolChanged("r", PoolHow.REMOVED),
        PoolChanged("s", PoolHow.ADDED),
    ]


LABELS = {"n1": {"at": "n1"}, "n2": {"at": "n2"}, "n3": {"at": "n3"}}
BATCH, NOTEBOOK = WorkloadType.BATCH, WorkloadType.NOTEBOOK


def pools(*texts: str) -> tuple[Pool, ...]:
    """Pools p, q, ... of these nodes, with other fields: `n1, n2; types: [batch]`."""
    made = []
    for name, (nodes, _, more) in zip("pqr", (each.partition(";") for each in texts), strict=False):
        chosen = f"nodes: {{matchExpressions: [{{key: at, operator: In, values: [{nodes}]}}]}}"
        made.append(pool(name, f"{chosen}, {more}" if more else chosen))
    return read(made).pools


def test_what_runs_where_its_pool_will_not_serve_it_is_a_debt() -> None:
    old, new = pools("n1, n2; types: [batch]"), pools("n1, n2, n3; types: [notebook]")
    running = (
        Running(BATCH, frozenset({"n1", "n2"})),
        Running(BATCH, frozenset({"n3"})),
        Running(NOTEBOOK, frozenset({"n3"})),
        Running(WorkloadType.INFERENCE, frozenset({"n1"})),
    )
    said = pools_meaning(old, new, running, LABELS)
    assert said == (PoolChanged("p", PoolHow.CHANGED), TypeDebt("p", BATCH, 2)), (
        "a workload counts once, and what was not served before is no news"
    )
    assert pools_meaning(new, (), running, LABELS) == (PoolChanged("p", PoolHow.REMOVED),), (
        "a node in no pool serves all types"
    )


def runs_beside(*nodes: str) -> Running:
    """Work that shares devices with strangers on these nodes, and will."""
    return Running(BATCH, frozenset(nodes), frozenset(nodes), frozenset(nodes))


def test_queues_that_come_to_be_strangers_on_a_device_are_a_debt() -> None:
    there, shared = pools("n1"), pools("n1; sharedBetweenQueues: true")
    parts = Running(BATCH, frozenset({"n1"}), frozenset(), frozenset({"n1"}))
    joins = Running(BATCH, frozenset({"n1"}), frozenset({"n1"}), frozenset())
    assert pools_meaning(there, there, (parts, joins), LABELS) == (NeighbourDebt("p", 1),)
    assert pools_meaning(shared, shared, (parts, joins), LABELS) == ()
    assert pools_meaning(there, there, (runs_beside("n1"),), LABELS) == (), "it was there before"


def test_queues_that_share_devices_where_they_may_no_longer_are_a_debt() -> None:
    shared = "sharedBetweenQueues: true"
    old = pools(f"n1; {shared}", f"n2; {shared}", "n3")
    new = pools("n1", f"n3; {shared}")
    running = (
        runs_beside("n1", "n2"),
        runs_beside("n1"),
        Running(BATCH, frozenset({"n1"})),
        runs_beside("n3"),
    )
    debts = [each for each in pools_meaning(old, new, running, LABELS) if isinstance(each, Debt)]
    assert debts == [NeighbourDebt("", 1), NeighbourDebt("p", 2)]
    text = meaning_text(debts[0])
    assert text.startswith("A debt: workloads on nodes in no pool that share devices with other")


# Closing --------------------------------------------------------------------------------------

LAB = queue("lab", "parent: top, guarantee: {H100: 4}, namespaces: {matchLabels: {a: b}}")
OTHER = queue("other", "parent: top, guarantee: {H100: 4}")


def closed(old: QueueTree, new: QueueTree, **inside: Inside) -> QueueTree:
    return closing_kept(old, new, inside, NAMES)


def test_O03_a_deleted_queue_closes_and_keeps_of_its_guarantee_what_it_uses() -> None:
    old, new = read([TOP, LAB, OTHER]).tree, read([TOP, OTHER]).tree
    inside = {"lab": holds(2, 3, waiting=3), "other": holds(1, 4)}
    assert list(meaning(old, new, inside)) == [QueueCloses("lab", 2, 3)]
    tree = closing_kept(old, new, inside, NAMES)
    lab = tree.get("lab")
    assert lab is not None
    assert (lab.closing, lab.parent, lab.guarantee) == (True, "top", (("H100", 3),))
    assert lab.namespaces is None
    assert resolved(tree, NAMES).get("lab") is not None


def test_O03_it_goes_when_it_is_empty_and_comes_back_as_it_was() -> None:
    old, new = read([TOP, LAB, OTHER]).tree, read([TOP, OTHER]).tree
    closing = closed(old, new, lab=holds(1, 2))
    assert without_closed(closing, ["lab"]) is closing
    assert without_closed(closing, ["other"]) == new
    # Nothing more is said of it when it has gone, and it is new when it is written again.
    assert list(meaning(closing, new, {})) == []
    again = meaning(closing, old, {"lab": Inside(waiting=3)})
    assert list(again) == [QueueAdded("lab", "top", 3)]
    assert closed(closing, old, lab=holds(1, 2)) == old


def test_a_queue_closes_under_the_nearest_above_it_which_takes_work_again() -> None:
    old = read([TOP, queue("mid", "parent: top"), queue("lab", "parent: mid"), OTHER]).tree
    new = read([TOP, queue("mid", "parent: top"), OTHER]).tree
    tree = closed(old, new, lab=holds(1, 1))
    lab = tree.get("lab")
    assert lab is not None
    assert lab.parent == "mid", "so that it counts under the limit there"
    assert {each.name for each in tree.leaves()} == {"mid", "other", "lab"}
    # It is a leaf already, so nobody is told that it takes work no more.
    assert list(meaning(tree, new, {"mid": holds(1, 1, waiting=2)})) == []
    below = [TOP, queue("mid", "parent: top"), queue("new", "parent: mid"), OTHER]
    inside = {"mid": holds(1, 1, waiting=2)}
    assert LeafNoMore("mid", 1, 2) in meaning(tree, read(below).tree, inside)


def test_a_queue_whose_work_has_moved_away_does_not_close() -> None:
    old = read([TOP, queue("mid", "parent: top"), queue("a", "parent: mid"), OTHER]).tree
    new = read([TOP, queue("a", "parent: top"), OTHER]).tree
    inside = {"a": holds(2, 3)}
    assert closing_kept(old, new, inside, NAMES) == new
    assert list(meaning(old, new, inside)) == [
        QueueMoved("a", "mid", "top"),
        QueueGone("mid", 0),
    ]


def test_a_queue_closes_under_a_root_that_is_alone() -> None:
    old, new = read([TOP, LAB]).tree, read([TOP]).tree
    tree = closed(old, new, lab=holds(1, 1))
    assert [(each.name, each.parent) for each in tree.queues] == [("top", ""), ("lab", "top")]
    other = read([queue("corp")]).tree
    tree = closed(old, other, lab=holds(1, 1))
    assert [(each.name, each.parent) for each in tree.queues] == [
        *(("corp", ""), ("top", "corp"), ("lab", "top"))
    ]


def test_without_any_queue_nothing_closes_and_that_is_said() -> None:
    old, inside = read([TOP, LAB]).tree, {"lab": holds(2, 1, waiting=3)}
    assert closing_kept(old, QueueTree(), inside, NAMES) == QueueTree()
    assert list(meaning(old, QueueTree(), inside)) == [QueueGone("top", 0), QueueGone("lab", 3, 2)]


def test_a_closing_queue_keeps_what_the_nearest_written_guarantee_above_it_has_left() -> None:
    mid = queue("mid", "parent: top")
    old = read([TOP, mid, queue("lab", "parent: mid, guarantee: {H100: 4}")]).tree
    new = read([TOP, mid, queue("other", "parent: top, guarantee: {H100: 14}")]).tree
    lab = closed(old, new, lab=holds(2, 3)).get("lab")
    assert lab is not None
    assert (lab.parent, lab.guarantee) == ("mid", (("H100", 2),))


def test_a_closing_queue_keeps_no_more_than_its_parent_has_left() -> None:
    old = read([TOP, LAB, OTHER]).tree
    new = read([TOP, queue("other", "parent: top, guarantee: {H100: 14}")]).tree
    lab = closed(old, new, lab=holds(2, 3)).get("lab")
    assert lab is not None
    assert lab.guarantee == (("H100", 2),)
