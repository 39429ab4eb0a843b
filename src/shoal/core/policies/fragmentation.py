"""The default policy: place where the least is lost of what the expected demand would pay.

Every node has a value, what the expected demand would pay for what is left of it (`values`), and
something more while it has room for pods that few nodes could take (`rooms`). A pod goes where the
value lost is least. To that come a charge for accelerators which others ask for by name, and a
handicap that grows along one fixed random order of nodes, so that of nodes that are nearly as good
the first is taken, and pods gather on few of them.

The prices come from a linear program over fleet and demand; they enter the world as an event. This
is bid-price control, known from revenue management (Talluri and van Ryzin, 2004, chapter 3),
applied to nodes. Everything here is in integers.

A node that mixes accelerators counts its whole devices as being of its first one's kind.
"""

import numpy as np
from numpy.typing import NDArray

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.journal import IntArray
from shoal.core.arrays.labels import BoolArray, Rows
from shoal.core.arrays.shape import Shape
from shoal.core.demand import Prices
from shoal.core.policies.pieces import LeafRule, TieRule
from shoal.core.policies.rooms import Rooms
from shoal.core.policies.values import CELLS, LeafKind, Values
from shoal.model.node import WHOLE_COMPUTE_MILLI
from shoal.model.request import Request

HANDICAP = 250_000
"""By how much the last node of the random order is behind the first: a quarter of a device."""

NOTHING = Request()
"""A pod that takes nothing."""

IndexArray = NDArray[np.intp]


class Fragmentation:
    """Scores of the default policy; see the module."""

    vectorised = False
    leaf_rule = LeafRule.SCORED
    tie_rule = TieRule.FIRST
    handicap = HANDICAP

    def __init__(self, prices: Prices) -> None:
        self._values = Values(prices)
        self._rooms = Rooms(prices)
        self._nodes: NodeValues | None = None

    def score(
        self, fleet: Fleet, shape: Shape, rows: Rows, fits: BoolArray | None
    ) -> tuple[IntArray, IntArray | None]:
        """Score by value lost, in thousandths of a price unit; see `pieces.Scorer`."""
        if self._nodes is None:
            self._nodes = NodeValues(fleet, self._values, self._rooms)
        nodes = self._nodes
        nodes.refresh()
        at = np.arange(fleet.size)[rows] if isinstance(rows, slice) else rows
        request = shape.request
        devices = request.devices
        cost = self._values.hosts.cost(request.cpu_milli, request.memory_mib)
        left = nodes.offers[at]
        if fits is None and not devices.count:
            left -= cost
            return _least(left) + nodes.rooms(at, request, 0) - nodes.value[at], _no_leaf(at)
        if fits is None or devices.whole:
            left -= nodes.whole_devices(at, devices.count, cost)
            kept = nodes.rooms(at, request, devices.count)
            charge = nodes.charge[nodes.kind_of_whole[at]] * devices.count
            return _least(left) + kept - nodes.value[at] - charge, _no_leaf(at)
        left -= cost
        if devices.count == 1:
            return nodes.score_share(shape, at, fits, left)
        return nodes.score_shares(shape, at, fits, left), _no_leaf(at)


def _no_leaf(rows: IndexArray) -> IntArray:
    return np.zeros(len(rows), dtype=np.int64)


def _least(offers: IntArray) -> IntArray:
    least: IntArray = offers.min(axis=-1)
    return least


