"""Accounts of the tenant tree, and the bounds that quotas set on them.

Every account includes those of the queues below, so a bound binds them all. A bound counts devices
of some accelerators, or devices of the reference accelerator: then all accelerators count, by their
exchange rates. Sums are exact: they are made in thousandths of a unit and rounded up once, so what
is a thousandth of a unit over its bound is over it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from shoal.core.arrays.charges import Charge
from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.journal import IntArray
from shoal.core.tenancy.dominance import UserAccounts
from shoal.core.tenancy.past import Past, Written
from shoal.model.fractions import RATE_ONE, UNIT
from shoal.model.queue import UNITS, Order, Queue, QueueTree, Quota


@dataclass(frozen=True, slots=True)
class Bound:
    """A quota on some accelerators together; without any, on all by their exchange rates."""

    name: str
    accelerators: tuple[str, ...]
    units: int

    @property
    def rated(self) -> bool:
        """Whether it counts by exchange rates."""
        return not self.accelerators

    def counts(self, accelerators: Collection[str]) -> bool:
        """Return whether any of these accelerators counts."""
        if self.rated:
            return bool(accelerators)
        return not set(accelerators).isdisjoint(self.accelerators)

    def within(self, other: "Bound") -> bool:
        """Return whether everything that counts here also counts there."""
        return other.rated or (not self.rated and set(self.accelerators) <= set(other.accelerators))


def bounds_of(quota: Iterable[tuple[str, int]]) -> tuple[Bound, ...]:
    """Return what is written as devices of accelerators, of groups of them (`A|B`), or as units."""
    return tuple(
        Bound(word, () if word == UNITS else tuple(word.split("|")), devices * UNIT)
        for word, devices in quota
    )


class Accounts:
    """What is held in every queue and below it. Whoever decides may undo what it charged."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._undo: list[Callable[[], None]] = []
        self._speculating = False
        self.now_us = 0
        self.past: Past | None = None
        """What was held before now, where it counts in the order between queues."""
        self._past_before: Written = ()
        self._lay_out(QueueTree())

    def _lay_out(self, tree: QueueTree) -> None:
        """Begin new accounts for a tree."""
        before, written = self.past, self.past_written()
        self.tree = tree
        names = [queue.name for queue in tree.queues]
        self._number = {name: number for number, name in enumerate(names)}
        self._paths = {
            name: tuple(self._number[n] for n in reversed(tree.path(name))) for name in names
        }
        self._names = {name: tuple(reversed(tree.path(name))) for name in names}
        children: dict[str, list[int]] = {}
        for number, queue in enumerate(tree.queues):
            children.setdefault(queue.parent, []).append(number)
        self._children = {number: children.get(name, []) for name, number in self._number.items()}
        self._outside = (len(names),)
        """Where work is charged whose queue the tree does not have."""
        self._rate_of = dict(tree.rates)
        self._used: IntArray = np.zeros((len(names) + 1, 8), dtype=np.int64)
        """[queue, accelerator id]: what is held."""
        self._fixed: IntArray = np.zeros_like(self._used)
        """[queue, accelerator id]: the part of it that cannot be returned."""
        self._on_device: dict[tuple[int, int, str], int] = {}
        """By queue, accelerator id and device: units charged, before they are cut at the whole."""
        self._fixed_on_device: dict[tuple[int, int, str], int] = {}
        self._rates: IntArray = np.full(8, RATE_ONE, dtype=np.int64)
        """[accelerator id]: its exchange rate, in thousandths."""
        for name in (*self._rate_of, *sorted(_named(tree))):
            self._column(name)
        self._ranks: dict[int, dict[tuple[str, ...], tuple[bool, int]]] = {}
        """By queue and accelerators: its rank, until something of it changes."""
        self.users = UserAccounts(q.name for q in tree.queues if q.order is Order.FAIR)
        half_life_us = tree.queues[0].usage_half_life_us if tree.queues else None
        ids = self._fleet.accelerator_ids
        self.past = Past(half_life_us, self.now_us, names, ids) if half_life_us else None
        if before is not None and self.past is not None:
            self._past_before = before.converted(written, self.past)

    # Past use ---------------------------------------------------------------------------------

    def remember_past(self) -> None:
        """Remember past use across a change of the tree; call it when all is charged again."""
        if self.past is not None:
            self.past.restore(self._past_before, self.now_us, self._used)
            self._ranks.clear()
        self._past_before = ()

    def clock(self, now_us: int) -> None:
        """Let it be that time."""
        self.now_us = max(now_us, self.now_us)
        if self.past is not None:
            self.past.clock(now_us)
            self._ranks.clear()

    def past_written(self) -> Written:
        """Return everything that is remembered of past use."""
        return () if self.past is None else self.past.written(self._used)

    def restore_past(self, written: Written, as_of_us: int) -> None:
        """Let queues, whose accounts are as they are, have this past use and no other."""
        if self.past is not None:
            self.past.restore(written, as_of_us, self._used)
            self._ranks.clear()

    def past_units(self, queue: str) -> dict[str, int]:
        """Return past use as the order counts it, by accelerator; nothing where it does not."""
        if self.past is None:
            return {}
        number = self._number[queue]
        past = self.past.average(number, self._used[number].tolist())
        ids = self._fleet.accelerator_ids.items()
        return {name: past[column] for name, column in ids if any(past[column : column + 1])}

    # Charging ---------------------------------------------------------------------------------

    def undo(self, back_to: int = 0) -> None:
        """Undo what was charged in speculation, down to the first `back_to` charges."""
        while len(self._undo) > back_to:
            self._undo.pop()()

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
        book = partial(self._book, queue, charges, fixed=fixed, user=user)
        if self._speculating:
            self._undo.append(partial(book, -sign))
        book(sign)

    def _book(
        self, queue: str, charges: tuple[Charge, ...], sign: int, *, fixed: bool, user: str
    ) -> None:
        booked = []
        for charge in charges:
            column, units = self._column(charge.accelerator), sign * charge.units
            self.users.book(queue, user, column, units)
            booked.append((column, charge.device, units))
        for number in self._paths.get(queue, self._outside):
            self._ranks.pop(number, None)
            for column, change in _grown(self._on_device, number, booked).items():
                self._used[number, column] += change
                if self.past is not None and number < len(self.tree.queues):
                    self.past.book(number, column, change)
            if fixed:
                for column, change in _grown(self._fixed_on_device, number, booked).items():
                    self._fixed[number, column] += change

    # Reading ----------------------------------------------------------------------------------

    def path(self, queue: str) -> tuple[str, ...]:
        """Return a queue and those above it; nothing for one that the tree does not have."""
        return self._names.get(queue, ())

    def used_units(self, queue: str) -> dict[str, int]:
        """Return what a queue and those below it hold, by accelerator."""
        number = self._number[queue]
        ids = self._fleet.accelerator_ids.items()
        held = {
            name: int(self._used[number, column]) for name, column in ids if column < self._width
        }
        return {name: units for name, units in held.items() if units}

    def held(self, queue: str, bound: Bound) -> int:
        """Return the units that a queue and those below it hold of what a bound counts."""
        return self._sum(self._used, self._number[queue], bound)

    def accounts(self) -> tuple[IntArray, IntArray]:
        """Return copies of what is held and of the part that cannot be returned, to compare."""
        return self._used.copy(), self._fixed.copy()

    def _sum(self, account: IntArray, number: int, bound: Bound) -> int:
        """Return what is on an account of what a bound counts, in units, rounded up."""
        if len(bound.accelerators) == 1:
            return int(account[number, self._column(bound.accelerators[0])])
        if bound.rated:
            return -(-int(account[number] @ self._rates) // RATE_ONE)
        columns = [self._column(name) for name in bound.accelerators]
        return int(account[number, columns].sum())

    def _weight(self, bound: Bound, accelerator: str) -> int:
        """Return what a unit of an accelerator counts under a bound, in thousandths."""
        return self._rate_of.get(accelerator, RATE_ONE) if bound.rated else RATE_ONE

    def _count(self, bound: Bound, units: Mapping[str, int]) -> int:
        """Return what units of accelerators count under a bound together, rounded up."""
        milli = sum(
            each * self._weight(bound, name)
            for name, each in units.items()
            if bound.counts((name,))
        )
        return -(-milli // RATE_ONE)

    @property
    def _width(self) -> int:
        return int(self._used.shape[1])

    def _column(self, accelerator: str) -> int:
        column = self._fleet.accelerator_id(accelerator)
        while column >= self._width:
            self._used = np.concatenate((self._used, np.zeros_like(self._used)), axis=1)
            self._fixed = np.concatenate((self._fixed, np.zeros_like(self._fixed)), axis=1)
            more = np.full(len(self._rates), RATE_ONE, dtype=np.int64)
            self._rates = np.concatenate((self._rates, more))
        if accelerator in self._rate_of:
            self._rates[column] = self._rate_of[accelerator]
        return column


def _grown(
    units_of: dict[tuple[int, int, str], int], number: int, booked: list[tuple[int, str, int]]
) -> dict[int, int]:
    """Add units, by column and device, to what a queue has; return how much more that counts.

    Of each device it has one at most.
    """
    grown: dict[int, int] = {}
    for column, device, units in booked:
        key = number, column, device
        before = units_of.get(key, 0)
        after = units_of[key] = before + units
        if not after:
            del units_of[key]
        change = (min(UNIT, after)) - (min(UNIT, before))
        grown[column] = grown.get(column, 0) + change
    return grown


def guarantee_of(tree: QueueTree, queue: Queue) -> Quota:
    """Return a queue's guarantee; where none is written, that of its children together.

    Words that overlap become one, and beside `units` all become units, at the rate of the dearest
    accelerator that they may be held on.
    """
    if queue.guarantee is not None:
        return queue.guarantee
    together: dict[str, int] = {}
    for child in tree.children(queue.name):
        for word, devices in guarantee_of(tree, child):
            together[word] = together.get(word, 0) + devices
    if UNITS in together and len(together) > 1:
        rates = dict(tree.rates)
        milli = sum(
            devices * max(RATE_ONE if n == UNITS else rates.get(n, RATE_ONE) for n in w.split("|"))
            for w, devices in together.items()
        )
        return ((UNITS, -(-milli // RATE_ONE)),)
    while True:
        for word in sorted(together):
            names = set(word.split("|"))
            others = [w for w in together if w != word and not names.isdisjoint(w.split("|"))]
            if others:
                devices = sum(together.pop(each) for each in (word, *others))
                joined = "|".join(sorted(names.union(*(each.split("|") for each in others))))
                together[joined] = together.get(joined, 0) + devices
                break
        else:
            return tuple(sorted(together.items()))


def _named(tree: QueueTree) -> set[str]:
    """Return the accelerators that the quotas of a tree name."""
    return {
        name
        for queue in tree.queues
        for quota in (queue.guarantee or (), queue.limit, queue.borrow, queue.lend, queue.placeable)
        for word, _ in quota
        if word != UNITS
        for name in word.split("|")
    }
