"""On which accelerators the pod sets of a workload may go that others make room for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product

from shoal.core.arrays.journal import IntArray
from shoal.core.arrays.shape import Shape
from shoal.core.entry import Entry
from shoal.core.eviction.victims import Victim
from shoal.core.tenancy.quota import without
from shoal.core.tenancy.ruled_out import wants
from shoal.core.world import World
from shoal.model.fractions import UNIT
from shoal.model.workload import Placement

MOST_SEVERAL = 16
"""Ways to put each pod set on an accelerator of its own that are looked at."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Accelerators, and the shapes of a workload each of whose pod sets may have one of them."""

    accelerators: tuple[str, ...]
    reclaimed: tuple[str, ...]
    """Those of them that other queues may have to give back."""
    shapes: tuple[Shape, ...]
    wanted: tuple[Shape, ...]
    """The shapes as the workload has them."""
    of_sets: tuple[str, ...]
    """The accelerator of each pod set, empty where it has no devices."""

    def could_fit(self, world: World, asker: Entry, freed: IntArray) -> bool:
        """Return whether there could be room if so many devices of each row were freed."""
        fleet = world.fleet
        if not all(shape.request.devices.whole for shape in self.shapes):
            return True
        devices = freed + fleet.whole_free[: fleet.size].clip(min=0)
        for shape, pod_set in zip(self.shapes, asker.workload.pod_sets, strict=True):
            count, rows = shape.request.devices.count, world.allowed_rows(shape)
            if count and int((devices[rows[: fleet.size]] // count).sum()) < pod_set.needed:
                return False
        return True

    def least_units(self, asker: Entry) -> dict[str, int]:
        """Return what a workload will hold at least, by accelerator, in units.

        Nothing where that is not certain: parts of a device do not add up.
        """
        units: dict[str, int] = {}
        for name, shape, pod_set in zip(
            self.of_sets, self.shapes, asker.workload.pod_sets, strict=True
        ):
            if not shape.request.devices.whole:
                return {}
            if name:
                devices = pod_set.needed * shape.request.devices.count
                units[name] = units.get(name, 0) + devices * UNIT
        return units

    def frees(self, asker: Entry, victim: Victim, pod: int) -> bool:
        """Return whether the workload may use the place of a pod that goes for it.

        Of other queues it takes nothing that they do not have to give back.
        """
        if self.accelerators == self.reclaimed:
            return True
        entry = victim.entry
        names = {charge.accelerator for charge in entry.charges[pod]}
        return entry.workload.queue == asker.workload.queue or names.issubset(self.reclaimed)


def on_one(world: World, wanted: Sequence[Shape]) -> Iterator[Choice]:
    """Yield each accelerator that would do for all pod sets."""
    would_do = _would_do(world, wanted)
    for name in world.fleet.accelerators() if any(would_do) else ():
        if all(name in each or not each for each in would_do):
            way = tuple(name if each else "" for each in would_do)
            yield Choice((name,), (name,), _shapes(world, wanted, way), tuple(wanted), way)


def on_several(world: World, wanted: Sequence[Shape]) -> Iterator[Choice]:
    """Yield the ways to put pod sets on different accelerators, and what may be reclaimed there.

    A queue may be within its guarantee on one and not on another, which is free.
    """
    would_do = _would_do(world, wanted)
    ways = product(*(each or [""] for each in would_do))
    several = (way for way in ways if len({name for name in way if name}) > 1)
    for way in islice(several, MOST_SEVERAL):
        accelerators = tuple(sorted({name for name in way if name}))
        shapes = _shapes(world, wanted, way)
        for count in range(len(accelerators), 0, -1):
            for reclaimed in combinations(accelerators, count):
                yield Choice(accelerators, reclaimed, shapes, tuple(wanted), way)


def shortages(
    world: World, asker: Entry, wanted: Sequence[Shape]
) -> list[tuple[frozenset[str], int]]:
    """Return how many whole devices a workload needs that are not free, at least.

    That is for each accelerator where every pod set wants one certain, else for all that would do
    together.
    """
    fleet = world.fleet
    would_do = [frozenset(each) for each in _would_do(world, wanted)]
    if any(len(each) > 1 for each in would_do):
        groups = [frozenset[str]().union(*would_do)]
    else:
        groups = list(dict.fromkeys(each for each in would_do if each))
    found = []
    for group in groups:
        pod_sets = [n for n, each in enumerate(would_do) if each and each <= group]
        needed = sum(
            asker.workload.pod_sets[n].needed * wanted[n].request.devices.count for n in pod_sets
        )
        free = fleet.whole_free[: fleet.size].clip(min=0)
        rows = sum(world.allowed_rows(wanted[n])[: fleet.size].astype(int) for n in pod_sets) > 0
        found.append((group, max(0, needed - int(free[rows].sum()))))
    return found


def short_first(
    candidates: Sequence[Victim], short: Sequence[tuple[frozenset[str], int]]
) -> list[Victim]:
    """Return these in such an order that what is short of each accelerator is freed first.

    Otherwise those who are cheap on one accelerator could use up what may go of a queue or by a
    budget, and none of the other would be left.
    """
    left = dict(short)
    first: list[Victim] = []
    rest: list[Victim] = []
    for victim in candidates:
        groups = [group for group in left if victim.lies_on(group) and left[group] > 0]
        (first if groups else rest).append(victim)
        for group in groups:
            left[group] -= max(1, victim.devices_of(group))
    return [*first, *rest]


def accelerators_of(world: World, placements: Sequence[Placement]) -> frozenset[str]:
    """Return the accelerators that these places have devices of."""
    fleet = world.fleet
    by_id = {number: name for name, number in fleet.accelerator_ids.items()}
    names = set()
    for placement in placements:
        row = fleet.row_of[placement.node]
        for leaf in placement.leaves:
            names.add(by_id[int(fleet.leaf_accelerator[row, fleet.leaves[row].index(leaf)])])
    return frozenset(names)


def _would_do(world: World, wanted: Sequence[Shape]) -> list[list[str]]:
    names = world.fleet.accelerators()
    return [[name for name in names if wants(shape.request.devices, name)] for shape in wanted]


def _shapes(world: World, wanted: Sequence[Shape], way: Sequence[str]) -> tuple[Shape, ...]:
    """Return the shapes of pod sets each of which may have one accelerator."""
    shapes = []
    for shape, name in zip(wanted, way, strict=True):
        others = [each for each in world.fleet.accelerators() if each != name]
        left = without(world, shape, others) if name else shape
        shapes.append(shape if left is None else left)
    return tuple(shapes)