class NodeValues:
    """Values of every node and leaf, brought up to date where the fleet changed."""

    def __init__(self, fleet: Fleet, values: Values, rooms: Rooms) -> None:
        self._fleet = fleet
        self._values = values
        self._rooms = rooms
        self._kinds: dict[tuple[int, ...], int] = {}
        prices = len(values.hosts.cpu)
        self._by_compute: IntArray = np.zeros((1, CELLS + 1, prices), dtype=np.int64)
        """[kind, cells free, host price]; kind 0 is no leaf."""
        self._by_memory: IntArray = np.zeros((1, CELLS + 1, prices), dtype=np.int64)
        self._together: IntArray = np.zeros((1, 1, prices), dtype=np.int64)
        """[kind, whole leaves free, host price]."""
        self.charge: IntArray = np.zeros(1, dtype=np.int64)
        """[kind]: charge for the scarcity of a whole device."""
        self._reserves: IntArray = rooms.on("")[None] * 0
        """[kind, class with rooms]: what a room is worth."""
        self._memory_matters = False
        """Whether any kind has a table by memory."""
        self._allocate()

    def _allocate(self) -> None:
        fleet = self._fleet
        self.offers: IntArray = np.zeros((fleet.capacity, self._by_compute.shape[2]), np.int64)
        """[row, host price]: what the row would bring."""
        self.value: IntArray = np.zeros(fleet.capacity, dtype=np.int64)
        """[row]: the least of its offers, and what it is worth as a room."""
        self.kind_of_whole: IntArray = np.zeros(fleet.capacity, dtype=np.int64)
        """[row]: kind of the row's first undivided leaf."""
        self._kind: IntArray = np.zeros((fleet.capacity, fleet.width), dtype=np.int64)
        self._width = fleet.width
        self._read = -1
        self._static_read = -1

    def refresh(self) -> None:
        """Bring everything up to date with the fleet."""
        fleet = self._fleet
        if len(self.value) != fleet.capacity or self._width != fleet.width:
            self._allocate()
        if self._static_read != fleet.static_changes.head:
            self._read_kinds()
        if self._read == fleet.changes.head:
            return
        rows = fleet.changes.since(self._read) if self._read >= 0 else None
        if rows is None:
            rows = np.arange(fleet.size)
        elif len(rows) > 1:
            rows = np.unique(rows)
        self._value(rows)
        self._read = fleet.changes.read()

    def whole_devices(self, rows: IndexArray, count: int, cost: IntArray) -> IntArray:
        """Return what `count` whole devices are worth plus `cost`, [row, host price]."""
        kinds, sizes, prices = self._together.shape
        left = np.maximum(np.arange(sizes) - count, 0)
        lost = self._together - self._together[:, left]
        lost += (count * self._worth_of_whole())[:, None] + cost
        free = np.minimum(self._fleet.whole_free[rows], sizes - 1)
        of_rows: IntArray = lost.reshape(kinds * sizes, prices)[
            self.kind_of_whole[rows] * sizes + free
        ]
        return of_rows

    def rooms(
        self, rows: IndexArray, request: Request, opened: IntArray | BoolArray | int
    ) -> IntArray:
        """Return what rows are worth as rooms after a pod that takes so many whole devices."""
        if not self._rooms.any:
            return np.zeros(len(rows), dtype=np.int64)
        fleet = self._fleet
        return self._rooms.worth(
            self._reserves[self.kind_of_whole[rows]],
            fleet.whole_free[rows] - opened,
            fleet.cpu_free[rows] - request.cpu_milli,
            fleet.memory_free[rows] - request.memory_mib,
        )

    def _worth_of_whole(self) -> IntArray:
        if self._memory_matters:
            return np.minimum(self._by_compute[:, CELLS], self._by_memory[:, CELLS])
        return self._by_compute[:, CELLS]

    def score_share(
        self, shape: Shape, rows: IndexArray, fits: BoolArray, left: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Score a share of one leaf: every leaf that fits is tried, equal ones once."""
        devices = shape.request.devices
        compute, memory, whole = self._state(rows)
        kind = self._kind[rows]
        state = (kind * (CELLS + 1) + compute) * (CELLS + 1) + memory
        equal = state[:, :, None] == state[:, None, :]
        earlier = np.tri(state.shape[1], k=-1, dtype=np.bool_)
        repeated = (equal & earlier & fits[:, None, :]).any(axis=2)
        which, leaf = np.nonzero(fits & ~repeated)
        lost = self._lost(shape, rows[which], leaf, kind[which, leaf])
        after = left[which] - lost
        opened = whole[which, leaf]
        after[opened] -= self._opened(rows[which[opened]], 1)
        score = np.full(fits.shape, np.iinfo(np.int64).min, dtype=np.int64)
        milli = self._milli(kind[which, leaf], devices.compute_milli, devices.memory_mib)
        charge = self.charge[kind[which, leaf]] * milli // WHOLE_COMPUTE_MILLI
        kept = self.rooms(rows[which], shape.request, opened)
        score[which, leaf] = _least(after) + kept - self.value[rows[which]] - charge
        best = score.argmax(axis=1)
        return score[np.arange(len(rows)), best], best

    def score_shares(
        self, shape: Shape, rows: IndexArray, fits: BoolArray, left: IntArray
    ) -> IntArray:
        """Score equal shares of several leaves: those that fit with least free are taken."""
        devices = shape.request.devices
        free = np.where(fits, self._fleet.leaf_compute_free[rows], np.iinfo(np.int64).max)
        taken = np.argsort(free, axis=1, kind="stable")[:, : devices.count]
        whole = np.take_along_axis(self._state(rows)[2], taken, axis=1)
        charge = np.zeros(len(rows), dtype=np.int64)
        for column in range(taken.shape[1]):
            leaf = taken[:, column]
            kind = self._kind[rows, leaf]
            left = left - self._lost(shape, rows, leaf, kind)
            milli = self._milli(kind, devices.compute_milli, devices.memory_mib)
            charge += self.charge[kind] * milli // WHOLE_COMPUTE_MILLI
        opened = whole.sum(axis=1)
        left -= self._opened(rows, opened)
        kept = self.rooms(rows, shape.request, opened)
        return _least(left) + kept - self.value[rows] - charge

    def _state(self, rows: IndexArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Return cells of compute and memory free, [row, column], and which leaves are whole."""
        fleet = self._fleet
        free, tenants = fleet.leaf_tenants_free[rows], fleet.leaf_tenants[rows]
        usable = free > 0
        compute = fleet.leaf_compute_free[rows] * usable
        compute = np.minimum(np.maximum(compute, 0), WHOLE_COMPUTE_MILLI)
        compute = compute * CELLS // WHOLE_COMPUTE_MILLI
        memory = compute
        if self._memory_matters:
            size = fleet.leaf_memory[rows]
            memory = np.maximum(fleet.leaf_memory_free[rows] * usable, 0)
            memory = np.where(size > 0, memory * CELLS // np.maximum(size, 1), CELLS * usable)
        whole = usable & (free == tenants) & (fleet.leaf_undivided[rows] > 0)
        return compute, memory, whole

    def _worth(self, kind: IntArray, compute: IntArray, memory: IntArray) -> IntArray:
        """Return what leaves in these states are worth, with an axis of host prices, last."""
        if self._memory_matters:
            return np.minimum(self._by_compute[kind, compute], self._by_memory[kind, memory])
        worth: IntArray = self._by_compute[kind, compute]
        return worth

    def _lost(self, shape: Shape, rows: IndexArray, leaf: IndexArray, kind: IntArray) -> IntArray:
        """Return what leaves lose to a share, [row, host price]."""
        fleet = self._fleet
        devices = shape.request.devices
        compute = fleet.leaf_compute_free[rows, leaf]
        memory = fleet.leaf_memory_free[rows, leaf]
        size = fleet.leaf_memory[rows, leaf]
        shared = fleet.leaf_tenants_free[rows, leaf] > 1

        def worth(compute: IntArray, memory: IntArray) -> IntArray:
            cells = np.clip(compute, 0, WHOLE_COMPUTE_MILLI) * CELLS // WHOLE_COMPUTE_MILLI
            part = np.clip(memory, 0, None) * CELLS // np.maximum(size, 1)
            return self._worth(kind, cells, np.where(size > 0, part, CELLS))

        after = worth(compute - devices.compute_milli, memory - devices.memory_mib)
        lost: IntArray = worth(compute, memory) - after * shared[:, None]
        return lost

    def _opened(self, rows: IndexArray, count: IntArray | int) -> IntArray:
        """Return what a node loses beyond its leaves by `count` fewer whole ones."""
        kind = self.kind_of_whole[rows]
        free = np.minimum(self._fleet.whole_free[rows], self._together.shape[1] - 1)
        left = np.maximum(free - count, 0)
        lost: IntArray = self._together[kind, free] - self._together[kind, left]
        return lost

    def _milli(self, kind: IntArray, compute_milli: int, memory_mib: int) -> IntArray:
        """Return the share of a device that counts, the larger of compute and memory."""
        if not memory_mib:
            return np.full(len(kind), compute_milli, dtype=np.int64)
        size = np.array([key[2] for key in ((0, 0, 0), *self._kinds)], dtype=np.int64)[kind]
        of_memory: IntArray = memory_mib * WHOLE_COMPUTE_MILLI // np.maximum(size, memory_mib)
        return np.maximum(of_memory, compute_milli)

    def _value(self, rows: IndexArray) -> None:
        fleet = self._fleet
        compute, memory, _ = self._state(rows)
        offers = self._values.hosts.cost(
            np.maximum(fleet.cpu_free[rows], 0), np.maximum(fleet.memory_free[rows], 0)
        )
        offers += self._worth(self._kind[rows], compute, memory).sum(axis=1)
        free = np.minimum(fleet.whole_free[rows], self._together.shape[1] - 1)
        offers += self._together[self.kind_of_whole[rows], free]
        self.offers[rows] = offers
        self.value[rows] = _least(offers) + self.rooms(rows, NOTHING, 0)

    def _read_kinds(self) -> None:
        """Find the kinds of leaves where nodes changed, and make tables for new ones."""
        fleet = self._fleet
        log = fleet.static_changes
        rows = log.since(self._static_read) if self._static_read >= 0 else None
        if rows is None:
            rows = np.arange(fleet.size)
        rows = np.unique(rows)
        facts = np.stack(
            [
                fleet.leaf_accelerator[rows],
                fleet.leaf_compute[rows],
                fleet.leaf_memory[rows],
                fleet.leaf_tenants[rows] > 1,
                fleet.leaf_undivided[rows],
            ],
            axis=2,
        )
        flat = facts.reshape(-1, facts.shape[2])
        different, where = np.unique(flat, axis=0, return_inverse=True)
        numbers = np.array([self._number(fact) for fact in different.tolist()], dtype=np.int64)
        self._kind[rows] = numbers[where.ravel()].reshape(facts.shape[:2])
        whole = fleet.leaf_undivided[rows] > 0
        first = whole.argmax(axis=1)
        found = np.where(whole.any(axis=1), self._kind[rows, first], 0)
        self.kind_of_whole[rows] = found
        self._static_read = log.read()

    def _number(self, fact: list[int]) -> int:
        accelerator, compute_milli, memory_mib, shared, undivided = fact
        if not accelerator or not compute_milli:
            return 0
        key = tuple(fact)
        if key not in self._kinds:
            names = {number: name for name, number in self._fleet.accelerator_ids.items()}
            kind = LeafKind(
                names[accelerator], compute_milli, memory_mib, bool(shared), bool(undivided)
            )
            self._kinds[key] = len(self._kinds) + 1
            self._add_tables(kind)
        return self._kinds[key]

    def _add_tables(self, kind: LeafKind) -> None:
        width = self._fleet.width
        tables = self._values.of(kind, width)
        self._by_compute = _with(self._by_compute, _padded(tables.by_compute, CELLS + 1))
        self._memory_matters |= tables.by_memory is not None
        unlimited = np.full_like(self._by_memory[0], np.iinfo(np.int64).max)
        by_memory = unlimited if tables.by_memory is None else tables.by_memory
        self._by_memory = _with(self._by_memory, by_memory)
        together = tables.together if kind.undivided else tables.together * 0
        size = max(width + 1, self._together.shape[1])
        old = np.stack([_padded(each, size) for each in self._together])
        self._together = _with(old, _padded(together, size))
        charge = self._values.scarcity_charge(kind.accelerator, WHOLE_COMPUTE_MILLI)
        self.charge = np.append(self.charge, charge)
        self._reserves = _with(self._reserves, self._rooms.on(kind.accelerator))


def _padded(table: IntArray, size: int) -> IntArray:
    """Return `table` with its last row repeated up to `size` rows."""
    return np.concatenate([table, np.repeat(table[-1:], size - len(table), axis=0)])


def _with(tables: IntArray, table: IntArray) -> IntArray:
    return np.concatenate([tables, table[None]])
