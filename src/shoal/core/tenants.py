"""Who holds how much at every node of the tenant tree, and how much more each may hold.

Charges are in units of a device (`model.fractions.UNIT`). What holds part of a device is charged
the larger of its memory and its compute fraction; what one queue holds of one device never counts
more than the device. Every account includes those of the queues below, so a limit binds them all.

Only returnable work borrows. What cannot be returned (inference, notebooks) has to fit the queue's
guarantee, or what its ancestors are guaranteed beyond the guarantees of their other children.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shoal.core.dominance import LOWERED_PART, UserAccounts, dominant_share
from shoal.core.fleet import Fleet
from shoal.core.journal import IntArray
from shoal.core.past import Past, Written
from shoal.model.fractions import UNIT, fraction_up
from shoal.model.node import WHOLE_COMPUTE_MILLI
from shoal.model.queue import Order, Queue, QueueTree
from shoal.model.request import Request
from shoal.model.verdict import OverQuota, Reason
from shoal.model.workload import Placement, Workload, WorkloadType

RETURNABLE = frozenset({WorkloadType.TRAINING, WorkloadType.BATCH})

FOR_EVER_US = 1 << 62

Bounded = Literal[
    "minimum_run_us",
    "per_workload_per_day",
    "device_hours_lost_per_day",
    "checkpoint_interval_us",
    "grace_max_us",
]


@dataclass(frozen=True, slots=True)
class Charge:
    """What a pod is charged for its part of one device."""

    accelerator: str
    device: str
    units: int


@dataclass(frozen=True, slots=True)
class Bound:
    """A guarantee or limit on some accelerators together."""

    name: str
    accelerators: tuple[str, ...]
    units: int


def bounds_of(quota: Iterable[tuple[str, int]]) -> tuple[Bound, ...]:
    """Return what is written as devices of accelerators, or of groups of them (`A|B`), in units."""
    return tuple(Bound(name, tuple(name.split("|")), devices * UNIT) for name, devices in quota)


def charges_of(fleet: Fleet, request: Request, placement: Placement) -> tuple[Charge, ...]:
    """Return what a pod is charged for where it is; nothing for devices not seen yet."""
    row = fleet.row_of.get(placement.node)
    node = fleet.nodes[row] if row is not None else None
    if node is None:
        return ()
    charges = []
    for device in node.devices:
        memory_mib = sum(leaf.memory_mib for leaf in device.leaves)
        for leaf in device.leaves:
            if leaf.name not in placement.leaves:
                continue
            compute, memory = request.devices.compute_milli, request.devices.memory_mib
            if request.devices.whole or leaf.tenants == 1:
                compute, memory = leaf.compute_milli, leaf.memory_mib
            units = fraction_up(min(compute, WHOLE_COMPUTE_MILLI), WHOLE_COMPUTE_MILLI)
            if memory_mib:
                units = max(units, fraction_up(min(memory, memory_mib), memory_mib))
            charges.append(Charge(device.accelerator, device.name, units))
    return tuple(charges)


class Tenants:
    """The accounts of the tenant tree. Without queues there is nothing to keep to."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._undo: list[tuple[str, tuple[Charge, ...], int, bool, str]] = []
        self._speculating = False
        self.now_us = 0
        self.past: Past | None = None
        """What was held before now, where it counts in the order between queues."""
        self._past_before: Written = ()
        self.lowered: set[str] = set()
        """Queues whose weight counts less, because their budget is spent."""
        self.set_tree(QueueTree())

    def set_tree(self, tree: QueueTree) -> None:
        """Begin new accounts for a tree; whoever knows what is held charges it again."""
        before, written = self.past, self.past_written()
        self.tree = tree
        names = [queue.name for queue in tree.queues]
        self._number = {name: number for number, name in enumerate(names)}
        self._paths = {
            name: tuple(self._number[n] for n in reversed(tree.path(name))) for name in names
        }
        self._children = {
            number: [self._number[c.name] for c in tree.children(name)]
            for name, number in self._number.items()
        }
        self._limits = [bounds_of(queue.limit) for queue in tree.queues]
        self._guarantees = [bounds_of(_guarantee(tree, queue)) for queue in tree.queues]
        self._shortest_reclaim_us = min(
            (
                queue.reclaim_within_us
                for number, queue in enumerate(tree.queues)
                if any(bound.units for bound in self._guarantees[number])
            ),
            default=FOR_EVER_US,
        )
        self.takes_work = frozenset(queue.name for queue in tree.leaves())
        """Queues that work can wait in."""
        self._used: IntArray = np.zeros((len(names), 8), dtype=np.int64)
        """[queue, accelerator id]: what is held."""
        self._fixed: IntArray = np.zeros_like(self._used)
        """[queue, accelerator id]: the part of it that cannot be returned."""
        self._on_device: defaultdict[tuple[int, str], int] = defaultdict(int)
        self.users = UserAccounts(q.name for q in tree.queues if q.order is Order.FAIR)
        half_life_us = tree.queues[0].usage_half_life_us if tree.queues else None
        ids = self._fleet.accelerator_ids
        self.past = Past(half_life_us, self.now_us, names, ids) if half_life_us else None
        if before is not None and self.past is not None:
            self._past_before = before.converted(written, self.past)

    def remember_past(self) -> None:
        """Remember past use across a change of the tree; call it when all is charged again."""
        if self.past is not None:
            self.past.restore(self._past_before, self.now_us, self._used)
        self._past_before = ()

    def clock(self, now_us: int) -> None:
        """Let it be that time."""
        self.now_us = max(now_us, self.now_us)
        if self.past is not None:
            self.past.clock(now_us)

    # Accounts ---------------------------------------------------------------------------------

    def speculate(self) -> None:
        """Remember charges from here on, so that they can be undone."""
        self._speculating = True

    def undo(self, back_to: int = 0) -> None:
        """Undo what was charged in speculation, down to the first `back_to` charges."""
        while len(self._undo) > back_to:
            queue, charges, sign, fixed, user = self._undo.pop()
            self._book(queue, charges, -sign, fixed=fixed, user=user)

    def end_speculation(self) -> None:
        """Undo everything that was charged in speculation."""
        self.undo()
        self._speculating = False

    @property
    def speculated(self) -> int:
        """Charges that could be undone."""
        return len(self._undo)

    def charge(
        self,
        queue: str,
        charges: tuple[Charge, ...],
        sign: int,
        *,
        fixed: bool = False,
        user: str = "",
    ) -> None:
        """Add charges to the accounts of a queue and its ancestors (`sign` 1), or take them off.

        `fixed`: what is charged cannot be returned. `user`: whose work it is.
        """
        if self._speculating:
            self._undo.append((queue, charges, sign, fixed, user))
        self._book(queue, charges, sign, fixed=fixed, user=user)

    def returnable(self, workload: Workload) -> bool:
        """Return whether work can be taken back from where it borrows.

        It has to be of a type that may be evicted, somebody has to make its pods again, and they
        have to stop within the shortest time in which a lender wants its devices back.
        """
        return (
            workload.type in RETURNABLE
            and workload.recreated
            and self.grace_us(workload) <= self._shortest_reclaim_us
        )

    def grace_us(self, workload: Workload) -> int:
        """Return how long pods of a workload are given to stop: at most what its queue grants."""
        queue = self.tree.get(workload.queue)
        most = None if queue is None else self.inherited(queue, "grace_max_us")
        return workload.grace_us if most is None else min(workload.grace_us, most)

    def inherited(self, queue: Queue, bound: Bounded) -> int | None:
        """Return a bound of evictions as it is written at a queue, or else above it."""
        at: Queue | None = queue
        while at is not None:
            found = (
                getattr(at.eviction, bound, None) if bound != "grace_max_us" else at.grace_max_us
            )
            if found is not None:
                return int(found)
            at = self.tree.get(at.parent)
        return None

    def _book(
        self, queue: str, charges: tuple[Charge, ...], sign: int, *, fixed: bool, user: str
    ) -> None:
        for charge in charges:
            column = self._column(charge.accelerator)
            self.users.book(queue, user, column, sign * charge.units)
            for number in self._paths.get(queue, ()):
                key = (number, charge.device)
                before = self._on_device[key]
                after = before + sign * charge.units
                self._on_device[key] = after
                if not after:
                    del self._on_device[key]
                change = min(after, UNIT) - min(before, UNIT)
                self._used[number, column] += change
                if self.past is not None:
                    self.past.book(number, column, change)
                if fixed:
                    self._fixed[number, column] += change

    def path(self, queue: str) -> tuple[str, ...]:
        """Return a queue and those above it; nothing for one that the tree does not have."""
        return tuple(self.tree.queues[number].name for number in self._paths.get(queue, ()))

    def used_units(self, queue: str) -> dict[str, int]:
        """Return what a queue and those below it hold, by accelerator."""
        number = self._number[queue]
        ids = self._fleet.accelerator_ids.items()
        held = {
            name: int(self._used[number, column]) for name, column in ids if column < self._width
        }
        return {name: units for name, units in held.items() if units}

    def guarantee(self, queue: str, accelerator: str) -> Bound:
        """Return what a queue is guaranteed that counts this accelerator; perhaps nothing."""
        return self._guarantee_on(self._number[queue], accelerator)

    def held(self, queue: str, bound: Bound) -> int:
        """Return the units that a queue and those below it hold of what a bound counts."""
        return self._sum(self._used, self._number[queue], bound)

    def accounts(self) -> tuple[IntArray, IntArray]:
        """Return copies of what is held and of the part that cannot be returned, to compare."""
        return self._used.copy(), self._fixed.copy()

    # Rules ------------------------------------------------------------------------------------

    def over_quota(
        self, queue: str, asked: Mapping[str, int], *, returnable: bool
    ) -> OverQuota | None:
        """Return the rule that the accounts as they are break, None if they break none.

        `asked` says how much of what is held, by accelerator, is on trial; only rules on these
        accelerators are looked at. Limits first, from the queue up, then what cannot be returned.
        """
        for number in self._paths[queue]:
            for bound in self._limits[number]:
                if not asked.keys() & set(bound.accelerators):
                    continue
                used = self._sum(self._used, number, bound)
                if used > bound.units:
                    return self._over(Reason.LIMIT, number, bound, used, asked)
        if returnable:
            return None
        for accelerator in sorted(asked):
            over = self._not_guaranteed(queue, accelerator, asked)
            if over is not None:
                return over
        return None

    def over_limit(self, queue: str, accelerator: str, units: int) -> OverQuota | None:
        """Return the limit that so much more of an accelerator would exceed, from the queue up."""
        for number in self._paths[queue]:
            for bound in self._limits[number]:
                if accelerator in bound.accelerators:
                    used = self._sum(self._used, number, bound) + units
                    if used > bound.units:
                        asked = {accelerator: units}
                        return self._over(Reason.LIMIT, number, bound, used, asked)
        return None

    def debts(self) -> dict[tuple[str, str], int]:
        """Return by how many units each (kind of rule, queue and accelerators) is broken."""
        found = {}
        for number, queue in enumerate(self.tree.queues):
            for bound in self._limits[number]:
                over = self._sum(self._used, number, bound) - bound.units
                if over > 0:
                    found["limit", f"{queue.name}\0{bound.name}"] = over
            for accelerator in self._fleet.accelerators() if queue.name in self.takes_work else ():
                uncovered = self._not_guaranteed(queue.name, accelerator, {})
                if uncovered is not None:
                    over = uncovered.used_units - uncovered.bound_units
                    found["guarantee", f"{queue.name}\0{accelerator}"] = over
        return found

    def rank(self, queue: str, accelerators: tuple[str, ...]) -> tuple[bool, int]:
        """Return what a queue is ordered by among its siblings, least first.

        Those below a guarantee on what their next workload asks for (`accelerators`, empty for any)
        come first; then counts how much of the fleet they hold for their weight, of the accelerator
        of which they hold most, with what they held in the past where that counts. A queue that the
        tree does not have holds nothing.
        """
        number = self._number.get(queue)
        if number is None:
            return True, 0
        below = any(
            self._sum(self._used, number, bound) < bound.units
            for bound in self._guarantees[number]
            if not accelerators or not set(accelerators).isdisjoint(bound.accelerators)
        )
        held = self._used[number].tolist()
        if self.past is not None:
            past = self.past.average(number, held)
            held = [now + before for now, before in zip(held, past, strict=False)]
        weight = max(1, self.tree.queues[number].weight)
        share = dominant_share(self._fleet, enumerate(held), weight)
        return not below, share * LOWERED_PART if queue in self.lowered else share

    def rank_of_user(self, queue: str, user: str) -> tuple[bool, int]:
        """Return what a user is ordered by in a queue in which users have their turns."""
        return True, dominant_share(self._fleet, self.users.held(queue, user))

    def past_written(self) -> Written:
        """Return everything that is remembered of past use."""
        return () if self.past is None else self.past.written(self._used)

    def restore_past(self, written: Written, as_of_us: int) -> None:
        """Let queues, whose accounts are as they are, have this past use and no other."""
        if self.past is not None:
            self.past.restore(written, as_of_us, self._used)

    def past_units(self, queue: str) -> dict[str, int]:
        """Return past use as the order counts it, by accelerator; nothing where it does not."""
        if self.past is None:
            return {}
        number = self._number[queue]
        past = self.past.average(number, self._used[number].tolist())
        ids = self._fleet.accelerator_ids.items()
        return {name: past[column] for name, column in ids if any(past[column : column + 1])}

    def _not_guaranteed(
        self, queue: str, accelerator: str, asked: Mapping[str, int]
    ) -> OverQuota | None:
        """Return why what cannot be returned is not covered by guarantees, from the queue up."""
        first: OverQuota | None = None
        for number in self._paths[queue]:
            bound = self._guarantee_on(number, accelerator)
            needed = self._needed(number, bound)
            if needed <= bound.units:
                return None
            first = first or self._over(Reason.GUARANTEE, number, bound, needed, asked)
        return first

    def _needed(self, number: int, bound: Bound) -> int:
        """Return how large a guarantee of a queue would have to be.

        It covers what cannot be returned in a leaf, and of every child the larger of what it needs
        and what it was promised, on all of the accelerators together.
        """
        children = self._children[number]
        if not children:
            return self._sum(self._fixed, number, bound)
        needed = 0
        for child in children:
            bounds = {self._guarantee_on(child, name) for name in bound.accelerators}
            needed += sum(max(self._needed(child, each), each.units) for each in bounds)
        return needed

    def _guarantee_on(self, number: int, accelerator: str) -> Bound:
        for bound in self._guarantees[number]:
            if accelerator in bound.accelerators:
                return bound
        return Bound(accelerator, (accelerator,), 0)

    def _over(
        self, reason: Reason, number: int, bound: Bound, used: int, asked: Mapping[str, int]
    ) -> OverQuota:
        mine = sum(units for name, units in asked.items() if name in bound.accelerators)
        name = self.tree.queues[number].name
        return OverQuota(reason, name, bound.name, used - mine, mine, bound.units)

    def _sum(self, account: IntArray, number: int, bound: Bound) -> int:
        columns = [self._column(name) for name in bound.accelerators]
        return int(account[number, columns].sum())

    @property
    def _width(self) -> int:
        return int(self._used.shape[1])

    def _column(self, accelerator: str) -> int:
        column = self._fleet.accelerator_id(accelerator)
        while column >= self._width:
            self._used = np.concatenate((self._used, np.zeros_like(self._used)), axis=1)
            self._fixed = np.concatenate((self._fixed, np.zeros_like(self._fixed)), axis=1)
        return column


def _guarantee(tree: QueueTree, queue: Queue) -> tuple[tuple[str, int], ...]:
    """Return a queue's guarantee; where none is written, that of its children together."""
    if queue.guarantee is not None:
        return queue.guarantee
    together: dict[str, int] = {}
    for child in tree.children(queue.name):
        for name, devices in _guarantee(tree, child):
            together[name] = together.get(name, 0) + devices
    return tuple(sorted(together.items()))
