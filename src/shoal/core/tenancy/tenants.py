"""The rules of the tenant tree: how much more each queue may hold, and whose turn it is.

Charges are in units of a device (`model.fractions.UNIT`). What holds part of a device is charged
the larger of its memory and its compute fraction; what one queue holds of one device never counts
more than the device.

Only returnable work borrows. What cannot be returned (notebooks, inference that its service needs)
has to fit the queue's guarantee, or what its ancestors are guaranteed beyond the guarantees of
their other children.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial

import numpy as np

from shoal.core.arrays.charges import Charge
from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.labels import BoolArray
from shoal.core.tenancy.accounts import Bound, bounds_of
from shoal.core.tenancy.dominance import LOWERED_PART, dominant_share
from shoal.core.tenancy.lending import Lending
from shoal.core.tenancy.owed import Owed
from shoal.core.tenancy.slots import NEVER_RETURNED, Slots
from shoal.model.fractions import RATE_ONE, UNIT
from shoal.model.queue import UNITS, Queue, QueueTree
from shoal.model.verdict import OverQuota, Reason
from shoal.model.workload import Workload, WorkloadType

RETURNABLE = frozenset({WorkloadType.TRAINING, WorkloadType.BATCH})
"""Types of work that may be evicted whole. Of inference only what is above the minimum may be, and
nothing of a notebook."""

FOR_EVER_US = 1 << 62

MOST_REMEMBERED = 10_000
"""Answers to what is never allowed that are kept until the tree changes."""


def goes_whole(workload: Workload) -> bool:
    """Return whether work may be evicted whole; inference where its service can do without it."""
    spare = workload.spare and workload.type is WorkloadType.INFERENCE
    return workload.type in RETURNABLE or spare


class Tenants(Lending):
    """The accounts of the tenant tree. Without queues there is nothing to keep to."""

    def __init__(self, fleet: Fleet) -> None:
        self.slots = Slots(fleet)
        super().__init__(fleet)
        self.lowered: set[str] = set()
        """Queues whose weight counts less, because their budget is spent."""
        self._ranked_by = self._guarantees, fleet.static_changes.head
        """The guarantees, and how often nodes had changed, when ranks were last found."""
        self.promised: set[str] = set()
        """Workloads for which a start or a place is decided, until the speculation ends."""
        self._before: list[tuple[Bound, ...]] | None = None
        self._never: dict[tuple[str, tuple[tuple[str, int], ...], bool], OverQuota | None] = {}

    def set_tree(self, tree: QueueTree) -> None:
        """Begin new accounts for a tree; whoever knows what is held charges it again."""
        self._lay_out(tree)
        self.slots.lay_out(tree)
        self._never.clear()
        self.happened()

    def _lay_out(self, tree: QueueTree) -> None:
        super()._lay_out(tree)
        self._limits = [bounds_of(queue.limit) for queue in tree.queues]
        self.takes_work = frozenset(queue.name for queue in tree.leaves())
        """Queues that work can wait in."""
        lenders = (queue for queue in tree.queues if self._lends_to_others(queue))
        self._shortest_reclaim_us = min(
            (queue.reclaim_within_us for queue in lenders), default=FOR_EVER_US
        )

    def _lends_to_others(self, queue: Queue) -> bool:
        """Return whether a queue writes a guarantee, or work in it takes one back from others.

        What only sums up the guarantees of those below it lends nothing itself.
        """
        if any(devices for _, devices in queue.guarantee or ()):
            return True
        own = self._paths[queue.name][:-1] if queue.name in self.takes_work else ()
        return any(bound.units for number in own for bound in self._written[number])

    # Speculation ------------------------------------------------------------------------------

    def speculate(self) -> bool:
        """Remember charges from here on, so that they can be undone.

        Until they are, guarantees are worth what they are now. Returns whether that is news.
        """
        self._speculating = True
        self._before = self._guarantees
        if self._news:
            self._guarantees = self._worth_now()
        return self._before != self._guarantees

    def end_speculation(self) -> None:
        """Undo everything that was charged in speculation."""
        self.undo()
        self.promised.clear()
        self._speculating = False
        if self._before is not None:
            self._guarantees, self._before = self._before, None

    # Work -------------------------------------------------------------------------------------

    def returnable(self, workload: Workload) -> bool:
        """Return whether work can be taken back from where it borrows.

        It has to be of a type that may be evicted, somebody has to make its pods again, and they
        have to stop within the shortest time in which a lender wants its devices back.
        """
        return not self.stays(workload, spared=False)

    def stays(self, workload: Workload, *, spared: bool) -> bool:
        """Return whether a pod of work can never be taken back from where it borrows.

        Where work can do without it (`spared`), a pod of any type goes but a notebook's.
        """
        goes = goes_whole(workload) or (spared and workload.type is WorkloadType.INFERENCE)
        if not goes or not workload.recreated:
            return True
        return self.grace_us(workload) > self._shortest_reclaim_us

    def grace_us(self, workload: Workload) -> int:
        """Return how long pods of a workload are given to stop: at most what its queue grants."""
        most = self.inherited(workload.queue, lambda at: at.grace_max_us)
        return workload.grace_us if most is None else min(workload.grace_us, most)

    def reclaim_within_us(self, name: str) -> int:
        """Return how soon a queue wants back what it lends."""
        queue = self.tree.get(name)
        return queue.reclaim_within_us if queue is not None else 0

    def inherited(self, name: str, written: Callable[[Queue], int | None]) -> int | None:
        """Return a bound of evictions as it is `written` at a queue, or else above it."""
        at = self.tree.get(name)
        while at is not None:
            found = written(at)
            if found is not None:
                return found
            at = self.tree.get(at.parent)
        return None

    def most_hours_lost(self, name: str) -> int | None:
        """Return the device hours that work in a queue may lose in a day; None: any number."""
        return self.inherited(name, lambda at: at.eviction.device_hours_lost_per_day)

    # Slots ------------------------------------------------------------------------------------

    def borrowed(self, workload: Workload, accelerators: Collection[str]) -> int:
        """Return how many queues, from a workload's own up, hold more than their guarantee.

        That is on each of these accelerators; `NEVER_RETURNED` for work that cannot be returned.
        """
        if not self.returnable(workload):
            return NEVER_RETURNED
        for height, number in enumerate(self._paths.get(workload.queue, ())):
            for name in accelerators:
                bound = self._guarantee_on(number, name)
                if self._sum(self._used, number, bound) <= bound.units:
                    return height
        return len(self._paths.get(workload.queue, ()))

    def pin(self, queue: str, charges: tuple[Charge, ...], borrowed: int, sign: int) -> None:
        """Note who holds what on single nodes; see `Slots.pin`."""
        if self._speculating:
            self._undo.append(partial(self.slots.pin, queue, charges, borrowed, -sign))
        self.slots.pin(queue, charges, borrowed, sign)

    def missing_slots(self) -> dict[int, int]:
        """Return how many slots of each promise there are not, by its number in `slots`."""
        return self.slots.missing(self.guarantee) if self.slots.promises else {}

    def closed(self, queue: str, devices: int, allowed: BoolArray) -> frozenset[str]:
        """Return where a pod would be in the way of devices on one node; see `Slots.closed`."""
        return self.slots.closed(queue, devices, allowed, self.guarantee)

    def over_slots(self, before: Mapping[int, int], asked: Mapping[str, int]) -> OverQuota | None:
        """Return the promise of devices on one node that is broken more than it was before."""
        for number, missing in self.missing_slots().items():
            if missing > before.get(number, 0):
                promise = self.slots.promises[number]
                each = promise.devices * UNIT
                name = min(promise.accelerators)
                promised = self.guarantee(promise.queue, name).units // each * each
                mine = sum(units for a, units in asked.items() if a in promise.accelerators)
                left = promised - missing * each
                reason = Reason.PLACEABLE
                return OverQuota(reason, promise.queue, promise.word, left, mine, promised)
        return None

    # Rules ------------------------------------------------------------------------------------

    def limits(self, queue: str) -> tuple[Bound, ...]:
        """Return the limits of a queue itself."""
        return self._limits[self._number[queue]]

    def bounded(self, queue: str) -> bool:
        """Return whether there may be something that is never allowed in a queue."""
        return any(self._limits[number] or self._written[number] for number in self._paths[queue])

    def grants_type(self, workload: Workload) -> OverQuota | None:
        """Return the queue, from the workload's own up, that has no use for its type of work."""
        for number in self._paths[workload.queue]:
            queue = self.tree.queues[number]
            if workload.type not in queue.types:
                return OverQuota(Reason.TYPE, queue.name)
        return None

    def over_quota(
        self, queue: str, asked: Mapping[str, int], *, returnable: bool
    ) -> OverQuota | None:
        """Return the rule that the accounts as they are break, None if they break none.

        `asked` says how much of what is held, by accelerator, is on trial; only rules on these
        accelerators are looked at. Limits first, from the queue up, then what cannot be returned,
        then what is borrowed and lent.
        """
        over = self._over_limits(queue, asked)
        if over is None and not returnable:
            over = self._uncovered(queue, asked)
        if over is None:
            over = self.over_borrowing(queue, asked)
        return over or self.over_lending(queue, asked)

    def share_limits(self, one: str, other: str) -> bool:
        """Return whether a queue with a limit, also on what it borrows, is above both."""
        both = set(self._paths.get(one, ())) & set(self._paths.get(other, ()))
        return any(self._limits[number] or self._borrow[number] for number in both)

    def over_shared(self, one: str, other: str, asked: Mapping[str, int]) -> OverQuota | None:
        """Return the limit above both that is broken, of those that count what was asked."""
        for number in (each for each in self._paths[one] if each in self._paths[other]):
            for bounds, held in ((self._limits, self._held_of), (self._borrow, self._borrowed)):
                for bound in bounds[number]:
                    used = held(number, bound) if bound.counts(asked) else 0
                    if used > bound.units:
                        return self._over(Reason.KEPT_QUOTA, number, bound, used, asked)
        return None

    def _held_of(self, number: int, bound: Bound) -> int:
        return self._sum(self._used, number, bound)

    def _over_limits(self, queue: str, asked: Mapping[str, int]) -> OverQuota | None:
        for number in self._paths[queue]:
            for bound in self._limits[number]:
                used = self._sum(self._used, number, bound) if bound.counts(asked) else 0
                if used > bound.units:
                    return self._over(Reason.LIMIT, number, bound, used, asked)
        return None

    def _uncovered(self, queue: str, asked: Mapping[str, int]) -> OverQuota | None:
        found = (self._not_guaranteed(queue, name, asked) for name in sorted(asked))
        return next((over for over in found if over is not None), None)

    def dearest(self, over: OverQuota, asked: Collection[str]) -> tuple[str, ...]:
        """Return those of the asked accelerators that would have to be fewer to keep a rule.

        Where a rule counts by exchange rates, less of the dearest does most.
        """
        if over.accelerators != UNITS:
            counted = set(over.accelerators.split("|"))
            return tuple(name for name in sorted(asked) if name in counted)
        rates = self._rate_of
        return (min(asked, key=lambda name: (-rates.get(name, RATE_ONE), name)),)

    def over_limit(self, queue: str, accelerator: str, units: int) -> OverQuota | None:
        """Return the limit that so much more of an accelerator would exceed, from the queue up."""
        asked = {accelerator: units}
        for number in self._paths[queue]:
            for bound in self._limits[number]:
                if bound.counts(asked):
                    used = self._sum(self._used, number, bound) + self._count(bound, asked)
                    if used > bound.units:
                        return self._over(Reason.LIMIT, number, bound, used, asked)
        return None

    def never(
        self, queue: str, asked: tuple[tuple[str, int], ...], *, returnable: bool
    ) -> OverQuota | None:
        """Return the limit or guarantee as written that so much exceeds where nothing is held."""
        key = (queue, asked, returnable)
        if key not in self._never:
            if len(self._never) >= MOST_REMEMBERED:
                self._never.clear()
            self._never[key] = self._never_allowed(queue, dict(asked), returnable=returnable)
        return self._never[key]

    def _never_allowed(
        self, queue: str, asked: Mapping[str, int], *, returnable: bool
    ) -> OverQuota | None:
        columns = {self._column(name): units for name, units in asked.items()}
        kept = self._used, self._fixed, self._guarantees
        self._used, self._fixed = np.zeros_like(self._used), np.zeros_like(self._fixed)
        self._guarantees = self._written
        try:
            for column, units in columns.items():
                self._used[list(self._paths[queue]), column] = units
                self._fixed[list(self._paths[queue]), column] = units
            over = self._over_limits(queue, asked)
            return self._uncovered(queue, asked) if over is None and not returnable else over
        finally:
            self._used, self._fixed, self._guarantees = kept

    def debts(self) -> dict[tuple[str, str], int]:
        """Return by how many units each (kind of rule, queue and accelerators) is broken."""
        return {key: owed.over_units for key, owed in self.owed().items()}

    def owed(self) -> dict[tuple[str, str], Owed]:
        """Return what is owed, by kind of rule, and by queue and accelerators.

        What is kept free is owed once for each of the accelerators, whichever queues keep it.
        """
        found: dict[tuple[str, str], Owed] = {}
        for number, queue in enumerate(self.tree.queues):
            for rule, bounds, held in (
                ("limit", self._limits, partial(self._sum, self._used)),
                ("borrowing", self._borrow, self._borrowed),
            ):
                for bound in bounds[number]:
                    over = held(number, bound) - bound.units
                    if over > 0:
                        owed = Owed(rule, queue.name, bound.name, over, bound.units)
                        found[rule, f"{queue.name}\0{bound.name}"] = owed
        for (name, accelerator), uncovered in self.uncovered().items():
            found["guarantee", f"{name}\0{accelerator}"] = Owed(
                "guarantee",
                uncovered.queue,
                uncovered.accelerators,
                uncovered.used_units - uncovered.bound_units,
                uncovered.bound_units,
            )
        for number, missing in self.missing_slots().items():
            promise = self.slots.promises[number]
            each = promise.devices * UNIT
            promised = self.guarantee(promise.queue, min(promise.accelerators)).units // each * each
            owed = Owed("placeable", promise.queue, promise.word, missing * each, promised)
            found["placeable", f"{promise.queue}\0{promise.word}"] = owed
        for bound in self._kept_of:
            over = self._too_little_free(bound)
            if over:
                keeper = self.tree.queues[self._keeper(bound)].name
                owed = Owed("lending", keeper, bound.name, over, self._kept(0, bound))
                found["lending", bound.name] = owed
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
        devices = self._fleet.static_changes.head
        if self._ranked_by[0] is not self._guarantees or self._ranked_by[1] != devices:
            self._ranked_by = self._guarantees, devices
            self._ranks.clear()
        known = self._ranks.get(number)
        if known is None:
            known = self._ranks[number] = {}
        rank = known.get(accelerators)
        if rank is None:
            below = any(
                self._sum(self._used, number, bound) < bound.units
                for bound in self._guarantees[number]
                if not accelerators or bound.counts(accelerators)
            )
            rank = known[accelerators] = (not below, self._share(number))
        return (rank[0], rank[1] * LOWERED_PART) if queue in self.lowered else rank

    def _share(self, number: int) -> int:
        """Return the dominant share of a queue for its weight, past use included."""
        held = self._used[number].tolist()
        if self.past is not None:
            past = self.past.average(number, held)
            held = [now + before for now, before in zip(held, past, strict=True)]
        return dominant_share(self._fleet, enumerate(held), max(1, self.tree.queues[number].weight))

    def rank_of_user(self, queue: str, user: str) -> tuple[bool, int]:
        """Return what a user is ordered by in a queue in which users have their turns."""
        return True, dominant_share(self._fleet, self.users.held(queue, user))
