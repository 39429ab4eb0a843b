"""What changed queues will mean, and which queues stay until they are empty."""

from shoal.model.fractions import UNIT
from shoal.model.meaning import (
    Debt,
    FieldsChanged,
    GuaranteeDebt,
    Inside,
    LeafNoMore,
    LimitDebt,
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
    TypeDebt,
    TypesChanged,
    WeightChanged,
)
from shoal.model.pool import Pool
from shoal.model.queue import UNITS, QueueTree
from shoal.model.workload import WorkloadType
from shoal.objects.meaning import closing_kept, meaning, pools_meaning, without_closed
from shoal.objects.quotas import names_of
from shoal.objects.tree import resolved
from shoal.texts.meanings import meaning_text
from tests.objects.written import CATALOG, pool, queue, read

NAMES = names_of(CATALOG)
SXM = "H100-SXM5-80GB"
TOP = queue("top", "guarantee: {H100: 16}")


def holds(running: int, devices: float, *, fixed: float = 0, waiting: int = 0) -> Inside:
    """So many workloads on so many H100, of which the work on some cannot be taken back."""
    units, fixed_units = round(devices * UNIT), round(fixed * UNIT)
    return Inside(running, waiting, {SXM: units}, {SXM: fixed_units} if fixed else {})


def said(old: list[str], new: list[str], **inside: Inside) -> list[Meaning]:
    return list(meaning(read(old).tree, read(new).tree, inside, NAMES))


def test_a_tree_that_is_the_same_means_nothing() -> None:
    texts = [TOP, queue("a", "parent: top, guarantee: {H100: 8}, limit: {H100: 8}")]
    assert said(texts, texts, a=holds(3, 12, fixed=12)) == []


def test_what_is_granted_is_told_field_by_field() -> None:
    old = [TOP, queue("a", "parent: top, guarantee: {H100: 8}, limit: {H100: 9}, weight: 2")]
    new = [
        TOP,
        queue(
            "a",
            "parent: top, guarantee: {H100: 4}, limit: {T4: 1}, borrow: {H100: 2}, weight: 3,"
            " types: [training, batch], order: fifo, maximumRun: {batch: 1h},"
            " eviction: {graceMax: 1m}",
        ),
    ]
    assert said(old, new) == [
        QuotaChanged("a", QuotaField.GUARANTEE, "H100", 8, 4),
        QuotaChanged("a", QuotaField.LIMIT, "H100", 9, None),
        QuotaChanged("a", QuotaField.LIMIT, "T4", None, 1),
        QuotaChanged("a", QuotaField.BORROW, "H100", None, 2),
        WeightChanged("a", 2, 3),
        TypesChanged("a", (), (WorkloadType.INFERENCE, WorkloadType.NOTEBOOK)),
        FieldsChanged("a", ("maximumRun", "order", "eviction.graceMax")),
    ]


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


def test_queues_that_share_devices_where_they_may_no_longer_are_a_debt() -> None:
    shared = "sharedBetweenQueues: true"
    old = pools(f"n1; {shared}", f"n2; {shared}", "n3")
    new = pools("n1", f"n3; {shared}")
    running = (
        Running(BATCH, frozenset({"n1", "n2"}), frozenset({"n1", "n2"})),
        Running(BATCH, frozenset({"n1"}), frozenset({"n1"})),
        Running(BATCH, frozenset({"n1"})),
        Running(BATCH, frozenset({"n3"}), frozenset({"n3"})),
    )
    debts = [each for each in pools_meaning(old, new, running, LABELS) if isinstance(each, Debt)]
    assert debts == [NeighbourDebt("", 1), NeighbourDebt("p", 2)]
    text = meaning_text(debts[0])
    assert text.startswith("A debt: workloads on nodes in no pool that share devices with other")


# Debts ----------------------------------------------------------------------------------------


def test_a_limit_below_what_is_held_is_a_debt_at_every_level() -> None:
    old = [queue("top"), queue("a", "parent: top"), queue("b", "parent: top")]
    new = [queue("top", "limit: {H100: 10}"), queue("a", "parent: top, limit: {H100: 4}"), old[2]]
    debts = said(old, new, a=holds(2, 6), b=holds(1, 5))[2:]
    assert debts == [LimitDebt("top", "H100", 11 * UNIT, 10), LimitDebt("a", "H100", 6 * UNIT, 4)]


