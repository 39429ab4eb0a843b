"""What the state of a leaf is worth: tables made from prices, in thousandths of a price unit.

What is left of a node can be used in many ways, and its CPU and memory limit which. The value of a
node is bounded from above as in Lagrangian relaxation: charge pods for host resources at some
price, let every leaf be filled as it pays best, and add what the host resources themselves are
worth at that price. The least of it over a list of host prices is a good estimate; so every table
has one entry per host price, and the node takes the minimum at the end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.core.arrays.journal import IntArray
from shoal.core.demand import ClassPrice, Prices
from shoal.model.node import WHOLE_COMPUTE_MILLI
from shoal.model.request import Request

CELLS = 100
"""Steps in which what is free on a leaf is told apart: a hundredth of a device."""

GIB_MIB = 1024
HIGHEST_CPU_PRICE = 500_000
"""Host prices per CPU end here: a device whose value two CPUs eat up."""

LOWEST_CPU_PRICE = 1_000
HIGHEST_MEMORY_PRICE = 125_000
"""Host prices per GiB end here: a device whose value eight GiB eat up."""

LOWEST_MEMORY_PRICE = 250

NEAR = 100_000
"""Shortfall from which on a class is not counted on for an accelerator; less counts in part."""

MOST_SCARCITY = 10_000
"""Scarcity counts up to ten times the devices that there are."""

SCARCITY_CHARGE = 35
"""Charge for a thousandth of a device per thousandth of scarcity of its accelerator, x 1000."""


@dataclass(frozen=True, slots=True)
class LeafKind:
    """Leaves that are worth the same in the same state."""

    accelerator: str
    compute_milli: int
    memory_mib: int
    shared: bool
    undivided: bool


@dataclass(frozen=True, slots=True)
class HostPrices:
    """Prices of host resources: per CPU and per GiB, in equally long lists."""

    cpu: IntArray
    memory: IntArray

    def cost(self, cpu_milli: IntArray | int, memory_mib: IntArray | int) -> IntArray:
        """Return what the resources cost at each price; arrays get an axis of prices, last."""
        if isinstance(cpu_milli, np.ndarray):
            cpu_milli = cpu_milli[..., None]
        if isinstance(memory_mib, np.ndarray):
            memory_mib = memory_mib[..., None]
        cost: IntArray = self.cpu * cpu_milli // 1000 + self.memory * memory_mib // GIB_MIB
        return cost


@dataclass(frozen=True, slots=True)
class LeafValues:
    """Values of a leaf kind by what is free, [cells, host price].

    `by_memory` is None where nobody asks for memory of devices.

    The leaf is worth the smaller of both: neither compute nor memory can be used alone.
    `together[u]` is what u leaves that are whole are worth beyond the sum of each, because some
    pods take several whole devices of one node.
    """

    by_compute: IntArray
    by_memory: IntArray | None
    together: IntArray


class Values:
    """Tables for one set of prices, made for a leaf kind when it is first seen."""

    def __init__(self, prices: Prices) -> None:
        self._classes = prices.classes
        self._memory_matters = any(
            each.demand.request.devices.memory_mib for each in prices.classes
        )
        self._scarcity = dict(prices.scarcity)
        self.hosts = _host_prices(prices.classes)

    def scarcity_charge(self, accelerator: str, milli: int) -> int:
        """Return the charge for so much of a device of this accelerator."""
        scarcity = min(self._scarcity.get(accelerator, 0), MOST_SCARCITY)
        return scarcity * milli * SCARCITY_CHARGE // 1000

    def of(self, kind: LeafKind, most_leaves: int) -> LeafValues:
        """Return the tables of a leaf kind, of which a node has at most `most_leaves`."""
        if not self._classes:
            return _without_prices(kind, most_leaves)
        single: list[_Item] = []
        several: dict[int, list[_Item]] = {}
        for each in self._classes:
            weight = _weight(each, kind)
            if weight:
                devices = each.demand.request.devices
                item = _Item(each, weight)
                if devices.whole and devices.count > 1:
                    several.setdefault(devices.count, []).append(item)
                else:
                    single.append(item)
        cells = kind.compute_milli * CELLS // WHOLE_COMPUTE_MILLI
        by_compute = self._table(kind, single, cells, memory=False)
        by_memory = None
        if self._memory_matters and kind.memory_mib:
            by_memory = self._table(kind, single, CELLS, memory=True)
        full = by_compute[-1] if by_memory is None else np.minimum(by_compute[-1], by_memory[-1])
        best = {count: _mean_gain(items, self.hosts, 1) for count, items in several.items()}
        together = np.zeros((most_leaves + 1, len(full)), dtype=np.int64)
        for u in range(1, most_leaves + 1):
            together[u] = together[u - 1] + full
            for count, gain in best.items():
                if count <= u:
                    np.maximum(together[u], together[u - count] + gain, out=together[u])
        together -= np.arange(most_leaves + 1)[:, None] * full
        return LeafValues(by_compute, by_memory, together)

    def _table(
        self, kind: LeafKind, items: "Iterable[_Item]", cells: int, *, memory: bool
    ) -> IntArray:
        """Fill a leaf as it pays best, by what is free: an unbounded knapsack per host price."""
        by_size: dict[int, list[_Item]] = {}
        for item in items:
            devices = item.price.demand.request.devices
            if devices.whole:
                size = cells
            elif memory:
                size = -(-devices.memory_mib * CELLS // kind.memory_mib)
            else:
                size = -(-devices.compute_milli * CELLS // WHOLE_COMPUTE_MILLI)
            by_size.setdefault(size, []).append(item)
        sizes = sorted(by_size)
        gains = np.array(
            [np.maximum(_mean_gain(by_size[size], self.hosts, None), 0) for size in sizes]
        ).reshape(len(sizes), len(self.hosts.cpu))
        worth = np.zeros((cells + 1, gains.shape[1]), dtype=np.int64)
        starts = np.array(sizes, dtype=np.int64)
        for free in range(cells + 1):
            fits = int(np.searchsorted(starts, free, side="right"))
            if free:
                worth[free] = worth[free - 1]
            if fits and kind.shared:
                used = np.maximum(starts[:fits], 1)
                rest = worth[np.maximum(free - used, 0)]
                np.maximum(worth[free], (gains[:fits] + rest).max(axis=0), out=worth[free])
            elif fits:
                np.maximum(worth[free], gains[:fits].max(axis=0), out=worth[free])
        return worth


@dataclass(frozen=True, slots=True)
class _Item:
    """A class that may use a leaf kind, and how much it counts there."""

    price: ClassPrice
    weight: int


def _weight(price: ClassPrice, kind: LeafKind) -> int:
    """Return how much a class counts on a leaf kind: all where it loses nothing by being there."""
    request = price.demand.request
    devices = request.devices
    if not devices.count:
        return 0
    if devices.accelerators and kind.accelerator not in devices.accelerators:
        return 0
    if devices.whole:
        if not kind.undivided:
            return 0
    elif devices.compute_milli > kind.compute_milli or devices.memory_mib > kind.memory_mib > 0:
        return 0
    shortfall = dict(price.shortfalls).get(kind.accelerator, 0)
    return 1 + max(0, NEAR - shortfall) * price.demand.weight


def _mean_gain(items: "Sequence[_Item]", hosts: HostPrices, per: int | None) -> IntArray:
    """Return what a pod of these classes is worth on average beyond its host resources.

    `per` is 1 for whole pods; None divides a pod by the leaves that it takes.
    """
    total = sum(item.weight for item in items)
    worth = cpu = memory = 0
    for item in items:
        request: Request = item.price.demand.request
        leaves = per or request.devices.count
        worth += item.weight * item.price.worth // leaves
        cpu += item.weight * request.cpu_milli // leaves
        memory += item.weight * request.memory_mib // leaves
    return worth // total - hosts.cost(cpu // total, memory // total)


def _host_prices(classes: Sequence[ClassPrice]) -> HostPrices:
    """Return the host prices looked at: first of CPU with free memory, then of memory.

    None is below what pods without devices would pay for the resource.
    """
    lowest_cpu = lowest_memory = 0
    for each in classes:
        request = each.demand.request
        if not request.devices.count:
            if request.cpu_milli:
                lowest_cpu = max(lowest_cpu, each.worth * 1000 // request.cpu_milli)
            if request.memory_mib:
                lowest_memory = max(lowest_memory, each.worth * GIB_MIB // request.memory_mib)
    if not classes:
        return HostPrices(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    cpu = _steps(lowest_cpu, LOWEST_CPU_PRICE, HIGHEST_CPU_PRICE)
    memory = _steps(lowest_memory, LOWEST_MEMORY_PRICE, HIGHEST_MEMORY_PRICE)
    return HostPrices(
        np.array(cpu + [0] * len(memory), dtype=np.int64),
        np.array([0] * len(cpu) + memory, dtype=np.int64),
    )


def _steps(lowest: int, first: int, highest: int) -> list[int]:
    """Return prices from `lowest` to `highest`, each twice the one before it."""
    steps = [lowest]
    price = first
    while price <= highest:
        if price > lowest:
            steps.append(price)
        price *= 2
    return steps


def _without_prices(kind: LeafKind, most_leaves: int) -> LeafValues:
    """Return values that gather pods while no demand is known.

    A leaf is worth the square of what is free, a node's whole leaves the square of their number:
    so small pods go where least is free, and whole nodes are broken last.
    """
    free = np.arange(kind.compute_milli * CELLS // WHOLE_COMPUTE_MILLI + 1, dtype=np.int64)
    by_compute = (free * free * 100)[:, None]
    by_memory = None
    if kind.memory_mib:
        free = np.arange(CELLS + 1, dtype=np.int64)
        by_memory = (free * free * kind.compute_milli // 10)[:, None]
    together = np.arange(most_leaves + 1, dtype=np.int64)
    return LeafValues(by_compute, by_memory, (together * together * 10_000)[:, None])
