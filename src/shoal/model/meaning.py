"""What changed queues and pools will mean, as machine-readable values.

Sentences are made in `texts`. Words of quotas are those that people wrote.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shoal.model.workload import WorkloadType


@dataclass(frozen=True, slots=True)
class Inside:
    """The work in one queue, without that of the queues below it.

    `units` is what is charged to it by accelerator, in units of a device (`fractions.UNIT`);
    `fixed_units` is the part of it that cannot be taken back. Workloads that run or wait are
    counted.
    """

    running: int = 0
    waiting: int = 0
    units: Mapping[str, int] = field(default_factory=dict)
    fixed_units: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Running:
    """A workload that runs: where, and on which of these nodes it shares a device with strangers.

    Strangers are work of another queue right below the root.
    """

    type: WorkloadType
    nodes: frozenset[str]
    beside_strangers: frozenset[str] = frozenset()


class QuotaField(StrEnum):
    """A quota of a queue, by its field as people write it."""

    GUARANTEE = "guarantee"
    LIMIT = "limit"
    BORROW = "borrow"
    LEND = "lend"


@dataclass(frozen=True, slots=True)
class QueueAdded:
    """A queue is new; `waiting` workloads have named it already."""

    queue: str
    parent: str
    waiting: int


@dataclass(frozen=True, slots=True)
class QueueGone:
    """A queue is no longer written, and nothing runs in it; `waiting` need another one."""

    queue: str
    waiting: int


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
class FieldsChanged:
    """Other fields of a queue change, called as people write them."""

    queue: str
    fields: tuple[str, ...]


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
class LimitDebt:
    """A queue will hold more than its limit: nothing is ended, and nothing starts that adds to it.

    `held_units` are of a device, or where the word is `units`, of a device of the reference.
    """

    queue: str
    word: str
    held_units: int
    limit: int


@dataclass(frozen=True, slots=True)
class GuaranteeDebt:
    """What cannot be taken back in a queue will be more than is guaranteed; units as above."""

    queue: str
    word: str
    fixed_units: int
    guarantee: int


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


QuotaDebt = LimitDebt | GuaranteeDebt
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
    | FieldsChanged
    | PoolChanged
    | Debt
)