def test_a_debt_that_was_there_is_listed_again_only_if_it_grows() -> None:
    trees = [[queue("top", f"limit: {{H100: {n}}}")] for n in (4, 5, 3)]
    assert said(trees[0], trees[1], top=holds(1, 6)) == [
        QuotaChanged("top", QuotaField.LIMIT, "H100", 4, 5)
    ]
    assert said(trees[0], trees[2], top=holds(1, 6))[1:] == [LimitDebt("top", "H100", 6 * UNIT, 3)]


def test_a_limit_in_units_counts_by_rates_and_rounds_up() -> None:
    old, new = [queue("top")], [queue("top", "limit: {units: 6}")]
    assert said(old, new, top=holds(1, 3))[1:] == []
    (debt,) = said(old, new, top=holds(1, 3.5))[1:]
    assert debt == LimitDebt("top", UNITS, 3 * UNIT * 1734 // 1000 + UNIT * 867 // 1000, 6)


def test_what_cannot_be_taken_back_beyond_a_guarantee_is_a_debt() -> None:
    old = [TOP, queue("a", "parent: top, guarantee: {H100: 8}"), queue("b", "parent: top")]
    less = queue("a", "parent: top, guarantee: {H100: 2}")
    # What others are not guaranteed of the parent's 16 covers it.
    assert said(old, [TOP, less, old[2]], a=holds(1, 6, fixed=6)) == [
        QuotaChanged("a", QuotaField.GUARANTEE, "H100", 8, 2)
    ]
    full = queue("b", "parent: top, guarantee: {H100: 14}")
    found = said(old, [TOP, less, full], a=holds(1, 6, fixed=5))
    assert found[-1] == GuaranteeDebt("a", "H100", 5 * UNIT, 2)
    # Work that can be taken back owes nothing.
    assert not any(
        isinstance(each, GuaranteeDebt) for each in said(old, [TOP, less, full], a=holds(1, 6))
    )


# Closing --------------------------------------------------------------------------------------

LAB = queue("lab", "parent: top, guarantee: {H100: 4}, namespaces: {matchLabels: {a: b}}")
OTHER = queue("other", "parent: top, guarantee: {H100: 4}")


def closed(old: QueueTree, new: QueueTree, **inside: Inside) -> QueueTree:
    return closing_kept(old, new, inside, NAMES)


def test_O03_a_deleted_queue_closes_and_keeps_of_its_guarantee_what_it_uses() -> None:
    old, new = read([TOP, LAB, OTHER]).tree, read([TOP, OTHER]).tree
    inside = {"lab": holds(2, 3, waiting=3), "other": holds(1, 4)}
    assert list(meaning(old, new, inside, NAMES)) == [QueueCloses("lab", 2, 3)]
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
    assert list(meaning(closing, new, {}, NAMES)) == []
    again = meaning(closing, old, {"lab": Inside(waiting=3)}, NAMES)
    assert list(again) == [QueueAdded("lab", "top", 3)]
    assert closed(closing, old, lab=holds(1, 2)) == old


def test_a_queue_closes_under_one_that_is_above_others() -> None:
    old = read([TOP, queue("mid", "parent: top"), queue("lab", "parent: mid"), OTHER]).tree
    # The queue above it is a leaf now, and work waits in leaves.
    new = read([TOP, queue("mid", "parent: top"), OTHER]).tree
    tree = closed(old, new, lab=holds(1, 1))
    lab = tree.get("lab")
    assert lab is not None
    assert lab.parent == "top"
    assert {each.name for each in tree.leaves()} == {"mid", "other", "lab"}


def test_a_queue_whose_work_has_moved_away_does_not_close() -> None:
    old = read([TOP, queue("mid", "parent: top"), queue("a", "parent: mid"), OTHER]).tree
    new = read([TOP, queue("a", "parent: top"), OTHER]).tree
    inside = {"a": holds(2, 3)}
    assert closing_kept(old, new, inside, NAMES) == new
    assert list(meaning(old, new, inside, NAMES)) == [
        QueueMoved("a", "mid", "top"),
        QueueGone("mid", 0),
    ]


def test_where_every_queue_is_a_leaf_none_closes() -> None:
    old, new = read([TOP, LAB]).tree, read([TOP]).tree
    assert closed(old, new, lab=holds(1, 1)) == new


def test_a_closing_queue_keeps_no_more_than_its_parent_has_left() -> None:
    old = read([TOP, LAB, OTHER]).tree
    new = read([TOP, queue("other", "parent: top, guarantee: {H100: 14}")]).tree
    lab = closed(old, new, lab=holds(2, 3)).get("lab")
    assert lab is not None
    assert lab.guarantee == (("H100", 2),)
