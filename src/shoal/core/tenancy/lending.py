"""How much queues may borrow and lend.

What a queue borrows is what it and those below it hold beyond its guarantee. What it lends is what
others hold of its guarantee; so of what it does not lend, the part that it does not use has to stay
free. A guarantee of four devices of which one is lent keeps three free while nothing is used, one
free while two are used, and none from three on.

Devices that are kept free for a queue are free for everyone in it. Queues inside it that lend less
keep theirs from one another as well: what a queue keeps is the larger of its own and what those
right below it keep together. Nobody may start who would leave less free, on the accelerators of one
guarantee, than is kept of guarantees on these.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from shoal.core.tenancy.accounts import Bound, bounds_of
from shoal.core.tenancy.guarantees import Guarantees
from shoal.model.fractions import RATE_ONE, UNIT
from shoal.model.queue import QueueTree
from shoal.model.verdict import OverQuota, Reason


class Lending(Guarantees):
    """Guarantees, with the limits on borrowing and lending."""

    def _lay_out(self, tree: QueueTree) -> None:
        super()._lay_out(tree)
        self._borrow = [bounds_of(queue.borrow) for queue in tree.queues]
        self._lend = [bounds_of(queue.lend) for queue in tree.queues]
        self._keepers = {
            above
            for number, bounds in enumerate(self._lend)
            if bounds
            for above in self._paths[tree.queues[number].name]
        }
        """Queues that lend up to a limit, and those above them."""
        kept = {
            bound.name: bound
            for number, lent in enumerate(self._lend)
            for bound in self._written[number]
            if any(bound.within(each) for each in lent)
        }
        self._kept_of = [kept[name] for name in sorted(kept)]
        """Guarantees that are not lent without limit."""

    # Borrowing --------------------------------------------------------------------------------

    def over_borrowing(self, queue: str, asked: Mapping[str, int]) -> OverQuota | None:
        """Return the limit on borrowing that is broken by what was asked, from the queue up."""
        for number in self._paths[queue]:
            for bound in self._borrow[number]:
                after = self._borrowed(number, bound) if bound.counts(asked) else 0
                if after <= bound.units:
                    continue
                with self._without(queue, asked):
                    before = self._borrowed(number, bound)
                if after > before:
                    name = self.tree.queues[number].name
                    used = after - before
                    reason = Reason.BORROW_LIMIT
                    return OverQuota(reason, name, bound.name, before, used, bound.units)
        return None

    def _borrowed(self, number: int, bound: Bound) -> int:
        """Return what a queue holds beyond its guarantee of what a bound counts, in its units.

        A guarantee covers the dearest of what it counts first.
        """
        held = {
            name: int(self._used[number, column])
            for name, column in self._fleet.accelerator_ids.items()
            if column < self._width and bound.counts((name,))
        }
        for guarantee in self._guarantees[number]:
            left = guarantee.units * RATE_ONE
            names = [name for name in held if guarantee.counts((name,))]
            for name in sorted(names, key=lambda n: (-self._weight(bound, n), n)):
                weight = self._weight(guarantee, name)
                covered = min(held[name], left // weight if weight else held[name])
                held[name] -= covered
                left -= covered * weight
        return self._count(bound, held)

    # Lending ----------------------------------------------------------------------------------

    def over_lending(self, queue: str, asked: Mapping[str, int]) -> OverQuota | None:
        """Return the limit on lending that is broken by what was asked."""
        for bound in self._kept_of:
            after = self._too_little_free(bound) if bound.counts(asked) else 0
            if not after:
                continue
            with self._without(queue, asked):
                before = self._too_little_free(bound)
            if after > before:
                return self._over_lending(queue, bound, asked)
        return None

    def _over_lending(self, queue: str, bound: Bound, asked: Mapping[str, int]) -> OverQuota:
        keeper = self._keeper(bound, frozenset(self._paths[queue]))
        mine = self._count(bound, asked)
        return OverQuota(
            Reason.LEND_LIMIT,
            self.tree.queues[keeper].name,
            bound.name,
            self._held_by_all(bound) - mine,
            mine,
            max(0, self._capacity_of(bound) - self._kept(0, bound)),
        )

    def _keeper(self, bound: Bound, path: frozenset[int] = frozenset()) -> int:
        """Return the queue that keeps most of what a bound counts, if there is one off a path."""
        return min(
            (number for number in sorted(self._keepers) if self._lend[number]),
            key=lambda number: (number in path, -self._keeps(number, bound)),
        )

    def _too_little_free(self, bound: Bound) -> int:
        """Return how many units of what a bound counts are kept, but not free."""
        free = self._capacity_of(bound) - self._held_by_all(bound)
        return max(0, self._kept(0, bound) - max(0, free))

    def _kept(self, number: int, bound: Bound) -> int:
        """Return the units that have to be free for a queue, of guarantees within a bound."""
        if number not in self._keepers:
            return 0
        below = sum(self._kept(child, bound) for child in self._children[number])
        return max(below, self._keeps(number, bound))

    def _keeps(self, number: int, bound: Bound) -> int:
        """Return the units that a queue itself does not lend and does not use."""
        kept = 0
        for lent in self._lend[number]:
            idle = sum(
                max(0, each.units - self._sum(self._used, number, each))
                * (RATE_ONE if each.rated == bound.rated else self._dearest(each))
                for each in self._guarantees[number]
                if each.within(lent) and each.within(bound)
            )
            away = lent.units * RATE_ONE
            if lent.rated and not bound.rated:
                away = away * RATE_ONE // self._dearest(bound)
            kept += max(0, idle - away)
        return -(-kept // RATE_ONE)

    def _dearest(self, bound: Bound) -> int:
        return max(self._rate_of.get(name, RATE_ONE) for name in bound.accelerators)

    def _held_by_all(self, bound: Bound) -> int:
        """Return the units held of what a bound counts, by whomever."""
        outside = self._sum(self._used, self._outside[0], bound)
        return self._sum(self._used, 0, bound) + outside

    def _capacity_of(self, bound: Bound) -> int:
        """Return the units in working order of what a bound counts."""
        names = self._fleet.accelerators()
        return self._count(bound, {name: self._fleet.working_of(name) * UNIT for name in names})

    @contextmanager
    def _without(self, queue: str, asked: Mapping[str, int]) -> Iterator[None]:
        """Let the accounts be what they were before a queue was charged what it asked."""
        rows = list(self._paths[queue])
        columns = {self._column(name): units for name, units in asked.items()}
        for column, units in columns.items():
            self._used[rows, column] -= units
        try:
            yield
        finally:
            for column, units in columns.items():
                self._used[rows, column] += units
