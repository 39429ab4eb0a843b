"""Queues: the tenant tree, with what each of its nodes is granted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from shoal.model.selector import Selector
from shoal.model.workload import WorkloadType

UNITS: Final = "units"
"""The word of a quota that counts all accelerators together, by their exchange rates."""

Quota = tuple[tuple[str, int], ...]
"""Devices by accelerator or group of accelerators; no two of them overlap.

People write names and groups (`H100`, `H100|H200`). The core counts what `objects.tree.resolved`
makes of it: the accelerators of an entry joined by `|`, or `UNITS`. Then the number is of devices
of the reference accelerator, every accelerator counts, and the entry stands alone.
"""


@dataclass(frozen=True, slots=True)
class Priority:
    """A priority that work of a queue may have.

    `subjects` (`user:...`, `group:...`, `serviceaccount:...`) are those who may ask for it; empty:
    everyone who may use the queue.
    """

    name: str
    value: int
    subjects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EvictionBounds:
    """What evictions may cost the work of a queue; None: no bound of its own.

    `checkpoint_interval_us` is how long a time counts as lost, at most.
    """

    minimum_run_us: int | None = None
    per_workload_per_day: int | None = None
    device_hours_lost_per_day: int | None = None
    checkpoint_interval_us: int | None = None


class Order(StrEnum):
    """In which order the work of a queue has its turn."""

    FIFO = "fifo"
    PRIORITY = "priority"
    FAIR = "fair"
    SHORTEST = "shortest"
    LEAST_ATTAINED_SERVICE = "least-attained-service"


class Period(StrEnum):
    """The calendar period of a budget."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


class WhenSpent(StrEnum):
    """What happens when a budget is spent, from the mildest to the hardest.

    Each includes the milder ones: who may not borrow any more has a lower weight, and was warned.
    """

    WARN = "warn"
    LOWER_WEIGHT = "lower-weight"
    NO_BORROWING = "no-borrowing"
    NO_NEW_STARTS = "no-new-starts"


@dataclass(frozen=True, slots=True)
class Budget:
    """What the work of a queue may use in a period, in device hours or in money.

    One of `device_hours` and `money_micro` (millionths of `QueueTree.currency`) is written; money
    counts at `QueueTree.prices_micro`. It covers the work of the queue and of all below it. Periods
    begin and end at midnight in `time_zone` (an IANA name), weeks on Monday.
    """

    period: Period
    device_hours: int | None
    when_spent: WhenSpent
    money_micro: int | None = None
    time_zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Queue:
    """One node of the tenant tree, as it is written.

    `parent` is empty for the root. `guarantee` is what the queue always gets back (None: what its
    children are guaranteed together, for a leaf nothing), `limit` what it never exceeds. `borrow`
    is the most that it holds beyond its guarantee, `lend` the most of its guarantee that others may
    hold (both: what is not written is not bounded; an entry of the guarantee is inside one of these
    or has nothing in common with it). `placeable` says how many devices of an accelerator, of those
    guaranteed under the same word, lie on one node. `types` and `priorities` are those of its
    parent where they are not written. A `minimum_run_us`, checkpoint interval or `grace_max_us`
    that is not written is that of its parent. Of maximum run and waiting times on the path to the
    root the shortest counts.

    A queue that is `closing` is no longer written: what runs in it goes on and is charged to it,
    nothing new starts in it, and it goes when it holds nothing. It does not keep the queue above it
    from taking work itself.

    Work that has waited longer than `starvation_after_us` gets the next reservation. Waiting for
    `aging_us` moves work ahead in the order like one point of priority. `maximum_wait_us`: work of
    a type that waits longer is ended. `shrink_after_us` and `usage_half_life_us` count as they are
    written at the root: when capacity that vanished makes guarantees smaller, and how fast past use
    is forgotten in the order between queues (None: it does not count).
    """

    name: str
    parent: str = ""
    namespaces: Selector | None = None
    guarantee: Quota | None = None
    limit: Quota = ()
    weight: int = 1
    reclaim_within_us: int = 600_000_000
    types: tuple[WorkloadType, ...] = tuple(WorkloadType)
    priorities: tuple[Priority, ...] = ()
    eviction: EvictionBounds = EvictionBounds()
    budget: Budget | None = None
    maximum_run_us: tuple[tuple[WorkloadType, int], ...] = ()
    maximum_wait_us: tuple[tuple[WorkloadType, int], ...] = ()
    borrow: Quota = ()
    lend: Quota = ()
    placeable: Quota = ()
    order: Order = Order.PRIORITY
    aging_us: int | None = None
    starvation_after_us: int = 86_400_000_000
    grace_max_us: int | None = None
    shrink_after_us: int = 300_000_000
    usage_half_life_us: int | None = None
    closing: bool = False


@dataclass(frozen=True)
class QueueTree:
    """All queues, which form one tree; parents stand before their children.

    The empty tree is that of a place where nobody wrote queues. `rates` are exchange rates by
    accelerator, in thousandths of the reference accelerator; they are known where a quota counts in
    units, and an accelerator that is not among them counts 1,000. `prices_micro` are prices by
    accelerator, in millionths of `currency` for a whole device and hour; they are known where a
    budget is money, which cannot count work on an accelerator that is not among them. Both are
    those of one day.
    """

    queues: tuple[Queue, ...] = ()
    rates: tuple[tuple[str, int], ...] = ()
    prices_micro: tuple[tuple[str, int], ...] = ()
    currency: str = ""

    @cached_property
    def _by_name(self) -> Mapping[str, Queue]:
        # No field, as fields are recorded.
        return {queue.name: queue for queue in self.queues}

    @cached_property
    def _below(self) -> Mapping[str, list[Queue]]:
        below: dict[str, list[Queue]] = {}
        for queue in self.queues:
            below.setdefault(queue.parent, []).append(queue)
        return below

    def get(self, name: str) -> Queue | None:
        """Return the queue of that name."""
        return self._by_name.get(name)

    def children(self, name: str) -> tuple[Queue, ...]:
        """Return the queues right below one; below the empty name stands the root."""
        return tuple(self._below.get(name, ()))

    def leaves(self) -> tuple[Queue, ...]:
        """Return the queues that work can wait in: none is below them but such as close."""
        above = {queue.parent for queue in self.queues if not queue.closing}
        return tuple(queue for queue in self.queues if queue.name not in above)

    def path(self, name: str) -> tuple[str, ...]:
        """Return the names from the root down to a queue; a name that is unknown stands alone."""
        return tuple(reversed(tuple(self._upwards(name))))

    def _upwards(self, name: str) -> Iterator[str]:
        yield name
        queue = self.get(name)
        while queue is not None and queue.parent:
            yield queue.parent
            queue = self.get(queue.parent)
