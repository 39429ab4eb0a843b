"""What every queue is guaranteed at present, and whether that covers what cannot be returned.

A guarantee is worth what is written, as long as the fleet is large enough. A device that is out of
order, or that its node no longer lists, counts for `shrink_after_us` (the root's) as if it were
there; one whose node is gone counts no longer. Where the fleet is too small, guarantees shrink (see
`shrinking`). What is used inside a guarantee stays inside while it runs, and no more than that: use
that comes later is no part of a guarantee that has shrunk. A queue that is being deleted is
guaranteed what it used when that was written, and less as its work ends.

All this is brought up to date when a cycle decides, not between, so that everything that one cycle
decides is judged alike.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from shoal.core.arrays.fleet import Fleet
from shoal.core.tenancy.accounts import Accounts, Bound, bounds_of, guarantee_of
from shoal.core.tenancy.shrinking import Shrinking
from shoal.model.fractions import RATE_ONE, UNIT
from shoal.model.node import Node
from shoal.model.queue import QueueTree
from shoal.model.verdict import OverQuota, Reason

Vanished = tuple[str, str, str, int]
"""Node, device, accelerator, and since when the device is missed."""

Shrunk = tuple[str, str, int]
"""Queue, accelerators, and the units that are left of the guarantee."""

Uncovered = Mapping[tuple[str, str], OverQuota]
"""By queue and accelerator: the guarantee nearest to it that is too small."""

Needs = dict[tuple[int, Bound], int]
"""How large guarantees would have to be, in units, by queue and guarantee."""


class Guarantees(Accounts):
    """Accounts, with what their queues are guaranteed."""

    def __init__(self, fleet: Fleet) -> None:
        self.tree = QueueTree()
        self._written: list[tuple[Bound, ...]] = []
        self._guarantees: list[tuple[Bound, ...]] = []
        super().__init__(fleet)
        self._vanished: dict[tuple[str, str], tuple[str, int]] = {}
        """By node and device: the accelerator, and since when it is missed."""
        self._news = False
        """Whether anything happened since guarantees were brought up to date."""
        self.changes = 0
        """How often guarantees have come to be worth more or less."""

    def _lay_out(self, tree: QueueTree) -> None:
        before = self._worth()
        super()._lay_out(tree)
        self._written = [bounds_of(guarantee_of(tree, queue)) for queue in tree.queues]
        self._guarantees = [
            tuple(
                Bound(
                    b.name, b.accelerators, min(b.units, before.get((queue.name, b.name), b.units))
                )
                for b in bounds
            )
            for queue, bounds in zip(tree.queues, self._written, strict=True)
        ]
        closing = {n for n, queue in enumerate(tree.queues) if queue.closing}
        self._closing = {
            number
            for name, number in self._number.items()
            if closing and not closing.isdisjoint(self._paths[name])
        }
        self.counts_several = any(
            bound.rated or len(bound.accelerators) > 1 for b in self._written for bound in b
        )
        """Whether any guarantee counts several accelerators together."""
        paths = [self._paths[queue.name] for queue in tree.queues]
        self._shrinking = Shrinking(self._written, self._children, paths, self._weight)
        self._shrink_after_us = next(
            (queue.shrink_after_us for queue in tree.queues if not queue.parent), 0
        )

    # What a guarantee is worth ------------------------------------------------------------------

    def guarantee(self, queue: str, accelerator: str) -> Bound:
        """Return what a queue is guaranteed that counts this accelerator; perhaps nothing.

        It is what the guarantee is worth at present, less than is written where the fleet is small.
        """
        return self._guarantee_on(self._number[queue], accelerator)

    def closing(self, queue: str) -> str:
        """Return the queue, itself or one above it, that is being deleted; empty if none is."""
        for number in self._paths.get(queue, ()):
            if self.tree.queues[number].closing:
                return self.tree.queues[number].name
        return ""

    def happened(self) -> None:
        """Note that something happened since guarantees were brought up to date."""
        self._news = bool(self.tree.queues)

    def node_changed(self, old: Node | None, node: Node) -> None:
        """Note which devices of a node are missed: out of order, or no longer listed."""
        lost = self._fleet.lost_devices.get(node.name, frozenset())
        listed = {device.name for device in node.devices}
        works = listed - lost
        for key in [each for each in self._vanished if each[0] == node.name]:
            shrunk = self._vanished[key][1] + self._shrink_after_us <= self.now_us
            if key[1] in works or (shrunk and key[1] not in listed):
                del self._vanished[key]
        for device in (*node.devices, *(old.devices if old else ())):
            if device.name not in works:
                missed = (device.accelerator, self.now_us)
                self._vanished.setdefault((node.name, device.name), missed)

    def node_gone(self, name: str) -> None:
        """Note that a node is gone: its devices are missed no longer."""
        for key in [each for each in self._vanished if each[0] == name]:
            del self._vanished[key]

    def shrink_next_us(self) -> int | None:
        """Return when time alone may make guarantees smaller, None if it will not."""
        times_us = (since_us + self._shrink_after_us for _, since_us in self._vanished.values())
        return min((at_us for at_us in times_us if at_us > self.now_us), default=None)

    def bring_up_to_date(self) -> bool:
        """Let guarantees be worth what they are now; return whether that is anything new.

        That is done before the first decision of a cycle, and only then.
        """
        if not self._news:
            return False
        self._news = False
        before, self._guarantees = self._guarantees, self._worth_now()
        if before == self._guarantees:
            return False
        self.changes += 1
        return True

    def _worth_now(self) -> list[tuple[Bound, ...]]:
        capacity = {
            name: self._fleet.working_of(name) * UNIT for name in self._fleet.accelerators()
        }
        for accelerator, since_us in self._vanished.values():
            if since_us + self._shrink_after_us > self.now_us:
                capacity[accelerator] = capacity.get(accelerator, 0) + UNIT
        if not self._closing and self._shrinking.fits(capacity):
            return self._written
        floors = [
            tuple(min(bound.units, self._sum(self._used, number, bound)) for bound in bounds)
            for number, bounds in enumerate(self._guarantees)
        ]
        sizes = [
            tuple(
                Bound(b.name, b.accelerators, floors[number][index])
                for index, b in enumerate(bounds)
            )
            if number in self._closing
            else bounds
            for number, bounds in enumerate(self._written)
        ]
        return self._shrinking.shrunk(capacity, floors, sizes)

    def _worth(self) -> dict[tuple[str, str], int]:
        """Return what is left of the guarantees that are worth less than is written."""
        return {
            (queue.name, bound.name): bound.units
            for queue, bounds, written in zip(
                self.tree.queues, self._guarantees, self._written, strict=True
            )
            for bound, full in zip(bounds, written, strict=True)
            if bound.units < full.units
        }

    def remembered(self) -> tuple[tuple[Vanished, ...], tuple[Shrunk, ...]]:
        """Return the devices that are missed, and what is left of guarantees that have shrunk."""
        vanished = tuple((*key, *self._vanished[key]) for key in sorted(self._vanished))
        shrunk = tuple((*key, units) for key, units in sorted(self._worth().items()))
        return vanished, shrunk

    def remember(self, vanished: tuple[Vanished, ...], shrunk: tuple[Shrunk, ...]) -> None:
        """Take in what was remembered."""
        self._vanished = {(node, device): (name, us) for node, device, name, us in vanished}
        left = {(queue, word): units for queue, word, units in shrunk}
        self._guarantees = [
            tuple(replace(b, units=left.get((queue.name, b.name), b.units)) for b in bounds)
            for queue, bounds in zip(self.tree.queues, self._written, strict=True)
        ]

    # What it covers -----------------------------------------------------------------------------

    def uncovered(self) -> Uncovered:
        """Return what is held that cannot be returned and that guarantees do not cover, and why.

        Where a queue holds none of an accelerator, there is nothing to cover, whatever its share of
        a guarantee on several is used for.
        """
        names = self._fleet.accelerators()
        known: Needs = {}
        return {
            (queue, name): over
            for queue, path in self._paths.items()
            for name in names
            if self._fixed[path[0], self._column(name)]
            and self._own_fixed(path[0], frozenset({self._column(name)}), rated=False)
            if (over := self._not_guaranteed(queue, name, {}, known)) is not None
        }

    def over_others(
        self, queue: str, asked: Mapping[str, int], before: Uncovered
    ) -> OverQuota | None:
        """Return the guarantee that covers less than `before` of what else is held.

        What was asked is covered itself, but where a guarantee counts several accelerators it may
        be so by one further up that does not count what the nearer one has covered until now.
        """
        for (holder, name), over in self.uncovered().items():
            known = before.get((holder, name))
            if name in asked and holder == queue:
                continue
            if known is not None and known.used_units >= over.used_units:
                continue
            for number in self._paths[holder]:
                bound = self._guarantee_on(number, name)
                needed = self._needed_of(number, bound)
                if number in self._paths[queue] and bound.counts(asked) and needed > bound.units:
                    return self._over(Reason.GUARANTEE, number, bound, needed, asked)
        return None

    def _not_guaranteed(
        self,
        queue: str,
        accelerator: str,
        asked: Mapping[str, int],
        known: Needs | None = None,
    ) -> OverQuota | None:
        """Return why what cannot be returned is not covered by guarantees, from the queue up.

        `known` is filled with what queues need while nothing is charged.
        """
        known = {} if known is None else known
        first: OverQuota | None = None
        for number in self._paths[queue]:
            bound = self._guarantee_on(number, accelerator)
            needed = known.get((number, bound))
            if needed is None:
                needed = known[number, bound] = self._needed_of(number, bound)
            if needed <= bound.units:
                return None
            first = first or self._over(Reason.GUARANTEE, number, bound, needed, asked)
        return first

    def _needed_of(self, number: int, bound: Bound) -> int:
        """Return how large a guarantee of a queue would have to be, in units, rounded up."""
        return -(-self._needed(number, self._columns(bound), bound.rated) // RATE_ONE)

    def _needed(self, number: int, columns: frozenset[int], rated: bool) -> int:  # noqa: FBT001
        """Return how large a guarantee of a queue on some accelerators would have to be.

        It covers what cannot be returned in the queue itself, and what every child lays claim to.
        In thousandths of a unit.
        """
        claimed = sum(self._claimed(child, columns, rated) for child in self._children[number])
        return claimed + self._own_fixed(number, columns, rated=rated)

    def _own_fixed(self, number: int, columns: frozenset[int], *, rated: bool) -> int:
        """Return what cannot be returned in a queue itself, in thousandths of a unit.

        Work waits in leaves, but a queue may have come to be above others, or to have closing ones
        below it, while there was work in it.
        """
        own = self._fixed[number]
        if children := self._children[number]:
            own = np.maximum(own - self._fixed[children].sum(axis=0), 0)
        return sum(
            int(own[column]) * (int(self._rates[column]) if rated else RATE_ONE)
            for column in columns
        )

    def _claimed(self, number: int, columns: frozenset[int], rated: bool) -> int:  # noqa: FBT001
        """Return what a queue lays claim to of a guarantee above it, in thousandths of a unit.

        It is the larger of what it needs and what it was promised. Devices that were promised count
        by exchange rates as they may come to be used: on the dearest accelerator.
        """
        claimed = 0
        left = columns
        for bound in self._guarantees[number]:
            mine = self._columns(bound)
            both = mine & columns
            if not both:
                continue
            left -= mine
            promised = bound.units * RATE_ONE
            if bound.rated != rated:
                promised = self._converted(promised, both, rated)
            claimed += max(promised, self._needed(number, both, rated))
        return claimed + (self._needed(number, left, rated) if left else 0)

    def _converted(self, milli: int, columns: frozenset[int], rated: bool) -> int:  # noqa: FBT001
        """Return what thousandths of a unit count at most under a bound of the other sort."""
        rates = self._rates[sorted(columns)]
        if rated:
            return -(-milli * int(rates.max()) // RATE_ONE)
        return -(-milli * RATE_ONE // max(1, int(rates.min())))

    def _columns(self, bound: Bound) -> frozenset[int]:
        if bound.rated:
            return frozenset(range(1, self._width))
        return frozenset(self._column(name) for name in bound.accelerators)

    def _guarantee_on(self, number: int, accelerator: str) -> Bound:
        for bound in self._guarantees[number]:
            if bound.counts((accelerator,)):
                return bound
        return Bound(accelerator, (accelerator,), 0)

    def _over(
        self, reason: Reason, number: int, bound: Bound, used: int, asked: Mapping[str, int]
    ) -> OverQuota:
        mine = self._count(bound, asked)
        name = self.tree.queues[number].name
        return OverQuota(reason, name, bound.name, used - mine, mine, bound.units)
