"""What could be evicted, what it would cost, and what protects it.

The cost of evicting compares in this order: work lost by non-batch work, work lost in total, the
number of workloads, their priority. Work lost is what was done since the start or the last
checkpoint, no more than its queue's `checkpointInterval`, times the devices it is charged.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from shoal.core.entry import Entry
from shoal.core.eviction.evictions import DAY_US
from shoal.core.queueing.precedence import priority_of
from shoal.core.tenancy.tenants import goes_whole
from shoal.model.fractions import UNIT
from shoal.model.workload import WorkloadType

if TYPE_CHECKING:
    from shoal.core.world import World

HOUR_US = 3_600_000_000

BEFORE_ALL_US = -(1 << 62)
"""Since when work runs of which no pod does yet: who lends may take back from it at any time."""


class Cost(NamedTuple):
    """What evicting costs, in unit microseconds for work; the sum of costs is that of both."""

    lost_by_others: int
    """Work lost by work that is not batch."""
    lost: int
    workloads: int
    priority: int

    def plus(self, other: "Cost") -> "Cost":
        """Return the cost of both."""
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))


FREE = Cost(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Victim:
    """What could be evicted at once: one pod that its workload can do without, or all of them."""

    entry: Entry
    pods: tuple[int, ...]
    spared: bool
    cost: Cost
    accelerators: tuple[str, ...]
    units: int

    @property
    def uid(self) -> str:
        """The workload."""
        return self.entry.workload.uid

    def lies_on(self, accelerators: Collection[str]) -> bool:
        """Return whether its going frees something of any of these accelerators."""
        return any(name in accelerators for name in self.accelerators)

    @property
    def leaves(self) -> int:
        """How many leaves it holds something of."""
        return sum(len(self.entry.held[pod].leaves) for pod in self.pods)

    def units_of(self, accelerators: Collection[str]) -> int:
        """Return the units that it holds of these."""
        if len(self.accelerators) == 1:
            return self.units if self.lies_on(accelerators) else 0
        charges = (c for pod in self.pods for c in self.entry.charges.get(pod, ()))
        return sum(charge.units for charge in charges if charge.accelerator in accelerators)

    def devices_of(self, accelerators: Collection[str]) -> int:
        """Return how many devices of these it holds something of."""
        charges = (c for pod in self.pods for c in self.entry.charges.get(pod, ()))
        return sum(1 for charge in charges if charge.accelerator in accelerators)

    @property
    def key(self) -> tuple[Cost, str, int]:
        """The order in which victims are taken: the cheapest first; of one workload, pods last."""
        return self.cost, self.uid, -self.pods[0]


def victims_of(world: "World", entry: Entry, now_us: int) -> tuple[Victim, ...]:
    """Return what a workload could be taken apart into, whatever protects it."""
    if entry.workload.type is WorkloadType.NOTEBOOK:
        return ()
    going = entry.evicting
    spared = [pod for pod in sorted(entry.held, reverse=True) if entry.spared(pod)]
    found = [_victim(world, entry, (pod,), now_us) for pod in spared if pod not in going]
    whole = tuple(pod for pod in sorted(entry.held) if pod not in going)
    goes = any(not entry.spared(pod) for pod in going)
    needed = any(not entry.spared(pod) for pod in whole)
    if needed and goes_whole(entry.workload) and not goes:
        found.append(_victim(world, entry, whole, now_us))
    return tuple(found)


def _victim(world: "World", entry: Entry, pods: tuple[int, ...], now_us: int) -> Victim:
    lost = sum(lost_unit_us(world, entry, pod, now_us) for pod in pods)
    spared = all(entry.spared(pod) for pod in pods)
    charges = [charge for pod in pods for charge in entry.charges.get(pod, ())]
    return Victim(
        entry,
        pods,
        spared,
        Cost(
            0 if entry.workload.type is WorkloadType.BATCH else lost,
            lost,
            0 if spared else 1,
            priority_of(world.tenants.tree, entry.workload),
        ),
        tuple(sorted({charge.accelerator for charge in charges})),
        sum(charge.units for charge in charges),
    )


def lost_unit_us(world: "World", entry: Entry, pod: int, now_us: int) -> int:
    """Return the work that is lost with a pod, in units times microseconds."""
    began_us = entry.started.get(pod)
    if began_us is None:
        return 0
    saved_us = entry.checkpoint_us
    lost_us = max(0, now_us - (began_us if saved_us is None else max(began_us, saved_us)))
    queue = entry.workload.queue
    most = world.tenants.inherited(queue, lambda at: at.eviction.checkpoint_interval_us)
    lost_us = lost_us if most is None else min(lost_us, most)
    return lost_us * sum(charge.units for charge in entry.charges.get(pod, ()))


def lost_device_us(cost: Cost) -> int:
    """Return the work that is lost, in device microseconds, rounded up."""
    return -(-cost.lost // UNIT)


def preemptible_from_us(world: "World", entry: Entry, now_us: int) -> int | None:
    """Return from when on more urgent work of its queue may evict a workload; None: never.

    The bounds of eviction apply, and work past the end that it declared has no minimum run. That of
    work that is being started begins now at the earliest.
    """
    bounded_us = _bounded_until_us(world, entry, now_us)
    run_us = _minimum_run_us(world, entry)
    if bounded_us is None or run_us is None:
        return None
    began_us = _began_us(entry)
    if began_us == BEFORE_ALL_US:
        began_us = now_us
    return max(began_us + run_us, bounded_us)


def preemptible_at_once(world: "World", entry: Entry, now_us: int) -> bool:
    """Return whether more urgent work of its queue could evict waiting work as soon as it starts.

    All of it, or the pods that it can do without.
    """
    workload = entry.workload
    if workload.type is WorkloadType.NOTEBOOK:
        return False
    if not (workload.elastic or goes_whole(workload)):
        return False
    if world.evictions.allowed(workload.uid) == 0:
        return False
    from_us = preemptible_from_us(world, entry, now_us)
    return from_us is not None and from_us <= now_us


def evicts_at_once(world: "World", one: Entry, other: Entry, now_us: int) -> bool:
    """Return whether work could evict waiting work of its queue as soon as that starts."""
    tree = world.tenants.tree
    return (
        not one.was_evicted
        and priority_of(tree, one.workload) > priority_of(tree, other.workload)
        and preemptible_at_once(world, other, now_us)
    )


def reclaimable_from_us(world: "World", entry: Entry, within_us: int) -> int | None:
    """Return from when on a lender may take back from a workload what it borrows; None: never.

    The minimum run is at most what leaves a lender, who wants it back `within_us`, enough of that
    for the pods to stop. What takes longer to stop than lenders wait does not borrow, and is not
    taken back.
    """
    run_us = _minimum_run_us(world, entry)
    if run_us is None or world.tenants.stays(entry.workload, spared=True):
        return None
    return _began_us(entry) + min(
        run_us, max(0, within_us - world.tenants.grace_us(entry.workload))
    )


def _minimum_run_us(world: "World", entry: Entry) -> int | None:
    """Return how long a workload runs at least; None where it is never evicted."""
    workload, tenants = entry.workload, world.tenants
    if not workload.recreated or tenants.tree.get(workload.queue) is None:
        return None
    run_us = tenants.inherited(workload.queue, lambda at: at.eviction.minimum_run_us) or 0
    return run_us if workload.run_us is None else min(run_us, workload.run_us + 1)


def _began_us(entry: Entry) -> int:
    """Return since when a workload runs; before all time where none of its pods does."""
    began_us = [entry.started[pod] for pod in entry.held if pod in entry.started]
    return min(began_us, default=BEFORE_ALL_US)


def _bounded_until_us(world: "World", entry: Entry, now_us: int) -> int | None:
    """Return until when another preemption would exceed a bound of the workload or its queue.

    That is `now_us` where it would exceed none, and None where time alone changes nothing. It is
    worth a look whenever something that counts in a bound becomes a day old. Of work that can do
    without some of its pods one of these may go where all of it would be too much.
    """
    tenants = world.tenants
    queue = entry.workload.queue
    until_us = now_us
    most = tenants.inherited(queue, lambda at: at.eviction.per_workload_per_day)
    today = [at_us for at_us in entry.evictions_us if at_us > now_us - DAY_US]
    if most is not None and len(today) >= most:
        if not most:
            return None
        until_us = today[-most] + DAY_US
    hours = tenants.most_hours_lost(queue)
    if hours is None:
        return until_us
    least = min((each.cost.lost for each in victims_of(world, entry, now_us)), default=0)
    lost_us = world.evictions.lost_today(queue, now_us) + -(-least // UNIT)
    if lost_us <= hours * HOUR_US:
        return until_us
    first_us = world.evictions.first_lost_us(queue, now_us)
    return None if first_us is None else max(until_us, first_us + DAY_US)


def total(victims: Iterable[Victim]) -> Cost:
    """Return the cost of evicting all of these."""
    cost = FREE
    for victim in victims:
        cost = cost.plus(victim.cost)
    return cost
