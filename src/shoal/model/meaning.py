"""What changed queues and pools will mean, as machine-readable values.

Sentences are made in `texts`. Words of quotas are those that people wrote.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shoal.model.queue import Budget, Priority
from shoal.model.workload import WorkloadType


@dataclass(frozen=True, slots=True)
class Inside:
    """The work in one queue, without that of the queues below it.

    `units` is what is charged to it by accelerator, in units of a device (`fractions.UNIT`).
    Workloads that run or wait are counted.
    """

    running: int = 0
    waiting: int = 0
    units: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Running:
    """A workload that runs: where, and on which of these nodes it shares a device with strangers.

    Strangers are work of another queue right below the root: of the tree that there is
    (`beside_strangers`), and of the one that comes (`strangers_then`).
    """

    type: WorkloadType
    nodes: frozenset[str]
    beside_strangers: frozenset[str] = frozenset()
    strangers_then: frozenset[str] = frozenset()


class QuotaField(StrEnum):
    """A quota of a queue, by its field as people write it."""

    GUARANTEE = "guarantee"
    LIMIT = "limit"
    BORROW = "borrow"
    LEND = "lend"
    PLACEABLE = "placeable"


@dataclass(frozen=True, slots=True)
class QueueAdded:
    """A queue is new; `waiting` workloads have named it already."""

    queue: str
    parent: str
    waiting: int


@dataclass(frozen=True, slots=True)
class QueueGone:
    """A queue is no longer written and goes; `waiting` need another one.

    Work runs in it only where no queue at all is written any more, so that none is there to close
    under: `running` go on, and are charged to no queue.
    """

    queue: str
    waiting: int
    running: int = 0


@dataclass(frozen=True, slots=True)
class QueueCloses:
    """A queue is no longer written, and work runs in it, which goes on; nothing new starts."""

    queue: str
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class QueueMoved:
    """A queue has another parent."""

    queue: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class LeafNoMore:
    """A queue has queues below it now: what runs in it goes on, what waits needs another one."""

    queue: str
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class QuotaChanged:
    """A quota of a queue changes. None: it is not written, or its word is not."""

    queue: str
    field: QuotaField
    word: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class WeightChanged:
    """A queue's share of what is spare changes."""

    queue: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class TypesChanged:
    """A queue may run other types of work than before."""

    queue: str
    added: tuple[WorkloadType, ...]
    removed: tuple[WorkloadType, ...]


@dataclass(frozen=True, slots=True)
class Duration:
    """A time span as the value of a field, in microseconds."""

    us: int


@dataclass(frozen=True, slots=True)
class Spending:
    """A budget as the value of a field; money of it is in this currency."""

    budget: Budget
    currency: str


FieldValue = int | str | Duration | Spending | Priority
"""The value of a field: a number, a word, a time span, a budget, or one of the priorities."""


@dataclass(frozen=True, slots=True)
class FieldChanged:
    """Another field of a queue changes, called as people write it (`eviction.minimumRun`).

    None: it is not written. Neither value is given where it is too long for a line (`namespaces`).
    """

    queue: str
    field: str
    before: FieldValue | None = None
    after: FieldValue | None = None


@dataclass(frozen=True, slots=True)
class RunsEnded:
    """So many workloads of a type have run for their new maximum and are ended at once."""

    queue: str
    type: WorkloadType
    workloads: int
    maximum_us: int


@dataclass(frozen=True, slots=True)
class WaitsRefused:
    """So many workloads of a type have waited for their new maximum.

    They are refused at once, unless they start then.
    """

    queue: str
    type: WorkloadType
    workloads: int
    maximum_us: int


class PoolHow(StrEnum):
    """What becomes of a pool."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class PoolChanged:
    """A pool is new, goes, or is another than before."""

    pool: str
    how: PoolHow


@dataclass(frozen=True, slots=True)
class QuotaDebt:
    """A quota that what is held will break: nothing is ended, and nothing starts that adds to it.

    Units are of a device, or where the word is `units`, of a device of the reference. `over_units`
    is by how much it is broken, `bound_units` what it says.
    """

    queue: str
    word: str
    over_units: int
    bound_units: int


class LimitDebt(QuotaDebt):
    """A queue will hold more than its limit."""

    __slots__ = ()


class BorrowDebt(QuotaDebt):
    """A queue will hold more beyond its guarantee than it may borrow."""

    __slots__ = ()


class GuaranteeDebt(QuotaDebt):
    """What cannot be taken back in a queue will be more than is guaranteed."""

    __slots__ = ()


class PlaceableDebt(QuotaDebt):
    """Of what a queue is promised together on single nodes, others will hold some for good."""

    __slots__ = ()


class LendDebt(QuotaDebt):
    """Less will be free than queues do not lend, of which the queue keeps most."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TypeDebt:
    """So many workloads of a type run on nodes of a pool that will not serve it: they go on."""

    pool: str
    type: WorkloadType
    running: int


@dataclass(frozen=True, slots=True)
class NeighbourDebt:
    """So many workloads of different queues share devices where it will not be allowed any more.

    `pool` is empty for nodes that will be in none.
    """

    pool: str
    running: int


PoolDebt = TypeDebt | NeighbourDebt
Debt = QuotaDebt | PoolDebt

Meaning = (
    QueueAdded
    | QueueGone
    | QueueCloses
    | QueueMoved
    | LeafNoMore
    | QuotaChanged
    | WeightChanged
    | TypesChanged
    | FieldChanged
    | RunsEnded
    | WaitsRefused
    | PoolChanged
    | Debt
)
