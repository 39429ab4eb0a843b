"""Which debts and ends other queues make of a world."""

from shoal.core import events as ev
from shoal.core.world import World
from shoal.loop.meanings import change
from shoal.model.fractions import UNIT
from shoal.model.meaning import (
    BorrowDebt,
    Debt,
    GuaranteeDebt,
    LimitDebt,
    Meaning,
    QuotaChanged,
    QuotaField,
    RunsEnded,
    WaitsRefused,
)
from shoal.model.node import Node
from shoal.model.queue import UNITS
from shoal.model.request import Request
from shoal.model.workload import Placement, PodSet, Workload, WorkloadType
from shoal.objects.quotas import names_of
from shoal.objects.tree import resolved
from tests.core.build import device, share, whole
from tests.objects.written import CATALOG, queue, read

NAMES = names_of(CATALOG)
SXM, NVL = "H100-SXM5-80GB", "H100-NVL-94GB"
TOP = queue("top", "guarantee: {H100: 16}")
TRAINING, NOTEBOOK = WorkloadType.TRAINING, WorkloadType.NOTEBOOK
HOUR_US = 3_600_000_000


class Case:
    """A node of 16 devices, eight of either H100, and work that holds some from the first on."""

    def __init__(self, *texts: str) -> None:
        self.world = World()
        devices = tuple(device(f"n/{n}", SXM if n < 8 else NVL) for n in range(16))
        self.world.apply(ev.NodeSeen(0, Node("n", 640_000, 9999, 110, devices)))
        self.written = read(texts)
        self.world.apply(ev.QueuesSet(0, resolved(self.written.tree, NAMES)))
        self._taken = 0

    def runs(
        self, queue: str, devices: int, type_: WorkloadType = TRAINING, asks: Request | None = None
    ) -> None:
        """Work of a queue runs from the beginning on the next devices."""
        first, self._taken = self._taken, self._taken + devices
        leaves = tuple(f"n/{n}" for n in range(first, self._taken))
        pod_sets = (PodSet("main", 1, asks or whole(devices)),)
        work = Workload(f"{queue}-{first}", pod_sets, queue, type_, recreated=True)
        self.world.apply(ev.WorkloadAdopted(0, work, (Placement(0, "n", leaves),), since_us=0))

    def waits(self, queue: str) -> None:
        """Work of a queue waits from the beginning."""
        work = Workload(f"{queue}-waits", (PodSet("main", 1, whole(1)),), queue, TRAINING)
        self.world.apply(ev.WorkloadSubmitted(0, work))

    def said(self, *texts: str, now_us: int = HOUR_US) -> list[Meaning]:
        """What it means that these are the queues."""
        return list(change(self.world, self.written, read(texts), NAMES, now_us).meanings)

    def debts(self, *texts: str) -> list[Meaning]:
        """Those of it that are debts."""
        return [each for each in self.said(*texts) if isinstance(each, Debt)]


A, B = queue("a", "parent: top"), queue("b", "parent: top")


def test_a_limit_below_what_is_held_is_a_debt_at_every_level() -> None:
    case = Case(queue("top"), A, B)
    case.runs("a", 6)
    case.runs("b", 5)
    less = queue("top", "limit: {H100: 10}"), queue("a", "parent: top, limit: {H100: 4}")
    assert case.debts(*less, B) == [
        LimitDebt("top", "H100", UNIT, 10 * UNIT),
        LimitDebt("a", "H100", 2 * UNIT, 4 * UNIT),
    ]


def test_a_debt_that_was_there_is_listed_again_only_if_it_grows() -> None:
    four, five, three = (queue("top", f"limit: {{H100: {n}}}") for n in (4, 5, 3))
    case = Case(four)
    case.runs("top", 6)
    assert case.said(five) == [QuotaChanged("top", QuotaField.LIMIT, "H100", 4, 5)]
    assert case.debts(three) == [LimitDebt("top", "H100", 3 * UNIT, 3 * UNIT)]


def test_a_limit_in_units_counts_by_rates_and_rounds_up() -> None:
    case, six = Case(queue("top")), queue("top", "limit: {units: 6}")
    case.runs("top", 3)
    assert case.debts(six) == []
    case.runs("top", 1, asks=share(500))
    held = -(-(3 * UNIT + UNIT // 2) * 1734 // 1000)
    assert case.debts(six) == [LimitDebt("top", UNITS, held - 6 * UNIT, 6 * UNIT)]


def test_what_cannot_be_taken_back_beyond_a_guarantee_is_a_debt() -> None:
    case = Case(TOP, queue("a", "parent: top, guarantee: {H100: 8}"), B)
    case.runs("a", 5, NOTEBOOK)
    less = queue("a", "parent: top, guarantee: {H100: 2}")
    # What others are not guaranteed of the parent's 16 covers it.
    assert case.debts(TOP, less, B) == []
    full = queue("b", "parent: top, guarantee: {H100: 14}")
    assert case.debts(TOP, less, full) == [GuaranteeDebt("a", "H100", 3 * UNIT, 2 * UNIT)]


def test_work_that_can_be_taken_back_owes_nothing() -> None:
    case = Case(TOP, queue("a", "parent: top, guarantee: {H100: 8}"), B)
    case.runs("a", 5)
    less = queue("a", "parent: top, guarantee: {H100: 2}")
    full = queue("b", "parent: top, guarantee: {H100: 14}")
    assert case.debts(TOP, less, full) == []


def test_a_guarantee_on_several_accelerators_is_told_once() -> None:
    case = Case(TOP, queue("a", "parent: top, guarantee: {H100: 16}"), B)
    case.runs("a", 16, NOTEBOOK)
    less = queue("a", "parent: top, guarantee: {H100: 2}")
    full = queue("b", "parent: top, guarantee: {H100: 14}")
    assert case.debts(TOP, less, full) == [GuaranteeDebt("a", "H100", 14 * UNIT, 2 * UNIT)]


def test_what_is_borrowed_beyond_a_new_limit_is_a_debt() -> None:
    case = Case(TOP, queue("a", "parent: top, guarantee: {H100: 4}"), B)
    case.runs("a", 8)
    none = queue("a", "parent: top, guarantee: {H100: 4}, borrow: {H100: 0}")
    assert case.debts(TOP, none, B) == [BorrowDebt("a", "H100", 4 * UNIT, 0)]


def test_a_queue_that_closes_takes_its_debts_along() -> None:
    """Two may be held under mid; what lab holds there counts on when lab is deleted."""
    mid = queue("mid", "parent: top, limit: {H100: 8}")
    case = Case(TOP, mid, queue("lab", "parent: mid"))
    case.runs("lab", 8)
    assert case.debts(TOP, mid) == []
    less = queue("mid", "parent: top, limit: {H100: 2}")
    assert case.debts(TOP, less) == [LimitDebt("mid", "H100", 6 * UNIT, 2 * UNIT)]


def test_who_has_run_or_waited_for_a_new_maximum_ends_at_once() -> None:
    case = Case(TOP, A, B)
    case.runs("a", 1)
    case.runs("a", 1)
    case.runs("b", 1)
    case.waits("a")
    # The maximum of the queue above counts as well.
    top = queue("top", "guarantee: {H100: 16}, maximumRun: {training: 1h}")
    short = queue("a", "parent: top, maximumWait: {training: 1h}")
    ends = [RunsEnded("a", TRAINING, 2, HOUR_US), RunsEnded("b", TRAINING, 1, HOUR_US)]
    assert case.said(top, short, B)[2:] == [*ends, WaitsRefused("a", TRAINING, 1, HOUR_US)]
    early = case.said(top, short, B, now_us=HOUR_US - 1)
    assert not any(isinstance(each, RunsEnded | WaitsRefused) for each in early)
